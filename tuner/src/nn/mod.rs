//! The parts of small networks: matrices, layers with their gradients, an optimiser.
//!
//! There is no graph of operations: the author of a network writes its forward pass and its
//! backward pass, and a test compares the gradient with difference quotients. Results do not depend
//! on the number of threads.

pub(crate) mod adam;
pub(crate) mod attention;
pub(crate) mod chain;
mod lanes;
pub(crate) mod linear;
pub(crate) mod lists;
pub(crate) mod lstm;
pub(crate) mod matrix;
pub(crate) mod residual;

pub(crate) use adam::{Adam, Rates};
pub(crate) use attention::{Attended, Attention};
pub(crate) use chain::Chain;
pub(crate) use linear::{Linear, relu, relu_backward};
pub(crate) use lists::List;
pub(crate) use lstm::{Lstm, Turn};
pub(crate) use matrix::Matrix;
pub(crate) use residual::{Added, Residual};

/// Numbers that are learned. A gradient of a network is a network of the same shape.
pub(crate) trait Parameters {
    /// All numbers, in a fixed order.
    fn parts(&self) -> Vec<&[f32]>;
    /// The same in the same order.
    fn parts_mut(&mut self) -> Vec<&mut [f32]>;

    /// All numbers in one list.
    fn numbers(&self) -> Vec<f32> {
        self.parts().concat()
    }

    /// Takes all numbers from a list; false, and nothing is changed, if there are more or fewer.
    fn set_numbers(&mut self, numbers: &[f32]) -> bool {
        let count: usize = self.parts().iter().map(|part| part.len()).sum();
        if count != numbers.len() {
            return false;
        }
        let mut rest = numbers;
        for part in self.parts_mut() {
            let (own, others) = rest.split_at(part.len());
            part.copy_from_slice(own);
            rest = others;
        }
        true
    }
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

    use super::{Matrix, Parameters};

    pub(crate) fn numbers(rows: usize, columns: usize, random: &mut StdRng) -> Matrix {
        let mut made = Matrix::zeros(rows, columns);
        made.data.iter_mut().for_each(|v| *v = random.random_range(-1.0..1.0));
        made
    }

    /// A loss that weighs all elements differently, and its gradient.
    pub(crate) fn squares(y: &Matrix) -> (f64, Matrix) {
        let weight = |i: usize| 1.0 + (i % 7) as f32;
        let each = y.data.iter().enumerate();
        let loss = each.clone().map(|(i, v)| f64::from(weight(i)) * f64::from(*v).powi(2)).sum();
        let data = each.map(|(i, v)| 2.0 * weight(i) * v).collect();
        (loss, Matrix { data, ..*y })
    }

    impl Parameters for Matrix {
        fn parts(&self) -> Vec<&[f32]> {
            vec![&self.data]
        }

        fn parts_mut(&mut self) -> Vec<&mut [f32]> {
            vec![&mut self.data]
        }
    }

    /// Holds the gradient of an input against differences.
    pub(crate) fn check_input(
        x: &Matrix,
        of_x: &Matrix,
        loss: &dyn Fn(&Matrix) -> f64,
        random: &mut StdRng,
    ) {
        check_gradient(x, of_x, loss, random);
    }

    /// The same for a deep network, along the signs of the gradient in each part: there the slope
    /// is steep, and the kinks of many layers and the rounding of their sums are small beside it.
    pub(crate) fn check_deep_gradient<N: Parameters + Clone>(
        network: &N,
        gradient: &N,
        loss: &dyn Fn(&N) -> f64,
    ) {
        for (part, gradient) in gradient.parts().into_iter().enumerate() {
            let found: f64 = gradient.iter().map(|g| f64::from(g.abs())).sum();
            let at = |step: f32| {
                let mut moved = network.clone();
                let values = moved.parts_mut().swap_remove(part);
                let signs = gradient.iter().map(|g| if *g == 0.0 { 0.0 } else { g.signum() });
                values.iter_mut().zip(signs).for_each(|(v, sign)| *v += step * sign);
                loss(&moved)
            };
            let steps = [1e-3f32, 4e-4, 1e-4, 3e-5];
            let differences = steps.map(|step| (at(step) - at(-step)) / f64::from(2.0 * step));
            let agrees = |d: &f64| (found - d).abs() < 0.03 + 0.05 * d.abs();
            assert!(differences.iter().any(agrees), "part {part}: {found}, {differences:?}");
        }
    }

    /// Holds a gradient against differences of the loss, along a random direction in each part. A
    /// long step may cross the kink of a `relu`, and a short one drowns in rounding: one of the
    /// steps must agree.
    pub(crate) fn check_gradient<N: Parameters + Clone>(
        network: &N,
        gradient: &N,
        loss: &dyn Fn(&N) -> f64,
        random: &mut StdRng,
    ) {
        const STEPS: [f32; 4] = [1e-3, 4e-4, 1e-4, 5e-5];
        for (part, gradient) in gradient.parts().into_iter().enumerate() {
            let direction: Vec<f32> =
                gradient.iter().map(|_| random.random_range(-1.0..1.0)).collect();
            let at = |step: f32| {
                let mut moved = network.clone();
                let values = moved.parts_mut().swap_remove(part);
                values.iter_mut().zip(&direction).for_each(|(v, d)| *v += step * d);
                loss(&moved)
            };
            let found: f64 = gradient.iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum();
            let differences = STEPS.map(|step| (at(step) - at(-step)) / f64::from(2.0 * step));
            let agrees = |d: &f64| (found - d).abs() < 1e-2 * (1.0 + d.abs());
            assert!(differences.iter().any(agrees), "part {part}: {found}, {differences:?}");
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
    fn numbers_go_out_and_come_back() {
        let random = &mut StdRng::seed_from_u64(0);
        let (from, mut to) = (Linear::random(3, 4, random), Linear::random(3, 4, random));
        assert!(to.set_numbers(&from.numbers()) && to == from);
        assert!(!to.set_numbers(&[1.0; 3]) && to == from);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        assert_eq!(softmax(&[1e30, 0.0]), [1.0, 0.0]);
    }
}
