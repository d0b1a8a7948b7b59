//! Adam with weight decay and a limit on the gradient's length.

use super::Parameters;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rates {
    pub(crate) step: f32,
    /// Added to the gradient: this times the weight.
    pub(crate) decay: f32,
    /// Longer gradients are scaled down to this length.
    pub(crate) clip: f32,
}

const MEMORY: [f32; 2] = [0.9, 0.999];
const EPSILON: f32 = 1e-8;

/// Running means of the gradient and of its square, for each weight.
pub(crate) struct Adam {
    rates: Rates,
    means: Vec<Vec<[f32; 2]>>,
    steps: i32,
}

impl Adam {
    pub(crate) fn new(network: &impl Parameters, rates: Rates) -> Adam {
        let means = network.parts().iter().map(|part| vec![[0.0; 2]; part.len()]).collect();
        Adam { rates, means, steps: 0 }
    }

    /// The length of the steps from here on.
    pub(crate) fn set_step(&mut self, step: f32) {
        self.rates.step = step;
    }

    pub(crate) fn step<N: Parameters>(&mut self, network: &mut N, gradient: &N) {
        self.steps += 1;
        self.grow(gradient);
        let scale = self.scale(gradient);
        let correction = MEMORY.map(|m| 1.0 - m.powi(self.steps));
        for ((weights, gradients), means) in
            network.parts_mut().into_iter().zip(gradient.parts()).zip(&mut self.means)
        {
            for ((weight, gradient), mean) in weights.iter_mut().zip(gradients).zip(means) {
                let gradient = gradient * scale + self.rates.decay * *weight;
                mean[0] = MEMORY[0] * mean[0] + (1.0 - MEMORY[0]) * gradient;
                mean[1] = MEMORY[1] * mean[1] + (1.0 - MEMORY[1]) * gradient * gradient;
                let [first, second] = [mean[0] / correction[0], mean[1] / correction[1]];
                *weight -= self.rates.step * first / (second.sqrt() + EPSILON);
            }
        }
    }

    /// A network may get more parts at its end.
    fn grow(&mut self, gradient: &impl Parameters) {
        let new = gradient.parts().into_iter().skip(self.means.len());
        let means: Vec<Vec<[f32; 2]>> = new.map(|part| vec![[0.0; 2]; part.len()]).collect();
        self.means.extend(means);
    }

    fn scale(&self, gradient: &impl Parameters) -> f32 {
        let squares = gradient.parts().into_iter().flatten().map(|g| f64::from(*g).powi(2));
        let length = squares.sum::<f64>().sqrt() as f32;
        if length > self.rates.clip { self.rates.clip / length } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::nn::Linear;

    #[test]
    fn the_first_step_is_the_rate_against_the_sign() {
        let start = Linear::random(3, 4, &mut StdRng::seed_from_u64(0));
        let gradient = Linear::random(3, 4, &mut StdRng::seed_from_u64(1));
        for clip in [0.1, 1e3] {
            let rates = Rates { step: 0.01, decay: 0.0, clip };
            let mut moved = start.clone();
            Adam::new(&start, rates).step(&mut moved, &gradient);
            for ((a, b), g) in start.parts().iter().zip(moved.parts()).zip(gradient.parts()) {
                for ((a, b), g) in a.iter().zip(b).zip(g).filter(|(_, g)| g.abs() > 1e-3) {
                    assert!((a - b - 0.01 * g.signum()).abs() < 1e-4, "{a} {b} {g}");
                }
            }
        }
    }
}
