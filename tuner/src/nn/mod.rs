//! What small networks are made of: matrices, layers with their gradients, an optimiser.
//!
//! There is no graph of operations: who writes a network writes its way forward and its way back, and a test
//! holds the gradient against differences. Results do not depend on the number of threads.

pub(crate) mod adam;
pub(crate) mod linear;
pub(crate) mod lstm;
pub(crate) mod matrix;

pub(crate) use adam::{Adam, Rates};
pub(crate) use linear::{Linear, relu, relu_backward};
pub(crate) use lstm::{Lstm, Turn};
pub(crate) use matrix::Matrix;

/// Numbers that are learned. A gradient of a network is a network of the same shape.
pub(crate) trait Parameters {
    /// All numbers, in a fixed order.
    fn parts(&self) -> Vec<&[f32]>;
    /// The same in the same order.
    fn parts_mut(&mut self) -> Vec<&mut [f32]>;
}

/// `e^x` of each as a share of their sum.
pub(crate) fn softmax(logits: &[f32]) -> Vec<f32> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = logits.iter().map(|x| (x - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.into_iter().map(|p| p / sum).collect()
}

/// A position, each as likely as its share.
pub(crate) fn draw(shares: &[f32], random: &mut dyn rand::Rng) -> usize {
    let mut at = rand::RngExt::random_range(random, 0.0..1.0f32);
    let found = shares.iter().position(|share| {
        at -= share;
        at < 0.0
    });
    found.unwrap_or(shares.len().saturating_sub(1))
}

#[cfg(test)]
pub(crate) mod testing {
    use rand::RngExt;
    use rand::rngs::StdRng;

    use super::Parameters;

    /// Holds a gradient against differences of the loss, along a random direction in each part.
    pub(crate) fn check_gradient<N: Parameters + Clone>(
        network: &N,
        gradient: &N,
        loss: &dyn Fn(&N) -> f64,
        random: &mut StdRng,
    ) {
        const STEP: f32 = 1e-3;
        for (part, gradient) in gradient.parts().into_iter().enumerate() {
            let direction: Vec<f32> =
                gradient.iter().map(|_| random.random_range(-1.0..1.0)).collect();
            let at = |sign: f32| {
                let mut moved = network.clone();
                let values = moved.parts_mut().swap_remove(part);
                values.iter_mut().zip(&direction).for_each(|(v, d)| *v += sign * STEP * d);
                loss(&moved)
            };
            let expected = (at(1.0) - at(-1.0)) / f64::from(2.0 * STEP);
            let found: f64 = gradient.iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum();
            let error = (found - expected).abs();
            assert!(error < 1e-2 * (1.0 + expected.abs()), "part {part}: {found}, {expected}");
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn shares_are_drawn_as_often_as_they_are_large() {
        let shares = softmax(&[0.0, 3f32.ln(), f32::NEG_INFINITY]);
        assert!((shares[1] - 0.75).abs() < 1e-6 && shares[2] == 0.0, "{shares:?}");
        let random = &mut StdRng::seed_from_u64(0);
        let ones = (0..10_000).filter(|_| draw(&shares, random) == 1).count();
        assert!((7300..7700).contains(&ones), "{ones}");
    }

    #[test]
    fn large_logits_do_not_overflow() {
        assert_eq!(softmax(&[1e30, 0.0]), [1.0, 0.0]);
    }
}
