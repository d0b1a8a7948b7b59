//! From a trace to the program that it stands for.
//!
//! ```text
//! trace of a task --replay, what is undecided is drawn--> schedule
//!     --postprocess--> program, packed constants
//! ```

use std::sync::Arc;

use rand::Rng;

use crate::budget;
use crate::packed::in_turn;
use crate::postprocess::{self, postprocess};
use crate::schedule::Schedule;
use crate::scheduled::Scheduled;
use crate::task::Task;
use crate::trace::{Recorder, StepError, Trace, TraceError, Unfit};

/// One point of the space.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// With all its decisions.
    pub trace: Trace,
    pub scheduled: Scheduled,
}

impl Task {
    /// Replays a trace and makes a program of it; what is undecided is drawn.
    pub fn sample(
        self: &Arc<Task>,
        trace: &Trace,
        unfit: Unfit,
        random: &mut dyn Rng,
    ) -> Result<Sample, TraceError> {
        let recorder = trace.replay_on(Recorder::of_task(self.clone()), unfit, random)?;
        let complete = recorder.packings().cloned();
        let prepared = recorder.prepared().to_vec();
        let packed = recorder.packed().to_vec();
        let (schedule, trace) = recorder.into_parts();
        let mut scheduled = match complete {
            Some(packings) => Scheduled { program: schedule.into_program(), packings },
            None => {
                let finished = self.finished(schedule).map_err(|cause| TraceError {
                    step: trace.steps.len(),
                    instruction: "what follows from the trace".into(),
                    cause: Box::new(cause),
                })?;
                Scheduled { packings: in_turn(packed, finished.packings), ..finished }
            }
        };
        scheduled.packings = in_turn(prepared, scheduled.packings);
        Ok(Sample { trace, scheduled })
    }

    /// The program after postprocessing for the machine, if it becomes no more code than a kernel
    /// may have. For a GPU, a program that [`gpu::lower`](crate::gpu::lower) takes.
    fn finished(&self, schedule: Schedule) -> Result<Scheduled, StepError> {
        if let Some(limits) = &self.gpu {
            let program = postprocess::bound_program(schedule, limits)?;
            budget::check(&program, &budget::GPU)?;
            return Ok(Scheduled { program, packings: vec![] });
        }
        let machine =
            postprocess::Machine { cores: self.cores, vector_bytes: self.machine.vector_bytes };
        let scheduled = postprocess(schedule, &self.constant, &machine);
        budget::check(&scheduled.program, &self.machine)?;
        Ok(scheduled)
    }
}
