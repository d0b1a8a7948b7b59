//! A cheap elementwise stage is computed where it is read.
//!
//! ```text
//! t[i] = x[i] + 1;  y[i] = t[i] * 2   =>   y[i] = (x[i] + 1) * 2
//! ```

use super::analysis::is_strictly_inlinable;
use super::{Outcome, Rule, Space, State};
use crate::trace::StepError;

pub(super) struct AlwaysInline;

impl Rule for AlwaysInline {
    fn name(&self) -> &str {
        "inline"
    }

    fn apply(&self, _: &Space, state: &State) -> Result<Outcome, StepError> {
        if !is_strictly_inlinable(state.recorder.schedule(), state.stage()) {
            return Ok(Outcome::Skip);
        }
        let mut next = state.clone();
        let block = next.recorder.get_block(state.stage())?;
        next.recorder.compute_inline(block)?;
        Ok(Outcome::ApplyAndSkipRest(vec![next.next()]))
    }
}
