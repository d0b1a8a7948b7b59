//! A recurrent network makes the decisions of a trace one after the other, and is rewarded for fast
//! programs.
//!
//! It is the search that neural architecture search began with, and the baseline of the papers on
//! G-BFS and N-A2C: the network answers each decision knowing all before it, and after each round
//! of measurements its answers are made more likely where programs were faster than the mean, and
//! less where they were slower (REINFORCE). Which sketch it is is the first of its answers.

mod controller;
mod questions;

use std::collections::HashSet;

use ansc_sketch::Trace;
use ansc_sketch::trace::{Decision, Recorder};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::{Random, SearchStrategy};
use crate::candidate::{Candidate, Search};
use crate::nn::{Adam, Rates};
use controller::{Answer, Controller};
use questions::{Question, ask};

/// The size of the network, and how it learns.
#[derive(Clone, Debug)]
pub struct RnnOptions {
    /// The size of the network's state.
    pub hidden: usize,
    /// The step of the optimiser Adam.
    pub learning_rate: f32,
    /// Programs that it learns from at once.
    pub batch: usize,
    /// How much of the mean reward is remembered from batch to batch.
    pub memory: f32,
    /// How much it counts that many answers stay possible.
    pub entropy: f32,
}

impl Default for RnnOptions {
    fn default() -> RnnOptions {
        RnnOptions { hidden: 64, learning_rate: 1e-2, batch: 8, memory: 0.8, entropy: 0.01 }
    }
}

/// Answers that may lead to nothing new, one after another, before random samples take their place.
const TRIES: usize = 200;

/// The strategy that the module describes.
pub struct Rnn {
    options: RnnOptions,
    random: StdRng,
    fallback: Random,
    network: Controller,
    adam: Adam,
    /// The programs that are being measured, each with the answers that led to it.
    asked: Vec<(Candidate, Vec<Answer>)>,
    mean: Option<f32>,
}

impl Rnn {
    /// A search that has learned nothing.
    pub fn new(options: RnnOptions, seed: u64) -> Rnn {
        let mut random = StdRng::seed_from_u64(seed);
        let network = Controller::random(options.hidden, &mut random);
        let rates = Rates { step: options.learning_rate, decay: 0.0, clip: 1.0 };
        let adam = Adam::new(&network, rates);
        let fallback = Random::new(seed);
        Rnn { options, random, fallback, network, adam, asked: vec![], mean: None }
    }

    /// From what became of the programs of the last round.
    fn learn(&mut self, search: &Search) {
        let asked = std::mem::take(&mut self.asked);
        let Some((_, best)) = search.best() else { return };
        let reward = |(candidate, answers): &(Candidate, Vec<Answer>)| {
            let outcome = search.outcome(candidate)?;
            Some((answers.clone(), outcome.seconds().map_or(0.0, |s| (best / s) as f32)))
        };
        let rewarded: Vec<(Vec<Answer>, f32)> = asked.iter().filter_map(reward).collect();
        for part in rewarded.chunks(self.options.batch.max(1)) {
            let now = part.iter().map(|(_, reward)| reward).sum::<f32>() / part.len() as f32;
            let mean = *self.mean.get_or_insert(now);
            let batch: Vec<(&[Answer], f32)> =
                part.iter().map(|(answers, reward)| (&answers[..], reward - mean)).collect();
            let gradient = self.network.gradient(&batch, self.options.entropy);
            self.adam.step(&mut self.network, &gradient);
            self.mean = Some(self.options.memory * mean + (1.0 - self.options.memory) * now);
        }
    }

    fn decide(&mut self, search: &Search) -> Option<(Candidate, Vec<Answer>)> {
        let (network, random) = (&mut self.network, &mut self.random);
        let mut dialogue = network.begin();
        let mut question = Question { sketch: 0, decision: 0, part: 0 };
        let mut choose = |question, options: &[Decision]| {
            ask(question, options, &mut |asked| network.answer(&mut dialogue, asked, random))
        };
        let sketches: Vec<Decision> =
            (0..search.sketches.len() as i64).map(Decision::Choice).collect();
        if sketches.is_empty() {
            return None;
        }
        question.sketch = choose(question, &sketches);
        let sketch = &search.sketches[question.sketch];
        let recorder = Recorder::of_task(search.task.clone());
        let decided = sketch.trace.choose_on(recorder, &mut |options| {
            question.decision += 1;
            if options.is_empty() { 0 } else { choose(question, options) }
        });
        let trace: Trace = decided.ok()?.into_parts().1;
        let candidate = search.replay(&trace, &mut self.random)?;
        Some((candidate, dialogue.answers))
    }
}

impl SearchStrategy for Rnn {
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        self.learn(search);
        let mut known = HashSet::new();
        let mut proposed = vec![];
        let mut tries = 0;
        while proposed.len() < n && tries < TRIES {
            tries += 1;
            let Some((made, answers)) = self.decide(search) else { continue };
            if !search.is_seen(&made) && known.insert(made.program) {
                proposed.push(made.clone());
                self.asked.push((made, answers));
                tries = 0;
            }
        }
        let rest = self.fallback.propose(search, n - proposed.len());
        proposed.extend(rest.into_iter().filter(|c| known.insert(c.program)));
        proposed
    }
}
