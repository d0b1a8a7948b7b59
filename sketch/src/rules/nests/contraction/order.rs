//! The order of the loops around tiles: that in which the least comes from beyond caches again.
//!
//! ```text
//! for panels { for rows { .. } }                a panel stays in the cache, all rows come again
//! for rows { for panels { .. } }                rows stay, and all panels come again
//! for blocks { for panels { for rows { .. } } } the rows of a block stay in the second cache
//! ```
//! Loops over rows are those along any axis that panels do not vary along: images of a batch, lines
//! of an image. So the loop over panels may also be between two of them.

use ansc_graph::{BufId, Compute, Expr, Stage, VarId, arith};

use super::{FREE, PANELS};
use crate::contraction::operands::Operands;
use crate::contraction::shapes::Shape;
use crate::machine::{Machine, again};
use crate::price::nest::{LINE, bytes_of};

/// Another order must save this share of the cycles of the products.
const WORTH: f64 = 0.1;
/// Vectors that are multiplied in a cycle.
const MULTIPLIED: f64 = 2.0;

/// An order of the loops around tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Order {
    /// The place of the loop over panels.
    pub(super) panels: i64,
    /// Tiles of rows of a block. None if all rows are one.
    pub(super) block: Option<usize>,
}

/// The loops around the tiles of a stage.
pub(super) struct Around<'a> {
    pub(super) compute: &'a Compute,
    pub(super) machine: &'a Machine,
    pub(super) stage: &'a Stage,
    pub(super) operands: &'a Operands,
    pub(super) shape: &'a Shape,
}

impl Around<'_> {
    /// The order that costs least, if that is clearly less than one panel after another costs.
    pub(super) fn best(&self) -> Option<Order> {
        let plain = self.cost(&self.axes(), self.rows(), 1);
        let among = (1..=self.axes().len()).map(|j| (self.between(j), self.at(j)));
        let blocks = self.block().map(|(order, cost)| (cost, order));
        let (cost, order) = among.chain(blocks).min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        (plain - cost > WORTH * self.products()).then_some(order)
    }

    /// Axes of loops over rows, outermost first, but for the one that tiles have rows along.
    fn axes(&self) -> Vec<usize> {
        let Shape { upper_axis, row_axis, .. } = *self.shape;
        let free = (0..self.stage.ty.rank() - 1)
            .filter(|axis| !self.operands.fixed_axes.contains(axis))
            .filter(|axis| Some(*axis) != row_axis && Some(*axis) != upper_axis);
        free.chain(upper_axis).collect()
    }

    fn rows(&self) -> usize {
        self.shape.row_axis.map_or(1, |axis| self.stage.ty.shape[axis])
    }

    /// The order with panels after the first `j` loops over rows.
    fn at(&self, j: usize) -> Order {
        let is_last = j == self.axes().len();
        Order { panels: if is_last { PANELS[1] } else { FREE + 2 * j as i64 - 1 }, block: None }
    }

    fn between(&self, j: usize) -> f64 {
        let axes = self.axes();
        let (outside, inside) = axes.split_at(j);
        let turns = outside.iter().map(|&axis| self.stage.ty.shape[axis]).product();
        self.cost(inside, self.rows(), turns)
    }

    /// The order with blocks of as many rows as half of the second cache holds, where there are no
    /// other loops over rows.
    fn block(&self) -> Option<(Order, f64)> {
        let shape = &self.stage.ty.shape;
        let one = self.shape.rows;
        let is_alone = self.axes().iter().all(|&axis| shape[axis] == 1);
        let fits = (self.machine.own_cache() / 2) as f64 / self.streamed(&[], one);
        let (tiles, block) = (self.rows().div_ceil(one), (fits as usize).max(1));
        let order = Order { panels: PANELS[0], block: Some(block) };
        let cost = || self.cost(&[], block * one, tiles.div_ceil(block));
        (is_alone && block < tiles).then(|| (order, cost()))
    }

    /// Cycles in which rows and panels come that were used before, if the loop over panels is
    /// outside of these axes and of so many rows, and loops outside of it have so many turns.
    fn cost(&self, inside: &[usize], rows: usize, turns: usize) -> f64 {
        let (streamed, panels) = (self.streamed(inside, rows), self.panels());
        let columns = self.stage.ty.shape[self.stage.ty.rank() - 1];
        let count = columns.div_ceil(self.shape.panel) as f64;
        let rows_again = (count - 1.0) * streamed * again(streamed + panels / count);
        let panels_again = panels * again(panels + streamed);
        turns as f64 * rows_again + (turns - 1) as f64 * panels_again
    }

    /// Bytes that tiles read apart from panels along these axes and so many rows.
    fn streamed(&self, along: &[usize], rows: usize) -> f64 {
        let s = self.stage;
        let is_panel = |load: &(BufId, &[Expr])| self.operands.panels().any(|p| p == *load);
        let ranges = |v: VarId| {
            let axis = v.index();
            let length = match axis {
                _ if axis >= s.ty.rank() || along.contains(&axis) => {
                    // What tells the slice is no axis, and stands still.
                    s.extents().get(axis).copied().unwrap_or(1)
                }
                _ if Some(axis) == self.shape.row_axis => rows,
                _ if axis + 1 == s.ty.rank() => self.shape.panel,
                _ => 1,
            };
            Some((0, length as i64 - 1))
        };
        let bytes = |(buffer, indices): (BufId, &[Expr])| {
            let ty = self.compute.buffer_type(buffer);
            let places = indices.iter().zip(&ty.shape[..]);
            let place = |(index, n): (&Expr, &usize)| {
                arith::bounds(index, &ranges).unwrap_or((0, *n as i64 - 1))
            };
            bytes_of(ty, LINE, &places.map(place).collect())
        };
        let mut loads = s.body.loads();
        loads.retain(|load| !is_panel(load));
        loads.dedup();
        loads.into_iter().map(bytes).sum()
    }

    /// Bytes of all panels that one turn of the loops that are outside of everything reads.
    fn panels(&self) -> f64 {
        let s = self.stage;
        let of = |(buffer, indices): (BufId, &[Expr])| {
            let varies =
                |axis: &usize| indices.iter().any(|e| e.vars().contains(&VarId::new(*axis)));
            let axes = (s.ty.rank() - 1..s.extents().len()).filter(varies);
            let elements: usize = axes.map(|axis| s.extents()[axis]).product();
            (elements * self.compute.buffer_type(buffer).dtype.size()) as f64
        };
        self.operands.panels().map(of).sum()
    }

    /// Cycles of all products of one turn of the loops that are outside of everything.
    fn products(&self) -> f64 {
        let s = self.stage;
        let fixed: usize = self.operands.fixed_axes.iter().map(|&axis| s.ty.shape[axis]).product();
        let lanes = (self.machine.vector_bytes / s.ty.dtype.size()) as f64;
        s.extents().iter().product::<usize>() as f64 / fixed as f64 / lanes / MULTIPLIED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contraction::operands;
    use crate::contraction::shapes::ranked;

    const MACHINE: Machine = Machine::new(32, 16);
    const LANES: usize = 8;

    fn best(text: &str) -> Option<Order> {
        let compute = Compute::parse(text).unwrap();
        let (constant, stage) = ([false, true], &compute.stages[0]);
        let around = operands::Around { compute: &compute, constant: &constant, machine: &MACHINE };
        let operands = Operands::of(around, stage);
        let shape = &ranked(&MACHINE, stage, &operands, (LANES, 1), None)[0];
        let around =
            Around { compute: &compute, machine: &MACHINE, stage, operands: &operands, shape };
        around.best()
    }

    fn product([rows, terms, columns]: [usize; 3]) -> Option<Order> {
        best(&format!(
            "compute(in0: f32[{rows}, {terms}], in1: f32[{terms}, {columns}]) -> c {{
               c: f32[{rows}, {columns}] = sum{{r0: {terms}}} mul(in0[i0, r0], in1[r0, i1])
             }}"
        ))
    }

    /// By windows of three by three, every second one.
    fn convolution([images, size, channels, columns]: [usize; 4]) -> Option<Order> {
        let padded = 2 * size + 2;
        best(&format!(
            "compute(in0: f32[{images}, {padded}, {padded}, {channels}], in1: f32[3, 3, {channels}, {columns}]) -> c {{
               c: f32[{images}, {size}, {size}, {columns}] = sum{{r0: 3, r1: 3, r2: {channels}}}
                 mul(in0[i0, add(mul(i1, 2), r0), add(mul(i2, 2), r1), r2], in1[r0, r1, r2, i3])
             }}"
        ))
    }

    /// 13 MB of rows would come eight times; blocks of them stay in half of the second cache.
    #[test]
    fn blocks_of_many_rows_stay_in_the_cache() {
        let order = product([25088, 128, 128]).unwrap();
        let tile = 6 * 128 * 4;
        assert_eq!(order, Order { panels: PANELS[0], block: Some((128 << 10) / tile) });
    }

    /// Rows that the second cache holds come again from there, and those of one panel never.
    #[test]
    fn few_rows_and_few_panels_leave_nothing_to_save() {
        assert_eq!(product([128, 256, 1024]), None);
        assert_eq!(product([25088, 128, 16]), None);
    }

    /// Next to a few lines of an image, all weights stay in the second cache.
    #[test]
    fn panels_come_again_where_they_are_less_than_rows() {
        let order = convolution([2, 112, 64, 128]).unwrap();
        assert_eq!(order, Order { panels: PANELS[1], block: None });
        assert_eq!(convolution([1, 7, 512, 512]), None);
    }

    /// An image of a batch stays in the cache, while all panels go by.
    #[test]
    fn panels_go_by_between_loops_over_rows() {
        let order = convolution([64, 14, 64, 1024]);
        assert_eq!(order, Some(Order { panels: FREE + 1, block: None }));
    }
}
