//! Numbers that depend on sizes, as expressions.
//!
//! In: the function of the sizes that a number is. Out: an expression that loads the sizes that it
//! needs.
//!
//! ```text
//! 2 * s1 + 1, where b3 holds s1   ->   b3[] * 2 + 1
//! ```

use std::collections::BTreeMap;

use ansc_runtime::{DType, Extent};

use crate::expr::{BufId, Expr};
use crate::scalar::Scalar;

/// A number of an expression, as a function of sizes.
#[derive(Clone)]
pub(super) enum Formula {
    Whole(Extent),
    /// One by it.
    Reciprocal(Extent),
}

impl Formula {
    /// The extent that it depends on.
    pub(super) fn extent(&self) -> &Extent {
        match self {
            Formula::Whole(extent) | Formula::Reciprocal(extent) => extent,
        }
    }

    /// The number at these sizes.
    pub(super) fn at(&self, sizes: &[usize], dtype: DType) -> Option<Scalar> {
        let value = self.extent().at(&wide(sizes))?;
        Some(match self {
            Formula::Whole(_) => Scalar::from_i64(dtype, value),
            Formula::Reciprocal(_) => Scalar::from_f64(dtype, 1.0 / value as f64),
        })
    }
}

/// Sizes as extents take them.
pub(super) fn wide(sizes: &[usize]) -> Vec<i64> {
    sizes.iter().map(|s| *s as i64).collect()
}

/// The sizes that extents depend on, in order.
pub fn used<'e>(extents: impl Iterator<Item = &'e Extent>) -> Vec<usize> {
    Extent::used(extents)
}

/// The buffer that holds each size, where those that are used come after `own` others.
pub(super) fn slots(used: &[usize], own: usize) -> BTreeMap<usize, BufId> {
    used.iter().enumerate().map(|(i, size)| (*size, BufId::new(own + i))).collect()
}

/// The extent of other sizes: `to` tells which takes the place of each, if one does.
pub(crate) fn renumbered(extent: &Extent, to: &dyn Fn(u32) -> Option<usize>) -> Option<Extent> {
    let all = |parts: &[Extent]| -> Option<Vec<Extent>> {
        parts.iter().map(|part| renumbered(part, to)).collect()
    };
    Some(match extent {
        Extent::Constant(value) => Extent::Constant(*value),
        Extent::Size(size) => Extent::Size(to(*size)? as u32),
        Extent::Sum(parts) => Extent::Sum(all(parts)?),
        Extent::Product(parts) => Extent::Product(all(parts)?),
        Extent::Floor(of, by) => Extent::Floor(Box::new(renumbered(of, to)?), *by),
        Extent::Min(parts) => Extent::Min(all(parts)?),
    })
}

/// An extent as an `i64` expression. `slots` tells the buffer that holds each size.
pub fn expression(extent: &Extent, slots: &BTreeMap<usize, BufId>) -> Expr {
    let all = |parts: &[Extent], join: fn(Expr, Expr) -> Expr| {
        parts.iter().map(|part| expression(part, slots)).reduce(join)
    };
    match extent {
        Extent::Constant(value) => Expr::int(*value),
        Extent::Size(i) => Expr::Load(slots[&(*i as usize)], vec![]),
        Extent::Sum(parts) => all(parts, |a, b| a + b).unwrap_or_else(|| Expr::int(0)),
        Extent::Product(parts) => all(parts, |a, b| a * b).unwrap_or_else(|| Expr::int(1)),
        Extent::Floor(of, by) => expression(of, slots).floor_div(*by),
        Extent::Min(parts) => all(parts, Expr::min).unwrap_or_else(|| Expr::int(0)),
    }
}

/// A number of an expression, likewise.
pub(super) fn number(formula: &Formula, dtype: DType, slots: &BTreeMap<usize, BufId>) -> Expr {
    let cast = |e: &Extent| Expr::cast(DType::I64, dtype, expression(e, slots));
    match formula {
        Formula::Whole(extent) => cast(extent),
        Formula::Reciprocal(extent) => Expr::Const(Scalar::one(dtype)) / cast(extent),
    }
}
