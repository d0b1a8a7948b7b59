//! A stage with data reuse that no stage can be fused with writes to registers, whose copy can.
//!
//! ```text
//! c[i, j] = sum[k] ..   =>   c_local[i, j] = sum[k] ..;  c[i, j] = c_local[i, j]
//! ```

use crate::program::Scope;
use crate::rules::{Outcome, Rule, Space, State, elementwise_consumer, needs_tiling};
use crate::trace::StepError;

pub(super) struct AddCacheWrite;

impl Rule for AddCacheWrite {
    fn name(&self) -> &str {
        "cache write"
    }

    fn apply(&self, _: &Space, state: &State) -> Result<Outcome, StepError> {
        let (schedule, stage) = (state.recorder.schedule(), state.stage());
        if !needs_tiling(schedule, stage) || elementwise_consumer(schedule, stage).is_some() {
            return Ok(Outcome::Skip);
        }
        let mut next = state.clone();
        let block = next.recorder.get_block(stage)?;
        next.recorder.cache_write(block, Scope::Local)?;
        next.cached.push(stage.to_owned());
        Ok(Outcome::ApplyAndSkipRest(vec![next]))
    }
}
