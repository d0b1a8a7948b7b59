//! The analytic price, corrected by what programs took.
//!
//! Boosted trees over one row of the whole program add up to the logarithm of what its price is to
//! be multiplied by. A program costs its price where nobody has learned anything.
//!
//! ```text
//! row        = sums of all rows of features, the last of them, parts of the price, their shares
//! correction = ln(time / price) - the mean of that over the task, on the same machine
//! ```
//! Times of all machines teach, each by its own mean: what prices get wrong, such as the reuse of
//! what a cache holds, is mostly the same everywhere.

use ansc_sketch::features::LEN;
use ansc_sketch::machine::{Corrects, Parts as Price};
use ansc_sketch::{CLEARLY_CORRECTED, Features, Program, features};
use rayon::prelude::*;

use super::table::{corrections, throughputs};
use super::trees::{Config, Format, Group, Trees, TreesError};
use super::{CostModel, Kind, Parts, Sample, View};

/// Cycles of issue, of traffic from beyond each cache, and of all.
const PRICED: usize = Price::LEVELS + 2;
/// Sums, the last row, the parts of the price, the share of each in the whole, the number of rows.
const WIDTH: usize = 2 * LEN + PRICED + PRICED - 1 + 1;
/// No price is corrected by more than a factor of two. Trees know nothing of sizes beyond those
/// that they saw: what the price says is four times as slow is so whatever they believe.
const MOST: f32 = std::f32::consts::LN_2;
const FORMAT: Format = Format { name: "ansc corrected 1", width: WIDTH };

/// Untrained, a program is as good as it is cheap.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Corrected {
    config: Config,
    trees: Trees,
}

impl Corrected {
    pub(super) fn from_parts(parts: &Parts) -> Result<Corrected, TreesError> {
        Ok(Corrected { trees: Trees::from_parts(parts, FORMAT)?, ..Corrected::default() })
    }

    /// The logarithm of what a price is to be multiplied by.
    fn learned(&self, features: &Features) -> f32 {
        self.trees.score(&row(features)).clamp(-MOST, MOST)
    }
}

impl CostModel for Corrected {
    fn name(&self) -> &'static str {
        Kind::CORRECTED.name()
    }

    fn train(&mut self, samples: &[Sample]) {
        let rows: Vec<Vec<f32>> = samples.iter().map(row_of).collect();
        self.trees.train(&self.config, &slices(&rows), &groups(samples));
    }

    fn refine(&mut self, samples: &[Sample]) {
        let rows: Vec<Vec<f32>> = samples.iter().map(row_of).collect();
        self.trees.refine(&self.config, &slices(&rows), &groups(samples));
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        let score = |candidate: &View<'_>| {
            let correction = candidate.features.map_or(0.0, |f| self.learned(f));
            -(candidate.price() + correction)
        };
        candidates.par_iter().with_min_len(64).map(score).collect()
    }

    fn clearly(&self) -> f32 {
        -CLEARLY_CORRECTED.ln() as f32
    }

    fn parts(&self) -> Option<Parts> {
        (!self.trees.is_empty()).then(|| self.trees.to_parts(FORMAT))
    }
}

impl Corrects for Corrected {
    fn correction(&self, program: &Program, parts: Price) -> f64 {
        self.learned(&Features { parts, ..features(program) }).into()
    }
}

/// Each program is a group of its own.
fn groups(samples: &[Sample]) -> Vec<Group> {
    let known = corrections(samples).into_iter().zip(throughputs(samples));
    let group = |(at, (correction, throughput)): (usize, (f32, f32))| Group {
        rows: at..at + 1,
        weight: throughput.into(),
        target: correction.into(),
    };
    known.enumerate().map(group).collect()
}

fn slices(rows: &[Vec<f32>]) -> Vec<&[f32]> {
    rows.iter().map(|row| &row[..]).collect()
}

fn row_of(sample: &Sample) -> Vec<f32> {
    row(sample.features.as_deref().unwrap_or(&Features::default()))
}

/// One row of the whole program.
fn row(features: &Features) -> Vec<f32> {
    let scale = |v: f64| (v + 1.0).log2() as f32;
    // Rows hold numbers that are scaled in the same way.
    let sum = |n: usize| scale(features.rows.iter().map(|r| f64::from(r[n]).exp2() - 1.0).sum());
    let last = features.rows.last().unwrap_or(&[0.0; LEN]);
    let price = &features.parts;
    let parts: Vec<f32> = [price.issue].into_iter().chain(price.traffic()).map(scale).collect();
    let whole = scale(price.cycles());
    let mut row: Vec<f32> = (0..LEN).map(sum).collect();
    row.extend(last);
    row.extend(&parts);
    row.push(whole);
    row.extend(parts.iter().map(|part| part - whole));
    row.push(features.rows.len() as f32);
    row
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::quality::pairwise_accuracy;
    use super::*;

    /// Times are what prices say, but for a factor that two numbers of the program tell.
    fn sample(task: usize, platform: usize, random: &mut StdRng) -> (Sample, f64) {
        let row: [f32; LEN] = std::array::from_fn(|_| random.random_range(0..4) as f32);
        let parts = Price { issue: random.random_range(1e3..1e6), ..Price::default() };
        let factor = if row[7] > 1.0 { 1.7 } else { 1.0 } * if row[9] > 2.0 { 0.7 } else { 1.0 };
        // Each task and machine has a speed of its own.
        let seconds = 1e-9 * (1 + task + 7 * platform) as f64 * parts.cycles() * factor;
        let features = Arc::new(Features { rows: vec![row, [1.0; LEN]], parts });
        (Sample { platform, ..Sample::of_program(task, features, Some(seconds)) }, factor)
    }

    fn scores(model: &Corrected, samples: &[Sample]) -> Vec<f32> {
        model.predict(&samples.iter().map(Sample::view).collect::<Vec<_>>())
    }

    #[test]
    fn rows_are_as_long_as_files_say() {
        let features = Features { rows: vec![[1.0; LEN]; 3], parts: Price::default() };
        assert_eq!(row(&features).len(), WIDTH);
        assert_eq!(row(&Features::default()).len(), WIDTH);
        // Each row holds 1, as `log2(1 + 1)`.
        assert_eq!(row(&features)[0], 2.0);
    }

    #[test]
    fn trees_correct_prices() {
        let random = &mut StdRng::seed_from_u64(5);
        let train: Vec<Sample> = (0..600).map(|n| sample(n / 20, n % 2, random).0).collect();
        let mut model = Corrected::default();
        // Nobody has learned anything: the price it is.
        let first = train[0].view();
        assert_eq!(model.predict(&[first]), [-first.price()]);
        model.train(&train);
        let (test, factors): (Vec<Sample>, Vec<f64>) =
            (0..100).map(|_| sample(0, 0, random)).unzip();
        let order = pairwise_accuracy(&scores(&model, &test), &throughputs(&test)).unwrap();
        assert!(order > 0.95, "{order}");
        // The corrections are those factors, but for one that all have.
        let ratio = |(s, factor): (&Sample, &f64)| {
            f64::from(model.learned(s.features.as_ref().unwrap())) - factor.ln()
        };
        let ratios: Vec<f64> = test.iter().zip(&factors).map(ratio).collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let close = ratios.iter().filter(|r| (*r - mean).abs() < 0.2).count();
        assert!(close >= 95, "{ratios:?}");
        // Measurements of another kind of task refine what is known, and do not replace it.
        let slow = |n| {
            let (sample, factor) = sample(100 + n / 20, 0, random);
            let row = sample.features.as_ref().unwrap().rows[0];
            let more = if row[11] > 1.0 { 3.0 } else { 1.0 };
            (Sample { seconds: sample.seconds.map(|s| s * more), ..sample }, factor * more)
        };
        let (new, _): (Vec<Sample>, Vec<f64>) = (0..100usize).map(slow).unzip();
        let order =
            |m: &Corrected| pairwise_accuracy(&scores(m, &new), &throughputs(&new)).unwrap();
        let mut refined = model.clone();
        refined.refine(&new);
        assert!(order(&refined) > order(&model) + 0.01, "{} {}", order(&refined), order(&model));
        // A price is never off by so much that a program a hundred times as slow seems the better.
        let slow = |n| {
            let (sample, _) = sample(n / 20, 0, random);
            let times =
                if sample.features.as_ref().unwrap().rows[0][7] > 1.0 { 100.0 } else { 1.0 };
            Sample { seconds: sample.seconds.map(|s| s * times), ..sample }
        };
        let slow: Vec<Sample> = (0..100usize).map(slow).collect();
        let mut bold = model.clone();
        bold.train(&slow);
        let corrections =
            slow.iter().map(|s| f64::from(bold.learned(s.features.as_ref().unwrap())));
        let most = corrections.map(f64::abs).fold(0.0, f64::max);
        assert_eq!(most, f64::from(MOST));
        let again = Corrected::from_parts(&model.parts().unwrap()).unwrap();
        assert_eq!(scores(&again, &test), scores(&model, &test));
    }
}
