//! How good the schedule is that a model chooses among those that need no search.
//!
//! ```text
//! gain   = time of the choice / time by the analytic price      1: no better, no worse
//! regret = time of the choice / least time of all               1: nothing better was there
//! ```
//!
//! Tasks count alike here, for a model must not harm a single one. As in the compiler, a choice is
//! that of the analytic price unless the model prefers another one clearly.

use std::collections::HashMap;
use std::sync::Arc;

use ansc_sketch::Task;
use rayon::prelude::*;

use super::{TaskSamples, trace_id};
use crate::candidate::Candidate;
use crate::model::{CostModel, Sample, View};

/// The share of tasks that are the worst.
const WORST: f64 = 0.05;

/// The schedules of a task among which prices choose, that of the analytic price first, by
/// [`trace_id`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rivals(Vec<String>);

/// How the choices of a model did.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Choices {
    /// Tasks with a choice.
    pub tasks: usize,
    /// The geometric mean of the gains.
    pub mean: f64,
    /// That of the worst twentieth of the regrets.
    pub worst: f64,
}

impl Rivals {
    /// Those of a task on a platform of which the samples have times. Two traces that become the
    /// same code are one.
    pub fn of(task: &Arc<Task>, samples: &TaskSamples) -> Rivals {
        let program = |trace| Candidate::exactly(task, trace).map(|c| c.program);
        let known = samples.samples.par_iter().filter(|s| s.seconds.is_some());
        let known = known.filter_map(|s| Some((program(&s.trace)?, trace_id(&s.trace))));
        let known: HashMap<u64, String> = known.collect();
        let rivals = task.considered().into_iter().map(|rival| Candidate::of_choice(task, rival));
        let own = rivals.map(|rival| known.get(&rival.program).cloned());
        let mut found: Vec<String> = vec![];
        for (place, own) in own.enumerate() {
            match own {
                Some(id) if !found.contains(&id) => found.push(id),
                Some(_) => {}
                // Without the time of the first one there is nothing to compare with.
                None if place == 0 => return Rivals::default(),
                None => {}
            }
        }
        Rivals(found)
    }

    /// The gain and the regret of what a model chooses, or of the fastest; none if there is no
    /// choice.
    fn ratios(&self, model: Option<&dyn CostModel>, task: &TaskSamples) -> Option<[f64; 2]> {
        let known: HashMap<String, &Sample> =
            task.samples.iter().map(|s| (trace_id(&s.trace), s)).collect();
        let rivals: Vec<&Sample> = self.0.iter().filter_map(|id| known.get(id).copied()).collect();
        let seconds: Vec<f64> = rivals.iter().filter_map(|s| s.seconds).collect();
        let least = seconds.iter().copied().min_by(f64::total_cmp)?;
        let choice = match model {
            Some(model) => seconds[choice(model, &rivals)],
            None => least,
        };
        (rivals.len() > 1).then(|| [choice / seconds[0], choice / least])
    }
}

/// The place of the highest score, if that is clearly higher than the first one.
fn choice(model: &dyn CostModel, rivals: &[&Sample]) -> usize {
    let views: Vec<View<'_>> = rivals.iter().map(|s| s.view()).collect();
    let scores = model.predict(&views);
    let best = (0..scores.len()).reduce(|a, b| if scores[b] > scores[a] { b } else { a });
    best.filter(|&best| scores[best] > scores[0] + model.clearly()).unwrap_or(0)
}

/// The choices of a model; of one that knows everything where there is none.
pub fn choices(
    model: Option<&dyn CostModel>,
    tasks: &[TaskSamples],
    rivals: &[Rivals],
) -> Option<Choices> {
    let ratios = |(rivals, task): (&Rivals, &TaskSamples)| rivals.ratios(model, task);
    Choices::of(rivals.iter().zip(tasks).filter_map(ratios).collect())
}

impl Choices {
    fn of(ratios: Vec<[f64; 2]>) -> Option<Choices> {
        let mean = |all: &[f64]| (all.iter().map(|r| r.ln()).sum::<f64>() / all.len() as f64).exp();
        let (gains, mut regrets): (Vec<f64>, Vec<f64>) =
            ratios.iter().map(|r| (r[0], r[1])).unzip();
        regrets.sort_by(f64::total_cmp);
        let worst = (regrets.len() as f64 * WORST).ceil() as usize;
        (!ratios.is_empty()).then(|| Choices {
            tasks: ratios.len(),
            mean: mean(&gains),
            worst: mean(&regrets[regrets.len() - worst..]),
        })
    }
}

#[cfg(test)]
mod tests {
    use ansc_graph::Compute;
    use ansc_sketch::Machine;

    use super::*;
    use crate::model::{Needs, Subject};

    /// Takes the candidate that is the last of them, or the first.
    struct Place {
        last: bool,
    }

    impl CostModel for Place {
        fn name(&self) -> &'static str {
            "place"
        }
        fn train(&mut self, _: &[Sample]) {}
        fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
            let score = |n| if self.last { n as f32 } else { -(n as f32) };
            (0..candidates.len()).map(score).collect()
        }
    }

    /// Points of windows, one by one, or rows of them.
    fn task() -> Arc<Task> {
        let text = "compute(in0: f32[2, 8, 20, 30]) -> y {
          s: f32[2, 8, 9, 14] = sum{r0: 3, r1: 3} in0[i0, i1, add(mul(i2, 2), r0), add(mul(i3, 2), r1)]
          y: f32[2, 8, 9, 14] = mul(s[i0, i1, i2, i3], 0.125_f32)
        }";
        let compute = Compute::parse(text).unwrap();
        Arc::new(Task::on_cpu("windows", &compute, &[false], &Machine::new(64, 32)))
    }

    #[test]
    fn a_choice_is_held_against_the_untuned_schedule() {
        let task = task();
        let rivals: Vec<Candidate> =
            task.considered().into_iter().map(|rival| Candidate::of_choice(&task, rival)).collect();
        assert!(rivals.len() > 1, "{} schedules need no search", rivals.len());
        let subject = Arc::new(Subject::of(&task));
        let sample = |(n, candidate): (usize, &Candidate)| Sample {
            task: 0,
            platform: 0,
            subject: subject.clone(),
            trace: Arc::new(candidate.trace.clone()),
            features: candidate.view(&subject, Needs::Program).features.cloned().map(Arc::new),
            seconds: Some(if n + 1 == rivals.len() { 1.0 } else { 2.0 }),
        };
        let all = rivals.iter().enumerate().map(sample).collect();
        let samples = TaskSamples { key: task.key(), weight: 1.0, samples: all };
        let found = [Rivals::of(&task, &samples)];
        assert_eq!(found[0].0.len(), rivals.len());
        let tasks = [samples];
        let of = |model: Option<&dyn CostModel>| choices(model, &tasks, &found).unwrap().mean;
        assert_eq!(of(Some(&Place { last: false })), 1.0);
        assert_eq!(of(Some(&Place { last: true })), 0.5);
        assert_eq!(of(None), 0.5);
        // Nothing is known of the untuned one.
        let mut unknown = tasks[0].clone();
        unknown.samples[0].seconds = None;
        assert_eq!(Rivals::of(&task, &unknown), Rivals::default());
    }

    #[test]
    fn the_worst_twentieth_counts_alone() {
        let mut ratios = vec![[1.0, 1.0]; 38];
        ratios.extend([[4.0, 2.0], [16.0, 32.0]]);
        let found = Choices::of(ratios).unwrap();
        assert_eq!(found.tasks, 40);
        assert!((found.worst - 8.0).abs() < 1e-12);
        assert!((found.mean - 64f64.powf(1.0 / 40.0)).abs() < 1e-12);
        assert_eq!(Choices::of(vec![]), None);
    }
}
