//! The objective that tuning minimises (Ansor, table 2).

use super::Scheduler;

/// A function of the times of all tasks; `w` are weights, `g` times, a sum goes over the tasks of a
/// network.
#[derive(Clone, PartialEq, Debug)]
pub enum Objective {
    /// f1, the latency of all networks: the sum of `w * g`.
    Latency,
    /// f2, the latency above what is required of each network: the sum of `max(sum of w * g,
    /// required)`.
    Requirement(Vec<f64>),
    /// f3, the geometric mean of speedups over reference latencies, negative.
    Speedup(Vec<f64>),
    /// f4, the latency, where a task that did not improve for so many trials counts as done: `w *
    /// max(g, ES)`.
    EarlyStopping(usize),
}

impl Scheduler {
    pub(super) fn times(&self) -> Vec<Option<f64>> {
        self.tasks.iter().map(|t| t.best()).collect()
    }

    pub(super) fn objective(&self) -> f64 {
        self.objective_at(&self.times())
    }

    /// The objective if these were the times. A task without one counts nothing.
    pub(super) fn objective_at(&self, times: &[Option<f64>]) -> f64 {
        match &self.options.objective {
            Objective::Latency => self.latencies(times).iter().sum(),
            Objective::Requirement(required) => {
                let networks = self.latencies(times).into_iter().enumerate();
                networks.map(|(j, latency)| latency.max(at(required, j, 0.0))).sum()
            }
            Objective::Speedup(reference) => {
                let latencies = self.latencies(times);
                let logs = latencies.iter().enumerate().filter(|(_, latency)| **latency > 0.0);
                let sum: f64 = logs.map(|(j, l)| (at(reference, j, 1.0) / l).ln()).sum();
                -(sum / latencies.len() as f64).exp()
            }
            Objective::EarlyStopping(patience) => {
                self.latencies(&self.with_early_stopped(times, *patience)).iter().sum()
            }
        }
    }

    /// By network.
    fn latencies(&self, times: &[Option<f64>]) -> Vec<f64> {
        let uses = self.tasks.iter().flat_map(|t| &t.spec.uses);
        let mut latencies = vec![0.0; uses.map(|u| u.network + 1).max().unwrap_or(0)];
        for (task, time) in self.tasks.iter().zip(times) {
            for each in &task.spec.uses {
                latencies[each.network] += time.unwrap_or(0.0) * each.weight;
            }
        }
        latencies
    }

    /// No task that is stale gets below its best time.
    fn with_early_stopped(&self, times: &[Option<f64>], patience: usize) -> Vec<Option<f64>> {
        let stopped = |(task, time): (&super::Progress, &Option<f64>)| {
            let floor = if task.stale > patience { task.best()? } else { 0.0 };
            Some(time.as_ref()?.max(floor))
        };
        self.tasks.iter().zip(times).map(stopped).collect()
    }
}

fn at(values: &[f64], network: usize, otherwise: f64) -> f64 {
    values.get(network).copied().unwrap_or(otherwise)
}
