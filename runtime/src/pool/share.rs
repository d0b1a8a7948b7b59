//! The iterations of a loop that are still to be run, thread by thread.
//!
//! In: a contiguous chunk for each thread. Out: every iteration is taken exactly once. The thread
//! whose chunk it is takes pieces from the front. Threads that have ended their own take them from
//! the back.
//!
//! ```text
//! thread 0  |####....|      thread 0  |########|          thread 0  |########|##|
//! thread 1  |##......|  =>  thread 1  |####....|  =>      thread 1  |######|
//! ```
//!
//! So a core that is slower than the others, or taken away for a while, holds up no more than the
//! piece that it is at.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Work that takes less is left to the thread whose it is: taking it over costs cache misses of
/// about as much.
const WORTH_TAKING: Duration = Duration::from_micros(4);
/// A chunk is run in no more than about so many pieces.
const PIECES: u64 = 8;

/// Iterations that nobody has taken, `begin` in the low half and `end` in the high one. None comes
/// back once it was taken, so no value but the empty ones is seen twice within a loop.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Share(AtomicU64);

impl Share {
    fn fill(&self, units: Range<u32>) {
        self.0.store(pack(units), Ordering::Release);
    }

    fn left(&self) -> u64 {
        let units = unpack(self.0.load(Ordering::Relaxed));
        u64::from(units.end.saturating_sub(units.start))
    }

    /// Takes what `split` says of what is left: it is given the range and gives where to cut, and
    /// whether the part before the cut is taken.
    fn take(&self, split: impl Fn(&Range<u32>) -> (u32, bool)) -> Option<Range<u32>> {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let left = unpack(seen);
            if left.is_empty() {
                return None;
            }
            let (cut, front) = split(&left);
            let parts = [left.start..cut, cut..left.end];
            let [taken, rest] = if front { parts } else { [parts[1].clone(), parts[0].clone()] };
            let order = (Ordering::AcqRel, Ordering::Acquire);
            match self.0.compare_exchange_weak(seen, pack(rest), order.0, order.1) {
                Ok(_) => return Some(taken),
                Err(now) => seen = now,
            }
        }
    }

    fn front(&self, size: u32) -> Option<Range<u32>> {
        self.take(|left| (left.start + size.clamp(1, left.end - left.start), true))
    }

    fn back_half(&self) -> Option<Range<u32>> {
        self.take(|left| (left.start + (left.end - left.start) / 2, false))
    }
}

fn pack(units: Range<u32>) -> u64 {
    u64::from(units.start) | u64::from(units.end) << 32
}

fn unpack(packed: u64) -> Range<u32> {
    packed as u32..(packed >> 32) as u32
}

/// A loop that is being run by several threads.
pub(super) struct Shared<'a, F> {
    body: &'a F,
    shares: &'a [Share],
    range: Range<u64>,
    /// Iterations that are taken together, since a share counts no more than `u32`s.
    unit: u64,
}

impl<'a, F: Fn(usize, Range<u64>) + Sync> Shared<'a, F> {
    /// A chunk for each share: contiguous, in order, of sizes that differ by at most a unit.
    pub(super) fn new(body: &'a F, shares: &'a [Share], range: Range<u64>) -> Self {
        let extent = range.end - range.start;
        let unit = extent.div_ceil(u64::from(u32::MAX)).max(1);
        let (units, threads) = (extent.div_ceil(unit), shares.len() as u64);
        for (share, thread) in shares.iter().zip(0..) {
            let chunk = super::chunk_of(units, threads, thread);
            share.fill(chunk.start as u32..chunk.end as u32);
        }
        Shared { body, shares, range, unit }
    }

    /// Runs the chunk of a thread, then what others have left.
    pub(super) fn work(&self, thread: usize) {
        let (own, begun) = (&self.shares[thread], Instant::now());
        let mut done = own.left();
        self.run_all_of(own, thread, begun);
        if begun.elapsed() < WORTH_TAKING {
            return;
        }
        while let Some(units) = self.most_left(begun.elapsed(), done).and_then(Share::back_half) {
            done += u64::from(units.end - units.start);
            own.fill(units);
            self.run_all_of(own, thread, Instant::now());
        }
    }

    /// Runs all that is left to another thread, which does not take part.
    pub(super) fn work_for(&self, thread: usize, other: usize) {
        self.run_all_of(&self.shares[other], thread, Instant::now());
    }

    /// Runs a chunk in pieces: the first one is a quarter, and if it took next to no time, the rest
    /// is another.
    fn run_all_of(&self, share: &Share, thread: usize, begun: Instant) {
        let units = share.left();
        let Some(first) = share.front((units / 4) as u32) else { return };
        let parts = units / u64::from(first.end - first.start);
        self.run(thread, first);
        if share.left() == 0 {
            return;
        }
        let short = begun.elapsed() * (parts as u32) < WORTH_TAKING;
        let piece = if short { u32::MAX } else { units.div_ceil(PIECES) as u32 };
        while let Some(units) = share.front(piece) {
            self.run(thread, units);
        }
    }

    fn run(&self, thread: usize, units: Range<u32>) {
        let at = |unit: u32| self.range.start + u64::from(unit) * self.unit;
        (self.body)(thread, at(units.start)..at(units.end).min(self.range.end));
    }

    /// The share with most to do, if it would take long: `done` units took `took`.
    fn most_left(&self, took: Duration, done: u64) -> Option<&Share> {
        let share = self.shares.iter().max_by_key(|s| s.left())?;
        let expected = took.as_nanos() * u128::from(share.left()) / u128::from(done.max(1));
        (expected > WORTH_TAKING.as_nanos()).then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    #[test]
    fn pieces_come_from_both_ends() {
        let share = Share::default();
        assert_eq!((share.left(), share.front(1), share.back_half()), (0, None, None));
        share.fill(3..10);
        assert_eq!((share.front(2), share.back_half()), (Some(3..5), Some(7..10)));
        assert_eq!((share.left(), share.front(9), share.front(1)), (2, Some(5..7), None));
        share.fill(u32::MAX - 1..u32::MAX);
        assert_eq!((share.back_half(), share.left()), (Some(u32::MAX - 1..u32::MAX), 0));
    }

    /// One thread stands still in its first piece until all others have ended.
    #[test]
    fn what_a_thread_cannot_do_others_do() {
        let (extent, threads, late) = (4000, 4, 1);
        let done: Vec<AtomicUsize> = (0..extent).map(|_| AtomicUsize::new(0)).collect();
        let (ended, of_late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let body = |thread: usize, range: Range<u64>| {
            let taken = (range.end - range.start) as usize;
            if thread == late {
                of_late.fetch_add(taken, Ordering::Relaxed);
                while ended.load(Ordering::Acquire) + 1 < threads {
                    thread::yield_now();
                }
            } else {
                thread::sleep(Duration::from_micros(2 * taken as u64));
            }
            for i in range {
                done[i as usize].fetch_add(1, Ordering::Relaxed);
            }
        };
        let shares: Vec<Share> = (0..threads).map(|_| Share::default()).collect();
        let shared = Shared::new(&body, &shares, 0..extent as u64);
        thread::scope(|scope| {
            let (shared, ended) = (&shared, &ended);
            for thread in 0..threads {
                scope.spawn(move || {
                    shared.work(thread);
                    ended.fetch_add(1, Ordering::Release);
                });
            }
        });
        assert!(done.iter().all(|n| n.load(Ordering::Relaxed) == 1));
        // A quarter of its chunk, and what was not worth taking.
        let own = extent / threads;
        assert!(of_late.into_inner() <= own / 4 + own / 8);
    }

    #[test]
    fn loops_of_more_iterations_than_a_share_counts() {
        let extent = 3 * u64::from(u32::MAX) + 5;
        let count = AtomicU64::new(0);
        let body = |_: usize, range: Range<u64>| {
            count.fetch_add(range.end - range.start, Ordering::Relaxed);
        };
        let shares = [Share::default(), Share::default()];
        let shared = Shared::new(&body, &shares, 7..7 + extent);
        shared.work(0);
        shared.work_for(0, 1);
        assert_eq!(count.into_inner(), extent);
    }
}
