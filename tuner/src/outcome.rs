//! The outcome of a candidate: its times, or why there are none.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

/// The times of one candidate, or why there are none.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Seconds of one run each, in the order of measurement; never empty, all finite and positive.
    Seconds(Vec<f64>),
    /// It has no time, for this reason.
    Failed(Failure),
}

/// Why a candidate has no time. Each is the candidate's own fault: what ends the tuner is an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The code generator refused it.
    Build,
    /// It took too long to build.
    BuildTimeout,
    /// It took too long to run.
    Timeout,
    /// The process died: a signal, an illegal instruction, an abort.
    Crash,
    /// It asked for more memory than it may have.
    Memory,
    /// It computes something else than the reference.
    WrongResult,
    /// Two workers of a fleet ended while they ran it.
    Poison,
}

impl Failure {
    /// Every reason once, in the order of the variants.
    pub const ALL: [Failure; 7] = [
        Failure::Build,
        Failure::BuildTimeout,
        Failure::Timeout,
        Failure::Crash,
        Failure::Memory,
        Failure::WrongResult,
        Failure::Poison,
    ];
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Build => "does not build",
            Failure::BuildTimeout => "takes too long to build",
            Failure::Timeout => "takes too long",
            Failure::Crash => "crashes",
            Failure::Memory => "needs too much memory",
            Failure::WrongResult => "computes something else",
            Failure::Poison => "ends the workers that run it",
        })
    }
}

impl Outcome {
    /// The median of the times.
    pub fn seconds(&self) -> Option<f64> {
        match self {
            Outcome::Seconds(all) => Some(median(all)),
            Outcome::Failed(_) => None,
        }
    }

    /// A quarter of the times is at most this.
    pub fn lower_quartile(&self) -> Option<f64> {
        self.quarters(1)
    }

    /// Three quarters of the times are at most this.
    pub fn upper_quartile(&self) -> Option<f64> {
        self.quarters(3)
    }

    fn quarters(&self, n: usize) -> Option<f64> {
        match self {
            Outcome::Seconds(all) => Some(quantile(all, n, 4)),
            Outcome::Failed(_) => None,
        }
    }

    /// Adds another measurement of the same program.
    pub fn pool(&mut self, other: Outcome) {
        match (&mut *self, other) {
            (Outcome::Seconds(all), Outcome::Seconds(more)) => all.extend(more),
            (Outcome::Failed(_), _) => {}
            (_, failed) => *self = failed,
        }
    }

    /// Why there is no time, if there is none.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Outcome::Seconds(_) => None,
            Outcome::Failed(failure) => Some(*failure),
        }
    }
}

/// The lower one of two middle values.
///
/// # Panics
/// If there are no values.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 1, 2)
}

/// The least value that at least `part` of `whole` of all are not above.
fn quantile(values: &[f64], part: usize, whole: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * part).div_ceil(whole) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.0);
        let quartile = |all: &[f64]| Outcome::Seconds(all.to_vec()).upper_quartile();
        assert_eq!(quartile(&[3.0]), Some(3.0));
        assert_eq!(quartile(&[3.0, 1.0, 2.0]), Some(3.0));
        assert_eq!(quartile(&[4.0, 1.0, 3.0, 2.0]), Some(3.0));
    }

    #[test]
    fn outcomes_in_json() {
        let text = |o: &Outcome| serde_json::to_string(o).unwrap();
        assert_eq!(text(&Outcome::Seconds(vec![0.5])), r#"{"seconds":[0.5]}"#);
        assert_eq!(text(&Outcome::Failed(Failure::Crash)), r#"{"failed":"crash"}"#);
    }
}
