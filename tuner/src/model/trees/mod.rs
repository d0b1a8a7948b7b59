//! Gradient-boosted trees over histograms of at most 64 bins per number.
//!
//! A tree scores a row; a group of rows has the sum of their scores, over all trees. Each round
//! fits one tree to the gradient of `weight * (score - target)^2`, which all rows of a group share:
//!
//! ```text
//! slope = (score - target) * weight        curvature = weight
//! ```
//! If a group has so many rows that their steps add up to more than one, the curvature is larger.
//!
//! The same rows give the same trees, bit by bit, on any number of threads: threads share out
//! numbers of a row, never a sum. Trees are saved as JSON; what is loaded is checked.

mod bins;
mod file;
mod grow;
mod tree;

use std::ops::Range;

use bins::Bins;
use grow::Gradient;
use tree::Tree;

pub(super) use file::Format;
pub use file::TreesError;

/// How trees are grown.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
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
        Config { rounds: 200, patience: 20, max_depth: 6, eta: 0.1, lambda: 1.0, gamma: 1e-5 }
    }
}

/// Trees whose values add up. None of them score everything 0.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Trees {
    all: Vec<Tree>,
    /// The first of them, which are older than all refinement, once there was any.
    base: Option<usize>,
}

/// Rows that are scored together.
pub(super) struct Group {
    /// Their places among all rows.
    pub(super) rows: Range<usize>,
    /// How much it counts.
    pub(super) weight: f64,
    /// The scores of its rows are to add up to this.
    pub(super) target: f64,
}

impl Trees {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn score(&self, row: &[f32]) -> f32 {
        self.all.iter().map(|tree| tree.predict(row)).sum()
    }

    /// Grows trees in place of those that there are.
    pub(super) fn train(&mut self, config: &Config, rows: &[&[f32]], groups: &[Group]) {
        *self = Trees::default();
        self.grow(config, rows, groups);
    }

    /// Adds trees for what is left after those of the last training. The trees of an earlier
    /// refinement go.
    pub(super) fn refine(&mut self, config: &Config, rows: &[&[f32]], groups: &[Group]) {
        let base = *self.base.get_or_insert(self.all.len());
        self.all.truncate(base);
        self.grow(config, rows, groups);
    }

    fn grow(&mut self, config: &Config, rows: &[&[f32]], groups: &[Group]) {
        let exactly =
            |row: &&[f32]| self.all.iter().map(|tree| f64::from(tree.predict(row))).sum::<f64>();
        let score = |group: &Group| rows[group.rows.clone()].iter().map(exactly).sum();
        let scores = groups.iter().map(score).collect();
        let training = Training { config, groups, bins: Bins::of(rows), scores };
        self.all.extend(training.run());
    }
}

struct Training<'a> {
    config: &'a Config,
    groups: &'a [Group],
    bins: Bins,
    /// Scores of groups, so far.
    scores: Vec<f64>,
}

impl Training<'_> {
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
        for (group, score) in self.groups.iter().zip(&mut self.scores) {
            *score += group.rows.clone().map(|row| f64::from(grown.values[row])).sum::<f64>();
        }
        grown.tree
    }

    /// One for each row.
    fn gradients(&self) -> Vec<Gradient> {
        let mut gradients = Vec::with_capacity(self.bins.rows);
        for (group, score) in self.groups.iter().zip(&self.scores) {
            let steps = (group.rows.len() as f64 * self.config.eta).max(1.0);
            let slope = (score - group.target) * group.weight;
            let gradient = Gradient { slope, curvature: group.weight * steps };
            gradients.extend(group.rows.clone().map(|_| gradient));
        }
        gradients
    }

    fn loss(&self) -> f64 {
        let each = self.groups.iter().zip(&self.scores);
        each.map(|(group, score)| group.weight * (score - group.target).powi(2)).sum()
    }
}
