//! How well scores predict what is fast.
//!
//! Each function takes the scores of programs of one task and their throughputs, in the same order.
//! A search needs the order alone: a model may be far off and still rank perfectly.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use super::{Sample, throughputs};

/// The root of the mean squared error; 0 for no programs.
pub fn rmse(scores: &[f32], truth: &[f32]) -> f64 {
    let squares: f64 = errors(scores, truth).map(|e| e * e).sum();
    if truth.is_empty() { 0.0 } else { (squares / truth.len() as f64).sqrt() }
}

/// The share of the variance that is explained: 1 is perfect, 0 is no better than the mean, less is
/// worse. 0 if there is no variance.
pub fn r_squared(scores: &[f32], truth: &[f32]) -> f64 {
    let mean = truth.iter().map(|&t| f64::from(t)).sum::<f64>() / truth.len() as f64;
    let variance: f64 = truth.iter().map(|&t| (f64::from(t) - mean).powi(2)).sum();
    let left: f64 = errors(scores, truth).map(|e| e * e).sum();
    if variance > 0.0 { 1.0 - left / variance } else { 0.0 }
}

fn errors(scores: &[f32], truth: &[f32]) -> impl Iterator<Item = f64> {
    scores.iter().zip(truth).map(|(&s, &t)| f64::from(s) - f64::from(t))
}

/// The share of pairs of different throughputs that the scores put in the right order; equal scores
/// count as half. `None` if there is no such pair.
pub fn pairwise_accuracy(scores: &[f32], truth: &[f32]) -> Option<f64> {
    let (mut right, mut pairs) = (0.0, 0.0);
    for i in 0..truth.len() {
        for j in (0..i).filter(|&j| truth[i] != truth[j]) {
            pairs += 1.0;
            right += match scores[i] == scores[j] {
                true => 0.5,
                false => f64::from((scores[i] > scores[j]) == (truth[i] > truth[j])),
            };
        }
    }
    (pairs > 0.0).then(|| right / pairs)
}

/// How many of the `k` fastest programs are among the `k` of the highest scores, as a share.
pub fn recall_at(k: usize, scores: &[f32], truth: &[f32]) -> f64 {
    let (predicted, fastest) = (top(k, scores), top(k, truth));
    let found = predicted.iter().filter(|i| fastest.contains(i)).count();
    if fastest.is_empty() { 0.0 } else { found as f64 / fastest.len() as f64 }
}

/// The throughput of the fastest among the `i` programs of the highest scores, averaged over `i` in
/// `1..=k`.
pub fn average_peak_at(k: usize, scores: &[f32], truth: &[f32]) -> f64 {
    let order = top(k, scores);
    let mut best = f64::NEG_INFINITY;
    let peaks = order.iter().map(|&i| {
        best = best.max(f64::from(truth[i]));
        best
    });
    if order.is_empty() { 0.0 } else { peaks.sum::<f64>() / order.len() as f64 }
}

/// The places of the `k` largest values, the largest first; the first of equal ones is first.
fn top(k: usize, values: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    order.truncate(k);
    order
}

/// All figures of a model on some samples, averaged over the tasks.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Quality {
    /// Tasks with programs to compare.
    pub tasks: usize,
    /// The root of the mean squared error of scores as throughputs, mean over tasks.
    pub rmse: f64,
    /// The share of the variance that scores explain, mean over tasks.
    pub r_squared: f64,
    /// Over the tasks in which it is defined.
    pub pairwise_accuracy: f64,
    /// How many of the 30 fastest programs have one of the 30 highest scores, as a share.
    pub recall_at_30: f64,
    /// The throughput that the highest scores lead to, see [`average_peak_at`].
    pub average_peak_at_32: f64,
}

impl Quality {
    /// `None` if there are no samples.
    pub fn of(scores: &[f32], samples: &[Sample]) -> Option<Quality> {
        let mut tasks: BTreeMap<usize, (Vec<f32>, Vec<f32>)> = BTreeMap::new();
        for ((sample, truth), &score) in samples.iter().zip(throughputs(samples)).zip(scores) {
            let (all_scores, all_truths) = tasks.entry(sample.task).or_default();
            all_scores.push(score);
            all_truths.push(truth);
        }
        let mean = |f: fn(&[f32], &[f32]) -> Option<f64>| {
            let figures: Vec<f64> = tasks.values().filter_map(|(s, t)| f(s, t)).collect();
            figures.iter().sum::<f64>() / figures.len().max(1) as f64
        };
        (!tasks.is_empty()).then(|| Quality {
            tasks: tasks.len(),
            rmse: mean(|s, t| Some(rmse(s, t))),
            r_squared: mean(|s, t| Some(r_squared(s, t))),
            pairwise_accuracy: mean(pairwise_accuracy),
            recall_at_30: mean(|s, t| Some(recall_at(30, s, t))),
            average_peak_at_32: mean(|s, t| Some(average_peak_at(32, s, t))),
        })
    }
}

impl Display for Quality {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RMSE {:.3}, R2 {:.3}, pairwise accuracy {:.3}, recall@30 {:.3}, average peak@32 {:.3} ({} tasks)",
            self.rmse,
            self.r_squared,
            self.pairwise_accuracy,
            self.recall_at_30,
            self.average_peak_at_32,
            self.tasks,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ansc_sketch::Features;

    use super::*;

    const TRUTH: [f32; 4] = [1.0, 0.5, 0.25, 0.0];

    #[test]
    fn errors_and_variance() {
        let scores = [0.5, 0.5, 0.25, 0.5];
        assert!((rmse(&scores, &TRUTH) - (0.5f64 / 4.0).sqrt()).abs() < 1e-9);
        // The mean is 0.4375, the variance 0.546875 / 4.
        assert!((r_squared(&scores, &TRUTH) - (1.0 - 0.5 / 0.546875)).abs() < 1e-9);
        assert_eq!(r_squared(&TRUTH, &TRUTH), 1.0);
        assert_eq!(r_squared(&[1.0, 2.0], &[3.0, 3.0]), 0.0);
        assert_eq!(rmse(&[], &[]), 0.0);
    }

    #[test]
    fn pairs_in_the_right_order() {
        assert_eq!(pairwise_accuracy(&[9.0, 8.0, 7.0, 6.0], &TRUTH), Some(1.0));
        assert_eq!(pairwise_accuracy(&[6.0, 7.0, 8.0, 9.0], &TRUTH), Some(0.0));
        assert_eq!(pairwise_accuracy(&[8.0, 9.0, 7.0, 6.0], &TRUTH), Some(5.0 / 6.0));
        assert_eq!(pairwise_accuracy(&[1.0; 4], &TRUTH), Some(0.5));
        assert_eq!(pairwise_accuracy(&[1.0, 2.0], &[0.5, 0.5]), None);
    }

    #[test]
    fn the_fastest_among_the_highest_scores() {
        let scores = [0.1, 0.2, 0.9, 0.3];
        assert_eq!(recall_at(2, &scores, &TRUTH), 0.0);
        assert_eq!(recall_at(3, &scores, &TRUTH), 2.0 / 3.0);
        assert_eq!(recall_at(30, &scores, &TRUTH), 1.0);
        // Highest scores first the throughputs are 0.25, 0, 0.5, 1.
        assert_eq!(average_peak_at(1, &scores, &TRUTH), 0.25);
        assert_eq!(average_peak_at(3, &scores, &TRUTH), 1.0 / 3.0);
        assert_eq!(average_peak_at(32, &scores, &TRUTH), 0.5);
        assert_eq!(average_peak_at(32, &[], &[]), 0.0);
    }

    #[test]
    fn figures_are_averaged_over_tasks() {
        let features = Arc::new(Features { rows: vec![], ..Features::default() });
        let sample = |task, seconds| Sample::of_program(task, features.clone(), seconds);
        let samples = [
            sample(0, Some(1.0)),
            sample(0, Some(2.0)),
            sample(1, Some(9.0)),
            sample(1, Some(3.0)),
            sample(2, None),
        ];
        let quality = Quality::of(&[1.0, 0.5, 1.0, 0.0, 0.0], &samples).unwrap();
        assert_eq!(quality.tasks, 3);
        assert_eq!(quality.pairwise_accuracy, 0.5);
        assert_eq!(Quality::of(&[], &[]), None);
    }
}
