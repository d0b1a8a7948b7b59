//! The best few of many lanes at once: a list for each rank, and each row of elements is put into
//! its place in all lanes without a branch.
//!
//! ```text
//! k = 2, smallest first     lane 0  lane 1            lane 0  lane 1
//! rank 0                       3       1   row 6, 0      3       0
//! rank 1                       7       4       ->        6       1
//! ```

use super::Results;
use super::key::{Index, Key, Keyed};
use super::lanes::{Block, Source, WIDE};

const MOST: usize = 16;

/// So many ranks are few.
const FEW: usize = 8;

/// In lanes that are longer, times k, most elements have no rank, and looking only for those that
/// have one is faster: of few ranks, and of more.
const LONGEST: [usize; 2] = [24, 8];

struct Ranks<K> {
    keys: [[K; WIDE]; MOST],
    indices: [[Index; WIDE]; MOST],
}

/// Whether this is the way for lanes of `extent` elements.
pub(super) fn fits(k: usize, extent: usize) -> bool {
    let longest = k * LONGEST[usize::from(k > FEW)];
    k <= MOST && (k == 1 || extent <= longest)
}

#[inline(always)]
pub(super) fn run<T: Keyed>(source: &Source<'_, T>, index: usize, results: &Results<'_, T>) {
    let block = source.block::<WIDE>(index);
    let k = source.k;
    let mut ranks = Ranks { keys: [[T::Key::default(); WIDE]; MOST], indices: [[0; WIDE]; MOST] };
    for i in 0..source.view.extent {
        let keys = source.keys(&block, i);
        // Rank `i` is free: as no element is better than itself, it stays or makes room.
        if i < k {
            ranks.keys[i] = keys;
            ranks.indices[i] = [i as Index; WIDE];
        }
        ranks.add(i.min(k - 1), i as Index, &keys);
    }
    write(source, &block, &ranks.indices[..k], results);
}

impl<K: Key> Ranks<K> {
    /// Puts a row with index `i` into ranks up to `last`. Equal keys that are there have lower
    /// indices.
    #[inline(always)]
    fn add(&mut self, last: usize, i: Index, row: &[K; WIDE]) {
        for rank in (1..=last).rev() {
            let (keys, indices) = (self.keys[rank - 1], self.indices[rank - 1]);
            for lane in 0..WIDE {
                let (is_above, is_here) =
                    (row[lane] < keys[lane], row[lane] < self.keys[rank][lane]);
                let (key, index) = (self.keys[rank][lane], self.indices[rank][lane]);
                let (key, index) = if is_here { (row[lane], i) } else { (key, index) };
                self.keys[rank][lane] = if is_above { keys[lane] } else { key };
                self.indices[rank][lane] = if is_above { indices[lane] } else { index };
            }
        }
        for ((key, index), new) in self.keys[0].iter_mut().zip(&mut self.indices[0]).zip(row) {
            let is_here = *new < *key;
            *index = if is_here { i } else { *index };
            *key = if is_here { *new } else { *key };
        }
    }
}

#[inline(always)]
fn write<T: Keyed>(
    source: &Source<'_, T>,
    block: &Block<WIDE>,
    ranks: &[[Index; WIDE]],
    results: &Results<'_, T>,
) {
    for (rank, indices) in ranks.iter().enumerate() {
        for lane in block.own.clone() {
            // SAFETY: blocks share no lane of their own.
            unsafe { source.put(block, lane, rank, indices[lane], results) };
        }
    }
}
