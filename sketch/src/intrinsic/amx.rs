//! AMX: tiles of up to 16 rows of 64 bytes, and products of two of them.
//!
//! A tile is a part of a buffer of the scope `Fragment`. Factors hold groups of as many terms as
//! fit four bytes: pairs of `bf16`, or four bytes.
//!
//! ```text
//! amx_zero_f32_14           c[i, j] = 0                         14 rows of 16 sums
//! amx_rows_bf16_14x16_s1    a[i, g, p] = memory[i, 2 g + p]     14 rows of 16 pairs
//! amx_rows_bf16_14x16_s2    a[i, g, p] = memory[2 i, 2 g + p]   every second row
//! amx_rows_bf16_14x14_d8    a[i, g, p] = memory[8 i + 2 g + p]    rows that begin 8 elements apart
//! amx_panel_bf16_16         b[g, j, p] = memory[g, j, p]        16 pairs of 16 columns
//! amx_dot_bf16_bf16_14x16   c[i, j] += a[i, g, p] * b[g, j, p]
//! amx_store_f32_14          memory[i, j] = c[i, j]
//! ```
//!
//! Sums of bytes are `i32`: `amx_dot_u8_i8_14x16`, `amx_zero_i32_14`.

use ansc_graph::{Combiner, Expr, Scalar, TensorType};
use ansc_runtime::DType;

use super::description::{Operand, description};
use super::factors::{Factors, sum_named};
use super::{Intrinsic, IntrinsicError, Native, NativeOp, Unit};
use crate::program::IterKind::{Reduce, Spatial};

/// Columns of sums: 64 bytes of four each.
pub const COLUMNS: usize = 16;
/// Rows of any tile.
pub const ROWS: usize = 16;
/// Distances between the rows that one instruction loads, in rows of the buffer.
pub const STEPS: usize = 4;
/// The same for rows that overlap or follow each other in one line, in elements.
pub const APART: usize = 1024;

/// How far the rows are apart that one instruction loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apart {
    /// In rows of the buffer.
    Rows(usize),
    /// In elements of a row of the buffer.
    Elements(usize),
}

/// An instruction on tiles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AmxOp {
    /// Sums become zero.
    Zero,
    /// A tile of a factor comes from memory: rows of the first one, or groups of the second one.
    Load,
    /// Products of the bytes or halves of two tiles are added to sums.
    Dot([DType; 2]),
    /// Sums go to memory.
    Store,
}

const FACTORS: Factors = Factors(&[DType::BF16]);

/// The type of sums of products, if there is an instruction for them.
pub fn sum_of(factors: [DType; 2]) -> Option<DType> {
    FACTORS.sum_of(factors)
}

/// Terms in a group.
pub fn group(factor: DType) -> usize {
    4 / factor.size()
}

/// Names of the instructions that a product of `rows` by `groups` of terms takes.
pub struct Names {
    /// Types of the factors.
    pub factors: [DType; 2],
    /// Rows of the first factor and of sums.
    pub rows: usize,
    /// Groups of terms.
    pub groups: usize,
    /// The distance between rows of the first factor.
    pub apart: Apart,
}

impl Names {
    fn sum(&self) -> &'static str {
        sum_of(self.factors).map_or("none", DType::name)
    }

    /// Sums become zero.
    pub fn zero(&self) -> String {
        format!("amx_zero_{}_{}", self.sum(), self.rows)
    }

    /// Rows of the first factor.
    pub fn load_rows(&self) -> String {
        let Names { factors, rows, groups, apart } = self;
        format!("amx_rows_{}_{rows}x{groups}_{apart}", factors[0].name())
    }

    /// Groups of the second factor.
    pub fn load_panel(&self) -> String {
        format!("amx_panel_{}_{}", self.factors[1].name(), self.groups)
    }

    /// The product.
    pub fn dot(&self) -> String {
        let [a, b] = self.factors.map(DType::name);
        format!("amx_dot_{a}_{b}_{}x{}", self.rows, self.groups)
    }

    /// Sums to memory.
    pub fn store(&self) -> String {
        format!("amx_store_{}_{}", self.sum(), self.rows)
    }
}

impl Apart {
    fn named(text: &str) -> Option<Apart> {
        let (kind, number) = text.split_at_checked(1)?;
        let number = number.parse().ok()?;
        let apart = match kind {
            "s" if (1..=STEPS).contains(&number) => Apart::Rows(number),
            "d" if (1..=APART).contains(&number) => Apart::Elements(number),
            _ => return None,
        };
        (apart.to_string() == text).then_some(apart)
    }
}

impl std::fmt::Display for Apart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Apart::Rows(n) => write!(f, "s{n}"),
            Apart::Elements(n) => write!(f, "d{n}"),
        }
    }
}

/// The instruction of that name, if there is one.
pub(super) fn named(name: &str) -> Option<Result<Intrinsic, IntrinsicError>> {
    let mut words = name.strip_prefix("amx_")?.split('_');
    let op = words.next()?;
    let words: Vec<&str> = words.collect();
    match (op, words.as_slice()) {
        ("zero", [sum, rows]) => Some(zero(name, sum_named(sum)?, length(rows)?)),
        ("store", [sum, rows]) => Some(store(name, sum_named(sum)?, length(rows)?)),
        ("rows", [dtype, size, apart]) => {
            Some(load_rows(name, FACTORS.named(dtype)?, size_of(size)?, Apart::named(apart)?))
        }
        ("panel", [dtype, groups]) => {
            Some(load_panel(name, FACTORS.named(dtype)?, length(groups)?))
        }
        ("dot", [a, b, size]) => dot(name, [FACTORS.named(a)?, FACTORS.named(b)?], size_of(size)?),
        _ => None,
    }
}

fn size_of(text: &str) -> Option<(usize, usize)> {
    let (rows, groups) = text.split_once('x')?;
    Some((length(rows)?, length(groups)?))
}

/// Rows of a tile in as many digits as they take, so that an instruction has one name.
fn length(text: &str) -> Option<usize> {
    let n = text.parse().ok().filter(|n| (1..=ROWS).contains(n))?;
    (n.to_string() == text).then_some(n)
}

/// The unit that products of a type are done by.
fn unit(dtype: DType) -> Unit {
    match dtype {
        DType::BF16 | DType::F32 => Unit::AmxBf16,
        _ => Unit::AmxInt8,
    }
}

type Made = Result<Intrinsic, IntrinsicError>;

fn native(op: AmxOp, unit: Unit, cycles: f64) -> Native {
    Native { op: NativeOp::Amx(op), unit, cycles }
}

fn zero(name: &str, sum: DType, rows: usize) -> Made {
    let c = Operand::plain(sum, &[(rows, 0), (COLUMNS, 1)]);
    let value = Expr::Const(Scalar::zero(sum));
    let nest = description(&[(rows, Spatial), (COLUMNS, Spatial)], [], c, None, |_| value);
    Intrinsic::native(name, nest, native(AmxOp::Zero, unit(sum), 1.0))
}

fn store(name: &str, sum: DType, rows: usize) -> Made {
    let [c, memory] = [(); 2].map(|()| Operand::plain(sum, &[(rows, 0), (COLUMNS, 1)]));
    let axes = [(rows, Spatial), (COLUMNS, Spatial)];
    let nest = description(&axes, [c], memory, None, |[c]| c);
    Intrinsic::native(name, nest, native(AmxOp::Store, unit(sum), 16.0))
}

fn load_rows(name: &str, dtype: DType, (rows, groups): (usize, usize), apart: Apart) -> Made {
    let q = group(dtype);
    let term = Expr::var(1) * Expr::index(q) + Expr::var(2);
    let row = |step: usize| Expr::var(0) * Expr::index(step);
    let (shape, at) = match apart {
        Apart::Rows(step) => (vec![(rows - 1) * step + 1, groups * q], vec![row(step), term]),
        Apart::Elements(n) => (vec![(rows - 1) * n + groups * q], vec![row(n) + term]),
    };
    let memory = Operand { ty: TensorType::new(dtype, shape), at };
    let tile = Operand::plain(dtype, &[(rows, 0), (groups, 1), (q, 2)]);
    let axes = [(rows, Spatial), (groups, Spatial), (q, Spatial)];
    let nest = description(&axes, [memory], tile, None, |[x]| x);
    Intrinsic::native(name, nest, native(AmxOp::Load, unit(dtype), 8.0))
}

fn load_panel(name: &str, dtype: DType, groups: usize) -> Made {
    let axes = [groups, COLUMNS, group(dtype)].map(|n| (n, Spatial));
    let whole = [(groups, 0), (COLUMNS, 1), (group(dtype), 2)];
    let [memory, tile] = [(); 2].map(|()| Operand::plain(dtype, &whole));
    let nest = description(&axes, [memory], tile, None, |[x]| x);
    Intrinsic::native(name, nest, native(AmxOp::Load, unit(dtype), 8.0))
}

fn dot(name: &str, factors: [DType; 2], (rows, groups): (usize, usize)) -> Option<Made> {
    let ([x, y], q, sum) = (factors, group(factors[0]), sum_of(factors)?);
    let a = Operand::plain(x, &[(rows, 0), (groups, 2), (q, 3)]);
    let b = Operand::plain(y, &[(groups, 2), (COLUMNS, 1), (q, 3)]);
    let c = Operand::plain(sum, &[(rows, 0), (COLUMNS, 1)]);
    let axes = [(rows, Spatial), (COLUMNS, Spatial), (groups, Reduce), (q, Reduce)];
    let nest = description(&axes, [a, b], c, Some(Combiner::Sum), |[a, b]| {
        Expr::cast(x, sum, a) * Expr::cast(y, sum, b)
    });
    let native = native(AmxOp::Dot(factors), unit(x), 16.0);
    Some(Intrinsic::native(name, nest, native))
}
