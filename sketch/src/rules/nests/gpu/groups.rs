//! Channels in groups, as an axis of groups and one of the channels of each.
//!
//! ```text
//! for j in 0..512 { y[i, j] = sum[k: 64] x[i, j // 128 * 64 + k] * w[k, j] }
//! =>
//! for g in 0..4 { for c in 0..128 {
//!   y[i, g * 128 + c] = sum[k: 64] x[i, g * 64 + k] * w[k, g * 128 + c]
//! } }
//! ```
//!
//! Every operand knows the axis `j`, so that it is no side of a tile. But the first one lacks `c`.

use ansc_graph::{BinOp, Expr, VarId};

use super::Result;
use crate::index_map::IndexMap;
use crate::program::{Block, IterKind};
use crate::trace::{Recorder, StepError};

/// Groups of fewer channels are no side of a tile.
const LEAST: usize = 32;

/// Makes two axes of the first one that counts channels in groups; an error if there is none.
pub(super) fn apart(r: &mut Recorder, name: &str) -> Result<()> {
    let block = r.schedule().block(name)?;
    let rank = block.iters.len();
    let (axis, length) = grouped(block).ok_or(StepError::NoChoice)?;
    let mut outputs: Vec<Expr> = (0..rank).map(Expr::var).collect();
    let (group, channel) = (Expr::var(axis).floor_div(length), Expr::var(axis).floor_mod(length));
    outputs.splice(axis..=axis, [group, channel]);
    let map = IndexMap::new(rank, outputs).map_err(|_| StepError::Unfit)?;
    let block = r.get_block(name)?;
    r.transform_block_layout(block, &map)
}

/// The axis of the result, and the channels of a group.
fn grouped(block: &Block) -> Option<(usize, i64)> {
    let loads = block.body.value().loads();
    block.iters.iter().enumerate().find_map(|(axis, iter)| {
        let is_spatial = iter.kind == IterKind::Spatial;
        let lengths = loads.iter().flat_map(|(_, at)| at.iter());
        let length =
            lengths.filter_map(|e| groups_of(e, iter.var)).next().filter(|_| is_spatial)?;
        let whole = usize::try_from(length).ok()?;
        (whole >= LEAST && whole < iter.extent && iter.extent.is_multiple_of(whole))
            .then_some((axis, length))
    })
}

/// `n` of `var // n` in an expression.
fn groups_of(e: &Expr, var: VarId) -> Option<i64> {
    let mut found = None;
    e.visit(&mut |part| {
        if let Expr::Binary(BinOp::FloorDiv, a, b) = part
            && **a == Expr::Var(var)
        {
            found = b.as_const().map(|n| n.as_i64());
        }
    });
    found
}
