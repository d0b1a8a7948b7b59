//! The network of TenSet: a multi-layer perceptron that learns to rank programs.
//!
//! Inputs are the 164 numbers of a row, each divided by the largest of the training set, and ten
//! places for the kinds of operators. The reference knows the kind of each statement; here all rows
//! of a program have the kinds of the whole subgraph, [`Subject::tags`], and that of Winograd's
//! algorithm where the trace computes by it. Batches mix tasks; labels are throughputs, which makes
//! programs of different tasks comparable.
//!
//! The same samples and seed give the same network on any number of threads.

mod network;

use ansc_sketch::algorithm::Algorithm;
use ansc_sketch::features::LEN;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use serde::{Deserialize, Serialize};

use super::rank::lambda_rank;
use super::subject::TAGS;
use super::{CostModel, Kind, Parts, Sample, View, throughputs};
use crate::nn::{Adam, Matrix, Parameters, Rates};
use network::{Batch, Network};

#[cfg(doc)]
use super::Subject;

const INPUTS: usize = LEN + TAGS.len();

/// The size of the network, and how it learns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
        Kind::MLP.name()
    }

    fn train(&mut self, samples: &[Sample]) {
        self.trained = self.learn(samples, None);
    }

    /// All layers go on learning, in fewer epochs; what programs are divided by stays.
    fn refine(&mut self, samples: &[Sample]) {
        let known = self.trained.take();
        self.trained = self.learn(samples, known.clone()).or(known);
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        let Some(Trained { network, scales }) = &self.trained else {
            return vec![0.0; candidates.len()];
        };
        let size = self.config.batch.max(1);
        let scores = |part: &[View<'_>]| network.forward(&batch(part, scales)).scores;
        candidates.chunks(size).flat_map(scores).collect()
    }

    fn parts(&self) -> Option<Parts> {
        let Trained { network, scales } = self.trained.as_ref()?;
        let about = serde_json::to_value(&self.config).expect("a configuration is plain data");
        Some(Parts { about, numbers: [&scales[..], &network.numbers()].concat() })
    }
}

impl Mlp {
    /// A model that a file holds; the text says why there is none.
    pub(super) fn from_parts(parts: &Parts) -> Result<Mlp, String> {
        let config: Config =
            serde_json::from_value(parts.about.clone()).map_err(|e| e.to_string())?;
        if !(1..=MOST_HIDDEN).contains(&config.hidden) {
            return Err(format!("a layer of {} neurons", config.hidden));
        }
        let random = &mut StdRng::seed_from_u64(0);
        let mut network = Network::random(INPUTS, config.hidden, random);
        let scales = parts.numbers.first_chunk::<LEN>().copied();
        let rest = parts.numbers.get(LEN..).unwrap_or_default();
        match scales.filter(|_| network.set_numbers(rest)) {
            Some(scales) => Ok(Mlp { config, trained: Some(Trained { network, scales }) }),
            None => Err(format!("{} weights are not those of its layers", parts.numbers.len())),
        }
    }

    fn learn(&self, samples: &[Sample], known: Option<Trained>) -> Option<Trained> {
        let labels = throughputs(samples);
        let views = samples.iter().map(Sample::view).zip(labels);
        let own = samples.iter().map(|s| s.platform == 0);
        let programs: Vec<(View<'_>, f32)> =
            views.zip(own).filter(|(_, own)| *own).map(|(program, _)| program).collect();
        Training::new(&self.config, &programs, known).run()
    }
}

/// No network comes near.
const MOST_HIDDEN: usize = 1 << 14;

fn batch(programs: &[View<'_>], scales: &[f32; LEN]) -> Batch {
    let lengths: Vec<usize> = programs.iter().map(|p| p.rows().len()).collect();
    let mut rows = Matrix::zeros(lengths.iter().sum(), INPUTS);
    let mut next = 0;
    for program in programs {
        let tags = tags(program);
        for row in program.rows() {
            let (numbers, kinds) = rows.row_mut(next).split_at_mut(LEN);
            for ((out, value), scale) in numbers.iter_mut().zip(row).zip(scales) {
                *out = finite(*value) * scale;
            }
            kinds.copy_from_slice(&tags);
            next += 1;
        }
    }
    Batch { rows, lengths }
}

fn tags(program: &View<'_>) -> [f32; TAGS.len()] {
    let mut tags = program.subject.tags;
    if program.trace.algorithm().is_some_and(Algorithm::is_winograd) {
        let place = TAGS.iter().position(|tag| *tag == "winograd");
        place.into_iter().for_each(|place| tags[place] = true);
    }
    tags.map(|is| if is { 1.0 } else { 0.0 })
}

/// No number that is none gets into the network.
fn finite(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(-1e6, 1e6) }
}

fn scales(programs: &[(View<'_>, f32)]) -> [f32; LEN] {
    let mut most = [0.0f32; LEN];
    for row in programs.iter().flat_map(|(p, _)| p.rows()) {
        most.iter_mut().zip(row).for_each(|(most, v)| *most = most.max(finite(*v).abs()));
    }
    most.map(|most| if most > 0.0 { 1.0 / most } else { 1.0 })
}

struct Training<'a> {
    config: &'a Config,
    scales: [f32; LEN],
    /// The network to go on with.
    known: Option<Network>,
    train: Vec<(View<'a>, f32)>,
    held_out: Vec<(View<'a>, f32)>,
}

/// Refining takes this many times fewer epochs than training from scratch.
const FEWER_EPOCHS: usize = 5;

impl<'a> Training<'a> {
    fn new(
        config: &'a Config,
        programs: &[(View<'a>, f32)],
        known: Option<Trained>,
    ) -> Training<'a> {
        let mut order = programs.to_vec();
        order.shuffle(&mut StdRng::seed_from_u64(config.seed));
        let count = order.len().checked_div(config.held_out).unwrap_or(0);
        let train = order.split_off(count);
        let (known, scales) = match known {
            Some(Trained { network, scales }) => (Some(network), scales),
            None => (None, scales(programs)),
        };
        Training { config, scales, known, train, held_out: order }
    }

    /// The network of the epoch that did best; `None` if there is nothing to learn from.
    fn run(mut self) -> Option<Trained> {
        if self.train.iter().all(|(_, label)| *label == 0.0) {
            return None;
        }
        let random = &mut StdRng::seed_from_u64(self.config.seed ^ 1);
        let Config { learning_rate: step, weight_decay: decay, clip, hidden, epochs, .. } =
            *self.config;
        let epochs = if self.known.is_some() { epochs.div_ceil(FEWER_EPOCHS) } else { epochs };
        let known = self.known.take();
        let mut network = known.unwrap_or_else(|| Network::random(INPUTS, hidden, random));
        let mut adam = Adam::new(&network, Rates { step, decay, clip });
        let mut best = (f64::INFINITY, 0, network.clone());
        for epoch in 0..epochs {
            let trained_on = self.epoch(&mut network, &mut adam, random);
            let loss = if self.held_out.is_empty() { trained_on } else { self.check(&network) };
            if loss < best.0 {
                best = (loss, epoch, network.clone());
            } else if epoch - best.1 > epochs / 6 {
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

    fn batch(&self, part: &[(View<'_>, f32)]) -> (Batch, Vec<f32>) {
        let (programs, labels): (Vec<View<'_>>, Vec<f32>) = part.iter().copied().unzip();
        (batch(&programs, &self.scales), labels)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ansc_sketch::Features;

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
        let programs: Vec<View<'_>> = test.iter().map(Sample::view).collect();
        let quality = Quality::of(&model.predict(&programs), &test).unwrap();
        println!("mlp: {quality}");
        assert!(quality.pairwise_accuracy > 0.8, "{quality}");
    }

    #[test]
    fn the_number_of_threads_does_not_matter() {
        let samples = simulated::samples(12, 0);
        let programs: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
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
        let features = Arc::new(Features { rows: vec![[1.0; LEN]], ..Features::default() });
        let failed = Sample::of_program(0, features.clone(), None);
        for samples in [vec![], vec![failed.clone(), failed]] {
            let mut model = Mlp::new(small());
            model.train(&samples);
            assert_eq!(model.predict(&[View::of_program(&features)]), [0.0]);
        }
    }

    #[test]
    fn numbers_that_are_none_do_not_spread() {
        let sample = |value: f32, seconds| {
            let features = Arc::new(Features { rows: vec![[value; LEN]], ..Features::default() });
            Sample::of_program(0, features, Some(seconds))
        };
        let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN, 0.0, 3.0];
        let samples: Vec<Sample> =
            values.iter().enumerate().map(|(i, &v)| sample(v, 1.0 + i as f64)).collect();
        let mut model = Mlp::new(Config { epochs: 4, ..small() });
        model.train(&samples);
        let empty = Features { rows: vec![], ..Features::default() };
        let mut programs: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
        programs.push(View::of_program(&empty));
        assert!(model.predict(&programs).iter().all(|s| s.is_finite()));
    }

    #[test]
    fn kinds_of_operators_tell_programs_apart() {
        let features = Features { rows: vec![[1.0; LEN]; 2], ..Features::default() };
        let mut samples = simulated::samples(20, 0);
        samples.iter_mut().filter(|s| s.task == 0).for_each(|s| s.seconds = Some(1e3));
        let mut model = Mlp::new(small());
        model.train(&samples);
        let of = |task: usize| samples.iter().find(|s| s.task == task).unwrap();
        let score = |s: &Sample| model.predict(&[View { features: Some(&features), ..s.view() }]);
        let (dense, conv) = (score(of(0)), score(of(3)));
        assert_ne!(of(0).subject.tags, of(3).subject.tags);
        assert_ne!(dense, conv);
    }

    #[test]
    fn refining_starts_from_what_is_known() {
        let samples = simulated::samples(60, 0);
        let views: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
        let order = |m: &Mlp| Quality::of(&m.predict(&views), &samples).unwrap().pairwise_accuracy;
        let mut model = Mlp::new(small());
        model.train(&samples);
        let before = order(&model);
        let few = [samples[0].clone(), samples[70].clone()];
        model.refine(&few);
        let after = order(&model);
        let mut anew = Mlp::new(small());
        anew.train(&few);
        assert!(after > before - 0.1 && after > order(&anew), "{before} {after}");
        // Where there is nothing to learn from, nothing is forgotten.
        let scores = model.predict(&views);
        model.refine(&[]);
        assert_eq!(model.predict(&views), scores);
    }
}
