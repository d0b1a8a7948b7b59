//! Activations as integers of 24 bits, a step for each block, and their digits as rows.
//!
//! ```text
//! largest[i, b]             max{k: 32} abs(x[i, b * 32 + k])
//! step[i, b]                max(largest[i, b], 1e-30) / 8323072
//! whole[i, b, k]: i32       round(x[i, b * 32 + k] / step[i, b])
//! digits[i * 3 + d, b, k]: i8   of whole[i, b, k] = digits[0] + 256 * digits[1] + 65536 * digits[2]
//! sums[r, b]                sum{k: 32} digits[r, b, k]
//! ```
//!
//! Activations that are integers of 8 bits times a step for each block are one digit as they are:
//!
//! ```text
//! x[i, k] = f32(q[i, k]) * step[i, k // 32]
//! => digits[i, b, k] = q[i, b * 32 + k]; steps[i, b] = step[i, b]
//! ```

use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Stage, TensorType, UnOp, VarId};
use ansc_runtime::DType;

use super::Product;
use super::factor::{Zero, by_blocks};
use crate::algorithm::Replacing;

/// Digits of an integer of 24 bits, each of which is a byte with a sign.
const DIGITS: usize = 3;
/// The largest integer: its digits, and those of one more, are bytes.
const LARGEST: f64 = (127 << 16) as f64;
/// Blocks of smaller activations are zeros: their step would not be a normal number.
const TINY: f64 = 1e-30;

/// Rows of digits, of a product whose other factor they replace.
pub(super) struct Rows {
    /// Extents of their axes: those of the product, the last one times the digits.
    pub(super) shape: Vec<usize>,
    /// Digits of each activation.
    count: usize,
    /// Whether the product has no axis of rows.
    alone: bool,
    pub(super) digits: BufId,
    pub(super) step: BufId,
    /// Sums of the digits of each block as floats; where the zero point is known, minus that times
    /// them, as integers.
    pub(super) sums: Option<BufId>,
}

impl Rows {
    /// Appends what makes them.
    pub(super) fn push(p: &Product, original: &Stage, compute: &mut Replacing<'_>) -> Rows {
        let (_, rows) = original.ty.shape.split_last().expect("an axis of columns");
        let mut made = match stepped(p, &compute.compute) {
            Some(bytes) => Rows::of_bytes(p, rows, bytes, compute),
            None => Rows::of_floats(p, rows, compute),
        };
        made.sums = made.sums_of(p).map(|sums| compute.push(sums));
        made
    }

    /// Each row of the product as so many, whose digits are not yet known.
    fn new(rows: &[usize], count: usize, [digits, step]: [BufId; 2]) -> Rows {
        let mut shape = rows.to_vec();
        match shape.last_mut() {
            Some(last) => *last *= count,
            None => shape.push(count),
        }
        Rows { shape, count, alone: rows.is_empty(), digits, step, sums: None }
    }

    fn of_bytes(p: &Product, rows: &[usize], x: Stepped, compute: &mut Replacing<'_>) -> Rows {
        let (block, n) = (Expr::var(rows.len()), rows.len());
        let of = |dtype, more: &[usize]| TensorType::new(dtype, [rows, &[p.blocks], more].concat());
        let q = element(p, DType::I8, &x.q, &block, &Expr::var(n + 1));
        let digits = compute.push(Stage::map("digits", of(DType::I8, &[p.block]), q));
        let first = block * Expr::index(p.block);
        let step = x.step.substitute(&|v| (v.index() == p.rank).then(|| first.clone()));
        let step = compute.push(Stage::map("steps", of(DType::F32, &[]), step));
        Rows::new(rows, 1, [digits, step])
    }

    fn of_floats(p: &Product, rows: &[usize], compute: &mut Replacing<'_>) -> Rows {
        let n = rows.len();
        let at: Vec<Expr> = (0..=n).map(Expr::var).collect();
        let of = |dtype, more: &[usize]| TensorType::new(dtype, [rows, &[p.blocks], more].concat());
        let term = Expr::unary(UnOp::Abs, element(p, DType::F32, &p.x, &at[n], &Expr::var(n + 1)));
        let ty = of(DType::F32, &[]);
        let largest = Stage::reduction("largest", ty.clone(), Combiner::Max, vec![p.block], term);
        let largest = Expr::Load(compute.push(largest), at.clone());
        let most = || largest.clone().max(Expr::float(DType::F32, TINY));
        let limit = || Expr::float(DType::F32, LARGEST);
        let step = compute.push(Stage::map("step", ty.clone(), most() / limit()));
        let inverse = compute.push(Stage::map("inverse", ty, limit() / most()));
        let whole =
            element(p, DType::F32, &p.x, &at[n], &Expr::var(n + 1)) * Expr::Load(inverse, at);
        let whole = Expr::Cast(DType::I32, Box::new(Expr::unary(UnOp::Round, whole)));
        let whole = compute.push(Stage::map("whole", of(DType::I32, &[p.block]), whole));
        let mut made = Rows::new(rows, DIGITS, [whole, step]);
        made.digits = compute.push(made.digits_of(p, whole));
        made
    }

    /// The axes of the product for a row.
    pub(super) fn origin(&self, row: &[Expr]) -> Vec<Expr> {
        match row.split_last() {
            Some((last, outer)) if !self.alone => {
                [outer, &[last.clone().floor_div(self.count as i64)]].concat()
            }
            _ => vec![],
        }
    }

    /// `(whole + bias) >> 8 d` as a byte, where the bias carries what lower digits round up.
    fn digits_of(&self, p: &Product, whole: BufId) -> Stage {
        let rank = self.shape.len();
        let at: Vec<Expr> = (0..rank + 2).map(Expr::var).collect();
        let whole = Expr::Load(whole, [&self.origin(&at[..rank])[..], &at[rank..]].concat());
        let digit = at[rank - 1].clone().floor_mod(DIGITS as i64);
        let int = |value: i64| Expr::float(DType::I32, value as f64);
        let bias = (1..DIGITS).fold(int(0), |bias, d| {
            let carried: i64 = (0..d).map(|lower| 128 << (8 * lower)).sum();
            Expr::select(digit.clone().eq(Expr::index(d)), int(carried), bias)
        });
        let amount = Expr::Cast(DType::I32, Box::new(digit * Expr::int(8)));
        let body = Expr::binary(BinOp::Shr, whole + bias, amount);
        let ty = TensorType::new(DType::I8, [&self.shape[..], &[p.blocks, p.block]].concat());
        Stage::map("digits", ty, Expr::Cast(DType::I8, Box::new(body)))
    }

    fn sums_of(&self, p: &Product) -> Option<Stage> {
        let rank = self.shape.len();
        let at: Vec<Expr> = (0..rank + 2).map(Expr::var).collect();
        let digit = |dtype| Expr::cast(DType::I8, dtype, Expr::Load(self.digits, at));
        let (dtype, body) = match p.weight.zero {
            Zero::Known(0) => return None,
            Zero::Known(zero) => {
                (DType::I32, digit(DType::I32) * Expr::float(DType::I32, -zero as f64))
            }
            Zero::Integer(..) | Zero::Float(_) => (DType::F32, digit(DType::F32)),
        };
        let ty = TensorType::new(dtype, [&self.shape[..], &[p.blocks]].concat());
        Some(Stage::reduction("sums", ty, Combiner::Sum, vec![p.block], body))
    }

    /// The rows of the product, of sums over rows of digits.
    pub(super) fn joined(&self, sums: BufId) -> Expr {
        let rows = self.shape.len() - usize::from(self.alone);
        let at = |digit: usize| {
            let mut row: Vec<Expr> = (0..rows).map(Expr::var).collect();
            match row.last_mut() {
                Some(last) => {
                    let first = last.clone() * Expr::index(self.count);
                    *last = if digit == 0 { first } else { first + Expr::index(digit) };
                }
                None => row.push(Expr::index(digit)),
            }
            Expr::Load(sums, [row, vec![Expr::var(rows)]].concat())
        };
        let place = |digit: usize| Expr::float(DType::F32, (1i64 << (8 * digit)) as f64);
        (1..self.count).fold(at(0), |sum, digit| sum + at(digit) * place(digit))
    }
}

/// Whether the other factor has one digit as it is.
pub(super) fn is_of_bytes(p: &Product, compute: &Compute) -> bool {
    stepped(p, compute).is_some()
}

/// Integers of 8 bits, and what they are multiplied by.
struct Stepped {
    q: Expr,
    step: Expr,
}

/// The other factor as bytes with a step that is the same for all of a block.
fn stepped(p: &Product, compute: &Compute) -> Option<Stepped> {
    let Expr::Binary(BinOp::Mul, a, b) = &p.x else { return None };
    let term = VarId::new(p.rank);
    [(a, b), (b, a)].into_iter().find_map(|(bytes, step)| {
        let Expr::Cast(DType::F32, q) = &**bytes else { return None };
        let is_byte = q.dtype(&|b| compute.buffer_type(b).dtype) == DType::I8;
        let (block, rest) = by_blocks(step, term);
        let fits = is_byte && block.is_multiple_of(p.block) && !rest.vars().contains(&term);
        fits.then(|| Stepped { q: (**q).clone(), step: (**step).clone() })
    })
}

/// Element `k` of a block of `x`, zero beyond the last one.
fn element(p: &Product, dtype: DType, x: &Expr, block: &Expr, k: &Expr) -> Expr {
    let term = block.clone() * Expr::index(p.block) + k.clone();
    let inside = term.clone().lt(Expr::index(p.terms));
    let value = x.substitute(&|v| (v.index() == p.rank).then(|| term.clone()));
    match p.blocks * p.block == p.terms {
        true => value,
        false => Expr::select(inside, value, Expr::float(dtype, 0.0)),
    }
}
