//! Parents by their scores.

use rand::{Rng, RngExt};

/// Draws in proportion to scores; where no score is positive, uniformly.
pub(super) struct Wheel {
    sums: Vec<f64>,
}

impl Wheel {
    pub(super) fn new(scores: &[f32]) -> Wheel {
        let positive = |s: f32| if s > 0.0 { f64::from(s) } else { 0.0 };
        let uniform = scores.iter().all(|&s| positive(s) == 0.0);
        let weights = scores.iter().map(|&s| if uniform { 1.0 } else { positive(s) });
        let sums = weights.scan(0.0, |sum, w| {
            *sum += w;
            Some(*sum)
        });
        Wheel { sums: sums.collect() }
    }

    pub(super) fn draw(&self, random: &mut dyn Rng) -> usize {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let at = random.random_range(0.0..1.0) * total;
        self.sums.partition_point(|&sum| sum <= at).min(self.sums.len() - 1)
    }
}
