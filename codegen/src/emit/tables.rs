//! Lookups of values that depend on nothing but one byte.
//!
//! ```text
//! y[i] = u8(round(gelu(f32(q) * 0.03) / 0.02) + 10),  q = u8(round(f32(sum[i]) * 0.1) + 140)
//! =>
//! table = y for each of 256 bytes, when compiling;  y[i] = table[q]
//! ```
//!
//! Activations of quantised models are such functions: dequantised, computed and quantised again,
//! several times in a row. One lookup takes the place of all. Bytes of a vector are looked up in
//! registers where a processor has instructions for it, one by one elsewhere.

use std::collections::BTreeSet;

use ansc_graph::{BinOp, Compute, Expr, Stage, TensorType, UnOp, interp};
use ansc_runtime::{DType, Tensor};
use inkwell::IntPredicate;
use inkwell::module::Linkage;
use inkwell::values::PointerValue;

use crate::emit::function::{Emitter, Result};
use crate::ir::{Kind, Reg, lanes};
use crate::ops;

/// Bytes are as many.
const BYTES: usize = 256;
/// Bytes of the largest registers, and how many of them a table takes.
const REGISTER: usize = 64;
const REGISTERS: usize = BYTES / REGISTER;
/// Operations that take as long as a lookup: one of bytes in registers, and any other one.
const IN_REGISTERS: usize = 12;
const ONE_BY_ONE: usize = 40;

/// A function of one byte, whose load is the first input, and its table.
pub(crate) struct Table<'c> {
    function: Expr,
    at: PointerValue<'c>,
}

/// The bytes that an expression depends on.
enum Source<'e> {
    Nothing,
    /// This one alone, which is a byte.
    Byte(&'e Expr),
    More,
}

impl<'c> Emitter<'c, '_> {
    /// The value by a lookup. None where that is no faster.
    pub(crate) fn by_table(&mut self, e: &Expr) -> Result<Option<Reg<'c>>> {
        let is_leaf = matches!(e, Expr::Const(_) | Expr::Var(_) | Expr::Load(..));
        let has_bytes = || self.program.buffers.iter().any(|buffer| is_byte(buffer.ty.dtype));
        if is_leaf || self.is_gpu() || !has_bytes() {
            return Ok(None);
        }
        let Source::Byte(byte) = self.source_byte(e) else { return Ok(None) };
        if byte == e {
            return Ok(None);
        }
        let place = Expr::load(0, vec![Expr::var(0)]);
        let function = replaced(e, byte, &place);
        let (from, to) = (self.dtype(byte), self.dtype(e));
        let in_registers = to.size() == 1 && self.target.has("avx512vbmi");
        if weight(&function) < (if in_registers { IN_REGISTERS } else { ONE_BY_ONE }) {
            return Ok(None);
        }
        let at = self.table(function, [from, to])?;
        let byte = self.value(byte)?;
        Ok(Some(match (lanes(byte), in_registers) {
            (None, _) => self.looked_up(at, to, byte),
            (Some(count), true) if count as usize <= REGISTER => self.in_registers(at, byte, count),
            (Some(count), _) => {
                let all: Vec<Reg<'c>> = (0..count)
                    .map(|lane| self.looked_up(at, to, self.ir.lane(byte, lane)))
                    .collect();
                self.ir.join_lanes(&all)
            }
        }))
    }

    fn source_byte<'e>(&self, e: &'e Expr) -> Source<'e> {
        let is_byte = |e: &Expr| is_byte(self.dtype(e));
        match e {
            Expr::Const(_) => Source::Nothing,
            Expr::Var(_) => Source::More,
            Expr::Load(..) if is_byte(e) => Source::Byte(e),
            Expr::Load(..) => Source::More,
            _ => {
                let all = e.children().into_iter().map(|child| self.source_byte(child));
                match all.reduce(Source::and).unwrap_or(Source::Nothing) {
                    Source::More if is_byte(e) => Source::Byte(e),
                    source => source,
                }
            }
        }
    }

    /// The table of a function, which is made once.
    fn table(&mut self, function: Expr, [from, to]: [DType; 2]) -> Result<PointerValue<'c>> {
        if let Some(known) = self.tables.iter().find(|table| table.function == function) {
            return Ok(known.at);
        }
        let all = (0..=u8::MAX).collect::<Vec<u8>>();
        let mut bytes = Tensor::zeros(from, &[BYTES]);
        bytes.bytes_mut().copy_from_slice(&all);
        let stage = Stage::map("table", TensorType::new(to, [BYTES]), function.clone());
        let compute = Compute::single(vec![TensorType::new(from, [BYTES])], stage);
        let values = interp::eval(&compute, &[&bytes]).map_err(|e| e.to_string())?;
        let constant = self.ir.context.const_string(values[0].bytes(), false);
        let global = self.ir.module.add_global(constant.get_type(), None, "table");
        global.set_initializer(&constant);
        global.set_constant(true);
        global.set_unnamed_addr(true);
        global.set_linkage(Linkage::Private);
        global.set_alignment(REGISTER as u32);
        let at = global.as_pointer_value();
        self.tables.push(Table { function, at });
        Ok(at)
    }

    /// One element.
    fn looked_up(&self, table: PointerValue<'c>, to: DType, byte: Reg<'c>) -> Reg<'c> {
        let place = self.ir.resize(byte, 64, false).into_int_value();
        let bytes = self.ir.mul(place.into(), self.ir.int(64, to.size() as i64, None));
        let at = self.ir.offset(table, bytes.into_int_value());
        let stored = self.ir.load(self.ir.ty(ops::stored(to), None), at, to.size() as u32);
        ops::from_stored(&self.ir, self.target, to, stored)
    }

    /// Bytes by instructions that pick from two registers; the highest bit says from which two.
    fn in_registers(&self, table: PointerValue<'c>, byte: Reg<'c>, count: u32) -> Reg<'c> {
        let ir = &self.ir;
        let ty = ir.ty(Kind::Int(8), Some(REGISTER as u32));
        let part = |n: usize| {
            let at = ir.offset(table, ir.index((n * REGISTER) as i64));
            ir.load(ty, at, REGISTER as u32)
        };
        let parts: [Reg<'c>; REGISTERS] = std::array::from_fn(part);
        let spread: Vec<u32> = (0..REGISTER as u32).map(|lane| lane.min(count - 1)).collect();
        let places = ir.shuffle(byte, byte, &spread);
        let pick = |a: Reg<'c>, b: Reg<'c>| {
            ops::call(ir, "llvm.x86.avx512.vpermi2var.qi.512", &[a, places, b])
        };
        let [low, high] = [pick(parts[0], parts[1]), pick(parts[2], parts[3])];
        let is_high = ir.icmp(IntPredicate::SLT, places, ir.same(places, 0.0));
        let picked = ir.select(is_high, high, low);
        let first: Vec<u32> = (0..count).collect();
        ir.shuffle(picked, picked, &first)
    }
}

fn is_byte(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::I8)
}

impl<'e> Source<'e> {
    fn and(self, other: Source<'e>) -> Source<'e> {
        match (self, other) {
            (Source::Nothing, source) | (source, Source::Nothing) => source,
            (Source::Byte(a), Source::Byte(b)) if a == b => Source::Byte(a),
            _ => Source::More,
        }
    }
}

/// The expression with this for each copy of `byte`.
fn replaced(e: &Expr, byte: &Expr, by: &Expr) -> Expr {
    if e == byte { by.clone() } else { e.map_children(|child| replaced(child, byte, by)) }
}

/// Operations, each different one once, those that take long as so many.
fn weight(e: &Expr) -> usize {
    let mut all: BTreeSet<&Expr> = BTreeSet::new();
    e.visit(&mut |e| {
        all.insert(e);
    });
    all.into_iter().map(own_weight).sum()
}

fn own_weight(e: &Expr) -> usize {
    use UnOp::*;
    match e {
        Expr::Const(_) | Expr::Var(_) | Expr::Load(..) => 0,
        Expr::Unary(Neg | Abs | Sign | Not | Floor | Ceil | Round | Trunc, _) => 1,
        Expr::Unary(Sqrt, _) | Expr::Binary(BinOp::Div | BinOp::Rem, ..) => 5,
        Expr::Unary(..) | Expr::Binary(BinOp::Pow, ..) => 24,
        _ => 1,
    }
}
