//! Weights in large pages.
//!
//! A kernel that goes through many weights waits for the addresses of their pages, too. A processor
//! remembers some thousands of these, which are few megabytes if a page has 4 KiB, and what it
//! fetches ahead ends with a page. Pages of 2 MiB make long reads a fifth to a third faster. Those
//! of a mapped file are small.
//!
//! In: the weights of an artifact, and which ranges of them are used. Out: a copy of these at the
//! same places, in large pages where the system has any. Nothing, if they are few.
//!
//! ```text
//! file   | a | b | c | d |        a, c in use        memory | a |   | c |   |
//! ```

use std::io;
use std::ops::Range;
use std::sync::Mutex;
use std::thread;

use memmap2::{Mmap, MmapMut};

/// Fewer bytes fit what processors remember of pages.
const LEAST: usize = 16 << 20;
/// Bytes that one thread copies at a time.
const PIECE: usize = 4 << 20;
/// More threads wait for each other, or for memory.
const MOST_THREADS: usize = 8;

/// Zeroed memory, in large pages where there are any.
pub(crate) fn map(bytes: usize) -> io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes.max(1))?;
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(map)
}

/// A copy of the ranges that are in use, which are in order and apart. Each piece is told to `done`
/// as soon as it was copied, so that it need not be in memory twice.
pub(crate) fn copied(
    weights: &[u8],
    in_use: &[Range<usize>],
    done: impl Fn(Range<usize>) + Sync,
) -> Option<Mmap> {
    if in_use.iter().map(Range::len).sum::<usize>() < LEAST {
        return None;
    }
    let mut copy = map(weights.len()).ok()?;
    let pieces = Mutex::new(pieces(&mut copy, in_use).into_iter());
    let next = || pieces.lock().unwrap_or_else(|e| e.into_inner()).next();
    let work = || {
        while let Some((at, piece)) = next() {
            let range = at..at + piece.len();
            piece.copy_from_slice(&weights[range.clone()]);
            done(range);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    thread::scope(|scope| {
        for _ in 1..threads {
            // Where there are no more threads, fewer copy.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    drop(pieces);
    copy.make_read_only().ok()
}

/// Where pieces of the ranges begin, and the memory for them.
fn pieces<'a>(mut memory: &'a mut [u8], ranges: &[Range<usize>]) -> Vec<(usize, &'a mut [u8])> {
    let (mut all, mut begin) = (vec![], 0);
    for range in ranges {
        let (_, behind) = memory.split_at_mut(range.start - begin);
        let (own, rest) = behind.split_at_mut(range.len());
        (memory, begin) = (rest, range.end);
        all.extend((range.start..).step_by(PIECE).zip(own.chunks_mut(PIECE)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_stay_where_they_are() {
        let all = vec![1; LEAST];
        let nothing = |_| panic!("nothing is copied");
        assert!(copied(&all, std::slice::from_ref(&(0..LEAST - 1)), nothing).is_none());
        assert!(copied(&[], &[], nothing).is_none());
    }

    #[test]
    fn ranges_in_use_are_copied_once() {
        let all: Vec<u8> = (0..LEAST + 3 * PIECE).map(|i| (i % 251) as u8).collect();
        let in_use = [64..PIECE + 100, PIECE + 100..PIECE + 101, 2 * PIECE..all.len() - 1];
        let told = Mutex::new(vec![]);
        let copy = copied(&all, &in_use, |range| told.lock().unwrap().push(range)).unwrap();
        assert_eq!(copy.len(), all.len());
        for (at, (found, expected)) in copy.iter().zip(&all).enumerate() {
            let is_used = in_use.iter().any(|range| range.contains(&at));
            assert_eq!(*found, if is_used { *expected } else { 0 }, "{at}");
        }
        let mut told = told.into_inner().unwrap();
        told.sort_by_key(|range| range.start);
        let count: usize = told.iter().map(Range::len).sum();
        assert_eq!(count, in_use.iter().map(Range::len).sum::<usize>());
        assert!(told.windows(2).all(|two| two[0].end <= two[1].start));
    }
}
