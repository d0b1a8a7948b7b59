//! The network of TenSet: a multi-layer perceptron that learns to rank programs.
//!
//! Inputs are the 164 numbers of a row, each divided by the largest of the training set, and ten places that
//! the reference fills with the operator's kind; here they are zero. Batches mix tasks; labels are
//! throughputs, which makes programs of different tasks comparable.
//!
//! The same samples and seed give the same network on any number of threads.

mod network;
mod rank;

use ansc_sketch::Features;
use ansc_sketch::features::LEN;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::{CostModel, Sample, throughputs};
use crate::nn::{Adam, Matrix, Rates};
use network::{Batch, Network};
use rank::lambda_rank;

const INPUTS: usize = LEN + 10;

/// The size of the network, and how it learns.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The seed of its first weights and of the order of samples.
    pub seed: u64,
    /// Neurons of a hidden layer.
    pub hidden: usize,
    /// How often it sees all samples at most.
    pub epochs: usize,
    /// Programs per batch: the length of a list that is ranked.
    pub batch: usize,
    /// The step of the optimiser Adam.
    pub learning_rate: f32,
    /// The decay of weights, which the optimiser applies in each step.
    pub weight_decay: f32,
    /// Longer gradients are shortened to this.
    pub clip: f32,
    /// One in so many samples is held out to tell when to stop; 0 holds out none.
    pub held_out: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 0,
            hidden: 256,
            epochs: 50,
            batch: 512,
            learning_rate: 7e-4,
            weight_decay: 1e-6,
            clip: 0.5,
            held_out: 10,
        }
    }
}

/// Untrained it scores everything 0.
#[derive(Clone, Debug, Default)]
pub struct Mlp {
    config: Config,
    trained: Option<Trained>,
}

#[derive(Clone, Debug)]
struct Trained {
    network: Network,
    /// One over the largest value of each number.
    scales: [f32; LEN],
}

impl Mlp {
    /// An untrained model.
    pub fn new(config: Config) -> Mlp {
        Mlp { config, trained: None }
    }
}

impl CostModel for Mlp {
    fn name(&self) -> &'static str {
        "mlp"
    }

    fn train(&mut self, samples: &[Sample]) {
        let labels = throughputs(samples);
        let programs: Vec<(&Features, f32)> =
            samples.iter().map(|s| &*s.features).zip(labels).collect();
        self.trained = Training::new(&self.config, &programs).run();
    }

    fn predict(&self, programs: &[&Features]) -> Vec<f32> {
        let Some(Trained { network, scales }) = &self.trained else {
            return vec![0.0; programs.len()];
        };
        let size = self.config.batch.max(1);
        let scores = |part: &[&Features]| network.forward(&batch(part, scales)).scores;
        programs.chunks(size).flat_map(scores).collect()
    }
}

fn batch(programs: &[&Features], scales: &[f32; LEN]) -> Batch {
    let lengths: Vec<usize> = programs.iter().map(|p| p.rows.len()).collect();
    let mut rows = Matrix::zeros(lengths.iter().sum(), INPUTS);
    for (index, row) in programs.iter().flat_map(|p| &p.rows).enumerate() {
        let out = rows.row_mut(index);
        for ((out, value), scale) in out.iter_mut().zip(row).zip(scales) {
            *out = finite(*value) * scale;
        }
    }
    Batch { rows, lengths }
}

/// No number that is none gets into the network.
fn finite(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(-1e6, 1e6) }
}

fn scales(programs: &[(&Features, f32)]) -> [f32; LEN] {
    let mut most = [0.0f32; LEN];
    for row in programs.iter().flat_map(|(p, _)| &p.rows) {
        most.iter_mut().zip(row).for_each(|(most, v)| *most = most.max(finite(*v).abs()));
    }
    most.map(|most| if most > 0.0 { 1.0 / most } else { 1.0 })
}

struct Training<'a> {
    config: &'a Config,
    scales: [f32; LEN],
    train: Vec<(&'a Features, f32)>,
    held_out: Vec<(&'a Features, f32)>,
}

impl<'a> Training<'a> {
    fn new(config: &'a Config, programs: &[(&'a Features, f32)]) -> Training<'a> {
        let mut order = programs.to_vec();
        order.shuffle(&mut StdRng::seed_from_u64(config.seed));
        let count = order.len().checked_div(config.held_out).unwrap_or(0);
        let train = order.split_off(count);
        Training { config, scales: scales(programs), train, held_out: order }
    }

    /// The network of the epoch that did best; `None` if there is nothing to learn from.
    fn run(mut self) -> Option<Trained> {
        if self.train.iter().all(|(_, label)| *label == 0.0) {
            return None;
        }
        let random = &mut StdRng::seed_from_u64(self.config.seed ^ 1);
        let mut network = Network::random(INPUTS, self.config.hidden, random);
        let Config { learning_rate: step, weight_decay: decay, clip, .. } = *self.config;
        let mut adam = Adam::new(&network, Rates { step, decay, clip });
        let mut best = (f64::INFINITY, 0, network.clone());
        for epoch in 0..self.config.epochs {
            let trained_on = self.epoch(&mut network, &mut adam, random);
            let loss = if self.held_out.is_empty() { trained_on } else { self.check(&network) };
            if loss < best.0 {
                best = (loss, epoch, network.clone());
            } else if epoch - best.1 > self.config.epochs / 6 {
                break;
            }
        }
        Some(Trained { network: best.2, scales: self.scales })
    }

    /// One pass over the training programs in random order; the loss on the way.
    fn epoch(&mut self, network: &mut Network, adam: &mut Adam, random: &mut StdRng) -> f64 {
        self.train.shuffle(random);
        let mut total = 0.0;
        for part in self.train.chunks(self.config.batch.max(1)) {
            let (batch, labels) = self.batch(part);
            let passed = network.forward(&batch);
            let (loss, of_scores) = lambda_rank(&passed.scores, &labels);
            let gradient = network.backward(&batch, &passed, &of_scores);
            adam.step(network, &gradient);
            total += loss;
        }
        total
    }

    fn check(&self, network: &Network) -> f64 {
        let parts = self.held_out.chunks(self.config.batch.max(1));
        let losses = parts.map(|part| {
            let (batch, labels) = self.batch(part);
            lambda_rank(&network.forward(&batch).scores, &labels).0
        });
        losses.sum()
    }

    fn batch(&self, part: &[(&Features, f32)]) -> (Batch, Vec<f32>) {
        let (programs, labels): (Vec<&Features>, Vec<f32>) = part.iter().copied().unzip();
        (batch(&programs, &self.scales), labels)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Quality, simulated};
    use super::*;

    fn small() -> Config {
        Config { hidden: 24, epochs: 60, batch: 64, learning_rate: 4e-3, ..Config::default() }
    }

    #[test]
    fn programs_that_were_not_seen_are_ranked() {
        let all = simulated::samples(90, 0);
        let (test, train): (Vec<_>, Vec<_>) =
            all.iter().cloned().enumerate().partition(|(i, _)| i % 3 == 0);
        let strip = |part: Vec<(usize, Sample)>| -> Vec<Sample> {
            part.into_iter().map(|(_, s)| s).collect()
        };
        let (train, test) = (strip(train), strip(test));
        let mut model = Mlp::new(small());
        model.train(&train);
        let programs: Vec<&Features> = test.iter().map(|s| &*s.features).collect();
        let quality = Quality::of(&model.predict(&programs), &test).unwrap();
        println!("mlp: {quality}");
        assert!(quality.pairwise_accuracy > 0.8, "{quality}");
    }

    #[test]
    fn the_number_of_threads_does_not_matter() {
        let samples = simulated::samples(12, 0);
        let programs: Vec<&Features> = samples.iter().map(|s| &*s.features).collect();
        let scores = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut model = Mlp::new(Config { epochs: 3, ..small() });
                model.train(&samples);
                model.predict(&programs)
            })
        });
        assert_eq!(scores[0], scores[1]);
    }

    #[test]
    fn what_cannot_be_learned_from_gives_scores_of_zero() {
        let features = Arc::new(Features { rows: vec![[1.0; LEN]] });
        let failed = Sample { task: 0, features: features.clone(), seconds: None };
        for samples in [vec![], vec![failed.clone(), failed]] {
            let mut model = Mlp::new(small());
            model.train(&samples);
            assert_eq!(model.predict(&[&features]), [0.0]);
        }
    }

    #[test]
    fn numbers_that_are_none_do_not_spread() {
        let sample = |value: f32, seconds| {
            let features = Arc::new(Features { rows: vec![[value; LEN]] });
            Sample { task: 0, features, seconds: Some(seconds) }
        };
        let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN, 0.0, 3.0];
        let samples: Vec<Sample> =
            values.iter().enumerate().map(|(i, &v)| sample(v, 1.0 + i as f64)).collect();
        let mut model = Mlp::new(Config { epochs: 4, ..small() });
        model.train(&samples);
        let empty = Features { rows: vec![] };
        let mut programs: Vec<&Features> = samples.iter().map(|s| &*s.features).collect();
        programs.push(&empty);
        assert!(model.predict(&programs).iter().all(|s| s.is_finite()));
    }
}
