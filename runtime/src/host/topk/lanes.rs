//! Lanes: the elements along the axis, of which many lanes are read at a time.
//!
//! ```text
//! [3, 9, 80] along axis 1: 240 lanes of 9 elements. Blocks of 32 that are neighbours in memory:
//! lanes 0..32, 32..64, 48..80 (of which 64..80 are its own), then those of the next matrix.
//! ```

use std::ops::Range;

use super::Results;
use super::key::Keyed;
use crate::host::view::AxisView;

/// Lanes of a block, or elements of one lane. Loops over fewer are written out before the compiler
/// looks for vectors.
pub(super) const WIDE: usize = 32;

/// What lanes are read from, and how many elements of each are wanted.
#[derive(Clone, Copy)]
pub(super) struct Source<'a, T: Keyed> {
    pub(super) x: &'a [T],
    pub(super) view: AxisView,
    pub(super) k: usize,
    /// See [`super::key::Key::turn`].
    pub(super) turn: T::Key,
}

/// `N` lanes.
pub(super) struct Block<const N: usize> {
    /// Their first elements in the input and in the results.
    pub(super) from: [usize; N],
    pub(super) to: [usize; N],
    /// Whether they are neighbours in memory.
    adjacent: bool,
    /// Those of them that no other block has.
    pub(super) own: Range<usize>,
}

impl<T: Keyed> Source<'_, T> {
    pub(super) fn blocks<const N: usize>(&self) -> usize {
        if self.view.inner >= N {
            self.view.outer * self.view.inner.div_ceil(N)
        } else {
            (self.view.outer * self.view.inner).div_ceil(N)
        }
    }

    #[inline(always)]
    pub(super) fn block<const N: usize>(&self, index: usize) -> Block<N> {
        let AxisView { outer, extent, inner } = self.view;
        if inner >= N {
            let each = inner.div_ceil(N);
            let (at, first) = (index / each, index % each * N);
            let begin = first.min(inner - N);
            return Block {
                from: std::array::from_fn(|lane| at * extent * inner + begin + lane),
                to: std::array::from_fn(|lane| at * self.k * inner + begin + lane),
                adjacent: true,
                own: first - begin..N,
            };
        }
        let (first, lanes) = (index * N, outer * inner);
        let (mut at, mut column) = (first / inner, first % inner);
        let own = 0..N.min(lanes - first);
        let mut block = Block { from: [0; N], to: [0; N], adjacent: false, own };
        for lane in 0..N {
            block.from[lane] = at * extent * inner + column;
            block.to[lane] = at * self.k * inner + column;
            // The last lane stands for those that the last block lacks.
            if first + lane + 1 < lanes {
                column += 1;
                (at, column) = if column == inner { (at + 1, 0) } else { (at, column) };
            }
        }
        block
    }

    /// The keys of the `i`-th elements of the lanes; smaller ones are better.
    #[inline(always)]
    pub(super) fn keys<const N: usize>(&self, block: &Block<N>, i: usize) -> [T::Key; N] {
        let step = i * self.view.inner;
        let mut keys = [T::Key::default(); N];
        let begin = block.from[0] + step;
        if let (true, Some(row)) = (block.adjacent, self.x[begin..].first_chunk::<N>()) {
            for (key, x) in keys.iter_mut().zip(row) {
                *key = x.key() ^ self.turn;
            }
            return keys;
        }
        // First all loads, then what vectors can do.
        let mut row = [T::default(); N];
        for (x, from) in row.iter_mut().zip(&block.from) {
            *x = self.x[from + step];
        }
        for (key, x) in keys.iter_mut().zip(row) {
            *key = x.key() ^ self.turn;
        }
        keys
    }

    /// Writes that element `i` of a lane has a rank.
    ///
    /// # Safety
    /// No other thread writes results of this lane.
    #[inline(always)]
    pub(super) unsafe fn put<const N: usize>(
        &self,
        block: &Block<N>,
        lane: usize,
        rank: usize,
        i: usize,
        results: &Results<'_, T>,
    ) {
        let value = self.x[block.from[lane] + i * self.view.inner];
        // SAFETY: places of a lane are no other lane's.
        unsafe { results.put(block.to[lane] + rank * self.view.inner, value, i) };
    }
}
