//! The space of a task's schedules.
//!
//! ```text
//! Task --sketches--> traces without decisions
//!     --sample--> trace with decisions, program, packed constants
//! ```
//!
//! All sketches come from [rules](crate::rules): those that write down to vectors and threads, also
//! for every other [algorithm](crate::algorithm) that applies, and those that tile and leave the
//! rest to a search.

use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::choose::{Choice, by_tensor_cores, untuned};
use crate::gpu::GpuLimits;
use crate::rules::{Sketch, Space, gpu, nests};
use crate::scheduled::Scheduled;
use crate::task::Task;
use crate::trace::Trace;

impl Task {
    /// Every sketch; the first is that of the schedule that nobody tuned.
    pub fn sketches(self: &Arc<Task>) -> Vec<Sketch> {
        if let Some(limits) = &self.gpu {
            return self.gpu_sketches(limits);
        }
        let rivals = self.rivals().into_iter().map(|choice| open(choice.sketch));
        rivals.chain(Space::cpu(self.cores).sketches(self.naive())).collect()
    }

    /// The schedules that need no search, with all their decisions: for a CPU one of each sketch
    /// that rules write down to vectors and threads. The one that nobody tuned gets is the first;
    /// the others lost to it by price.
    pub fn rivals(self: &Arc<Task>) -> Vec<Choice> {
        if self.gpu.is_some() {
            return self.choice().into_iter().collect();
        }
        let preferred = self.preferred();
        let tiled = || {
            let made = nests::amx_sketches(self).into_iter();
            made.map(|(sketch, scheduled)| Choice { by: Some(Algorithm::Tiles), sketch, scheduled })
        };
        let written = self.written(preferred);
        match preferred {
            Some(Algorithm::Tiles) => tiled().chain(written).collect(),
            _ => written.into_iter().chain(tiled()).collect(),
        }
    }

    /// Those that rules write without tiles: of what the algorithm makes of the subgraph, of the
    /// subgraph itself, and one of each other algorithm.
    fn written(self: &Arc<Task>, algorithm: Option<Algorithm>) -> Vec<Choice> {
        let is_tiles = |by: &Option<Algorithm>| *by == Some(Algorithm::Tiles);
        let mut all: Vec<Choice> = vec![];
        let mut known: Vec<Trace> = vec![];
        let mut add = |by: Option<Algorithm>, (mut sketch, scheduled): (Sketch, Scheduled)| {
            sketch.rules.splice(0..0, by.map(|by| by.name().to_owned()));
            let opened = sketch.trace.clone().undecided();
            if !known.contains(&opened) {
                known.push(opened);
                all.push(Choice { by, sketch, scheduled });
            }
        };
        for by in [algorithm, None].into_iter().filter(|by| !is_tiles(by)) {
            untuned(self, by).into_iter().for_each(|made| add(by, made));
            let ways = nests::families(self, by).into_iter().flatten();
            ways.for_each(|made| add(by, made));
        }
        for by in Algorithm::ALL.map(Some).into_iter().filter(|by| !is_tiles(by)) {
            untuned(self, by).into_iter().for_each(|made| add(by, made));
            let sliced = nests::sliced_sketches(self, by);
            sliced.into_iter().for_each(|made| add(by, made));
        }
        all
    }

    /// Sketches that rules write down to vectors and threads, of subgraphs all stages of which they
    /// know; the first is what they take for the fastest.
    pub fn rule_sketches(self: &Arc<Task>) -> Vec<Sketch> {
        nests::sketches(self, None).into_iter().map(|(sketch, _)| sketch).collect()
    }

    /// The same with contractions: sketches of subgraphs with at least one, whose axes are as they
    /// were.
    pub fn contraction_sketches(self: &Arc<Task>) -> Vec<Sketch> {
        nests::contraction_sketches(self, None).into_iter().map(|(sketch, _)| sketch).collect()
    }

    /// The schedules of a GPU: what rules write down to threads, products of matrices by tensor
    /// cores, and those that other rules derive.
    fn gpu_sketches(self: &Arc<Task>, limits: &GpuLimits) -> Vec<Sketch> {
        let default = nests::gpu::sketch(self).ok().map(|(sketch, _)| open(sketch));
        let derived = Space::gpu(limits.clone()).sketches(self.naive());
        let matrices: Vec<Sketch> = gpu::mma::sketches(self).into_iter().map(open).collect();
        let (first, last) = match by_tensor_cores(self).is_some() {
            true => (matrices, vec![]),
            false => (vec![], matrices),
        };
        first.into_iter().chain(default).chain(last).chain(derived).collect()
    }
}

/// Without the decisions.
fn open(sketch: Sketch) -> Sketch {
    Sketch { trace: sketch.trace.undecided(), ..sketch }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::machine::Machine;
    use crate::task::Sums;
    use crate::testing::*;
    use crate::trace::{StepError, Unfit};
    use ansc_graph::Compute;

    fn task(compute: Compute) -> Arc<Task> {
        let constant = vec![false; compute.inputs.len()];
        let machine = Machine::new(16, 16);
        Arc::new(Task { cores: 2, ..Task::on_cpu("k", &compute, &constant, &machine) })
    }

    #[test]
    fn the_first_candidates_are_what_nobody_tuned_gets() {
        let task = task(matmul_bias_relu(12, 7, 10));
        let random = &mut StdRng::seed_from_u64(0);
        let sample = task.sample(&task.untuned(), Unfit::Refuse, random).unwrap();
        assert_eq!(sample.scheduled, task.scheduled());
        assert_eq!(task.sketches()[0].trace, sample.trace.undecided());
    }

    #[test]
    fn every_choice_computes_the_same() {
        for compute in [matmul_bias_relu(23, 17, 33), conv(4, 3, 9, 17, 2)] {
            let task = task(compute);
            let sketch = &task.sketches()[0];
            for seed in 0..40 {
                let random = &mut StdRng::seed_from_u64(seed);
                let sample = task.sample(&sketch.trace, Unfit::Refuse, random).unwrap();
                check_program(&task.compute, &sample.scheduled.program);
                let again = task.sample(&sample.trace, Unfit::Refuse, random).unwrap();
                assert_eq!(again, sample);
            }
        }
    }

    #[test]
    fn algorithms_replay_from_their_text() {
        let mut task = Task::clone(&task(conv(5, 3, 9, 7, 1)));
        task.constant[1] = true;
        let task = Arc::new(task);
        let sketches = task.sketches();
        assert_eq!(sketches[0].rules, ["points", "contraction"]);
        let by = |name: &str| sketches.iter().find(|s| s.rules[0] == name).unwrap();
        for sketch in ["winograd_2", "winograd_4", "im2col"].map(by) {
            assert!(
                sketch.trace.to_string().starts_with(&format!("algorithm({})", sketch.rules[0]))
            );
            let random = &mut StdRng::seed_from_u64(0);
            let sample = task.sample(&sketch.trace, Unfit::Refuse, random).unwrap();
            compare_scheduled(&task.compute, &sample.scheduled).unwrap();
            let json = serde_json::to_string(&sample.trace).unwrap();
            let trace: Trace = serde_json::from_str(&json).unwrap();
            assert_eq!(task.sample(&trace, Unfit::Refuse, random).unwrap(), sample);
        }
        let strided = Arc::new(Task { compute: conv(5, 3, 9, 7, 2), ..Task::clone(&task) });
        let random = &mut StdRng::seed_from_u64(0);
        let refused = strided.sample(&by("winograd_2").trace, Unfit::Resample, random).unwrap_err();
        assert_eq!(*refused.cause, StepError::DoesNotApply(Algorithm::Winograd2));
    }

    #[test]
    fn direct_sums_alone_have_no_winograd_in_their_space() {
        let mut all = Task::clone(&task(conv(64, 64, 30, 30, 1)));
        all.constant[1] = true;
        let direct = Arc::new(Task { sums: Sums::Direct, ..all.clone() });
        let all = Arc::new(all);
        assert_eq!(all.key(), direct.key());
        let algorithms = |task: &Arc<Task>| -> Vec<Option<Algorithm>> {
            task.sketches().iter().map(|s| s.trace.algorithm()).collect()
        };
        assert_eq!(algorithms(&all)[0], Some(Algorithm::Winograd4));
        let left = algorithms(&direct);
        assert!(left.contains(&None) && left.contains(&Some(Algorithm::Im2col)), "{left:?}");
        assert!(left.iter().all(|a| Sums::Direct.allow(*a)), "{left:?}");
        assert!(Sums::Direct.allow(direct.untuned().algorithm()));
        assert_eq!(direct.scheduled(), direct.scheduled_as(direct.preferred()));
        let random = &mut StdRng::seed_from_u64(0);
        let refused = direct.sample(&all.untuned(), Unfit::Adapt, random).unwrap_err();
        assert_eq!(*refused.cause, StepError::DoesNotApply(Algorithm::Winograd4));
    }

    #[test]
    fn names_do_not_matter_but_constants_do() {
        let a = task(matmul_bias_relu(4, 4, 4));
        let mut b = Task::clone(&a);
        b.name = "other".into();
        b.compute.stages[0].name = "other".into();
        assert_eq!(a.key(), b.key());
        b.constant[0] = true;
        assert_ne!(a.key(), b.key());
    }
}
