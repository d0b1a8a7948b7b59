//! One decision of a trace is changed.
//!
//! Which kind of decision is drawn by weight, those that the trace does not have left out; then one
//! of that kind, each as likely as the others. How a decision changes is [`Trace::mutated`]'s
//! affair.

use ansc_sketch::Trace;
use ansc_sketch::notes::{PARALLEL, UNROLL};
use ansc_sketch::trace::{Instruction, Note, Number, ValueVar};
use rand::{Rng, RngExt};

/// How often each kind of decision is the one that changes.
#[derive(Clone, PartialEq, Debug)]
pub struct MutationWeights {
    /// Tiles, vector lengths, other numbers that are chosen.
    pub tile: f64,
    /// Places of blocks.
    pub location: f64,
    /// Unrolling.
    pub unroll: f64,
    /// Parallel loops.
    pub parallel: f64,
}

impl MutationWeights {
    /// TVM's auto-scheduler.
    pub const ANSOR: MutationWeights =
        MutationWeights { tile: 0.9, location: 0.05, unroll: 0.04, parallel: 0.01 };
    /// The same for a GPU, where threads share a kernel out.
    pub const ANSOR_GPU: MutationWeights =
        MutationWeights { tile: 0.9, location: 0.0, unroll: 0.1, parallel: 0.0 };
    /// The numbers of MetaSchedule.
    pub const META_SCHEDULE: MutationWeights =
        MutationWeights { tile: 0.9, location: 0.05, unroll: 0.03, parallel: 0.02 };

    /// The numbers of TVM's auto-scheduler for a machine.
    pub fn ansor(gpu: bool) -> MutationWeights {
        if gpu { MutationWeights::ANSOR_GPU } else { MutationWeights::ANSOR }
    }

    /// `ansor` or `meta-schedule`.
    pub fn named(name: &str) -> Option<MutationWeights> {
        match name {
            "ansor" => Some(MutationWeights::ANSOR),
            "meta-schedule" => Some(MutationWeights::META_SCHEDULE),
            _ => None,
        }
    }
}

/// None if the decision that was drawn cannot be another.
pub(super) fn mutate(
    trace: &Trace,
    weights: &MutationWeights,
    random: &mut dyn Rng,
) -> Option<Trace> {
    let kinds: Vec<(usize, Kind)> =
        trace.choices().into_iter().map(|step| (step, kind(trace, step))).collect();
    let of = |wanted: Kind| -> Vec<usize> {
        kinds.iter().filter(|(_, kind)| *kind == wanted).map(|(step, _)| *step).collect()
    };
    let all = [
        (weights.tile, of(Kind::Tile)),
        (weights.location, of(Kind::Location)),
        (weights.unroll, of(Kind::Unroll)),
        (weights.parallel, of(Kind::Parallel)),
    ];
    let total: f64 = all.iter().filter(|(_, steps)| !steps.is_empty()).map(|(w, _)| w).sum();
    let mut at = random.random_range(0.0..1.0) * total;
    for (weight, steps) in all.iter().filter(|(_, steps)| !steps.is_empty()) {
        if at < *weight {
            return trace.mutated(steps[random.random_range(0..steps.len())], random);
        }
        at -= weight;
    }
    None
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Tile,
    Location,
    Unroll,
    Parallel,
}

fn kind(trace: &Trace, step: usize) -> Kind {
    match &trace.steps[step] {
        Instruction::SampleComputeLocation { .. } => Kind::Location,
        Instruction::SampleCategorical { out, .. } => match annotated(trace, *out) {
            Some(UNROLL) => Kind::Unroll,
            Some(PARALLEL) => Kind::Parallel,
            _ => Kind::Tile,
        },
        _ => Kind::Tile,
    }
}

/// The annotation that a number becomes.
fn annotated(trace: &Trace, number: ValueVar) -> Option<&str> {
    trace.steps.iter().find_map(|step| match step {
        Instruction::Annotate { key, value: Note::Number(Number::Var { var }), .. }
            if *var == number =>
        {
            Some(key.as_str())
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::candidate::Candidate;
    use crate::testing::task;

    /// A product of a matrix whose rows are scaled by their sums: with a stage that no rule places.
    const SCALED: &str = "compute(in0: f32[64, 64], in1: f32[64, 64]) -> y {
       s: f32[64] = sum{r0: 64} in0[i0, r0]
       y: f32[64, 64] = sum{r0: 64} mul(mul(in0[i0, r0], in1[r0, i1]), s[i0])
     }";

    #[test]
    fn kinds_change_as_often_as_their_weights_say() {
        let task = task(ansc_graph::Compute::parse(SCALED).unwrap());
        let kinds = |trace: &Trace| -> Vec<Kind> {
            trace.choices().iter().map(|&s| kind(trace, s)).collect()
        };
        let all = [
            (Kind::Tile, 0.9),
            (Kind::Location, 0.05),
            (Kind::Unroll, 0.04),
            (Kind::Parallel, 0.01),
        ];
        let present = |trace: &Trace| all.iter().filter(|(k, _)| kinds(trace).contains(k)).count();
        let sketch = task.sketches().into_iter().max_by_key(|s| present(&s.trace)).unwrap();
        assert_eq!(present(&sketch.trace), 4, "{}", sketch.trace);
        let random = &mut StdRng::seed_from_u64(3);
        let parent = Candidate::of(&task, &sketch.trace, random).unwrap().trace;
        let mut counts = [0; 4];
        for _ in 0..2000 {
            let Some(child) = mutate(&parent, &MutationWeights::ANSOR, random) else { continue };
            let changed = parent.choices().into_iter().find(|&s| child.steps[s] != parent.steps[s]);
            let Some(changed) = changed else { continue };
            counts[kind(&parent, changed) as usize] += 1;
        }
        // Tiles of the innermost level may be full, and then do not change.
        let total: i32 = counts.iter().sum();
        for (kind, expected) in all {
            let share = f64::from(counts[kind as usize]) / f64::from(total);
            assert!((share - expected).abs() < 0.02, "{counts:?}");
        }
    }
}
