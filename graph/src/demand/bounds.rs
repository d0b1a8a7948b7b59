//! How far indices reach.
//!
//! In: an index over variables, each of which is 0 or more, and below an extent where that is
//! known. Out: an extent that the index stays below.
//!
//! ```text
//! i0 * 2 + 1 with i0 < s  ->  s * 2        in0[i0]  ->  nothing is known
//! ```

use ansc_runtime::Extent;

use super::polynomial::{is_monotone, normal, sum, times};
use crate::expr::{BinOp, BufId, Expr, VarId};

/// Facts about variables and sizes.
pub(super) struct Known<'a> {
    /// The extent that a variable stays below.
    pub(super) below: &'a dyn Fn(VarId) -> Option<Extent>,
    /// The smallest size of each.
    pub(super) lows: &'a [i64],
}

impl Known<'_> {
    /// An extent that the index stays below.
    pub(super) fn below(&self, index: &Expr) -> Option<Extent> {
        sum(vec![self.most(index)?, Extent::Constant(1)])
    }

    /// The largest value that the index may have.
    fn most(&self, e: &Expr) -> Option<Extent> {
        match e {
            Expr::Const(value) => Some(Extent::Constant(value.as_i64())),
            Expr::Var(v) => sum(vec![(self.below)(*v)?, Extent::Constant(-1)]),
            Expr::Binary(BinOp::Add, a, b) => sum(vec![self.most(a)?, self.most(b)?]),
            // The subtrahend is 0 or more.
            Expr::Binary(BinOp::Sub, a, b) => match b.as_const() {
                Some(by) => sum(vec![self.most(a)?, Extent::Constant(by.as_i64().checked_neg()?)]),
                None if is_positive(b) => self.most(a),
                None => None,
            },
            Expr::Binary(BinOp::Mul, a, b) => match (a.as_const(), b.as_const()) {
                (_, Some(by)) if by.as_i64() >= 0 => times(self.most(a)?, by.as_i64()),
                (Some(by), _) if by.as_i64() >= 0 => times(self.most(b)?, by.as_i64()),
                _ => None,
            },
            Expr::Binary(BinOp::FloorDiv, a, b) => {
                let by = b.as_const()?.as_i64();
                let most = self.most(a).filter(|_| by > 0)?;
                normal(&Extent::Floor(Box::new(most), by))
            }
            Expr::Binary(BinOp::Min, a, b) => self.most(a).or_else(|| self.most(b)),
            Expr::Binary(BinOp::Max, a, b) => {
                let (a, b) = (self.most(a)?, self.most(b)?);
                self.larger(&a, &b)
            }
            _ => None,
        }
    }

    /// The one of two extents that is at least the other one at all sizes, if one is.
    pub(super) fn larger(&self, a: &Extent, b: &Extent) -> Option<Extent> {
        if self.exceeds(a, b)? {
            return Some(a.clone());
        }
        self.exceeds(b, a)?.then(|| b.clone())
    }

    /// Whether the first extent is known to be at least the second one at all sizes.
    fn exceeds(&self, a: &Extent, b: &Extent) -> Option<bool> {
        if let Extent::Min(parts) = b
            && parts.iter().any(|part| self.exceeds(a, part) == Some(true))
        {
            return Some(true);
        }
        let more = sum(vec![a.clone(), times(b.clone(), -1)?])?;
        Some(is_monotone(&more) && more.at(self.lows) >= Some(0))
    }
}

/// Whether it is a sum of variables and their multiples.
fn is_positive(e: &Expr) -> bool {
    match e {
        Expr::Var(_) => true,
        Expr::Const(value) => value.as_i64() >= 0,
        Expr::Binary(BinOp::Add | BinOp::Mul | BinOp::FloorDiv, a, b) => {
            is_positive(a) && is_positive(b)
        }
        _ => false,
    }
}

/// A number that consists of sizes, as an extent; `size` tells what buffers hold one.
pub fn extent_of(e: &Expr, size: &dyn Fn(BufId) -> Option<u32>) -> Option<Extent> {
    let both = |a: &Expr, b: &Expr| Some((extent_of(a, size)?, extent_of(b, size)?));
    normal(&match e {
        Expr::Const(value) => Extent::Constant(value.as_i64()),
        Expr::Load(buffer, _) => Extent::Size(size(*buffer)?),
        Expr::Binary(BinOp::Add, a, b) => {
            let (a, b) = both(a, b)?;
            Extent::Sum(vec![a, b])
        }
        Expr::Binary(BinOp::Sub, a, b) => {
            let (a, b) = both(a, b)?;
            Extent::Sum(vec![a, times(b, -1)?])
        }
        Expr::Binary(BinOp::Mul, a, b) => {
            let (a, b) = both(a, b)?;
            Extent::Product(vec![a, b])
        }
        Expr::Binary(BinOp::Min, a, b) => {
            let (a, b) = both(a, b)?;
            Extent::Min(vec![a, b])
        }
        Expr::Binary(BinOp::FloorDiv, a, b) => {
            let by = b.as_const()?.as_i64();
            Extent::Floor(Box::new(extent_of(a, size).filter(|_| by > 0)?), by)
        }
        _ => return None,
    })
}
