//! Slices, each of which a tuple of indices places along the leading axes.
//!
//! In: tuples of indices, and a slice of updates for each. Out: where the slices go. Threads share
//! the elements of slices.

use super::targets::{MOST, decode};
use super::{Block, Form, TOGETHER, check_types, strides};
use crate::dtype::DType;
use crate::host::number::Number;
use crate::host::{HostError, Share};

pub(super) const OP: &str = "ScatterND";

pub(super) struct Slices {
    /// Extents of the indexed axes, and elements of a step along each.
    indexed: Vec<(usize, usize)>,
    /// Tuples of indices.
    count: usize,
    /// Elements of a slice.
    run: usize,
}

impl Slices {
    /// The call, and how many axes are indexed.
    pub(super) fn new(
        [data, indices, updates]: [Form<'_>; 3],
    ) -> Result<(Slices, usize), HostError> {
        check_types(OP, [data.0, indices.0, updates.0])?;
        let bad = |what, shape: &[usize]| HostError::Shape { op: OP, what, shape: shape.to_vec() };
        let (&depth, tuples) = indices.1.split_last().ok_or_else(|| bad("indices", indices.1))?;
        if depth > data.1.len() {
            return Err(bad("indices", indices.1));
        }
        let (indexed, slice) = data.1.split_at(depth);
        if *updates.1 != [tuples, slice].concat() {
            return Err(bad("updates", updates.1));
        }
        let run = slice.iter().product();
        let steps = strides(data.1);
        let indexed = indexed.iter().copied().zip(steps).collect();
        Ok((Slices { indexed, count: tuples.iter().product(), run }, depth))
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
        if self.count == 0 || self.run == 0 {
            return;
        }
        let columns = (TOGETHER / self.count).clamp(MOST.min(self.run), self.run);
        share(self.run.div_ceil(columns) as u64, &|parts| {
            let begin = parts.start as usize * columns;
            let len = self.run.min(parts.end as usize * columns) - begin;
            self.part(begin, len, indices, updates, each);
        });
    }

    /// Some elements of all slices.
    fn part<T: Number>(
        &self,
        begin: usize,
        len: usize,
        (dtype, indices): (DType, &[u8]),
        updates: &[T],
        each: &(dyn Fn(Block<'_, T>) + Sync),
    ) {
        let depth = self.indexed.len();
        let mut at = [0; MOST];
        let tuples = (MOST / depth.max(1)).max(1);
        let mut targets = [0; MOST];
        for first in (0..self.count).step_by(tuples) {
            let tuples = tuples.min(self.count - first);
            let targets = &mut targets[..tuples];
            targets.fill(begin);
            for (axis, &(extent, step)) in self.indexed.iter().enumerate() {
                let at = &mut at[..tuples];
                for (tuple, at) in at.iter_mut().enumerate() {
                    let place = ((first + tuple) * depth + axis) * dtype.size();
                    let bytes = &indices[place..][..dtype.size()];
                    decode(dtype, bytes, extent, std::slice::from_mut(at));
                }
                targets.iter_mut().zip(at).for_each(|(target, at)| *target += *at * step);
            }
            if len == self.run {
                each((targets, len, &updates[first * len..][..tuples * len]));
                continue;
            }
            for (tuple, target) in targets.iter().enumerate() {
                let updates = &updates[(first + tuple) * self.run + begin..][..len];
                each((std::slice::from_ref(target), len, updates));
            }
        }
    }
}
