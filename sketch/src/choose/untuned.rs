//! The schedule of a task that nobody tuned.

use std::sync::Arc;

use super::{Choice, estimate, in_tiles, on_gpu, untuned};
use crate::algorithm::Algorithm;
use crate::gpu::{GpuLimits, GpuProgram, lower};
use crate::scheduled::Scheduled;
use crate::task::Task;
use crate::trace::{StepError, Trace};

impl Task {
    /// The algorithm that is taken where nobody searched, if it is not that of the expression.
    pub fn preferred(&self) -> Option<Algorithm> {
        self.choice().and_then(|choice| choice.by)
    }

    /// The schedule that is taken where nobody searched.
    pub fn choice(&self) -> Option<Choice> {
        self.choice_of(false)
    }

    /// The same by algorithms that leave constants as large as they are.
    pub fn small_choice(&self) -> Option<Choice> {
        self.choice_of(true)
    }

    fn choice_of(&self, small: bool) -> Option<Choice> {
        let unsure = self.machine.correction.0.is_some();
        estimate::field(&Arc::new(self.clone()), small, unsure).map(|field| field.decide(self))
    }

    /// The schedules among which prices choose where nobody searched. The first is what analytic
    /// ones choose; those that measurements correct may prefer another one.
    pub fn considered(self: &Arc<Task>) -> Vec<Choice> {
        estimate::field(self, false, true).map_or_else(Vec::new, |field| field.choices().collect())
    }

    /// The program of a GPU that nobody tuned, and what it is computed by.
    pub fn untuned_on_gpu(
        self: &Arc<Task>,
        limits: &GpuLimits,
    ) -> Result<(GpuProgram, Option<Algorithm>), StepError> {
        let (sketch, scheduled) = on_gpu(self)?;
        Ok((lower(&scheduled.program, limits)?, sketch.trace.algorithm()))
    }

    /// The trace of the schedule that nobody tuned.
    pub fn untuned(self: &Arc<Task>) -> Trace {
        if self.gpu.is_some() {
            return on_gpu(self).map_or_else(|_| Trace::default(), |(sketch, _)| sketch.trace);
        }
        self.choice().map_or_else(Trace::default, |choice| choice.sketch.trace)
    }

    /// The schedule that nobody tuned.
    pub fn scheduled(&self) -> Scheduled {
        self.choice().map_or_else(|| self.unscheduled(), |choice| choice.scheduled)
    }

    /// The same of what the algorithm makes of the subgraph; of the subgraph itself, if the
    /// algorithm does not apply.
    pub fn scheduled_as(&self, algorithm: Option<Algorithm>) -> Scheduled {
        let task = Arc::new(self.clone());
        if algorithm == Some(Algorithm::Tiles)
            && let Some(tiled) = in_tiles(&task).and_then(|field| field.choices().next())
        {
            return tiled.scheduled;
        }
        let made = untuned(&task, algorithm).or_else(|| untuned(&task, None));
        made.map_or_else(|| self.unscheduled(), |(_, scheduled)| scheduled)
    }

    /// A GPU may not take a subgraph at all.
    fn unscheduled(&self) -> Scheduled {
        Scheduled { program: crate::finish(self.naive()), packings: vec![] }
    }
}
