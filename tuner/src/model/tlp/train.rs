//! How the network learns: batches of many tasks, a loss for each head, the best epoch by what was
//! held out.
//!
//! A row is a candidate with a label for each platform, or none where it was not measured there. A
//! head's loss is over the rows that have its label, the total is the plain sum over the heads.
//! A trace without a label adds exactly nothing.

use std::collections::HashMap;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::super::rank::lambda_rank;
use super::encode::Written;
use super::network::{Batch, Network, Passed, Sizes};
use super::{Config, Loss};
use crate::nn::{Adam, Matrix, Rates};

/// A candidate and how good it is on each platform.
pub(super) struct Row {
    pub(super) task: usize,
    /// As the vocabulary writes it down.
    pub(super) written: Written,
    /// Shares of the best throughput.
    pub(super) labels: Vec<Option<f32>>,
}

/// Refining takes this many times fewer epochs than training from scratch.
const FEWER_EPOCHS: usize = 5;
/// Training ends after this share of its epochs without a gain.
const PATIENCE: usize = 3;

pub(super) struct Training<'a> {
    config: &'a Config,
    heads: usize,
    train: Vec<&'a Row>,
    held_out: Vec<&'a Row>,
}

impl<'a> Training<'a> {
    pub(super) fn new(config: &'a Config, rows: &'a [Row], heads: usize) -> Training<'a> {
        let mut order: Vec<&Row> = rows.iter().collect();
        let random = &mut StdRng::seed_from_u64(config.seed);
        shuffle(&mut order, config.loss, random);
        let count = order.len().checked_div(config.held_out).unwrap_or(0);
        let train = order.split_off(count);
        Training { config, heads, train, held_out: order }
    }

    /// The network of the epoch that did best; `None` if there is nothing to learn from.
    pub(super) fn run(mut self, sizes: Sizes, known: Option<Network>) -> Option<Network> {
        let says = |row: &&Row| row.labels.iter().flatten().any(|label| *label > 0.0);
        if !self.train.iter().any(says) {
            return None;
        }
        // The order of rows is that of any number of heads.
        let [mut random, mut order] = [1, 2].map(|n| StdRng::seed_from_u64(self.config.seed ^ n));
        let Config { learning_rate, weight_decay: decay, clip, epochs, .. } = *self.config;
        let epochs = if known.is_some() { epochs.div_ceil(FEWER_EPOCHS) } else { epochs };
        let mut network = known.unwrap_or_else(|| Network::random(sizes, &mut random));
        let mut adam = Adam::new(&network, Rates { step: learning_rate, decay, clip });
        let mut best = (f64::INFINITY, 0, network.clone());
        for epoch in 0..epochs {
            adam.set_step(learning_rate * self.config.step_factor.powi(epoch as i32));
            let trained_on = self.epoch(&mut network, &mut adam, &mut order);
            let loss = if self.held_out.is_empty() { trained_on } else { self.check(&network) };
            if loss < best.0 {
                best = (loss, epoch, network.clone());
            } else if epoch - best.1 > epochs / PATIENCE {
                break;
            }
        }
        Some(best.2)
    }

    /// One pass over the training rows in random order; the loss on the way.
    fn epoch(&mut self, network: &mut Network, adam: &mut Adam, random: &mut StdRng) -> f64 {
        shuffle(&mut self.train, self.config.loss, random);
        let mut total = 0.0;
        for part in self.train.chunks(self.config.batch.max(1)) {
            let batch = batch(part.iter().map(|row| &row.written));
            let passed = network.forward(&batch, self.heads);
            let (loss, of_scores) = self.losses(part, &passed);
            adam.step(network, &network.backward(&batch, &passed, &of_scores));
            total += loss.iter().sum::<f64>();
        }
        total
    }

    /// The loss of the first head, which is the one that is asked later.
    fn check(&self, network: &Network) -> f64 {
        let parts = self.held_out.chunks(self.config.batch.max(1));
        let losses = parts.map(|part| {
            let batch = batch(part.iter().map(|row| &row.written));
            self.losses(part, &network.forward(&batch, 1)).0[0]
        });
        losses.sum()
    }

    /// For each head its loss and the gradient of its scores.
    fn losses(&self, part: &[&Row], passed: &Passed) -> (Vec<f64>, Vec<Vec<f32>>) {
        let of_head = |(head, scores): (usize, &Vec<f32>)| {
            let labels: Vec<Option<f32>> = part.iter().map(|row| row.labels[head]).collect();
            match self.config.loss {
                Loss::Rank => masked(lambda_rank, scores, &labels),
                Loss::Mse => masked(squared_error, scores, &labels),
                Loss::RankTasks => of_tasks(part, scores, &labels),
            }
        };
        passed.scores.iter().enumerate().map(of_head).unzip()
    }
}

/// A random order. Candidates of a task that are compared with one another alone stay together.
fn shuffle(rows: &mut [&Row], loss: Loss, random: &mut StdRng) {
    rows.shuffle(random);
    if loss == Loss::RankTasks {
        let mut places: HashMap<usize, usize> = HashMap::new();
        for row in rows.iter() {
            let next = places.len();
            places.entry(row.task).or_insert(next);
        }
        rows.sort_by_key(|row| places[&row.task]);
    }
}

/// The mean over the tasks of a batch of what each task's list loses, and its gradient.
fn of_tasks(part: &[&Row], scores: &[f32], labels: &[Option<f32>]) -> (f64, Vec<f32>) {
    let tasks: Vec<&[&Row]> = part.chunk_by(|a, b| a.task == b.task).collect();
    let (mut total, mut gradient) = (0.0, vec![]);
    for task in &tasks {
        let own = gradient.len()..gradient.len() + task.len();
        let (loss, slopes) = masked(lambda_rank, &scores[own.clone()], &labels[own]);
        total += loss / tasks.len() as f64;
        gradient.extend(slopes.into_iter().map(|slope| slope / tasks.len() as f32));
    }
    (total, gradient)
}

/// The loss over what has a label; the gradient of what has none is exactly zero.
fn masked(
    loss: impl Fn(&[f32], &[f32]) -> (f64, Vec<f32>),
    scores: &[f32],
    labels: &[Option<f32>],
) -> (f64, Vec<f32>) {
    let known: Vec<usize> = (0..labels.len()).filter(|&i| labels[i].is_some()).collect();
    let own: Vec<f32> = known.iter().map(|&i| scores[i]).collect();
    let truth: Vec<f32> = labels.iter().flatten().copied().collect();
    let (total, slopes) = loss(&own, &truth);
    let mut gradient = vec![0.0; scores.len()];
    known.iter().zip(slopes).for_each(|(&i, slope)| gradient[i] = slope);
    (total, gradient)
}

/// The mean squared error and its gradient.
fn squared_error(scores: &[f32], labels: &[f32]) -> (f64, Vec<f32>) {
    let n = scores.len().max(1) as f64;
    let errors = || scores.iter().zip(labels).map(|(s, y)| f64::from(s - y));
    (errors().map(|e| e * e / n).sum(), errors().map(|e| (2.0 * e / n) as f32).collect())
}

/// Candidates that go through a network at once.
pub(super) fn batch<'a>(all: impl Iterator<Item = &'a Written>) -> Batch {
    let (mut data, mut lists) = (vec![], vec![]);
    for written in all {
        data.extend_from_slice(&written.numbers);
        lists.push(written.list);
    }
    let rows = lists.iter().map(|list| list.rows).sum();
    let columns = data.len().checked_div(rows).unwrap_or(0);
    Batch { rows: Matrix { rows, columns, data }, lists }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{List, Parameters};

    fn row(i: usize, labels: Vec<Option<f32>>) -> Row {
        let written = Written {
            numbers: (0..6).map(|j| ((i * 5 + j * 3) % 7) as f32 / 7.0).collect(),
            list: List { rows: 2, copies: 1 + i % 3 },
        };
        Row { task: i, written, labels }
    }

    #[test]
    fn tasks_stay_together_where_they_are_compared_alone() {
        let rows: Vec<Row> = (0..60).map(|i| row(i % 6, vec![])).collect();
        for (loss, together) in [(Loss::RankTasks, true), (Loss::Rank, false)] {
            let mut order: Vec<&Row> = rows.iter().collect();
            shuffle(&mut order, loss, &mut StdRng::seed_from_u64(1));
            let runs = order.chunk_by(|a, b| a.task == b.task).count();
            assert_eq!(runs == 6, together, "{runs}");
            assert!(!order.iter().map(|row| row.task).is_sorted());
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let scores: Vec<f32> = (0..8).map(|i| (i * 3 % 8) as f32 * 0.4).collect();
        let labels: Vec<Option<f32>> =
            (0..8).map(|i| (i % 4 != 1).then_some(i as f32 / 8.0)).collect();
        let rows: Vec<Row> = (0..8).map(|i| row(i / 3, vec![])).collect();
        let part: Vec<&Row> = rows.iter().collect();
        let of = |loss: Loss, scores: &[f32]| match loss {
            Loss::Rank => masked(lambda_rank, scores, &labels),
            Loss::Mse => masked(squared_error, scores, &labels),
            Loss::RankTasks => of_tasks(&part, scores, &labels),
        };
        for loss in [Loss::Rank, Loss::RankTasks, Loss::Mse] {
            let (_, gradient) = of(loss, &scores);
            for (at, found) in gradient.iter().enumerate() {
                let moved = |by: f32| {
                    let mut scores = scores.clone();
                    scores[at] += by;
                    of(loss, &scores).0
                };
                let expected = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                assert!((f64::from(*found) - expected).abs() < 1e-4, "{loss:?} {at}");
                assert!(labels[at].is_some() || *found == 0.0);
            }
        }
        assert_eq!(masked(lambda_rank, &[1.0, 2.0], &[None, None]), (0.0, vec![0.0; 2]));
        assert_eq!(masked(squared_error, &[1.0, 2.0], &[None, None]), (0.0, vec![0.0; 2]));
    }

    /// A missing label changes no weight, whatever it would have been.
    #[test]
    fn a_missing_label_changes_no_weight() {
        let config = Config { epochs: 3, held_out: 0, batch: 4, ..Config::default() };
        let sizes = Sizes { inputs: 3, width: 8, attention: 2, heads: 2 };
        let train = |labels: &dyn Fn(usize) -> Vec<Option<f32>>, heads: usize| {
            let rows: Vec<Row> =
                (0..10).map(|i| Row { task: i / 5, ..row(i, labels(i)) }).collect();
            let sizes = Sizes { heads, ..sizes };
            Training::new(&config, &rows, heads).run(sizes, None).unwrap()
        };
        let label = |i: usize| Some((i % 5) as f32 / 4.0);
        // The second platform measured nothing: its head stays as it was drawn, but for the decay
        // of weights.
        let alone = train(&|i| vec![label(i), None], 2);
        let one = train(&|i| vec![label(i)], 1);
        let shared = |n: &Network| n.parts()[..24].concat();
        assert_eq!(alone.parts().len(), one.parts().len() + 8);
        assert_eq!(shared(&alone), shared(&one));
        let both = train(&|i| vec![label(i), label(9 - i)], 2);
        assert_ne!(shared(&both), shared(&one));
    }
}
