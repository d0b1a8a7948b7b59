//! The results of a comparison.

use ansc_sketch::Task;
use serde::Serialize;

use super::{Contender, Options, Run};
use crate::outcome::median;

/// The result of a comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// The name of the subgraph.
    pub task: String,
    /// Operations of one execution.
    pub flops: u64,
    /// The space that was searched by those who name no other, as on the command line.
    pub space: String,
    /// Different decisions that the space allows.
    pub space_size: String,
    /// Measurements that each run was allowed.
    pub trials: usize,
    /// Runs of each strategy.
    pub seeds: u64,
    /// The machine, as records name it.
    pub target: String,
    /// Threads that candidates ran on.
    pub threads: usize,
    /// Seconds that the untuned schedule takes.
    pub untuned_seconds: Option<f64>,
    /// Whether it ended before all runs had their measurements.
    pub interrupted: bool,
    /// In the order that was asked for.
    pub strategies: Vec<StrategySummary>,
}

/// The runs of one strategy, and their results in seconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StrategySummary {
    /// The name of the strategy, with what it has of its own.
    pub name: String,
    /// One for each seed, in order.
    pub runs: Vec<RunSummary>,
    /// The mean result of all runs that have one.
    pub mean: Option<f64>,
    /// The deviation of the results as a sample. None if there is only one.
    pub deviation: Option<f64>,
    /// The lower one of two middle results.
    pub median: Option<f64>,
    /// Among the strategies, by result, over the seeds; equal ones share their ranks, and those
    /// without a result the last.
    pub mean_rank: Option<f64>,
    /// Seconds that the strategy itself took, in all runs together.
    pub searching_seconds: f64,
}

/// The findings of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunSummary {
    /// The seed of the run.
    pub seed: u64,
    /// Candidates that it measured.
    pub trials: usize,
    /// Candidates among them that failed.
    pub failed: usize,
    /// Seconds of the best schedule that it found, if one ran.
    pub result: Option<f64>,
    /// After each trial at which there was a better one: trials made, seconds since the run began,
    /// best time.
    pub curve: Vec<(usize, f64, f64)>,
    /// Seconds that the whole run took.
    pub seconds: f64,
}

impl Comparison {
    pub(super) fn new(
        task: &Task,
        options: &Options,
        size: u128,
        untuned: Option<f64>,
        runs: Vec<Run>,
    ) -> Comparison {
        let of = |contender: &Contender| strategy(&contender.to_string(), &runs);
        let all = options.plan.strategies.len() * options.plan.seeds as usize;
        let interrupted =
            runs.len() < all || !runs.iter().all(|run| run.is_done(options.plan.trials));
        Comparison {
            task: task.name.clone(),
            flops: ansc_graph::cost::flops(&task.compute),
            space: options.plan.space.to_string(),
            space_size: size.to_string(),
            trials: options.plan.trials,
            seeds: options.plan.seeds,
            target: options.target.clone(),
            threads: options.threads,
            untuned_seconds: untuned,
            interrupted,
            strategies: options.plan.strategies.iter().map(of).collect(),
        }
    }
}

fn strategy(name: &str, runs: &[Run]) -> StrategySummary {
    let own: Vec<&Run> = runs.iter().filter(|r| r.strategy() == name).collect();
    let results: Vec<f64> = own.iter().filter_map(|r| r.result()).collect();
    let ranks: Vec<f64> = own.iter().map(|r| rank_of(r, runs)).collect();
    StrategySummary {
        name: name.to_owned(),
        mean: mean(&results),
        deviation: deviation(&results),
        median: (!results.is_empty()).then(|| median(&results)),
        mean_rank: mean(&ranks),
        searching_seconds: own.iter().map(|r| r.searching).sum(),
        runs: own.into_iter().map(summary).collect(),
    }
}

fn summary(run: &Run) -> RunSummary {
    let mut curve: Vec<(usize, f64, f64)> = vec![];
    for (i, trial) in run.trials().iter().enumerate() {
        let Some(seconds) = trial.seconds else { continue };
        if curve.last().is_none_or(|(_, _, best)| seconds < *best) {
            curve.push((i + 1, trial.at, seconds));
        }
    }
    RunSummary {
        seed: run.seed(),
        trials: run.trials().len(),
        failed: run.trials().iter().filter(|t| t.seconds.is_none()).count(),
        result: run.result(),
        curve,
        seconds: run.trials().last().map_or(0.0, |t| t.at),
    }
}

/// Among the runs of the same seed.
fn rank_of(run: &Run, runs: &[Run]) -> f64 {
    let of = |run: &Run| run.result().unwrap_or(f64::INFINITY);
    let peers: Vec<f64> = runs.iter().filter(|r| r.seed() == run.seed()).map(of).collect();
    rank(of(run), &peers)
}

/// From 1 on; `all` holds `own` too.
fn rank(own: f64, all: &[f64]) -> f64 {
    let faster = all.iter().filter(|&&other| other < own).count();
    let equal = all.iter().filter(|&&other| other == own).count();
    faster as f64 + (equal as f64 + 1.0) / 2.0
}

pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

pub(super) fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations() {
        assert_eq!((mean(&[]), deviation(&[1.0])), (None, None));
        assert_eq!((mean(&[1.0, 3.0]), deviation(&[1.0, 3.0])), (Some(2.0), Some(2f64.sqrt())));
    }
    #[test]
    fn ranks_are_shared_and_failures_last() {
        let all = [2.0, 1.0, f64::INFINITY, 2.0, f64::INFINITY];
        assert_eq!(all.map(|own| rank(own, &all)), [2.5, 1.0, 4.5, 2.5, 4.5]);
    }
}
