//! Lanes: the elements along the axis, of which many lanes are read at a time.
//!
//! ```text
//! [3, 9, 80] along axis 1: 240 lanes of 9 elements. Blocks of 32 that are neighbours in memory:
//! lanes 0..32, 32..64, 48..80 (of which 64..80 are its own), then those of the next matrix.
//!
//! [3, 9, 20] along axis 1: 60 lanes. Three blocks, each of 20 neighbours and of the 12 elements
//! that lie behind them, which are nobody's.
//! ```

use std::ops::Range;

use super::Results;
use super::key::{Index, Keyed};
use crate::host::view::AxisView;

/// Lanes of a block, or elements of one lane. Loops over fewer are written out before the compiler
/// looks for vectors.
pub(super) const WIDE: usize = 32;

/// The tensor that lanes are read from, and how many elements of each are wanted.
#[derive(Clone, Copy)]
pub(super) struct Source<'a, T: Keyed> {
    pub(super) x: &'a [T],
    pub(super) view: AxisView,
    pub(super) k: usize,
    /// See [`super::key::Key::turn`].
    pub(super) turn: T::Key,
    /// So many neighbours are a block, even if it could have more lanes.
    pub(super) narrow: usize,
}

/// `N` lanes.
pub(super) struct Block<const N: usize> {
    places: Places<N>,
    /// Those of them that no other block has.
    pub(super) own: Range<usize>,
}

/// The first elements of lanes in the input and in the results.
enum Places<const N: usize> {
    /// Those of the first lane; the others are its neighbours.
    Row {
        from: usize,
        to: usize,
    },
    Each {
        from: [usize; N],
        to: [usize; N],
    },
}

impl<const N: usize> Block<N> {
    #[inline(always)]
    fn place(&self, lane: usize) -> (usize, usize) {
        match &self.places {
            Places::Row { from, to } => (from + lane, to + lane),
            Places::Each { from, to } => (from[lane], to[lane]),
        }
    }
}

impl<T: Keyed> Source<'_, T> {
    pub(super) fn blocks<const N: usize>(&self) -> usize {
        let AxisView { outer, inner, .. } = self.view;
        if inner >= N.min(self.narrow) {
            outer * inner.div_ceil(N)
        } else {
            (outer * inner).div_ceil(N)
        }
    }

    #[inline(always)]
    pub(super) fn block<const N: usize>(&self, index: usize) -> Block<N> {
        let AxisView { outer, extent, inner } = self.view;
        if inner >= N.min(self.narrow) {
            let each = inner.div_ceil(N);
            let (at, first) = (index / each, index % each * N);
            let begin = first.min(inner.saturating_sub(N));
            let (from, to) = (at * extent * inner + begin, at * self.k * inner + begin);
            let own = first - begin..N.min(inner - begin);
            return Block { places: Places::Row { from, to }, own };
        }
        let (first, lanes) = (index * N, outer * inner);
        let (mut at, mut column) = (first / inner, first % inner);
        let (mut from, mut to) = ([0; N], [0; N]);
        for lane in 0..N {
            from[lane] = at * extent * inner + column;
            to[lane] = at * self.k * inner + column;
            // The last lane stands for those that the last block lacks.
            if first + lane + 1 < lanes {
                column += 1;
                (at, column) = if column == inner { (at + 1, 0) } else { (at, column) };
            }
        }
        Block { places: Places::Each { from, to }, own: 0..N.min(lanes - first) }
    }

    /// The keys of the `i`-th elements of the lanes; smaller ones are better.
    #[inline(always)]
    pub(super) fn keys<const N: usize>(&self, block: &Block<N>, i: usize) -> [T::Key; N] {
        let step = i * self.view.inner;
        let mut row = [T::default(); N];
        match &block.places {
            Places::Row { from, .. } => {
                let rest = &self.x[from + step..];
                if let Some(chunk) = rest.first_chunk::<N>() {
                    return self.keys_of(chunk);
                }
                // The others are nobody's.
                row[..rest.len()].copy_from_slice(rest);
            }
            // First all loads, then what vectors can do.
            Places::Each { from, .. } => {
                for (x, from) in row.iter_mut().zip(from) {
                    *x = self.x[from + step];
                }
            }
        }
        self.keys_of(&row)
    }

    /// The keys of the first lane's elements from the `i`-th on.
    #[inline(always)]
    pub(super) fn column<const N: usize>(&self, block: &Block<N>, i: usize) -> [T::Key; WIDE] {
        let inner = self.view.inner;
        let begin = block.place(0).0 + i * inner;
        if inner == 1
            && let Some(chunk) = self.x[begin..].first_chunk::<WIDE>()
        {
            return self.keys_of(chunk);
        }
        let mut row = [T::default(); WIDE];
        for (x, at) in row.iter_mut().zip((begin..).step_by(inner)) {
            *x = self.x[at];
        }
        self.keys_of(&row)
    }

    #[inline(always)]
    fn keys_of<const N: usize>(&self, row: &[T; N]) -> [T::Key; N] {
        let mut keys = [T::Key::default(); N];
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
        i: Index,
        results: &Results<'_, T>,
    ) {
        let ((from, to), inner) = (block.place(lane), self.view.inner);
        let value = self.x[from + i as usize * inner];
        // SAFETY: places of a lane are no other lane's.
        unsafe { results.put(to + rank * inner, value, i) };
    }
}
