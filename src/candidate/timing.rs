//! Runs of an artifact, timed.

use std::hint::black_box;
use std::time::Instant;

use ansc_runtime::{RunError, Session, Tensor, View, ViewMut};
use ansc_tuner::measure::protocol::{Cold, Timing};

use super::cold::evict;
use super::pace::Pace;

/// Samples after which a candidate that is not close to the best is let go.
const GLANCE: usize = 4;
/// Times the limit, and seconds above it, beyond which the very first run tells that a candidate is
/// hopeless: more than what comes of cold memory and of the machine's mood.
const HOPELESS: (f64, f64) = (2.0, 0.05);
/// More than the last-level cache of any CPU that we know.
pub(super) const FLUSH_BYTES: usize = 128 << 20;

/// A session with memory for its inputs and outputs, so that a run allocates nothing.
pub(super) struct Runs<'a> {
    session: &'a mut Session,
    inputs: &'a [Tensor],
    names: [Vec<String>; 2],
    outputs: Vec<Tensor>,
    /// Inputs that every timed run finds in memory.
    cold: Vec<usize>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(session: &'a mut Session, inputs: &'a [Tensor]) -> Runs<'a> {
        let outputs = session.outputs().iter().map(|p| Tensor::zeros(p.dtype, &p.shape)).collect();
        let names = [session.inputs(), session.outputs()]
            .map(|ports| ports.iter().map(|p| p.name.clone()).collect());
        Runs { session, inputs, names, outputs, cold: vec![] }
    }

    /// Seconds of `n` runs together.
    pub(super) fn run(&mut self, n: usize) -> Result<f64, RunError> {
        let views: Vec<(&str, View<'_>)> =
            self.names[0].iter().zip(self.inputs).map(|(n, t)| (n.as_str(), t.into())).collect();
        let outputs = self.names[1].iter().zip(&mut self.outputs);
        let mut targets: Vec<(&str, ViewMut<'_>)> =
            outputs.map(|(n, t)| (n.as_str(), t.into())).collect();
        let start = Instant::now();
        for _ in 0..n {
            self.session.run_into(&views, &mut targets)?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Seconds of `n` runs whose inputs are where they are needed: what a GPU's own clock says, and
    /// a CPU's.
    pub(super) fn seconds(&mut self, n: usize) -> Result<f64, RunError> {
        match self.session.device() {
            Some(mut device) => device.seconds(n),
            None if self.cold.is_empty() => self.run(n),
            None => (0..n).map(|_| self.run_cold()).sum(),
        }
    }

    fn run_cold(&mut self) -> Result<f64, RunError> {
        self.cold.iter().for_each(|&input| evict(self.inputs[input].bytes()));
        self.run(1)
    }

    /// Seconds of a run, as often as `timing` asks for; the first run counts only where it is
    /// enough to give up.
    pub(super) fn time(
        &mut self,
        timing: &Timing,
        pace: &mut Pace<'_>,
    ) -> Result<Vec<f64>, RunError> {
        if let Cold::Inputs(cold) = &timing.cold {
            self.cold.clone_from(cold);
        }
        // It also brings the inputs to a GPU.
        let cold = self.run(1)?;
        if timing.give_up.is_some_and(|limit| cold > HOPELESS.0 * limit + HOPELESS.1) {
            return Ok(vec![cold]);
        }
        let first = self.seconds(1)?.max(1e-9);
        let scaled = first * pace.step()?;
        if timing.give_up.is_some_and(|limit| scaled > limit) {
            return Ok(vec![scaled]);
        }
        if timing.cold == Cold::Everything {
            return self.flushed(timing, first);
        }
        let repeats = (timing.sample_seconds / first).ceil().max(1.0);
        let samples = samples(timing, first * repeats + pace.each());
        // A run as long as a glance tells as much.
        let long = first >= GLANCE as f64 * timing.sample_seconds;
        let (mut all, glance) = if long { (vec![scaled], 1) } else { (vec![], GLANCE) };
        while all.len() < samples {
            let slow = |limit: f64| all.iter().all(|&seconds| seconds > limit);
            if all.len() == glance && timing.not_close.is_some_and(slow) {
                break;
            }
            let seconds = self.seconds(repeats as usize)? / repeats;
            all.push(seconds * pace.step()?);
        }
        Ok(all)
    }

    fn flushed(&mut self, timing: &Timing, first: f64) -> Result<Vec<f64>, RunError> {
        if self.session.device().is_some() {
            return self.flushed_on_gpu(timing, first);
        }
        let mut trash = vec![0u8; FLUSH_BYTES];
        (0..samples(timing, first))
            .map(|i| {
                trash.iter_mut().step_by(64).for_each(|b| *b = b.wrapping_add(i as u8));
                black_box(&trash);
                self.run(1)
            })
            .collect()
    }

    fn flushed_on_gpu(&mut self, timing: &Timing, first: f64) -> Result<Vec<f64>, RunError> {
        let count = samples(timing, first);
        let Some(mut device) = self.session.device() else { return Ok(vec![]) };
        let sample = |_| {
            device.flush()?;
            device.seconds(1)
        };
        (0..count).map(sample).collect()
    }
}

fn samples(timing: &Timing, each: f64) -> usize {
    let fit = (timing.seconds / each) as usize;
    fit.clamp(timing.min_samples.max(1), timing.max_samples.max(1).max(timing.min_samples))
}
