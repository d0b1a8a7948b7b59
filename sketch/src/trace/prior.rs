//! How likely the generator of samples is to decide as a trace does: P(trace) of MetaSchedule.
//!
//! ```text
//! sample_categorical([0, 16, 64, 512], [.1, .2, .3, .4])  # 2     ln .3
//! sample_perfect_tile(l1 of 8, parts=2, max_innermost=64) # [2, 4] ln 1/4
//! ```
//!
//! Two things are not part of a trace, and left out: at how many places a block may be computed,
//! each of which is as likely as the others, and the extent that a near tile was drawn for.

use super::Trace;
use super::instruction::Decision;
use super::sample::count_tiles;
use super::table::Instruction;

/// Only mutations choose a candidate without weight. It counts as likely as this share of all
/// weights, so that it stays possible.
const NEVER_SAMPLED: f64 = 0.01;

impl Trace {
    /// The logarithm of the probability of its decisions; what is not decided counts as certain.
    pub fn log_prior(&self) -> f64 {
        self.steps.iter().filter_map(log_share).sum()
    }
}

fn log_share(step: &Instruction) -> Option<f64> {
    use Instruction::*;
    match (step, step.decision()?) {
        (
            SamplePerfectTile { max_innermost, .. } | SampleTile { max_innermost, .. },
            Decision::Tile(tile),
        ) => {
            let tiles = count_tiles(tile.iter().product(), tile.len(), *max_innermost);
            Some(-(tiles.max(1) as f64).ln())
        }
        (SampleCategorical { weights, .. }, Decision::Choice(chosen)) => {
            let weight = |w: &f64| if w.is_finite() { w.max(0.0) } else { 0.0 };
            let total: f64 = weights.iter().map(weight).sum();
            let own = weights.get(usize::try_from(*chosen).ok()?).map(weight)?;
            let share = if total > 0.0 { own / total } else { 1.0 / weights.len() as f64 };
            Some(share.max(NEVER_SAMPLED).ln())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use crate::testing::matmul_bias_relu;
    use crate::trace::{Recorder, Trace, Unfit};

    fn two_decisions() -> Trace {
        let mut recorder = Recorder::new(crate::lower("k", &matmul_bias_relu(6, 8, 4)));
        let random = &mut StdRng::seed_from_u64(0);
        let block = recorder.get_block("mm").unwrap();
        let loops = recorder.get_loops(block).unwrap();
        recorder.sample_perfect_tile(loops[0], 2, 64, random).unwrap();
        recorder.sample_categorical(&[0, 16, 64], &[0.5, 0.3, 0.2], random).unwrap();
        recorder.into_parts().1
    }

    /// Samples are as often what they are as the prior says.
    #[test]
    fn samples_are_as_frequent_as_their_prior() {
        const DRAWN: usize = 20_000;
        let trace = two_decisions();
        let random = &mut StdRng::seed_from_u64(1);
        let mut seen: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        for _ in 0..DRAWN {
            let undecided = trace.clone().undecided();
            let program = crate::lower("k", &matmul_bias_relu(6, 8, 4));
            let drawn = undecided.replay(program, Unfit::Resample, random).unwrap().into_parts().1;
            let entry = seen.entry(drawn.to_string()).or_insert((0, drawn.log_prior().exp()));
            entry.0 += 1;
        }
        // Four tiles of six, three candidates.
        assert_eq!(seen.len(), 12);
        let all: f64 = seen.values().map(|(_, prior)| prior).sum();
        assert!((all - 1.0).abs() < 1e-9, "{all}");
        for (text, (count, prior)) in seen {
            let share = count as f64 / DRAWN as f64;
            assert!((share - prior).abs() < 0.015, "{share} {prior}\n{text}");
        }
    }

    #[test]
    fn what_is_never_sampled_stays_possible() {
        let mut recorder = Recorder::new(crate::lower("k", &matmul_bias_relu(6, 8, 4)));
        let random = &mut StdRng::seed_from_u64(0);
        recorder.sample_categorical(&[0, 1], &[1.0, 0.0], random).unwrap();
        let trace = recorder.into_parts().1;
        assert_eq!(trace.log_prior(), 0.0);
        let other = trace.mutated(0, random).unwrap();
        assert!(other.log_prior() < -4.0 && other.log_prior().is_finite());
    }
}
