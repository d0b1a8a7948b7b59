//! TLP and MTL-TLP: networks that read a trace as a sentence, and no program.
//!
//! ```text
//! trace --encode--> rows of numbers --network--> a score for each platform --first head--> the candidate's score
//! ```
//!
//! Labels are throughputs, 1 for the best of a task; the loss ranks the candidates of each task.
//! MTL-TLP has a head for each platform over what all share, so that a platform with few
//! measurements learns from those of others. The first platform is the target: its head is the one
//! that is asked.
//!
//! A trace with an instruction that the vocabulary does not know gets the neutral score: the mean
//! of the scores of what the model was trained on.
//!
//! The paper trains 256 wide networks with batches of 4096 on GPUs, over millions of programs, and
//! ranks whole batches ([`Config::paper`]). The default is a quarter as wide with batches of 256:
//! for thousands of traces and two cores.

mod encode;
mod network;
mod train;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{CostModel, Kind, Needs, Parts, Sample, View, throughputs};
use crate::nn::Parameters;
use encode::Written;
use network::{Network, Sizes};
use train::{Row, Training, batch};

pub use encode::{Numbers, Reading, Vocabulary};

/// The loss that the network minimises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// LambdaRank over the batch as one list, whatever tasks it mixes.
    Rank,
    /// LambdaRank over each task of the batch. Whole tasks are held out.
    RankTasks,
    /// The mean squared error of scores as throughputs.
    Mse,
}

/// The size of the network, and how it learns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The seed of its first weights and of the order of samples.
    pub seed: u64,
    /// Neurons of a hidden layer; others have a half and a quarter of them.
    pub width: usize,
    /// Heads of the attention, which divide the width.
    pub attention: usize,
    /// The loss that it minimises.
    pub loss: Loss,
    /// How often it sees all samples at most.
    pub epochs: usize,
    /// Candidates per batch: the length of a list that is ranked.
    pub batch: usize,
    /// The step of the optimiser Adam.
    pub learning_rate: f32,
    /// Each epoch's step is this times the one before.
    pub step_factor: f32,
    /// The decay of weights, which the optimiser applies in each step.
    pub weight_decay: f32,
    /// Longer gradients are shortened to this.
    pub clip: f32,
    /// One in so many samples is held out to tell the best epoch; 0 holds out none.
    pub held_out: usize,
    /// How traces are written down.
    pub reading: Reading,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            seed: 0,
            width: 64,
            attention: 4,
            loss: Loss::RankTasks,
            epochs: 50,
            batch: 256,
            learning_rate: 1e-3,
            step_factor: 1.0,
            weight_decay: 1e-6,
            clip: 0.5,
            held_out: 10,
            reading: Reading::default(),
        }
    }
}

impl Config {
    /// The sizes and rates of the paper's code: numbers as they are, and no rows for stages.
    pub fn paper() -> Config {
        Config {
            width: 256,
            attention: 8,
            loss: Loss::Rank,
            batch: 4096,
            learning_rate: 7e-4,
            reading: Reading { numbers: Numbers::Raw, stages: false, ..Reading::default() },
            ..Config::default()
        }
    }

    fn check(&self) -> Result<(), String> {
        let divides = self.attention > 0 && self.width.is_multiple_of(self.attention);
        match (4..=MOST_WIDTH).contains(&self.width) && divides {
            true => Ok(()),
            false => Err(format!("{} neurons for {} heads", self.width, self.attention)),
        }
    }
}

/// No network comes near.
const MOST_WIDTH: usize = 1 << 13;
const MOST_HEADS: usize = 64;
/// Candidates that go through the network at once. A score does not depend on what else is asked.
const ASKED_AT_ONCE: usize = 128;

/// Untrained it scores everything 0.
#[derive(Clone, Debug)]
pub struct Tlp {
    kind: Kind,
    config: Config,
    trained: Option<State>,
}

#[derive(Clone, PartialEq, Debug)]
struct State {
    vocabulary: Vocabulary,
    network: Network,
    heads: usize,
    /// The score of what it cannot read.
    neutral: f32,
}

/// The content of `about` in a model's file.
#[derive(Serialize, Deserialize)]
struct About {
    config: Config,
    vocabulary: Vocabulary,
    heads: usize,
    neutral: f32,
}

impl Tlp {
    /// An untrained model for one platform: it learns from samples of the first alone.
    pub fn new(config: Config) -> Tlp {
        Tlp { kind: Kind::TLP, config, trained: None }
    }

    /// An untrained model with a head for each platform of its samples.
    pub fn of_platforms(config: Config) -> Tlp {
        Tlp { kind: Kind::MTL_TLP, config, trained: None }
    }

    /// An untrained model for one platform, of the sizes of the paper.
    pub fn published(seed: u64) -> Tlp {
        let config = Config { seed, ..Config::paper() };
        Tlp { kind: Kind::TLP_PUBLISHED, config, trained: None }
    }

    /// A model that a file holds; the text says why there is none.
    pub(super) fn from_parts(kind: Kind, parts: &Parts) -> Result<Tlp, String> {
        let About { config, vocabulary, heads, neutral } =
            serde_json::from_value(parts.about.clone()).map_err(|e| e.to_string())?;
        config.check()?;
        if !vocabulary.is_sound() || !(1..=MOST_HEADS).contains(&heads) {
            return Err("its vocabulary or its heads have sizes that no training gives".into());
        }
        let sizes = sizes(&config, &vocabulary, heads);
        let mut network = Network::random(sizes, &mut StdRng::seed_from_u64(0));
        if !network.set_numbers(&parts.numbers) {
            return Err(format!("{} weights are not those of its layers", parts.numbers.len()));
        }
        Ok(Tlp { kind, config, trained: Some(State { vocabulary, network, heads, neutral }) })
    }

    fn learn(&self, samples: &[Sample], known: Option<&State>) -> Option<State> {
        self.config.check().ok()?;
        let is_own = |s: &&Sample| self.is_shared() || s.platform == 0;
        let own: Vec<&Sample> = samples.iter().filter(is_own).collect();
        let views: Vec<View<'_>> = own.iter().map(|s| s.view()).collect();
        let vocabulary = match known {
            Some(state) => state.vocabulary.clone(),
            None => Vocabulary::of(&views, &self.config.reading),
        };
        let platforms = own.iter().map(|s| s.platform + 1).max().unwrap_or(1);
        let heads = known.map_or(platforms.min(MOST_HEADS), |state| state.heads);
        let labels = throughputs(samples);
        let labels = samples.iter().zip(labels).filter(|(s, _)| is_own(s)).map(|(_, y)| y);
        let rows = rows(&vocabulary, &own, labels, heads);
        let sizes = sizes(&self.config, &vocabulary, heads);
        let training = Training::new(&self.config, &rows, heads);
        let network = training.run(sizes, known.map(|state| state.network.clone()))?;
        let mut state = State { vocabulary, network, heads, neutral: 0.0 };
        let scores = state.scores(rows.iter().map(|row| Some(&row.written)).collect());
        state.neutral =
            known.map_or(scores.iter().sum::<f32>() / scores.len() as f32, |k| k.neutral);
        Some(state)
    }

    fn is_shared(&self) -> bool {
        self.kind == Kind::MTL_TLP
    }
}

fn sizes(config: &Config, vocabulary: &Vocabulary, heads: usize) -> Sizes {
    let Config { width, attention, .. } = *config;
    Sizes { inputs: vocabulary.columns(), width, attention, heads }
}

/// A row for each candidate, with what each platform measured of it. What the vocabulary cannot
/// read is left out.
fn rows(
    vocabulary: &Vocabulary,
    samples: &[&Sample],
    labels: impl Iterator<Item = f32>,
    heads: usize,
) -> Vec<Row> {
    let mut places: HashMap<(usize, u128), usize> = HashMap::new();
    let mut rows: Vec<(&Sample, Vec<Option<f32>>)> = vec![];
    for (sample, label) in samples.iter().zip(labels).filter(|(s, _)| s.platform < heads) {
        let place = *places.entry((sample.task, identity(sample))).or_insert_with(|| {
            rows.push((sample, vec![None; heads]));
            rows.len() - 1
        });
        rows[place].1[sample.platform] = Some(label);
    }
    let writer = vocabulary.writer();
    let row = |(sample, labels): (&Sample, Vec<Option<f32>>)| {
        Some(Row { task: sample.task, written: writer.encode(&sample.view())?, labels })
    };
    rows.into_par_iter().filter_map(row).collect()
}

/// The same for the same trace.
fn identity(sample: &Sample) -> u128 {
    let text = serde_json::to_vec(&*sample.trace).expect("a trace is plain data");
    xxhash_rust::xxh3::xxh3_128(&text)
}

impl State {
    /// By the first head. What is none gets the neutral score.
    fn scores(&self, lists: Vec<Option<&Written>>) -> Vec<f32> {
        let score = |part: &[Option<&Written>]| -> Vec<f32> {
            if part.iter().all(Option::is_none) {
                return vec![self.neutral; part.len()];
            }
            let asked = batch(part.iter().flatten().copied());
            let mut found = self.network.forward(&asked, 1).scores.swap_remove(0).into_iter();
            let next = |list: &Option<&Written>| list.and_then(|_| found.next());
            part.iter().map(next).map(|s| s.unwrap_or(self.neutral)).collect()
        };
        lists.par_chunks(ASKED_AT_ONCE).flat_map_iter(score).collect()
    }
}

impl CostModel for Tlp {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn needs(&self) -> Needs {
        Needs::Trace
    }

    fn train(&mut self, samples: &[Sample]) {
        self.trained = self.learn(samples, None);
    }

    /// All layers go on learning, in fewer epochs. The vocabulary stays.
    fn refine(&mut self, samples: &[Sample]) {
        if let Some(state) = self.learn(samples, self.trained.as_ref()) {
            self.trained = Some(state);
        }
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        let Some(state) = &self.trained else { return vec![0.0; candidates.len()] };
        let writer = state.vocabulary.writer();
        let lists: Vec<Option<Written>> = candidates.par_iter().map(|c| writer.encode(c)).collect();
        let scores = state.scores(lists.iter().map(Option::as_ref).collect());
        scores.into_iter().map(|s| if s.is_finite() { s } else { state.neutral }).collect()
    }

    fn parts(&self) -> Option<Parts> {
        let State { vocabulary, network, heads, neutral } = self.trained.clone()?;
        let about = About { config: self.config.clone(), vocabulary, heads, neutral };
        let about = serde_json::to_value(about).expect("a configuration is plain data");
        Some(Parts { about, numbers: network.numbers() })
    }
}
