//! Failures in a row, after which the fault is not the candidates'.

use super::MeasureError;
use crate::outcome::{Failure, Outcome};

const MOST_IN_A_ROW: usize = 150;

/// Counts failures in a row.
#[derive(Default)]
pub(crate) struct Failures(usize);

impl Failures {
    /// Counts failures in a row, but for candidates that ran too long: a slow part of a space may
    /// be large, and a strategy begin in it.
    pub(crate) fn count(&mut self, outcome: &Outcome) -> Result<(), MeasureError> {
        let Some(last) = outcome.failure() else {
            self.0 = 0;
            return Ok(());
        };
        if last != Failure::Timeout {
            self.0 += 1;
        }
        if self.0 >= MOST_IN_A_ROW {
            return Err(MeasureError::AllFail { count: self.0, last });
        }
        Ok(())
    }
}
