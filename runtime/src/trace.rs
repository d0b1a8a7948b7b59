//! Records when each thread did which work, for pictures of a run.
//!
//! Each thread of the pool writes to room of its own that was made before, so that a traced run
//! allocates nothing and no thread waits for another: an event costs two readings of the clock and
//! 24 bytes. Events that find no room are counted and left out.

use std::cell::UnsafeCell;
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
}

/// On cache lines of its own.
#[repr(align(128))]
struct OfThread(UnsafeCell<Events>);

/// Events of one thread.
struct Events {
    kept: Vec<Raw>,
    dropped: u64,
}

/// An event, in nanoseconds from the recorder's origin, which reach for centuries.
#[derive(Clone, Copy)]
struct Raw {
    step: u32,
    start: u64,
    duration: u64,
}

/// An event without its names.
pub(crate) struct Span {
    pub(crate) step: usize,
    pub(crate) thread: usize,
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
        let events = || Events { kept: Vec::with_capacity(room), dropped: 0 };
        Recorder {
            threads: (0..threads).map(|_| OfThread(UnsafeCell::new(events()))).collect(),
            room,
            origin: Instant::now(),
        }
    }

    /// When the times of events count from.
    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    /// Notes that thread `thread` of the pool worked on a step since `began`. That thread calls it,
    /// inside of a run of the session that the recorder belongs to.
    pub(crate) fn record(&self, thread: usize, step: usize, began: Instant) {
        let ended = Instant::now();
        // SAFETY: as above; a session runs one thing at a time, as that takes it by unique
        // reference.
        let events = unsafe { &mut *self.threads[thread].0.get() };
        if events.kept.len() == self.room {
            events.dropped += 1;
            return;
        }
        events.kept.push(Raw {
            step: step as u32,
            start: began.duration_since(self.origin).as_nanos() as u64,
            duration: ended.duration_since(began).as_nanos() as u64,
        });
    }

    /// All events, thread by thread, and how many were dropped.
    pub(crate) fn into_spans(self) -> (impl Iterator<Item = Span>, u64) {
        let threads: Vec<Events> = self.threads.into_iter().map(|of| of.0.into_inner()).collect();
        let dropped = threads.iter().map(|events| events.dropped).sum();
        let spans = threads.into_iter().enumerate().flat_map(|(thread, events)| {
            events.kept.into_iter().map(move |raw| Span {
                step: raw.step as usize,
                thread,
                start: Duration::from_nanos(raw.start),
                duration: Duration::from_nanos(raw.duration),
            })
        });
        (spans, dropped)
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
        let (spans, dropped) = recorder.into_spans();
        let steps: Vec<(usize, usize)> = spans.map(|span| (span.thread, span.step)).collect();
        assert_eq!((steps, dropped), (vec![(0, 3), (1, 5)], 1));
    }
}
