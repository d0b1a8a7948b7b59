//! LambdaRank: what a list of scores loses for pairs in the wrong order, the more the higher in the list.
//!
//! With places `i = 1..` in the order of the scores, `D_i = log2(1 + i)`, gains `G = (2^y - 1) / maxDCG` and weights
//! `w_ij = |1 / D_i - 1 / D_j| * |G_i - G_j|`, the loss is the sum of `-w_ij * log2(sigmoid(s_i - s_j))` over
//! all pairs with `y_i > y_j`. Weights count as constants.

use rayon::prelude::*;

/// Sigmoids, and their weighted powers, below this do not count: a pair that is so wrong teaches nothing.
const LEAST: f64 = 1e-10;

/// The loss and its gradient. A list is the whole batch: it may mix tasks, whose labels are shares
/// of their best.
pub(super) fn lambda_rank(scores: &[f32], labels: &[f32]) -> (f64, Vec<f32>) {
    let items = Item::list(scores, labels);
    let each: Vec<(f64, f64)> = items
        .par_iter()
        .map(|item| items.iter().map(|o| item.against(o)).fold((0.0, 0.0), add))
        .collect();
    let mut gradient = vec![0.0; scores.len()];
    for (item, (_, slope)) in items.iter().zip(&each) {
        gradient[item.index] = *slope as f32;
    }
    (each.iter().map(|(loss, _)| loss).sum(), gradient)
}

fn add(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0 + b.0, a.1 + b.1)
}

struct Item {
    index: usize,
    score: f64,
    label: f64,
    gain: f64,
    /// `1 / D`.
    discount: f64,
}

impl Item {
    /// In the order of the scores.
    fn list(scores: &[f32], labels: &[f32]) -> Vec<Item> {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let label = |index: usize| f64::from(labels[index].max(0.0));
        let mut ideal: Vec<f64> = (0..labels.len()).map(label).collect();
        ideal.sort_by(|a, b| b.total_cmp(a));
        let dcg = ideal.iter().enumerate().map(|(place, &y)| gain(y) * discount(place));
        let best = dcg.sum::<f64>().max(LEAST);
        let item = |(place, index): (usize, usize)| Item {
            index,
            score: f64::from(scores[index]),
            label: label(index),
            gain: gain(label(index)) / best,
            discount: discount(place),
        };
        order.into_iter().enumerate().map(item).collect()
    }

    /// The loss of the pair, counted at the better one, and its slope in this item's score.
    fn against(&self, other: &Item) -> (f64, f64) {
        if self.label == other.label {
            return (0.0, 0.0);
        }
        let is_better = self.label > other.label;
        let sign = if is_better { 1.0 } else { -1.0 };
        let weight = (self.discount - other.discount).abs() * (self.gain - other.gain).abs();
        let sigmoid = 1.0 / (1.0 + (sign * (other.score - self.score)).exp());
        let loss = -weight * sigmoid.max(LEAST).log2();
        let most = -LEAST.log2();
        let flat = sigmoid < LEAST || loss > most;
        let slope =
            if flat { 0.0 } else { -sign * weight * (1.0 - sigmoid) / std::f64::consts::LN_2 };
        (if is_better { loss.min(most) } else { 0.0 }, slope)
    }
}

fn gain(label: f64) -> f64 {
    label.exp2() - 1.0
}

/// `place` counts from 0.
fn discount(place: usize) -> f64 {
    1.0 / (2.0 + place as f64).log2()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn two_items_of_equal_score() {
        let (loss, gradient) = lambda_rank(&[0.0, 0.0], &[1.0, 0.0]);
        let weight = 1.0 - 1.0 / 3f64.log2();
        assert!((loss - weight).abs() < 1e-9, "{loss}");
        let slope = (weight * 0.5 / std::f64::consts::LN_2) as f32;
        assert!((gradient[0] + slope).abs() < 1e-6 && (gradient[1] - slope).abs() < 1e-6);
    }

    #[test]
    fn the_right_order_loses_less() {
        let labels = [0.2, 1.0, 0.5];
        let (right, wrong) = ([-1.0, 3.0, 1.0], [3.0, -1.0, 1.0]);
        assert!(lambda_rank(&right, &labels).0 < 0.2 * lambda_rank(&wrong, &labels).0);
        assert_eq!(lambda_rank(&right, &[0.5; 3]), (0.0, vec![0.0; 3]));
        assert_eq!(lambda_rank(&[], &[]), (0.0, vec![]));
        let (loss, gradient) = lambda_rank(&[-200.0, 200.0], &[1.0, 0.0]);
        assert!(loss.is_finite() && gradient == [0.0, 0.0]);
    }

    #[test]
    fn gradients_agree_with_differences() {
        let random = &mut StdRng::seed_from_u64(1);
        // Far enough apart that small steps do not change the order.
        let scores: Vec<f32> = (0..12).map(|i| (i * 5 % 12) as f32 * 0.3).collect();
        let labels: Vec<f32> = (0..12).map(|_| random.random_range(0.0..1.0)).collect();
        let (_, gradient) = lambda_rank(&scores, &labels);
        for (at, found) in gradient.iter().enumerate() {
            let moved = |by: f32| {
                let mut scores = scores.clone();
                scores[at] += by;
                lambda_rank(&scores, &labels).0
            };
            let expected = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((f64::from(*found) - expected).abs() < 1e-4, "{at}: {found}, {expected}");
        }
    }
}
