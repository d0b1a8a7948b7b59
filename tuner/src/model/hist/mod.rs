//! Boosted trees that score each row of the features: a program has the sum over its rows.
//!
//! The loss of a program of throughput `y` is `y * (sum of scores - y)^2`, as in Ansor, so that fast
//! programs count most. A model is saved as JSON.

#[cfg(test)]
mod tests;

use ansc_sketch::features::LEN;
use rayon::prelude::*;

use super::table::{Program, Table};
use super::trees::{Config, Format, Group, Trees, TreesError};
use super::{CostModel, Kind, Parts, Sample, View};

const FORMAT: Format = Format { name: "ansc hist 1", width: LEN };

/// Untrained it scores everything 0.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Hist {
    config: Config,
    trees: Trees,
}

impl Hist {
    /// An untrained model.
    pub fn new(config: Config) -> Hist {
        Hist { config, ..Hist::default() }
    }

    /// The number of trees, 0 before it has learned.
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    /// A model from the parts that a file holds.
    pub(super) fn from_parts(parts: &Parts) -> Result<Hist, TreesError> {
        Ok(Hist { trees: Trees::from_parts(parts, FORMAT)?, ..Hist::default() })
    }
}

impl CostModel for Hist {
    fn name(&self) -> &'static str {
        Kind::HIST.name()
    }

    fn train(&mut self, samples: &[Sample]) {
        let table = Table::of(samples);
        self.trees.train(&self.config, &rows(&table), &groups(&table));
    }

    fn refine(&mut self, samples: &[Sample]) {
        let table = Table::of(samples);
        self.trees.refine(&self.config, &rows(&table), &groups(&table));
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        let score = |program: &View<'_>| program.rows().iter().map(|r| self.trees.score(r)).sum();
        candidates.par_iter().with_min_len(64).map(score).collect()
    }

    fn parts(&self) -> Option<Parts> {
        (!self.trees.is_empty()).then(|| self.trees.to_parts(FORMAT))
    }
}

fn rows<'a>(table: &Table<'a>) -> Vec<&'a [f32]> {
    table.rows.iter().map(|row| &row[..]).collect()
}

fn groups(table: &Table<'_>) -> Vec<Group> {
    let group = |program: &Program| {
        let throughput = f64::from(program.throughput);
        Group { rows: program.rows.clone(), weight: throughput, target: throughput }
    };
    table.programs.iter().map(group).collect()
}
