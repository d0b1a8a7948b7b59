//! Runs of one session after another, and of several sessions at a time.

use std::sync::RwLock;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use ansc_runtime::{Model, Session, SessionOptions};

use crate::Error;
use crate::states::outside::Start;

/// Warm-up ends after this long or this many runs, whichever comes first.
const WARM_UP: (Duration, usize) = (Duration::from_millis(500), 20);
/// How long is measured, and how many runs at least, where nobody says.
const MEASURE: Duration = Duration::from_secs(3);
const MIN_RUNS: usize = 10;

/// When to begin, and when to end.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) warm_up: Option<usize>,
    pub(super) runs: Option<usize>,
    pub(super) duration: Option<Duration>,
}

/// The result of all streams.
pub(super) struct Measured {
    /// The time of each run, in milliseconds, one stream after the other.
    pub(super) times: Vec<f64>,
    /// When each run began.
    pub(super) begins: Vec<Instant>,
    /// Pieces of work that a trace had no room for.
    pub(super) dropped: u64,
    /// From the first run's beginning to the last one's end.
    pub(super) elapsed: Duration,
}

impl Measured {
    /// Runs in a second.
    pub(super) fn throughput(&self) -> f64 {
        self.times.len() as f64 / self.elapsed.as_secs_f64()
    }
}

impl Plan {
    pub(super) fn warm_up(&self, session: &mut Session, inputs: &Start<'_>) -> Result<(), Error> {
        let start = Instant::now();
        for _ in 0..self.warm_up.unwrap_or(WARM_UP.1) {
            inputs.set_again(session)?;
            inputs.run(session)?;
            if self.warm_up.is_none() && start.elapsed() > WARM_UP.0 {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn measure(
        &self,
        session: &mut Session,
        inputs: &Start<'_>,
    ) -> Result<Measured, Error> {
        let start = Instant::now();
        let (mut times, mut begins) = (Vec::new(), Vec::new());
        while !self.is_enough(times.len(), start.elapsed()) {
            inputs.set_again(session)?;
            let begin = Instant::now();
            inputs.run(session)?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            begins.push(begin);
        }
        Ok(Measured { times, begins, dropped: 0, elapsed: start.elapsed() })
    }

    fn is_enough(&self, runs: usize, elapsed: Duration) -> bool {
        match (self.runs, self.duration) {
            (Some(wanted), _) => runs >= wanted.max(1),
            (None, Some(wanted)) => runs >= 1 && elapsed >= wanted,
            (None, None) => runs >= MIN_RUNS && elapsed > MEASURE,
        }
    }

    /// The same in `streams` sessions of a model at a time, each on a thread of its own. All begin
    /// together.
    pub(super) fn measure_streams(
        &self,
        model: &Model,
        options: &SessionOptions,
        streams: usize,
        inputs: &Start<'_>,
    ) -> Result<Measured, Error> {
        let mut sessions = (0..streams)
            .map(|_| Ok(model.session_with(options)?))
            .collect::<Result<Vec<Session>, Error>>()?;
        for session in &mut sessions {
            inputs.set(session)?;
            self.warm_up(session, inputs)?;
        }
        // Streams wait for whoever starts them: for all of them to be there, or for the news that
        // one is not.
        let all_there = RwLock::new(false);
        let stream = |mut session: Session| -> Result<Option<(Instant, Measured)>, Error> {
            if !*all_there.read().expect("whoever starts streams does not panic") {
                return Ok(None);
            }
            let begin = Instant::now();
            Ok(Some((begin, self.measure(&mut session, inputs)?)))
        };
        let all = thread::scope(|scope| -> Result<Vec<_>, Error> {
            let mut starting = all_there.write().expect("no stream panics");
            let start = |session| thread::Builder::new().spawn_scoped(scope, || stream(session));
            let threads: Result<Vec<ScopedJoinHandle<'_, _>>, _> =
                sessions.into_iter().map(start).collect();
            *starting = threads.is_ok();
            drop(starting);
            let threads = threads
                .map_err(|e| Error::Machine(format!("no threads for {streams} streams: {e}")))?;
            threads.into_iter().map(|t| t.join().expect("a stream does not panic")).collect()
        })?;
        let all: Vec<(Instant, Measured)> = all.into_iter().flatten().collect();
        let first = all.iter().map(|(begin, _)| *begin).min().expect("at least one stream");
        let last = all.iter().map(|(begin, measured)| *begin + measured.elapsed).max();
        let elapsed = last.expect("at least one stream") - first;
        let mut together = Measured { times: vec![], begins: vec![], dropped: 0, elapsed };
        for (_, measured) in all {
            together.times.extend(measured.times);
            together.begins.extend(measured.begins);
        }
        Ok(together)
    }
}
