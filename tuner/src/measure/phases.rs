//! The phases that the time of a run went to.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use crate::outcome::median;

/// Seconds of everything that was done, by what it was.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Phases {
    all: BTreeMap<&'static str, Vec<f64>>,
}

/// All of one kind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Phase {
    /// The phase, in a word or two.
    pub name: &'static str,
    /// How often it happened.
    pub times: usize,
    /// Seconds of all times together.
    pub seconds: f64,
    /// The median of the times.
    pub median_seconds: f64,
}

impl Phases {
    /// Adds a time to a phase.
    pub fn add(&mut self, name: &'static str, seconds: f64) {
        self.all.entry(name).or_default().push(seconds);
    }

    /// Adds the time from `start` until now to a phase.
    pub fn since(&mut self, name: &'static str, start: Instant) {
        self.add(name, start.elapsed().as_secs_f64());
    }

    /// Seconds that a phase took so far.
    pub fn total(&self, name: &str) -> f64 {
        self.all.get(name).map_or(0.0, |all| all.iter().sum())
    }

    /// By name.
    pub fn summary(&self) -> Vec<Phase> {
        let phase = |(&name, all): (&&'static str, &Vec<f64>)| Phase {
            name,
            times: all.len(),
            seconds: all.iter().sum(),
            median_seconds: median(all),
        };
        self.all.iter().map(phase).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_add_up() {
        let mut phases = Phases::default();
        assert_eq!(phases.summary(), []);
        [3.0, 1.0, 2.0].into_iter().for_each(|s| phases.add("link", s));
        phases.add("build", 4.0);
        assert_eq!(phases.total("link"), 6.0);
        let found = phases.summary();
        assert_eq!(found[0].name, "build");
        let link = Phase { name: "link", times: 3, seconds: 6.0, median_seconds: 2.0 };
        assert_eq!(found[1], link);
    }
}
