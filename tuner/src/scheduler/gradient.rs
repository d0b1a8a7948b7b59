//! By how much one more round of a task is expected to lower the objective.
//!
//! ```text
//! df/dt = df/dg * (alpha * (g(t) - g(t - window)) / window + (1 - alpha) * min(-g / t, beta * flops / V - g))
//! ```
//!
//! `g` is the best time of the task, `t` the rounds it had, `V` the best throughput among similar
//! tasks. The past counts as zero until there is enough of it.

use super::{Scheduler, TaskId};

/// The step of the difference quotient `df/dg`, in seconds.
const DELTA: f64 = 1e-4;

impl Scheduler {
    /// At most zero. A task without a time has no slope.
    pub(super) fn gradient(&self, task: TaskId) -> f64 {
        let progress = &self.tasks[task];
        let Some(best) = progress.best() else { return 0.0 };
        let alpha = self.options.alpha;
        let hope = -best / progress.rounds() as f64;
        let similar = self.catching_up(task, best).unwrap_or(f64::INFINITY);
        let slope = alpha * self.past(task) + (1.0 - alpha) * hope.min(similar);
        self.chain(task) * slope
    }

    /// The mean change of the best time in the last rounds. Zero if there were too few.
    fn past(&self, task: TaskId) -> f64 {
        self.slope_over(task, self.options.window).unwrap_or(0.0)
    }

    /// The mean change of the best time over the last rounds, if there were more.
    fn slope_over(&self, task: TaskId, rounds: usize) -> Option<f64> {
        let history = &self.tasks[task].history;
        let last = history.len().checked_sub(1)?;
        let before = history[last.checked_sub(rounds)?]?;
        Some((history[last]? - before) / rounds as f64)
    }

    /// The change of the best time that the throughput of the best similar task promises.
    fn catching_up(&self, task: TaskId, best: f64) -> Option<f64> {
        let throughput = self.groups.best_throughput(task, &self.tasks)?;
        Some(self.options.beta * self.tasks[task].spec.flops as f64 / throughput - best)
    }

    /// How the objective changes with the time of one task.
    pub(super) fn chain(&self, task: TaskId) -> f64 {
        let mut times = self.times();
        let Some(best) = times[task] else { return 0.0 };
        // No time below zero, however short the task.
        let delta = DELTA.min(best / 2.0);
        let now = self.objective_at(&times);
        times[task] = Some(best - delta);
        (now - self.objective_at(&times)) / delta
    }

    /// The share of the latency of all networks together that one more round is predicted to take
    /// away.
    ///
    /// The prediction for a task is what each of the latter half of its rounds brought; before
    /// there are more than the window, that its time goes down as its rounds go up. The round goes
    /// to the task that promises most.
    pub fn expected_gain(&self) -> f64 {
        let weighted = |i: TaskId| Some(self.tasks[i].best()? * self.tasks[i].spec.weight());
        let total: f64 = (0..self.tasks.len()).filter_map(weighted).sum();
        if self.alive().any(|i| self.tasks[i].rounds() == 0) {
            return 1.0;
        }
        let gains = self.alive().map(|i| self.predicted(i) * self.tasks[i].spec.weight());
        let most = gains.fold(0.0, f64::max);
        if total > 0.0 { most / total } else { 0.0 }
    }

    /// Seconds that one more round of the task takes away.
    fn predicted(&self, task: TaskId) -> f64 {
        let progress = &self.tasks[task];
        let rounds = progress.rounds();
        let latter_half = self.options.window.max(rounds / 2);
        match (progress.best(), self.slope_over(task, latter_half)) {
            (_, Some(slope)) => -slope,
            (Some(best), None) => best / rounds as f64,
            (None, None) => 0.0,
        }
    }
}
