//! Single elements, which an index moves along one axis.
//!
//! In: indices and updates of one shape. Out: for each row of neighbours in memory, where its
//! updates go. Axes before the indexed one, and columns behind it, are shared among threads.

use super::targets::{MOST, decode};
use super::{Block, Form, TOGETHER, check_types, strides};
use crate::dtype::DType;
use crate::host::number::Number;
use crate::host::{HostError, Share, check_axis};

pub(super) const OP: &str = "ScatterElements";

pub(super) struct Elements {
    /// Elements of the indexed axis, and of one step along it.
    extent: usize,
    stride: usize,
    /// Axes of the indices before the indexed one: extents, and steps in the data.
    outer: Vec<(usize, usize)>,
    /// Indices along the indexed axis.
    along: usize,
    /// Axes behind it that are no part of rows.
    middle: Vec<(usize, usize)>,
    /// Elements of a row, whose neighbours are neighbours in the data, too.
    row: usize,
}

impl Elements {
    pub(super) fn new(
        [data, indices, updates]: [Form<'_>; 3],
        axis: usize,
    ) -> Result<Elements, HostError> {
        check_axis(OP, data.1.len(), axis)?;
        check_types(OP, [data.0, indices.0, updates.0])?;
        let (all, shape) = (data.1, indices.1);
        let bad =
            |what, shape: &[usize]| Err(HostError::Shape { op: OP, what, shape: shape.to_vec() });
        let fits = |(i, (&n, &m))| i == axis || n <= m;
        if shape.len() != all.len() || !shape.iter().zip(all).enumerate().all(fits) {
            return bad("indices", shape);
        }
        if shape != updates.1 {
            return bad("updates", updates.1);
        }
        let strides = strides(all);
        // A row begins with the last axis along which the data has more elements.
        let shorter = (axis + 1..shape.len()).rev().find(|&i| shape[i] != all[i]);
        let first = shorter.unwrap_or(axis + 1);
        let pairs = |axes: std::ops::Range<usize>| axes.map(|i| (shape[i], strides[i])).collect();
        Ok(Elements {
            extent: all[axis],
            stride: strides[axis],
            outer: pairs(0..axis),
            along: shape[axis],
            middle: pairs(axis + 1..first),
            row: shape[first..].iter().product(),
        })
    }

    /// Calls `each` with all updates, block by block. Blocks that go to the same places come one
    /// after the other, in order, on one thread.
    pub(super) fn share<T: Number>(
        &self,
        indices: (DType, &[u8]),
        updates: &[T],
        share: &Share<'_>,
        each: &(dyn Fn(Block<'_, T>) + Sync),
    ) {
        let count = |axes: &[(usize, usize)]| axes.iter().map(|(extent, _)| extent).product();
        let (outer, middle): (usize, usize) = (count(&self.outer), count(&self.middle));
        let of_outer = self.along * middle * self.row;
        if of_outer == 0 || outer == 0 {
            return;
        }
        // Columns are cut where there is much behind the indexed axis.
        let columns = (TOGETHER * self.row / of_outer).clamp(MOST.min(self.row), self.row);
        let cuts = self.row.div_ceil(columns);
        let together = (TOGETHER * cuts / of_outer).max(1);
        share((outer * cuts).div_ceil(together) as u64, &|parts| {
            let end = (outer * cuts).min(parts.end as usize * together);
            for part in parts.start as usize * together..end {
                let (at, begin) = (part / cuts, part % cuts * columns);
                let columns = begin..self.row.min(begin + columns);
                self.part(at, middle, columns, indices, updates, each);
            }
        });
    }

    /// Some columns of all rows with the same place along the outer axes.
    fn part<T: Number>(
        &self,
        outer: usize,
        middle: usize,
        columns: std::ops::Range<usize>,
        (dtype, indices): (DType, &[u8]),
        updates: &[T],
        each: &(dyn Fn(Block<'_, T>) + Sync),
    ) {
        let base = offset(&self.outer, outer);
        let first = outer * self.along * middle;
        let targets = &mut [0; MOST];
        let mut block = |first: usize, len: usize, base: usize, row: usize| {
            let bytes = &indices[first * dtype.size()..][..len * dtype.size()];
            let targets = &mut targets[..len];
            decode(dtype, bytes, self.extent, targets);
            self.place(targets, base, row);
            each((targets, 1, &updates[first..][..len]));
        };
        // Several short rows are one block.
        let together = MOST / self.row;
        if middle == 1 && columns.len() == self.row && together > 0 {
            for at in (0..self.along).step_by(together) {
                let rows = together.min(self.along - at);
                block((first + at) * self.row, rows * self.row, base, self.row);
            }
            return;
        }
        for row in 0..self.along * middle {
            let base = base + offset(&self.middle, row % middle);
            for begin in columns.clone().step_by(MOST) {
                let len = MOST.min(columns.end - begin);
                block((first + row) * self.row + begin, len, base + begin, len);
            }
        }
    }

    /// Turns places along the axis into places in the data, row by row.
    fn place(&self, targets: &mut [usize], base: usize, row: usize) {
        if row == 1 {
            return targets.iter_mut().for_each(|target| *target = base + *target * self.stride);
        }
        for row in targets.chunks_mut(row) {
            for (column, target) in row.iter_mut().enumerate() {
                *target = base + *target * self.stride + column;
            }
        }
    }
}

/// Where in the data a point is that has this number among those of the axes.
fn offset(axes: &[(usize, usize)], mut number: usize) -> usize {
    let mut offset = 0;
    for &(extent, stride) in axes.iter().rev() {
        offset += number % extent * stride;
        number /= extent;
    }
    offset
}
