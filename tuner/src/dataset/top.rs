//! How good the candidates are that a model takes for the best: TenSet's and TLP's top-k.
//!
//! ```text
//! top-k = sum over tasks of weight * least time  /  sum over tasks of weight * least time among the k highest scores
//! ```
//!
//! 1 is perfect. The sums run over all tasks and networks before they are divided, so that what
//! takes long counts most. Where all of the k failed, the slowest time of the task stands for
//! theirs.

use crate::model::{CostModel, Sample, View};

use super::TaskSamples;

/// The score of a model on tasks that it did not see, for the first platform. None if no task has a
/// time.
pub fn top_k(model: &dyn CostModel, tasks: &[TaskSamples], k: usize) -> Option<f64> {
    let (mut best, mut found) = (0.0, 0.0);
    for task in tasks {
        let own: Vec<&Sample> = task.samples.iter().filter(|s| s.platform == 0).collect();
        let views: Vec<View<'_>> = own.iter().map(|s| s.view()).collect();
        let times: Vec<Option<f64>> = own.iter().map(|s| s.seconds).collect();
        let Some((least, taken)) = of_task(&model.predict(&views), &times, k) else { continue };
        best += task.weight * least;
        found += task.weight * taken;
    }
    (found > 0.0).then(|| best / found)
}

/// The least time of all, and of the `k` highest scores; the first of equal ones is first.
fn of_task(scores: &[f32], times: &[Option<f64>], k: usize) -> Option<(f64, f64)> {
    let least = times.iter().flatten().copied().min_by(f64::total_cmp)?;
    let slowest = times.iter().flatten().copied().max_by(f64::total_cmp)?;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let taken = order.iter().take(k.max(1)).filter_map(|&i| times[i]).min_by(f64::total_cmp);
    Some((least, taken.unwrap_or(slowest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_the_highest_scores_is_taken() {
        let times = [Some(4.0), Some(1.0), None, Some(2.0)];
        let scores = [0.5, 0.1, 0.9, 0.7];
        assert_eq!(of_task(&scores, &times, 1), Some((1.0, 4.0)));
        assert_eq!(of_task(&scores, &times, 2), Some((1.0, 2.0)));
        assert_eq!(of_task(&scores, &times, 4), Some((1.0, 1.0)));
        assert_eq!(of_task(&[1.0], &[None], 1), None);
    }

    /// Scores a sample by the number of its stages.
    struct Stages;

    impl CostModel for Stages {
        fn name(&self) -> &'static str {
            "stages"
        }
        fn train(&mut self, _: &[Sample]) {}
        fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
            candidates.iter().map(|c| c.subject.stages.len() as f32).collect()
        }
    }

    #[test]
    fn tasks_count_by_their_weight_and_time() {
        use std::sync::Arc;

        use crate::model::Subject;
        let task = |weight: f64, all: &[(usize, f64)]| {
            let sample = |&(stages, seconds): &(usize, f64)| Sample {
                subject: Arc::new(Subject { stages: vec![vec![]; stages], ..Subject::default() }),
                seconds: Some(seconds),
                ..Sample::of_program(0, Arc::new(ansc_sketch::Features::default()), None)
            };
            let mut samples: Vec<Sample> = all.iter().map(sample).collect();
            // A time from another machine does not count.
            samples.push(Sample { platform: 1, seconds: Some(1e-3), ..samples[0].clone() });
            TaskSamples { key: String::new(), weight, samples }
        };
        // Right in the first task, and wrong by 3 in the second, of which there are two.
        let tasks = [task(1.0, &[(1, 5.0), (2, 4.0)]), task(2.0, &[(3, 3.0), (1, 1.0)])];
        assert_eq!(top_k(&Stages, &tasks, 1), Some((4.0 + 2.0) / (4.0 + 6.0)));
        assert_eq!(top_k(&Stages, &tasks, 2), Some(1.0));
        assert_eq!(top_k(&Stages, &[], 1), None);
    }
}
