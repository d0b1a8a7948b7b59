//! The size of a register tile.
//!
//! Every candidate is priced by the cycles that its instructions take per term of the reduction: fused
//! multiply-adds and loads at two a cycle, at least the latency of an addition; summed over whole tiles
//! and the smaller ones at the edges.

use ansc_graph::Stage;

use super::operands::Operands;
use super::widths_of;
use crate::default::Machine;

/// Cycles until the sum of a multiply-add can be added to.
const LATENCY: usize = 4;
const MAX_ROWS: usize = 14;
const MAX_VECTORS: usize = 8;

/// `upper` x `rows` x `panel` elements along the upper, the row and the vector axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) upper_axis: Option<usize>,
    pub(super) row_axis: Option<usize>,
    pub(super) upper: usize,
    pub(super) rows: usize,
    pub(super) panel: usize,
}

impl Shape {
    /// Axes of the stage that the tile covers.
    pub(super) fn tile_axes(&self) -> usize {
        1 + usize::from(self.upper_axis.is_some()) + usize::from(self.row_axis.is_some())
    }
}

/// The shape of this rank among those that fit the registers, ordered by price.
pub(super) fn choose(
    machine: &Machine,
    s: &Stage,
    operands: &Operands,
    lanes: usize,
    rank: usize,
) -> Shape {
    let (upper_axis, row_axis) = row_axes(s, operands);
    let extent = |axis: Option<usize>| axis.map_or(1, |a| s.ty.shape[a]);
    let (uppers, rows) = (extent(upper_axis), extent(row_axis));
    let columns = *s.ty.shape.last().expect("a vector axis");
    let vectors =
        operands.panel_limit.unwrap_or(usize::MAX).min(columns.next_multiple_of(lanes)) / lanes;
    let mut shapes: Vec<(usize, Shape)> = Vec::new();
    for vectors in (1..=vectors.clamp(1, MAX_VECTORS)).filter(|v| operands.allows(v * lanes)) {
        for upper in (1..=uppers.min(4)).filter(|u| uppers.is_multiple_of(*u)) {
            for row in 1..=rows.min(MAX_ROWS) {
                if upper > 1 && row < rows
                    || upper * row * vectors + vectors + 1 > machine.registers
                {
                    continue;
                }
                let panel = vectors * lanes;
                let price = price(columns, panel, lanes, rows, row, upper, operands.shared)
                    * (uppers / upper);
                shapes.push((price, Shape { upper_axis, row_axis, upper, rows: row, panel }));
            }
        }
    }
    let smallest = Shape { upper_axis, row_axis, upper: 1, rows: 1, panel: lanes };
    shapes.sort_by_key(|(price, _)| *price);
    let last = shapes.len().saturating_sub(1);
    shapes.into_iter().nth(rank.min(last)).map_or(smallest, |(_, shape)| shape)
}

/// Twice the cycles per term of the reduction over a whole plane of rows and columns.
fn price(
    columns: usize,
    panel: usize,
    lanes: usize,
    rows: usize,
    row: usize,
    upper: usize,
    shared: bool,
) -> usize {
    let down = |vectors: usize| {
        let tile = |r: usize| cycles(upper * r, vectors, shared);
        rows / row * tile(row) + if rows.is_multiple_of(row) { 0 } else { tile(rows % row) }
    };
    let rest = widths_of(columns % panel, lanes).len();
    columns / panel * down(panel / lanes) + if rest == 0 { 0 } else { down(rest) }
}

fn cycles(rows: usize, vectors: usize, shared: bool) -> usize {
    // A vector operand that rows do not share is loaded for each of them.
    let loads = if shared { rows + vectors } else { rows * vectors + vectors };
    (rows * vectors).max(loads).max(2 * LATENCY)
}

/// The innermost spatial axes besides the vector axis along which packed operands do not vary: the row axis,
/// and the one outside of it.
fn row_axes(s: &Stage, operands: &Operands) -> (Option<usize>, Option<usize>) {
    let vector_axis = s.ty.rank() - 1;
    let usable = |axis: &usize| s.ty.shape[*axis] > 1 && !operands.fixed_axes.contains(axis);
    let mut axes = (0..vector_axis).rev().filter(usable);
    let row = axes.next();
    (axes.next(), row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_rows_of_two_vectors_beat_one_row() {
        let price = |row, vectors: usize| price(64, 8 * vectors, 8, 60, row, 1, true);
        assert!(price(6, 2) < price(1, 2) && price(6, 2) < price(12, 1));
    }
}
