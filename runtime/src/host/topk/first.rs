//! The best element of a long lane.
//!
//! ```text
//! 3 9 5 9 | 7 2 8 9  ->  the best of every fourth element: 7 at 4, 9 at 1, 8 at 6, 9 at 3  ->  9 at 1
//! ```

use super::Results;
use super::key::{Index, Keyed};
use super::lanes::{Block, Source, WIDE};

#[inline(always)]
pub(super) fn run<T: Keyed>(source: &Source<'_, T>, index: usize, results: &Results<'_, T>) {
    let block = source.block::<1>(index);
    let extent = source.view.extent;
    let (best, next) = in_turns(source, &block);
    let rest = (next..extent).map(|i| (source.keys(&block, i)[0], i));
    let best = best.into_iter().chain(rest).reduce(|a, b| if b.0 < a.0 { b } else { a });
    let at = best.map_or(0, |(_, i)| i);
    // SAFETY: blocks share no lane of their own.
    unsafe { source.put(&block, 0, 0, at as Index, results) };
}

/// The best of all elements in full turns, and where the next turn would begin.
#[inline(always)]
fn in_turns<T: Keyed>(
    source: &Source<'_, T>,
    block: &Block<1>,
) -> (Option<(T::Key, usize)>, usize) {
    let turns = source.view.extent / WIDE;
    if turns == 0 {
        return (None, 0);
    }
    let mut keys = source.column(block, 0);
    let mut at: [Index; WIDE] = [0; WIDE];
    for turn in 1..turns {
        let row = source.column(block, turn * WIDE);
        for lane in 0..WIDE {
            at[lane] = if row[lane] < keys[lane] { turn as Index } else { at[lane] };
            keys[lane] = keys[lane].min(row[lane]);
        }
    }
    let all = keys.into_iter().zip(at).enumerate();
    let best = all.map(|(lane, (key, turn))| (key, turn as usize * WIDE + lane)).min();
    (best, turns * WIDE)
}
