//! A stage stays as it is.

use super::{Outcome, Rule, Space, State};
use crate::trace::StepError;

pub(super) struct SkipStage;

impl Rule for SkipStage {
    fn name(&self) -> &str {
        "skip"
    }

    fn apply(&self, _: &Space, state: &State) -> Result<Outcome, StepError> {
        Ok(Outcome::Apply(vec![state.clone().next()]))
    }
}
