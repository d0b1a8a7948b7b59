//! Contents of constants: written out where they are few or all alike, by hash otherwise.
//!
//! ```text
//! [1.0, -2.5]    [0.5 x 4096]    @0x1f0d86a1c2a4a7e0
//! ```

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use ansc_runtime::{DType, Tensor};
use xxhash_rust::xxh3::Xxh3;

use super::cursor::{Cursor, Result};
use super::error::Cause;
use super::token::Token;
use crate::compute::TensorType;
use crate::graph::Graph;
use crate::op::Op;
use crate::scalar::Scalar;
use crate::tensors::uniform;

/// Constants of more elements are references, unless all elements are equal.
const INLINE: usize = 16;

/// Gives the contents of constants that a text only refers to.
pub trait Constants {
    /// The constant of that hash, if it is known.
    fn get(&self, hash: u64) -> Option<Arc<Tensor>>;
}

/// For texts that hold all of their constants.
pub struct NoConstants;

impl Constants for NoConstants {
    fn get(&self, _hash: u64) -> Option<Arc<Tensor>> {
        None
    }
}

/// Constants by hash.
#[derive(Clone, Default, Debug)]
pub struct Table(BTreeMap<u64, Arc<Tensor>>);

impl Constants for Table {
    fn get(&self, hash: u64) -> Option<Arc<Tensor>> {
        self.0.get(&hash).cloned()
    }
}

impl Table {
    /// All constants of a graph and of the bodies in it.
    pub fn of(graph: &Graph) -> Table {
        let mut table = Table::default();
        table.add_all(graph);
        table
    }

    /// Adds one constant.
    pub fn add(&mut self, tensor: &Arc<Tensor>) {
        self.0.insert(hash(tensor), tensor.clone());
    }

    fn add_all(&mut self, graph: &Graph) {
        for node in graph.node_ids() {
            match &graph.node(node).op {
                Op::Const(tensor) | Op::Input { bound: Some(tensor) } => self.add(tensor),
                Op::If(op) => {
                    self.add_all(&op.then_branch);
                    self.add_all(&op.else_branch);
                }
                Op::Loop(op) => self.add_all(&op.body),
                Op::Input { bound: None } | Op::Compute(_) | Op::Host(_) => {}
            }
        }
    }
}

/// By element type, shape and contents.
pub fn hash(tensor: &Tensor) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(TensorType::of(tensor).to_string().as_bytes());
    hasher.update(tensor.bytes());
    hasher.digest()
}

pub(super) fn print(out: &mut dyn Write, tensor: &Tensor) -> fmt::Result {
    match inline(tensor) {
        Some(text) => out.write_str(&text),
        None => write!(out, "@0x{:016x}", hash(tensor)),
    }
}

/// The contents as text, if it is short and nothing is lost (as the payload of a NaN is).
fn inline(tensor: &Tensor) -> Option<String> {
    let elements: Vec<Scalar> = match uniform(tensor) {
        _ if tensor.len() <= INLINE => (0..tensor.len()).map(|i| Scalar::at(tensor, i)).collect(),
        Some(value) => vec![value],
        None => return None,
    };
    let keeps = |s: &Scalar| s.to_string().parse() == Ok(*s);
    let digits: Vec<String> = elements.iter().map(|s| digits(*s)).collect();
    let times = if elements.len() == tensor.len() { "" } else { &format!(" x {}", tensor.len()) };
    elements.iter().all(keeps).then(|| format!("[{}{times}]", digits.join(", ")))
}

/// A constant without its type.
fn digits(value: Scalar) -> String {
    let text = value.to_string();
    text.strip_suffix(&format!("_{}", value.dtype())).map(str::to_owned).unwrap_or(text)
}

/// A tensor of these elements, or of this one in every place.
fn filled(ty: &TensorType, elements: &[Scalar]) -> Option<Tensor> {
    let mut bytes = Vec::with_capacity(ty.bytes());
    let times = if elements.len() == ty.len() { 1 } else { ty.len() };
    let each: Vec<Vec<u8>> = elements.iter().map(|s| bytes_of(*s)).collect();
    (0..times).for_each(|_| each.iter().for_each(|e| bytes.extend_from_slice(e)));
    Tensor::from_bytes(ty.dtype, &ty.shape, &bytes).ok()
}

fn bytes_of(value: Scalar) -> Vec<u8> {
    let (int, float) = (value.as_i64(), value.as_f64());
    match value.dtype() {
        DType::Bool | DType::U8 | DType::I8 => vec![int as u8],
        DType::U16 | DType::I16 => (int as u16).to_ne_bytes().to_vec(),
        DType::U32 | DType::I32 => (int as u32).to_ne_bytes().to_vec(),
        DType::U64 | DType::I64 => int.to_ne_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(float).to_ne_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(float).to_ne_bytes().to_vec(),
        DType::F32 => (float as f32).to_ne_bytes().to_vec(),
        DType::F64 => float.to_ne_bytes().to_vec(),
    }
}

pub(super) fn read(
    cursor: &mut Cursor,
    ty: &TensorType,
    constants: &dyn Constants,
) -> Result<Arc<Tensor>> {
    if cursor.at_mark('@') {
        return reference(cursor, ty, constants);
    }
    let place = cursor.place();
    cursor.mark('[')?;
    let mut repeated = false;
    let elements = cursor.list(']', |c| {
        let value = element(c, ty.dtype)?;
        if c.take_word("x") {
            repeated = true;
            let place = c.place();
            let found: usize = c.number("a number of elements")?;
            if found != ty.len() {
                return Err(c.error_at(place, Cause::Elements { ty: ty.clone(), found }));
            }
        }
        Ok(value)
    })?;
    let counts_agree = elements.len() == if repeated { 1 } else { ty.len() };
    match counts_agree.then(|| filled(ty, &elements)).flatten() {
        Some(tensor) => Ok(Arc::new(tensor)),
        None => {
            let found = elements.len();
            Err(cursor.error_at(place, Cause::Elements { ty: ty.clone(), found }))
        }
    }
}

fn element(cursor: &mut Cursor, dtype: DType) -> Result<Scalar> {
    let place = cursor.place();
    let token = cursor.next();
    let typed = match &token {
        Token::Number(digits) => format!("{digits}_{dtype}"),
        Token::Word(word) if dtype == DType::Bool => word.clone(),
        Token::Word(word) => format!("{word}_{dtype}"),
        _ => String::new(),
    };
    let value = typed.parse::<Scalar>().ok().filter(|s| s.dtype() == dtype);
    value.ok_or_else(|| {
        let found = super::token::expected(format!("an element of {dtype}"), &token);
        cursor.error_at(place, found)
    })
}

/// `@0x1f0d86a1c2a4a7e0`
fn reference(
    cursor: &mut Cursor,
    ty: &TensorType,
    constants: &dyn Constants,
) -> Result<Arc<Tensor>> {
    let place = cursor.place();
    cursor.mark('@')?;
    let digits = match cursor.peek() {
        Token::Number(digits) => digits.strip_prefix("0x"),
        _ => None,
    };
    let hash = digits.and_then(|d| u64::from_str_radix(d, 16).ok());
    let hash = hash.ok_or_else(|| cursor.expected("a hash"))?;
    cursor.next();
    let unknown = Cause::UnknownConstant { hash, ty: ty.clone() };
    let tensor = constants.get(hash).ok_or_else(|| cursor.error_at(place, unknown))?;
    let found = TensorType::of(&tensor);
    if found != *ty {
        let cause = Cause::WrongConstant { hash, expected: ty.clone(), found };
        return Err(cursor.error_at(place, cause));
    }
    Ok(tensor)
}
