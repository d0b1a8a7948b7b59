//! The best element of a long lane.
//!
//! ```text
//! 3 9 5 9 | 7 2 8 9  ->  the best of every fourth element: 7 at 4, 9 at 1, 8 at 6, 9 at 3  ->  9 at 1
//! ```

use super::Results;
use super::key::Keyed;
use super::lanes::{Source, WIDE};

#[inline(always)]
pub(super) fn run<T: Keyed>(source: &Source<'_, T>, index: usize, results: &Results<'_, T>) {
    let block = source.block::<1>(index);
    let extent = source.view.extent;
    let (best, next) = match source.view.inner {
        1 => in_turns(source, &source.x[block.from[0]..][..extent]),
        _ => (None, 0),
    };
    let rest = (next..extent).map(|i| (source.keys(&block, i)[0], i));
    let best = best.into_iter().chain(rest).reduce(|a, b| if b.0 < a.0 { b } else { a });
    let at = best.map_or(0, |(_, i)| i);
    // SAFETY: blocks share no lane of their own.
    unsafe { source.put(&block, 0, 0, at, results) };
}

/// The best of all elements in full turns, and where the next turn would begin.
#[inline(always)]
fn in_turns<T: Keyed>(source: &Source<'_, T>, lane: &[T]) -> (Option<(T::Key, usize)>, usize) {
    let (turns, _) = lane.as_chunks::<WIDE>();
    let Some(first) = turns.first().filter(|_| u32::try_from(turns.len()).is_ok()) else {
        return (None, 0);
    };
    let mut keys = first.map(|x| x.key() ^ source.turn);
    let mut at = [0u32; WIDE];
    for (turn, row) in turns.iter().enumerate() {
        for lane in 0..WIDE {
            let key = row[lane].key() ^ source.turn;
            at[lane] = if key < keys[lane] { turn as u32 } else { at[lane] };
            keys[lane] = keys[lane].min(key);
        }
    }
    let all = keys.into_iter().zip(at).enumerate();
    let best = all.map(|(lane, (key, turn))| (key, turn as usize * WIDE + lane)).min();
    (best, turns.len() * WIDE)
}
