//! How records tell the runs of a comparison apart: by the version of the compiler, to which the
//! run is added.
//!
//! ```text
//! 0.1.0+lab.SSRSRS.g-bfs.3.15250        space, strategy, seed; milliseconds since the run began
//! 0.1.0+lab.SSRSRS.g-bfs.3.settled      measured again at the end
//! ```

use super::Options;
use crate::outcome::Outcome;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tag {
    pub(super) space: String,
    pub(super) strategy: String,
    pub(super) seed: u64,
}

pub(super) const SETTLED: &str = "settled";

/// When a record of a run was made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum When {
    Seconds(f64),
    Settled,
}

impl Tag {
    pub(super) fn text(&self, options: &Options, when: &str) -> String {
        format!("{}+{}{when}", options.version, self.prefix())
    }

    fn prefix(&self) -> String {
        format!("lab.{}.{}.{}.", self.space, self.strategy, self.seed)
    }

    /// When a record of this version was made, if it is one of this run.
    pub(super) fn when(&self, version: &str) -> Option<When> {
        let when = version.split_once('+')?.1.strip_prefix(&self.prefix())?;
        match when {
            SETTLED => Some(When::Settled),
            _ => Some(When::Seconds(when.parse::<u64>().ok()? as f64 * 1e-3)),
        }
    }
}

/// The times with ten digits, which are the same after they were written and read.
pub(super) fn rounded(outcome: Outcome) -> Outcome {
    let round = |seconds: f64| format!("{seconds:.9e}").parse().unwrap_or(seconds);
    match outcome {
        Outcome::Seconds(all) => Outcome::Seconds(all.into_iter().map(round).collect()),
        failed => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_other_runs_are_not_taken() {
        let tag = Tag { space: "SSRSRS+unroll".into(), strategy: "g-bfs".into(), seed: 3 };
        let table = [
            ("0.1.0+lab.SSRSRS+unroll.g-bfs.3.15250", Some(When::Seconds(15.25))),
            ("0.2.0+lab.SSRSRS+unroll.g-bfs.3.settled", Some(When::Settled)),
            ("0.1.0+lab.SSRSRS+unroll.g-bfs.30.1", None),
            ("0.1.0+lab.SSRSRS.g-bfs.3.1", None),
            ("0.1.0+lab.SSRSRS+unroll.g-bfs.3.x", None),
            ("0.1.0", None),
        ];
        for (version, when) in table {
            assert_eq!(tag.when(version), when, "{version}");
        }
    }
}
