//! How fast the machine is at this moment, as against when a task was first measured.
//!
//! ```text
//! pace  sample  pace  sample  pace  ..
//! ```
//! Shared machines change their speed by much and within a second: what is timed alone is a sample
//! of the machine. A fixed artifact is run before and after every sample, and the sample scaled by
//! what that artifact took at first.

use ansc_runtime::RunError;

use super::timing::Runs;

/// Changes of the machine's speed beyond this are not believed to be the machine's.
const MOST_DRIFT: f64 = 2.0;

/// A fixed artifact, or nothing: then times stay as they are.
#[derive(Default)]
pub(super) struct Pace<'a>(Option<Beside<'a>>);

struct Beside<'a> {
    runs: Runs<'a>,
    /// Seconds of a run at first, and in the last sample.
    at_first: f64,
    last: f64,
    repeats: usize,
}

impl<'a> Pace<'a> {
    /// Samples of it take about `sample` seconds, or one run. What runs is warm.
    pub(super) fn new(
        mut runs: Runs<'a>,
        at_first: f64,
        sample: f64,
    ) -> Result<Pace<'a>, RunError> {
        let repeats = (sample / at_first.max(1e-9)).ceil().max(1.0) as usize;
        let last = runs.seconds(repeats)? / repeats as f64;
        Ok(Pace(Some(Beside { runs, at_first, last, repeats })))
    }

    /// The factor for a time that was taken since the last call. It scales that time to the speed
    /// that the machine had at first.
    pub(super) fn step(&mut self) -> Result<f64, RunError> {
        let Some(beside) = &mut self.0 else { return Ok(1.0) };
        let now = beside.runs.seconds(beside.repeats)? / beside.repeats as f64;
        let before = std::mem::replace(&mut beside.last, now);
        Ok(scale(beside.at_first, before, now))
    }

    /// Seconds of a step.
    pub(super) fn each(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |beside| beside.last * beside.repeats as f64)
    }
}

/// Between two runs of the fixed artifact, for a machine on which it takes `at_first`. The faster
/// of the two counts: a burst during the other would make a candidate look fast that is not.
fn scale(at_first: f64, before: f64, after: f64) -> f64 {
    let ratio = at_first / before.min(after);
    if (1.0 / MOST_DRIFT..MOST_DRIFT).contains(&ratio) { ratio } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_beside_changes_nothing() {
        let mut pace = Pace::default();
        assert_eq!((pace.step().unwrap(), pace.each()), (1.0, 0.0));
    }

    #[test]
    fn a_burst_is_not_the_machine() {
        assert_eq!(scale(1.0, 1.0, 19.0), 1.0);
        assert_eq!(scale(1.0, 1.8, 1.0), 1.0);
        assert_eq!(scale(2.5, 1.0, 1.0), 1.0);
    }

    #[test]
    fn times_of_a_slower_machine_become_shorter() {
        assert_eq!(scale(1.0, 1.25, 1.5), 0.8);
        assert_eq!(scale(1.0, 1.25, 1.25), 0.8);
    }
}
