//! Boosted trees of the crate `gbdt`, on the same loss as `hist`.
//!
//! The crate's own boosting knows no sums over rows; its trees do the work, each fitted to what is
//! left of the programs' throughputs. It is single-threaded and some ten times slower than `hist`.
//!
//! The crate never gets input that it cannot handle:
//! - Where the weights on one side of a split add up to at most 1, it takes that side for pure.
//!   Weights are scaled so that each is more than 1.
//! - Targets, and neighbouring values of a number, that differ by less than 1e-5 are equal to it.
//!   Both are scaled up.
//! - A number that is NaN, or a row that is too short, is a panic, and `f32::MIN` means unknown.
//!   All numbers become finite ones within bounds.
//! - Training on nothing and prediction without trees panic or give the least float: neither is
//!   asked for.
//! - Sampling rows or columns is not reproducible; neither is sampled.

use gbdt::config::Loss;
use gbdt::decision_tree::{Data, DataVec, DecisionTree, TrainingCache};

use super::table::{Program, Row, Table};
use super::{CostModel, Kind, Sample, View};

/// How trees are grown.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Most trees.
    pub rounds: usize,
    /// Rounds without a lower loss after which training ends.
    pub patience: usize,
    /// Decisions from the root to a leaf at most.
    pub max_depth: u32,
    /// The share of each step that is taken.
    pub eta: f32,
    /// Rows of a node that is not split.
    pub min_leaf_size: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { rounds: 50, patience: 10, max_depth: 6, eta: 0.2, min_leaf_size: 2 }
    }
}

/// Untrained it scores everything 0.
#[derive(Default)]
pub struct Gbdt {
    config: Config,
    /// Places of the numbers that the trees look at.
    columns: Vec<usize>,
    trees: Vec<DecisionTree>,
}

impl Gbdt {
    /// An untrained model.
    pub fn new(config: Config) -> Gbdt {
        Gbdt { config, columns: vec![], trees: vec![] }
    }
}

impl CostModel for Gbdt {
    fn name(&self) -> &'static str {
        Kind::GBDT.name()
    }

    fn train(&mut self, samples: &[Sample]) {
        let table = Table::of(samples);
        self.columns = varying(&table.rows);
        self.trees = match table.rows.is_empty() || self.columns.is_empty() {
            true => vec![],
            false => boost(&self.config, &table, &self.columns),
        };
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        let mut scores = vec![0.0; candidates.len()];
        if self.trees.is_empty() {
            return scores;
        }
        let rows =
            candidates.iter().enumerate().flat_map(|(i, c)| c.rows().iter().map(move |r| (i, r)));
        let (owners, data): (Vec<usize>, DataVec) =
            rows.map(|(i, row)| (i, Data::new_test_data(inputs(row, &self.columns), None))).unzip();
        for tree in &self.trees {
            for (&owner, step) in owners.iter().zip(tree.predict(&data)) {
                scores[owner] += self.config.eta * step / TARGET_SCALE;
            }
        }
        scores
    }
}

/// Equality within 1e-5 becomes equality within 1e-8.
const INPUT_SCALE: f32 = 1024.0;
const TARGET_SCALE: f32 = 1024.0;
const WEIGHT_SCALE: f32 = 1000.0;
/// The least weight, for programs that failed or are so slow that they hardly count.
const LEAST_WEIGHT: f32 = 2.0;
/// Far from the float that means unknown, and from overflow in a sum of two.
const LARGEST_INPUT: f32 = 1e30;

/// Places of the numbers that are not the same in all rows.
fn varying(rows: &[&Row]) -> Vec<usize> {
    let Some((first, others)) = rows.split_first() else { return vec![] };
    let differs = |&column: &usize| {
        let value = input(first[column]);
        others.iter().any(|row| input(row[column]) != value)
    };
    (0..first.len()).filter(differs).collect()
}

fn inputs(row: &Row, columns: &[usize]) -> Vec<f32> {
    columns.iter().map(|&column| input(row[column])).collect()
}

fn input(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { (value * INPUT_SCALE).clamp(-LARGEST_INPUT, LARGEST_INPUT) }
}

fn weight(throughput: f32) -> f32 {
    (throughput * WEIGHT_SCALE).max(LEAST_WEIGHT)
}

/// The trees up to the round of the least loss.
fn boost(config: &Config, table: &Table<'_>, columns: &[usize]) -> Vec<DecisionTree> {
    let programs = &table.programs;
    let mut data = training_data(table, columns);
    let mut cache = TrainingCache::get_cache(columns.len(), &data, 2);
    let mut scores = vec![0.0; programs.len()];
    let mut trees = vec![];
    let (mut least, mut kept) = (loss(programs, &scores), 0);
    while trees.len() < config.rounds && trees.len() - kept < config.patience {
        aim(programs, &scores, config.eta, &mut data);
        trees.push(fit(config, columns.len(), &data, &mut cache));
        let steps = cache.get_preds();
        for (program, score) in programs.iter().zip(&mut scores) {
            *score += config.eta * steps[program.rows.clone()].iter().sum::<f32>() / TARGET_SCALE;
        }
        let loss = loss(programs, &scores);
        if loss < least {
            (least, kept) = (loss, trees.len());
        }
    }
    trees.truncate(kept);
    trees
}

fn training_data(table: &Table<'_>, columns: &[usize]) -> DataVec {
    let mut data = Vec::with_capacity(table.rows.len());
    for program in &table.programs {
        for row in &table.rows[program.rows.clone()] {
            let weight = weight(program.throughput);
            data.push(Data::new_training_data(inputs(row, columns), weight, 0.0, None));
        }
    }
    data
}

/// All rows of a program aim at what is left of it; where they are many, at a part of that.
fn aim(programs: &[Program], scores: &[f32], eta: f32, data: &mut DataVec) {
    for (program, score) in programs.iter().zip(scores) {
        let steps = (program.rows.len() as f32 * eta).max(1.0);
        let target = TARGET_SCALE * (program.throughput - score) / steps;
        for row in &mut data[program.rows.clone()] {
            (row.target, row.label) = (target, target);
        }
    }
}

fn fit(config: &Config, columns: usize, data: &DataVec, cache: &mut TrainingCache) -> DecisionTree {
    let mut tree = DecisionTree::new();
    tree.set_feature_size(columns);
    tree.set_max_depth(config.max_depth);
    tree.set_min_leaf_size(config.min_leaf_size);
    tree.set_loss(Loss::SquaredError);
    tree.set_feature_sample_ratio(1.0);
    tree.fit(data, cache);
    tree
}

fn loss(programs: &[Program], scores: &[f32]) -> f64 {
    let each = programs.iter().zip(scores).map(|(program, score)| {
        f64::from(weight(program.throughput)) * f64::from(score - program.throughput).powi(2)
    });
    each.sum()
}

#[cfg(test)]
mod tests {
    use ansc_sketch::Features;
    use std::sync::Arc;

    use ansc_sketch::features::LEN;

    use super::super::quality::{pairwise_accuracy, r_squared};
    use super::super::throughputs;
    use super::*;

    /// Programs of one row; the time depends on two of its numbers.
    fn samples(n: usize, scale: f32, seconds: f64) -> Vec<Sample> {
        let sample = |i: usize| {
            let mut row = [0.0; LEN];
            (row[3], row[90]) = ((i * 7 % 16) as f32 * scale, (i * 5 % 9) as f32 * scale);
            let time = seconds * (1.0 + (i * 7 % 16) as f64 + 0.5 * (i * 5 % 9) as f64);
            let features = Arc::new(Features { rows: vec![row], ..Features::default() });
            Sample::of_program(0, features, Some(time))
        };
        (0..n).map(sample).collect()
    }

    fn scores(samples: &[Sample]) -> Vec<f32> {
        let mut model = Gbdt::default();
        model.train(samples);
        let programs: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
        model.predict(&programs)
    }

    fn assert_learned(samples: &[Sample]) {
        let (found, truth) = (scores(samples), throughputs(samples));
        let order = pairwise_accuracy(&found, &truth).unwrap();
        assert!(order > 0.97, "{order}");
        let explained = r_squared(&found, &truth);
        assert!(explained > 0.95, "{explained}");
    }

    #[test]
    fn shares_of_one_are_learned_for_all_that_weights_are_below_one() {
        assert_learned(&samples(144, 1.0, 1.0));
        // Slow programs all but one: their throughputs add up to less than 1.
        let mut samples = samples(30, 1.0, 1.0);
        samples[0].seconds = Some(0.01);
        let (found, truth) = (scores(&samples), throughputs(&samples));
        assert!((found[0] - 1.0).abs() < 0.2, "{}", found[0]);
        let order = pairwise_accuracy(&found[1..], &truth[1..]).unwrap();
        assert!(order > 0.8, "{order}");
        assert!(truth.iter().all(|&t| weight(t) > 1.0));
    }

    #[test]
    fn times_of_microseconds_are_learned() {
        assert_learned(&samples(144, 1.0, 1e-6));
    }

    #[test]
    fn numbers_that_hardly_differ_are_learned() {
        assert_learned(&samples(144, 1e-6, 1.0));
    }

    #[test]
    fn numbers_that_are_none_do_not_stop_it() {
        let mut samples = samples(40, 1.0, 1.0);
        let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN, f32::MAX];
        for (i, value) in values.into_iter().enumerate() {
            let mut row = samples[i].view().rows()[0];
            (row[3], row[100]) = (value, value);
            samples[i].features =
                Some(Arc::new(Features { rows: vec![row], ..Features::default() }));
        }
        samples[7].seconds = Some(f64::NAN);
        samples[8].seconds = Some(f64::INFINITY);
        samples[9].seconds = Some(0.0);
        assert!(scores(&samples).iter().all(|s| s.is_finite()));
    }

    #[test]
    fn untrained_and_without_anything_to_learn_scores_are_zero() {
        let known = samples(3, 1.0, 1.0);
        let program = known[0].view();
        assert_eq!(Gbdt::default().predict(&[program]), [0.0]);
        let failed: Vec<Sample> =
            known.iter().map(|s| Sample { seconds: None, ..s.clone() }).collect();
        let same = vec![known[0].clone(); 5];
        let empty = Sample {
            features: Some(Arc::new(Features { rows: vec![], ..Features::default() })),
            ..known[0].clone()
        };
        for samples in [vec![], failed, same, vec![empty.clone(), empty]] {
            let mut model = Gbdt::default();
            model.train(&samples);
            assert_eq!(
                model.predict(&[
                    program,
                    View::of_program(&Features { rows: vec![], ..Features::default() })
                ]),
                [0.0, 0.0]
            );
        }
        let none = Gbdt::new(Config { rounds: 0, ..Config::default() });
        assert_eq!(none.predict(&[program]), [0.0]);
    }

    #[test]
    fn a_single_program_and_failed_ones_are_fine() {
        assert!(scores(&samples(1, 1.0, 1.0)).iter().all(|s| s.is_finite()));
        let mut samples = samples(60, 1.0, 1.0);
        samples.iter_mut().step_by(3).for_each(|s| s.seconds = None);
        assert!(scores(&samples).iter().all(|s| s.is_finite()));
    }

    #[test]
    fn the_same_samples_give_the_same_scores() {
        let samples = samples(100, 1.0, 1.0);
        assert_eq!(scores(&samples), scores(&samples));
    }
}
