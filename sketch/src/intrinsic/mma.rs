//! `mma.sync`: the threads of a warp multiply two small matrices together.
//!
//! Fragments are spread over the 32 lanes of the warp, each of which holds some elements in its
//! registers: the last two axes of a fragment are the lane and the element that it holds. A
//! register has room for `w` elements of a factor: an `f32`, two halves or four bytes; an
//! instruction sums eight such words.
//!
//! ```text
//! mma_zero_f32         c[lane, e] = 0                          16 rows, 8 columns
//! mma_rows_f16         a[lane, e] = memory[i, k]               16 rows, 8 w terms side by side
//! mma_rows_t_f16       a[lane, e] = memory[k, i]               rows side by side
//! mma_columns_f16      b[j // 8, lane, e] = memory[k, j]       16 columns side by side
//! mma_columns_t_f16    b[j // 8, lane, e] = memory[j, k]       terms side by side
//! mma_dot_f16_f16      c[lane, e] += a[lane, e] * b[lane, e]   16 rows, 8 columns, 8 w terms
//! ```
//!
//! Where the elements of a fragment are (PTX ISA, "Matrix fragments for mma.m16n8k16" and others):
//!
//! ```text
//! c[i, j]   lane = i % 8 * 4 + j // 2          e = i // 8 * 2 + j % 2
//! a[i, k]   lane = i % 8 * 4 + k // w % 4      e = (k // w // 4 * 2 + i // 8) * w + k % w
//! b[k, j]   lane = j % 8 * 4 + k // w % 4      e = k // w // 4 * w + k % w
//! ```

use ansc_graph::{Combiner, Expr, Scalar, TensorType};
use ansc_runtime::DType;

use super::description::{Operand, description};
use super::factors::{self, Factors, sum_named};
use super::{Intrinsic, IntrinsicError, Native, NativeOp, Unit};
use crate::index_map::IndexMap;
use crate::program::IterKind::{Reduce, Spatial};

/// Threads of a warp.
pub const LANES: usize = 32;
/// Rows of the first factor and of sums.
pub const ROWS: usize = 16;
/// Columns of sums.
pub const COLUMNS: usize = 8;
/// Columns of the second factor that are loaded together.
pub const LOADED: usize = 16;
/// Words of each row that one instruction sums.
const WORDS: usize = 8;
/// Words of a row that neighbouring lanes hold.
const LANES_OF_ROW: i64 = 4;
/// Rows between those that a lane holds.
const ROWS_APART: i64 = 8;

/// An instruction of a warp.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MmaOp {
    /// Sums become zero.
    Zero,
    /// A part of a factor comes from shared memory.
    Load {
        /// Which of both factors it is.
        side: Side,
        /// Whether terms do not lie side by side in memory.
        across: bool,
    },
    /// Products of two fragments are added to sums.
    Dot([DType; 2]),
}

/// One of the factors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The first one.
    Rows,
    /// The second one.
    Columns,
}

const FACTORS: Factors = Factors(&[DType::F16, DType::BF16, DType::F32]);

/// The type of sums of products, if there is an instruction for them.
pub fn sum_of(factors: [DType; 2]) -> Option<DType> {
    FACTORS.sum_of(factors)
}

/// An element of a factor, as an instruction reads it, in the type of its sums.
pub fn read(factor: DType, sum: DType, element: Expr) -> Expr {
    factors::read(factor, sum, element)
}

/// Elements in a register.
pub fn word(factor: DType) -> usize {
    4 / factor.size()
}

/// Terms that one instruction sums.
pub fn terms(factor: DType) -> usize {
    WORDS * word(factor)
}

/// Names of the instructions of a product.
#[derive(Clone, Copy)]
pub struct Names {
    /// Types of the factors.
    pub factors: [DType; 2],
}

impl Names {
    /// Sums become zero.
    pub fn zero(&self) -> String {
        format!("mma_zero_{}", sum_of(self.factors).map_or("none", DType::name))
    }

    /// A part of a factor comes from memory.
    pub fn load(&self, side: Side, across: bool) -> String {
        let (words, factor) = match side {
            Side::Rows => (["rows", "rows_t"], self.factors[0]),
            Side::Columns => (["columns_t", "columns"], self.factors[1]),
        };
        format!("mma_{}_{}", words[usize::from(across)], factor.name())
    }

    /// The product.
    pub fn dot(&self) -> String {
        let [a, b] = self.factors.map(DType::name);
        format!("mma_dot_{a}_{b}")
    }
}

/// Where a matrix of sums, `.., i, j`, lies in fragments: `.., i // 16, j // 8, lane, e`.
pub fn sums_in_fragments(rank: usize) -> Option<IndexMap> {
    let (i, j) = (Expr::var(rank - 2), Expr::var(rank - 1));
    in_fragments(rank, [(&i, ROWS), (&j, COLUMNS)], in_sums(&i, &j))
}

/// The same of the first factor, `.., i, k`.
pub fn rows_in_fragments(rank: usize, dtype: DType, across: bool) -> Option<IndexMap> {
    let (i, k) = at(rank, across);
    in_fragments(rank, [(&i, ROWS), (&k, terms(dtype))], in_rows(&i, &k, word(dtype)))
}

/// The same of the second factor, `.., k, j`: `.., k // (8 w), j // 8, lane, e`.
pub fn columns_in_fragments(rank: usize, dtype: DType, across: bool) -> Option<IndexMap> {
    let (j, k) = at(rank, across);
    in_fragments(rank, [(&k, terms(dtype)), (&j, COLUMNS)], in_columns(&k, &j, word(dtype)))
}

/// The row or column, and the term, of the last two axes.
fn at(rank: usize, across: bool) -> (Expr, Expr) {
    let (last, before) = (Expr::var(rank - 1), Expr::var(rank - 2));
    if across { (last, before) } else { (before, last) }
}

fn in_fragments(
    rank: usize,
    parts: [(&Expr, usize); 2],
    [lane, element]: [Expr; 2],
) -> Option<IndexMap> {
    let mut outputs: Vec<Expr> = (0..rank - 2).map(Expr::var).collect();
    outputs.extend(parts.map(|(at, length)| at.clone().floor_div(length as i64)));
    outputs.extend([lane, element]);
    IndexMap::new(rank, outputs).ok()
}

/// The lane and the element of it.
fn in_sums(i: &Expr, j: &Expr) -> [Expr; 2] {
    let row = i.clone().floor_mod(ROWS as i64);
    let column = j.clone().floor_mod(COLUMNS as i64);
    let lane =
        row.clone().floor_mod(ROWS_APART) * Expr::int(LANES_OF_ROW) + column.clone().floor_div(2);
    [lane, row.floor_div(ROWS_APART) * Expr::int(2) + column.floor_mod(2)]
}

fn in_rows(i: &Expr, k: &Expr, word: usize) -> [Expr; 2] {
    let row = i.clone().floor_mod(ROWS as i64);
    let half = row.clone().floor_div(ROWS_APART);
    let (w, k) = (word as i64, k.clone().floor_mod((WORDS * word) as i64));
    let lane = row.floor_mod(ROWS_APART) * Expr::int(LANES_OF_ROW)
        + k.clone().floor_div(w).floor_mod(LANES_OF_ROW);
    let far = k.clone().floor_div(LANES_OF_ROW * w);
    [lane, far * Expr::int(2 * w) + half * Expr::int(w) + k.floor_mod(w)]
}

fn in_columns(k: &Expr, j: &Expr, word: usize) -> [Expr; 2] {
    let (w, k) = (word as i64, k.clone().floor_mod((WORDS * word) as i64));
    let lane = j.clone().floor_mod(COLUMNS as i64) * Expr::int(LANES_OF_ROW)
        + k.clone().floor_div(w).floor_mod(LANES_OF_ROW);
    [lane, k.clone().floor_div(LANES_OF_ROW * w) * Expr::int(w) + k.floor_mod(w)]
}

/// The instruction of that name, if there is one.
pub(super) fn named(name: &str) -> Option<Result<Intrinsic, IntrinsicError>> {
    let words: Vec<&str> = name.strip_prefix("mma_")?.split('_').collect();
    match words[..] {
        ["zero", sum] => Some(zero(name, sum_named(sum)?)),
        ["rows", dtype] => Some(load(name, Side::Rows, FACTORS.named(dtype)?, false)),
        ["rows", "t", dtype] => Some(load(name, Side::Rows, FACTORS.named(dtype)?, true)),
        ["columns", dtype] => Some(load(name, Side::Columns, FACTORS.named(dtype)?, true)),
        ["columns", "t", dtype] => Some(load(name, Side::Columns, FACTORS.named(dtype)?, false)),
        ["dot", a, b] => dot(name, [FACTORS.named(a)?, FACTORS.named(b)?]),
        _ => None,
    }
}

type Made = Result<Intrinsic, IntrinsicError>;

/// A part of a fragment that one instruction uses.
fn fragment(dtype: DType, elements: usize, [lane, element]: [Expr; 2]) -> Operand {
    Operand { ty: TensorType::new(dtype, [LANES, elements]), at: vec![lane, element] }
}

fn native(op: MmaOp, cycles: f64) -> Native {
    Native { op: NativeOp::Mma(op), unit: Unit::Mma, cycles }
}

fn zero(name: &str, sum: DType) -> Made {
    let c = fragment(sum, ROWS * COLUMNS / LANES, in_sums(&Expr::var(0), &Expr::var(1)));
    let value = Expr::Const(Scalar::zero(sum));
    let nest = description(&[(ROWS, Spatial), (COLUMNS, Spatial)], [], c, None, |_| value);
    Intrinsic::native(name, nest, native(MmaOp::Zero, 1.0))
}

fn load(name: &str, side: Side, dtype: DType, across: bool) -> Made {
    let (w, k) = (word(dtype), terms(dtype));
    let length = if side == Side::Rows { ROWS } else { LOADED };
    let sizes = if across { [k, length] } else { [length, k] };
    let memory = Operand::plain(dtype, &[(sizes[0], 0), (sizes[1], 1)]);
    let (along, term) = if across { (1, 0) } else { (0, 1) };
    let (along, term) = (Expr::var(along), Expr::var(term));
    let held = match side {
        Side::Rows => fragment(dtype, ROWS * k / LANES, in_rows(&along, &term, w)),
        Side::Columns => {
            let elements = COLUMNS * k / LANES;
            let [lane, element] = in_columns(&term, &along, w);
            let ty = TensorType::new(dtype, [LOADED / COLUMNS, LANES, elements]);
            Operand { ty, at: vec![along.floor_div(COLUMNS as i64), lane, element] }
        }
    };
    let axes = sizes.map(|n| (n, Spatial));
    let nest = description(&axes, [memory], held, None, |[x]| x);
    Intrinsic::native(name, nest, native(MmaOp::Load { side, across }, 4.0))
}

fn dot(name: &str, factors: [DType; 2]) -> Option<Made> {
    let ([x, y], sum) = (factors, sum_of(factors)?);
    let (w, terms) = (word(x), terms(x));
    let [i, j, k] = [0, 1, 2].map(Expr::var);
    let a = fragment(x, ROWS * terms / LANES, in_rows(&i, &k, w));
    let b = fragment(y, COLUMNS * terms / LANES, in_columns(&k, &j, w));
    let c = fragment(sum, ROWS * COLUMNS / LANES, in_sums(&i, &j));
    let axes = [(ROWS, Spatial), (COLUMNS, Spatial), (terms, Reduce)];
    let nest = description(&axes, [a, b], c, Some(Combiner::Sum), |[a, b]| {
        factors::read(x, sum, a) * factors::read(y, sum, b)
    });
    Some(Intrinsic::native(name, nest, native(MmaOp::Dot(factors), 16.0)))
}

#[cfg(test)]
mod tests;
