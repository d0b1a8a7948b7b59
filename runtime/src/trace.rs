//! Records when each thread did which work, for pictures of a run.
//!
//! Each thread of the pool writes to room of its own that was made before, so that a traced run
//! allocates nothing and no thread waits for another. Events that find no room are counted and left
//! out.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::program::StepKind;

/// A piece of work of one thread; see [`Session::take_trace`](crate::Session::take_trace).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// The step of the plan, counted as in [`Session::step_times`](crate::Session::step_times).
    pub step: usize,
    /// The name of the kernel, node or buffer.
    pub name: String,
    /// The kind of the step.
    pub kind: StepKind,
    /// The thread of the pool: 0 is the one that called.
    pub thread: usize,
    /// From the beginning of the trace.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
}

/// All events of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Thread by thread, each in order.
    pub events: Vec<TraceEvent>,
    /// Events for which there was no room.
    pub dropped: u64,
}

/// Room for the events of each thread.
pub(crate) struct Recorder {
    origin: Instant,
    threads: Vec<OfThread>,
    room: usize,
    dropped: AtomicU64,
}

/// On cache lines of its own.
#[repr(align(128))]
struct OfThread(UnsafeCell<Vec<Raw>>);

#[derive(Clone, Copy)]
pub(crate) struct Raw {
    pub(crate) step: u32,
    pub(crate) start: Duration,
    pub(crate) duration: Duration,
}

// SAFETY: thread `i` of the pool is one thread at a time, and the only one that writes to room `i`
// (see `record`); nothing reads before the run has ended, which every thread of the pool is waited
// for.
unsafe impl Sync for Recorder {}

impl Recorder {
    /// Room for so many events of each thread.
    pub(crate) fn new(threads: usize, room: usize) -> Recorder {
        let of_thread = || OfThread(UnsafeCell::new(Vec::with_capacity(room)));
        Recorder {
            origin: Instant::now(),
            threads: (0..threads).map(|_| of_thread()).collect(),
            room,
            dropped: AtomicU64::new(0),
        }
    }

    /// Notes that thread `thread` of the pool worked on a step since `began`. That thread calls it,
    /// inside of a run of the session that the recorder belongs to.
    pub(crate) fn record(&self, thread: usize, step: usize, began: Instant) {
        let (start, duration) = (began.duration_since(self.origin), began.elapsed());
        // SAFETY: as above; a session runs one thing at a time, as that takes it by unique
        // reference.
        let events = unsafe { &mut *self.threads[thread].0.get() };
        if events.len() < self.room {
            events.push(Raw { step: step as u32, start, duration });
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The events of each thread, and how many were dropped.
    pub(crate) fn into_events(self) -> (Vec<Vec<Raw>>, u64) {
        let events = self.threads.into_iter().map(|of| of.0.into_inner()).collect();
        (events, self.dropped.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let recorder = Recorder::new(2, 1);
        let began = Instant::now();
        recorder.record(0, 3, began);
        recorder.record(0, 4, began);
        recorder.record(1, 5, began);
        let (events, dropped) = recorder.into_events();
        let steps: Vec<Vec<u32>> =
            events.iter().map(|of| of.iter().map(|e| e.step).collect()).collect();
        assert_eq!((steps, dropped), (vec![vec![3], vec![5]], 1));
    }
}
