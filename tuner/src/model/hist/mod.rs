//! Gradient-boosted trees over histograms of at most 64 bins per number.
//!
//! A tree scores a row; a program's score is the sum over its rows and all trees. Each round fits
//! one tree to the gradient of `y * (score - y)^2`, which all rows of a program share. Its slope is
//! `(score - y) * y`, and its curvature `y`; if a program has so many rows that their steps add up
//! to more than one, the curvature is larger.
//!
//! The trees of `corrected` add up to the logarithm of a factor of the analytic price. A program
//! costs that price where nobody has learned anything.
//!
//! The same samples give the same model, bit by bit, on any number of threads: threads share out
//! numbers (features), never a sum. A model is saved as JSON; what is loaded is checked.

mod bins;
mod file;
mod grow;
mod tree;

#[cfg(test)]
mod tests;

use ansc_sketch::Features;
use ansc_sketch::machine::Corrects;
use rayon::prelude::*;

use super::table::{Program, Row, Table};
use super::{CostModel, Parts, Sample, View};
use bins::Bins;
use grow::Gradient;
use tree::Tree;

pub use file::ModelError;

/// The quantity that the trees add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Learns {
    /// The throughput of a program.
    #[default]
    Throughput,
    /// The logarithm of what its price is to be multiplied by.
    Correction,
}

/// How trees are grown.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The quantity that they learn.
    pub learns: Learns,
    /// Most trees.
    pub rounds: usize,
    /// Rounds without a lower loss after which training ends.
    pub patience: usize,
    /// Decisions from the root to a leaf at most.
    pub max_depth: usize,
    /// The share of each step that is taken.
    pub eta: f64,
    /// Curvature that is added to that of each leaf.
    pub lambda: f64,
    /// The least gain of a split.
    pub gamma: f64,
}

/// Shallower trees in smaller steps than Ansor's (depth 10, 0.2, gain 1e-3): they rank unseen
/// programs better.
impl Default for Config {
    fn default() -> Config {
        Config {
            learns: Learns::Throughput,
            rounds: 200,
            patience: 20,
            max_depth: 6,
            eta: 0.1,
            lambda: 1.0,
            gamma: 1e-5,
        }
    }
}

/// Untrained it scores everything 0.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Hist {
    config: Config,
    trees: Vec<Tree>,
    /// The first of them, which are older than all refinement, once there was any.
    base: Option<usize>,
}

impl Config {
    /// The configuration of trees that correct prices.
    pub fn correcting() -> Config {
        Config { learns: Learns::Correction, ..Config::default() }
    }
}

impl Hist {
    /// An untrained model.
    pub fn new(config: Config) -> Hist {
        Hist { config, trees: vec![], base: None }
    }

    /// The number of trees, 0 before it has learned.
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    fn sum(&self, rows: &[Row]) -> f32 {
        let row = |row| self.trees.iter().map(|tree| tree.predict(row)).sum::<f32>();
        rows.iter().map(row).sum()
    }

    fn score(&self, program: &View<'_>) -> f32 {
        let sum = self.sum(program.rows());
        match self.config.learns {
            Learns::Throughput => sum,
            Learns::Correction => -(program.price() + sum),
        }
    }
}

impl CostModel for Hist {
    fn name(&self) -> &'static str {
        match self.config.learns {
            Learns::Throughput => "hist",
            Learns::Correction => "corrected",
        }
    }

    fn train(&mut self, samples: &[Sample]) {
        self.base = None;
        self.trees = Training::new(&self.config, &Table::of(samples), &[]).run();
    }

    /// Trees for what is left after those of the last training. The trees of an earlier refinement
    /// go.
    fn refine(&mut self, samples: &[Sample]) {
        let base = *self.base.get_or_insert(self.trees.len());
        self.trees.truncate(base);
        let more = Training::new(&self.config, &Table::of(samples), &self.trees).run();
        self.trees.extend(more);
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        candidates.par_iter().with_min_len(64).map(|program| self.score(program)).collect()
    }

    fn parts(&self) -> Option<Parts> {
        (!self.trees.is_empty()).then(|| self.to_parts())
    }
}

impl Corrects for Hist {
    fn correction(&self, features: &Features) -> f64 {
        match self.config.learns {
            Learns::Throughput => 0.0,
            Learns::Correction => f64::from(self.sum(&features.rows)),
        }
    }
}

struct Training<'a> {
    config: &'a Config,
    programs: &'a [Program],
    bins: Bins,
    /// Of each program, so far.
    scores: Vec<f64>,
}

impl<'a> Training<'a> {
    /// `known` are trees that scores begin with.
    fn new(config: &'a Config, table: &'a Table<'a>, known: &[Tree]) -> Training<'a> {
        let programs = &table.programs;
        let row = |row: &Row| known.iter().map(|t| f64::from(t.predict(row))).sum::<f64>();
        let score = |p: &Program| table.rows[p.rows.clone()].iter().map(|r| row(r)).sum();
        let scores = programs.iter().map(score).collect();
        Training { config, programs, bins: Bins::of(&table.rows), scores }
    }

    /// The trees up to the round of the least loss.
    fn run(mut self) -> Vec<Tree> {
        let mut trees: Vec<Tree> = vec![];
        let (mut least, mut kept) = (self.loss(), 0);
        while trees.len() < self.config.rounds && trees.len() - kept < self.config.patience {
            trees.push(self.round());
            let loss = self.loss();
            if loss < least {
                (least, kept) = (loss, trees.len());
            }
        }
        trees.truncate(kept);
        trees
    }

    fn round(&mut self) -> Tree {
        let grown = grow::grow(self.config, &self.bins, self.gradients());
        for (program, score) in self.programs.iter().zip(&mut self.scores) {
            *score += program.rows.clone().map(|row| f64::from(grown.values[row])).sum::<f64>();
        }
        grown.tree
    }

    /// One for each row.
    fn gradients(&self) -> Vec<Gradient> {
        let mut gradients = Vec::with_capacity(self.bins.rows);
        for (program, score) in self.programs.iter().zip(&self.scores) {
            let (weight, target) = self.target(program);
            let steps = (program.rows.len() as f64 * self.config.eta).max(1.0);
            let gradient = Gradient { slope: (score - target) * weight, curvature: weight * steps };
            gradients.extend(program.rows.clone().map(|_| gradient));
        }
        gradients
    }

    fn loss(&self) -> f64 {
        let each = self.programs.iter().zip(&self.scores).map(|(program, score)| {
            let (weight, target) = self.target(program);
            weight * (score - target).powi(2)
        });
        each.sum()
    }

    /// How much a program counts, and what its rows are to add up to.
    fn target(&self, program: &Program) -> (f64, f64) {
        let throughput = f64::from(program.throughput);
        match self.config.learns {
            Learns::Throughput => (throughput, throughput),
            Learns::Correction => (throughput, f64::from(program.correction)),
        }
    }
}
