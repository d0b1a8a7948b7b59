//! Rotary position embedding: pairs of features turned by an angle that grows with the position.
//!
//! ```text
//! y[b, h, s, d] = x[d] * cos[s, d] - x[d + half] * sin[s, d]          d < half
//!               = x[d] * cos[s, d - half] + x[d - half] * sin[s, d - half]   half <= d < 2 * half
//!               = x[d]                                                otherwise
//! ```
//! Interleaved, the pairs are `(0, 1), (2, 3), ..` instead of `(0, half), (1, half + 1), ..`.

use ansc_runtime::DType;

use super::OpError;
use super::stages::{Source, Stages, real};
use crate::compute::TensorType;
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};

/// Attributes of [`rotary`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotary {
    /// Whether the two features that turn together are neighbours, or else half of `dim` apart.
    pub interleaved: bool,
    /// Features that turn: the first ones, an even number.
    pub dim: usize,
}

/// `x[b, h, s, d]`; `cos` and `sin` are `[position, dim / 2]` with `positions` `[b, s]` (or one
/// offset for all, `[1]`), or `[b, s, dim / 2]` without.
pub fn rotary(
    attrs: Rotary,
    x: &TensorType,
    cos: &TensorType,
    sin: &TensorType,
    positions: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    check(attrs, x, cos, sin, positions)?;
    let inputs: Vec<&TensorType> = [x, cos, sin].into_iter().chain(positions).collect();
    let mut s = Stages::of(&inputs);
    let (x, cos, sin) = (s.source(0), s.source(1), s.source(2));
    let positions = positions.map(|_| s.source(3));
    let acc = x.dtype().accumulator();
    let half = (attrs.dim / 2) as i64;
    let y = s.map("rotary", x.ty().clone(), |i| {
        let d = &i[3];
        let feature = |d: Expr| x.at_as(acc, &[i[0].clone(), i[1].clone(), i[2].clone(), d]);
        let (pair, step, is_first) = match attrs.interleaved {
            true => (d.clone().floor_div(2), 1, d.clone().floor_mod(2).eq(Expr::int(0))),
            false => (d.clone().floor_mod(half), half, d.clone().lt(Expr::int(half))),
        };
        let angle = |table: &Source| {
            table.at_as(acc, &table_index(table.ty(), positions.as_ref(), i, pair.clone()))
        };
        let other = Expr::select(
            is_first,
            real(acc, 0.0) - feature(d.clone() + Expr::int(step)),
            feature(d.clone() - Expr::int(step)),
        );
        let turned = feature(d.clone()) * angle(&cos) + other * angle(&sin);
        let y = match attrs.dim == x.ty().shape[3] {
            true => turned,
            false => Expr::select(d.clone().lt(Expr::index(attrs.dim)), turned, feature(d.clone())),
        };
        Expr::cast(acc, x.dtype(), y)
    });
    Ok(s.finish(Kind::Other("RotaryEmbedding".into()), &[&y]))
}

/// Positions are data: they are kept within the table.
fn table_index(
    table: &TensorType,
    positions: Option<&Source>,
    i: &[Expr],
    pair: Expr,
) -> Vec<Expr> {
    let Some(positions) = positions else {
        return vec![i[0].clone(), i[2].clone(), pair];
    };
    let position = match positions.ty().rank() {
        1 => positions.at_as(DType::I64, &[Expr::int(0)]) + i[2].clone(),
        _ => positions.at_as(DType::I64, &[i[0].clone(), i[2].clone()]),
    };
    vec![position.max(Expr::int(0)).min(Expr::index(table.shape[0] - 1)), pair]
}

fn check(
    attrs: Rotary,
    x: &TensorType,
    cos: &TensorType,
    sin: &TensorType,
    positions: Option<&TensorType>,
) -> Result<(), OpError> {
    let &[batch, _, sequence, features] = x.shape.as_slice() else {
        let (what, expected) = ("the input of a rotary embedding", "4".into());
        return Err(OpError::Rank { what, expected, found: x.shape.clone() });
    };
    let half = attrs.dim / 2;
    let table = match (cos.shape.as_slice(), positions.map(|p| p.shape.as_slice())) {
        (&[rows, h], Some(&[1])) => h == half && rows > 0,
        (&[rows, h], Some(&[b, s])) => h == half && rows > 0 && (b, s) == (batch, sequence),
        (&[b, s, h], None) => (b, s, h) == (batch, sequence, half),
        _ => false,
    };
    let dim = attrs.dim > 0 && attrs.dim.is_multiple_of(2) && attrs.dim <= features;
    if dim && table && cos.shape == sin.shape {
        return Ok(());
    }
    Err(OpError::Invalid(format!(
        "tables of shape {:?} and {:?} with positions {:?} do not turn {} features of shape {:?}",
        cos.shape,
        sin.shape,
        positions.map(|p| &p.shape),
        attrs.dim,
        x.shape
    )))
}
