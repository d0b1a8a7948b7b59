//! Single elements, which an index moves along one axis.
//!
//! In: indices and updates of one shape. Out: for each row of neighbours in memory, where its
//! updates go. Axes before the indexed one, and columns behind it, are shared among threads.

use std::ops::Range;

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
        let joined = |axes: Range<usize>| joined(axes.map(|i| (shape[i], strides[i])));
        Ok(Elements {
            extent: all[axis],
            stride: strides[axis],
            outer: joined(0..axis),
            along: shape[axis],
            middle: joined(axis + 1..first),
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
        let are_short = middle == 1 && columns == self.row && self.row <= MOST;
        let given = Given { indices, updates, each };
        share((outer * cuts).div_ceil(together) as u64, &|parts| {
            let begin = parts.start as usize * together;
            let end = (outer * cuts).min(parts.end as usize * together);
            if are_short {
                return self.short_rows(begin * self.along..end * self.along, &given);
            }
            for part in begin..end {
                let (at, begin) = (part / cuts, part % cuts * columns);
                let columns = begin..self.row.min(begin + columns);
                self.long_rows(at, middle, columns, &given);
            }
        });
    }

    /// Several rows at a time.
    fn short_rows<T: Number>(&self, rows: Range<usize>, given: &Given<'_, T>) {
        let (targets, together) = (&mut [0; MOST], MOST / self.row);
        for first in rows.clone().step_by(together) {
            let count = together.min(rows.end - first);
            let targets =
                given.places(first * self.row, &mut targets[..count * self.row], self.extent);
            let (mut done, mut left) = (0, &mut *targets);
            while done < count {
                // Up to the next place along the outer axes.
                let row = first + done;
                let same = (self.along - row % self.along).min(count - done);
                let (now, rest) = left.split_at_mut(same * self.row);
                self.place(now, offset(&self.outer, row / self.along), self.row);
                (done, left) = (done + same, rest);
            }
            given.give(first * self.row, targets);
        }
    }

    /// Some columns of all rows with the same place along the outer axes.
    fn long_rows<T: Number>(
        &self,
        outer: usize,
        middle: usize,
        columns: Range<usize>,
        given: &Given<'_, T>,
    ) {
        let base = offset(&self.outer, outer);
        let (first, targets) = (outer * self.along * middle, &mut [0; MOST]);
        for row in 0..self.along * middle {
            let base = base + offset(&self.middle, row % middle);
            for begin in columns.clone().step_by(MOST) {
                let len = MOST.min(columns.end - begin);
                let at = (first + row) * self.row + begin;
                let targets = given.places(at, &mut targets[..len], self.extent);
                self.place(targets, base + begin, len);
                given.give(at, targets);
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

/// Axes of these extents and strides, neighbours of which are one where they lie like one.
fn joined(axes: impl Iterator<Item = (usize, usize)>) -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> = vec![];
    for (extent, stride) in axes {
        match all.last_mut() {
            Some(last) if last.1 == extent * stride => *last = (last.0 * extent, stride),
            _ => all.push((extent, stride)),
        }
    }
    all
}

/// Indices and updates, and who takes them.
struct Given<'a, T> {
    indices: (DType, &'a [u8]),
    updates: &'a [T],
    each: &'a (dyn Fn(Block<'_, T>) + Sync),
}

impl<T: Number> Given<'_, T> {
    /// The places of the indices from `first` on along an axis.
    fn places<'t>(&self, first: usize, targets: &'t mut [usize], extent: usize) -> &'t mut [usize] {
        let (dtype, bytes) = self.indices;
        let bytes = &bytes[first * dtype.size()..][..targets.len() * dtype.size()];
        decode(dtype, bytes, extent, targets);
        targets
    }

    fn give(&self, first: usize, targets: &[usize]) {
        (self.each)((targets, 1, &self.updates[first..][..targets.len()]));
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
