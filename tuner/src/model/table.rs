//! Samples as a model of rows sees them.

use std::collections::BTreeMap;
use std::ops::Range;

use ansc_sketch::features::LEN;

use super::Sample;

pub(super) type Row = [f32; LEN];

/// All rows of all programs of the first platform, one program after the other.
pub(super) struct Table<'a> {
    pub(super) rows: Vec<&'a Row>,
    pub(super) programs: Vec<Program>,
}

pub(super) struct Program {
    pub(super) rows: Range<usize>,
    /// The share of the task's best throughput: 1 for the fastest program, 0 for a failed one.
    pub(super) throughput: f32,
}

impl<'a> Table<'a> {
    pub(super) fn of(samples: &'a [Sample]) -> Table<'a> {
        let mut table = Table { rows: vec![], programs: vec![] };
        let is_own = |(sample, _): &(&Sample, f32)| sample.platform == 0;
        for (sample, throughput) in samples.iter().zip(throughputs(samples)).filter(is_own) {
            let first = table.rows.len();
            table.rows.extend(sample.view().rows());
            let rows = first..table.rows.len();
            table.programs.push(Program { rows, throughput });
        }
        table
    }
}

/// For each sample the logarithm of its time over its price, less the mean of its task on its
/// platform, to which what is fast adds most; 0 if it failed.
pub(super) fn corrections(samples: &[Sample]) -> Vec<f32> {
    let excess = |s: &Sample| Some(measured(s)?.ln() - f64::from(s.view().price()));
    let weights = throughputs(samples);
    let mut of_tasks: BTreeMap<(usize, usize), (f64, f64)> = BTreeMap::new();
    for (sample, &weight) in samples.iter().zip(&weights) {
        let (Some(excess), weight) = (excess(sample), f64::from(weight)) else { continue };
        let (sum, all) = of_tasks.entry((sample.task, sample.platform)).or_default();
        (*sum, *all) = (*sum + excess * weight, *all + weight);
    }
    let correction = |s: &Sample| {
        let (sum, all) = of_tasks.get(&(s.task, s.platform))?;
        Some((excess(s)? - sum / all) as f32)
    };
    samples.iter().map(|s| correction(s).unwrap_or(0.0)).collect()
}

/// For each sample the least time of its task on its platform over its own time; 0 if it failed.
pub fn throughputs(samples: &[Sample]) -> Vec<f32> {
    let place = |s: &Sample| (s.task, s.platform);
    let mut best: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for (place, seconds) in samples.iter().filter_map(|s| Some((place(s), measured(s)?))) {
        let least = best.entry(place).or_insert(seconds);
        *least = least.min(seconds);
    }
    let share = |s: &Sample| measured(s).map_or(0.0, |seconds| (best[&place(s)] / seconds) as f32);
    samples.iter().map(share).collect()
}

/// A time that is none counts as a failure.
fn measured(sample: &Sample) -> Option<f64> {
    sample.seconds.filter(|s| s.is_finite() && *s > 0.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ansc_sketch::Features;

    use super::*;

    #[test]
    fn throughput_is_relative_to_the_best_of_the_task() {
        let sample = |task, seconds| {
            let features =
                Arc::new(Features { rows: vec![[0.0; LEN]; task], ..Features::default() });
            Sample::of_program(task, features, seconds)
        };
        let samples = [
            sample(1, Some(2.0)),
            sample(2, Some(5.0)),
            sample(1, Some(8.0)),
            sample(2, None),
            sample(1, Some(f64::NAN)),
            sample(3, None),
        ];
        assert_eq!(throughputs(&samples), [1.0, 1.0, 0.25, 0.0, 0.0, 0.0]);
        let table = Table::of(&samples);
        assert_eq!(table.rows.len(), 1 + 2 + 1 + 2 + 1 + 3);
        assert_eq!(table.programs[1].rows, 1..3);
        // Another machine has times, and a best, of its own.
        let there = Sample { platform: 1, ..sample(1, Some(100.0)) };
        let both = [&samples[..], &[there]].concat();
        assert_eq!(throughputs(&both), [1.0, 1.0, 0.25, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(Table::of(&both).rows.len(), table.rows.len());
    }

    #[test]
    fn corrections_are_relative_to_what_is_fast() {
        let sample = |seconds| Sample::of_program(0, Arc::default(), seconds);
        // The mean of ln(1) and ln(4) is a fifth of the latter: it weighs a quarter of the former.
        let found = corrections(&[sample(Some(1.0)), sample(Some(4.0)), sample(None)]);
        let mean = 4f32.ln() / 5.0;
        let expected = [-mean, 4f32.ln() - mean, 0.0];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
    }
}
