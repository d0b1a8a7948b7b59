//! News of each candidate of a round.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;

/// Is told of each candidate of a round.
pub trait Each {
    /// The candidate of this place is about to run. If this is false, the round ends before it.
    fn begins(&mut self, _place: usize) -> bool {
        true
    }

    /// There is no such candidate: it could not be made.
    fn is_missing(&mut self, _place: usize) {}

    /// It ended so.
    fn ends(&mut self, place: usize, outcome: Outcome);
}

/// Collects outcomes.
impl Each for Vec<Outcome> {
    fn ends(&mut self, _place: usize, outcome: Outcome) {
        self.push(outcome);
    }
}

/// The machine that measured, and when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The name of the machine.
    pub machine: String,
    /// Seconds since 1970.
    pub time: u64,
}

impl Place {
    /// The machine of this name, now.
    pub fn now(machine: &str) -> Place {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Place { machine: machine.into(), time: since.map_or(0, |d| d.as_secs()) }
    }
}
