//! A weight as integers of few bits with a zero point and scales, told by its expression.
//!
//! ```text
//! f32(sub(i32(in1[k, j]), 3)) * in2[k // 32, j]
//! =>
//! code i32(in1[k, j]) - -128, of 8 bits; zero point 131; scale in2[k // 32, j]; blocks of 32
//! ```
//!
//! Whatever lies between a constant and its integer (nibbles, a transpose) belongs to the code: its
//! expression is evaluated once, when the constant is prepared.

use ansc_graph::arith::gcd;
use ansc_graph::{BinOp, BufId, Compute, Expr, VarId};
use ansc_runtime::DType;

/// `(code + least - zero) * scales`; the zero point given here is that of the code itself.
pub(super) struct Factor {
    /// An `i32` in `0 .. 2^bits`, read from `buffer` alone.
    pub(super) code: Expr,
    pub(super) buffer: BufId,
    pub(super) bits: usize,
    pub(super) zero: Zero,
    pub(super) scales: Vec<Expr>,
    /// Terms that share a zero point and scales lie in blocks of so many; 0 where all share them.
    pub(super) block: usize,
}

/// The zero point that is subtracted from codes.
pub(super) enum Zero {
    Known(i64),
    /// An `i32`, and the least and the most that it may be.
    Integer(Expr, (i64, i64)),
    Float(Expr),
}

/// The axes that a weight is read along.
pub(super) struct Axes<'a> {
    pub(super) compute: &'a Compute,
    pub(super) column: VarId,
    pub(super) term: VarId,
}

/// An integer, and what is taken from it before it is a float.
struct Integer<'a> {
    code: &'a Expr,
    zero: Option<&'a Expr>,
}

impl Axes<'_> {
    /// None if the expression is anything else.
    pub(super) fn factor(&self, e: &Expr) -> Option<Factor> {
        let (mut scales, mut shift, mut at) = (vec![], None, e);
        let integer = loop {
            match at {
                Expr::Binary(BinOp::Mul, a, b) if shift.is_none() => {
                    let (rest, scale) = if self.is_steady(b) { (a, b) } else { (b, a) };
                    scales.push(self.is_steady(scale).then(|| (**scale).clone())?);
                    at = rest;
                }
                Expr::Binary(BinOp::Sub, a, zero) if shift.is_none() && self.is_steady(zero) => {
                    shift = Some(&**zero);
                    at = a;
                }
                Expr::Cast(DType::F32, x) if self.dtype(x).is_int() => break self.integer(x),
                _ => return None,
            }
        };
        let zero = match (shift, integer.zero) {
            (None, zero) => zero.map_or(Some(Zero::Known(0)), |zero| self.whole(zero)),
            (Some(shift), None) => Some(self.float(shift)),
            (Some(_), Some(_)) => None,
        }?;
        let (least, most) = self.range(integer.code)?;
        let bits = [2, 4, 8].into_iter().find(|bits| most - least < 1 << bits)?;
        let code = Expr::cast(self.dtype(integer.code), DType::I32, integer.code.clone());
        let buffer = self.only_load(&code)?;
        let mut block = 0;
        let steady = scales.iter().chain(zero.expr());
        steady.for_each(|e| block = gcd(block, self.block(e).unwrap_or(1)));
        Some(Factor {
            code: less(code, least),
            buffer,
            bits,
            zero: zero.less(least),
            scales,
            block,
        })
    }

    /// Whether the value is the same for the terms of a block, and for all rows.
    fn is_steady(&self, e: &Expr) -> bool {
        self.block(e).is_some()
    }

    /// Terms for which the value is the same at least; 0 if for all. None if it varies in another
    /// way.
    pub(super) fn block(&self, e: &Expr) -> Option<usize> {
        let (block, rest) = by_blocks(e, self.term);
        rest.vars().into_iter().all(|v| v == self.column).then_some(block)
    }

    /// The constant that is read, if it is one.
    pub(super) fn only_load(&self, e: &Expr) -> Option<BufId> {
        let mut loads = e.loads().into_iter().map(|(buffer, _)| buffer);
        let first = loads.next()?;
        loads.all(|buffer| buffer == first).then_some(first)
    }

    fn integer<'e>(&self, e: &'e Expr) -> Integer<'e> {
        match e {
            Expr::Binary(BinOp::Sub, code, zero)
                if self.dtype(e) == DType::I32 && self.is_steady(zero) =>
            {
                Integer { code, zero: Some(zero) }
            }
            _ => Integer { code: e, zero: None },
        }
    }

    fn whole(&self, zero: &Expr) -> Option<Zero> {
        match zero.as_const() {
            Some(known) => Some(Zero::Known(known.as_i64())),
            None => Some(Zero::Integer(zero.clone(), self.range(zero)?)),
        }
    }

    /// Floats that are integers are told as such.
    fn float(&self, zero: &Expr) -> Zero {
        let known = zero.as_const().map(|c| c.as_f64()).filter(|c| c.fract() == 0.0);
        if let Some(known) = known.filter(|c| c.abs() < f64::from(1 << 20)) {
            return Zero::Known(known as i64);
        }
        let integer = match zero {
            Expr::Cast(DType::F32, x) if self.dtype(x).is_int() => {
                self.whole(&Expr::cast(self.dtype(x), DType::I32, (**x).clone()))
            }
            _ => None,
        };
        integer.unwrap_or_else(|| Zero::Float(zero.clone()))
    }

    pub(super) fn dtype(&self, e: &Expr) -> DType {
        e.dtype(&|b| self.compute.buffer_type(b).dtype)
    }

    /// The least and the largest value that an integer may have. None if that is not known to be
    /// narrow.
    fn range(&self, e: &Expr) -> Option<(i64, i64)> {
        match e {
            Expr::Const(c) => Some((c.as_i64(), c.as_i64())),
            Expr::Load(buffer, _) => limits(self.compute.buffer_type(*buffer).dtype),
            Expr::Cast(to, x) if self.dtype(x).is_int() => {
                let of = |to| limits(to).unwrap_or((i64::from(i32::MIN), i64::from(i32::MAX)));
                let (least, most) = of(*to);
                match self.range(x) {
                    Some((a, b)) if least <= a && b <= most => Some((a, b)),
                    _ => limits(*to),
                }
            }
            Expr::Binary(op, a, b) => self.range_of(*op, a, b),
            _ => None,
        }
    }

    fn range_of(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<(i64, i64)> {
        let known = |e: &Expr| e.as_const().map(|c| c.as_i64()).filter(|&c| c >= 0);
        match op {
            BinOp::And => known(b).or_else(|| known(a)).map(|mask| (0, mask)),
            BinOp::Shr => self.range(a).filter(|&(least, _)| least >= 0).map(|(_, most)| (0, most)),
            BinOp::Xor => {
                let ((least, most), mask) = (self.range(a)?, known(b)?);
                let below = (most.max(mask).max(0) as u64 + 1).next_power_of_two();
                (least >= 0).then_some((0, below as i64 - 1))
            }
            BinOp::Add => {
                let ((a, b), (c, d)) = (self.range(a)?, self.range(b)?);
                Some((a.checked_add(c)?, b.checked_add(d)?))
            }
            BinOp::Sub => {
                let ((a, b), (c, d)) = (self.range(a)?, self.range(b)?);
                Some((a.checked_sub(d)?, b.checked_sub(c)?))
            }
            _ => None,
        }
    }
}

impl Zero {
    pub(super) fn expr(&self) -> Option<&Expr> {
        match self {
            Zero::Known(_) => None,
            Zero::Integer(e, _) | Zero::Float(e) => Some(e),
        }
    }

    /// The zero point of codes that are smaller by `least`.
    fn less(self, least: i64) -> Zero {
        match self {
            Zero::Known(zero) => Zero::Known(zero - least),
            Zero::Integer(e, range) => {
                Zero::Integer(less(e, least), (range.0 - least, range.1 - least))
            }
            Zero::Float(e) if least == 0 => Zero::Float(e),
            Zero::Float(e) => Zero::Float(e - Expr::float(DType::F32, least as f64)),
        }
    }
}

/// Terms that share the number of each block that a value is read by, 0 if it is read by none; and
/// the value of the first block.
pub(super) fn by_blocks(e: &Expr, term: VarId) -> (usize, Expr) {
    let mut block = 0;
    let first = e.rewrite(&mut |e| match e {
        Expr::Binary(BinOp::FloorDiv, x, n) if **x == Expr::Var(term) => {
            block = gcd(block, usize::try_from(n.as_const()?.as_i64()).ok()?);
            Some(Expr::int(0))
        }
        _ => None,
    });
    (block, first)
}

/// An `i32` without so much of it.
fn less(e: Expr, least: i64) -> Expr {
    if least == 0 { e } else { e - Expr::float(DType::I32, least as f64) }
}

fn limits(dtype: DType) -> Option<(i64, i64)> {
    match dtype {
        DType::U8 => Some((0, 255)),
        DType::I8 => Some((-128, 127)),
        _ => None,
    }
}
