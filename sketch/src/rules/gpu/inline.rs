//! A stage that is no reduction and no result is computed where it is read, branches or not.
//!
//! ```text
//! p[i] = i < 8 ? x[i] : 0;  s_shared[i] = p[i]   =>   s_shared[i] = i < 8 ? x[i] : 0
//! ```

use crate::program::{Body, Scope};
use crate::rules::{Outcome, Rule, Space, State};
use crate::trace::StepError;

pub(super) struct AlwaysInline;

impl Rule for AlwaysInline {
    fn name(&self) -> &str {
        "inline"
    }

    fn apply(&self, _: &Space, state: &State) -> Result<Outcome, StepError> {
        let schedule = state.recorder.schedule();
        let block = schedule.block(state.stage())?;
        let written = schedule.program().buffer(block.body.writes()[0].buffer).scope;
        if !matches!(block.body, Body::Assign { .. }) || written == Scope::Output {
            return Ok(Outcome::Skip);
        }
        let mut next = state.clone();
        let block = next.recorder.get_block(state.stage())?;
        next.recorder.compute_inline(block)?;
        Ok(Outcome::ApplyAndSkipRest(vec![next.next()]))
    }
}
