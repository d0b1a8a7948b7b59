//! A subgraph to be scheduled, and the space of its schedules.
//!
//! ```text
//! Task --sketches--> traces without decisions --sample--> trace with decisions, program, packed constants
//! ```
//!
//! All sketches come from [rules](crate::rules): those that write down to vectors and threads, also
//! for every other [algorithm](crate::algorithm) that applies, and those that tile and leave the
//! rest to a search. Two tasks that differ in names only have the same [`Task::key`].

use std::sync::Arc;

use ansc_graph::Compute;
use rand::Rng;
use xxhash_rust::xxh3::xxh3_128;

use crate::algorithm::{Algorithm, Sums};
use crate::budget;
use crate::choose::{Choice, by_tensor_cores, in_tiles, on_gpu, untuned};
use crate::gpu::{GpuLimits, GpuProgram, lower};
use crate::machine::Machine;
use crate::packed::in_turn;
use crate::postprocess::{self, postprocess};
use crate::program::Program;
use crate::rules::{Sketch, Space, gpu, nests};
use crate::schedule::Schedule;
use crate::scheduled::Scheduled;
use crate::trace::{Recorder, StepError, Trace, TraceError, Unfit};

#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    pub name: String,
    pub compute: Compute,
    /// Which inputs are known when compiling, and may be packed.
    pub constant: Vec<bool>,
    pub machine: Machine,
    /// Threads that the schedule is for.
    pub cores: usize,
    /// The limits of the GPU that the schedule is for; `None` for a CPU.
    pub gpu: Option<GpuLimits>,
    /// Wishes of the rest of the artifact, for the schedule that nobody tuned. They are no part of
    /// the key.
    pub wishes: Wishes,
    /// Which algorithms there are for it. Two tasks that differ only in this have the same key, as
    /// a trace says what it uses.
    pub sums: Sums,
}

/// Wishes that kernels of an artifact have of each other, and its runs of all.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wishes {
    /// For each input, the columns of the panels in which it lies already: of tiles that take about
    /// as long, one that reads these is taken. None is known of what is not listed.
    pub widths: Vec<Option<usize>>,
    /// Axes stay apart, because runs need a part of each.
    pub apart: bool,
}

/// One point of the space.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// With all its decisions.
    pub trace: Trace,
    pub scheduled: Scheduled,
}

impl Task {
    /// A task for a GPU without tensor cores, no input of which is a constant.
    pub fn on_gpu(name: &str, compute: &Compute, limits: &GpuLimits) -> Task {
        Task {
            name: name.into(),
            compute: compute.clone(),
            constant: vec![false; compute.inputs.len()],
            machine: Machine::new(16, 16),
            cores: 1,
            gpu: Some(limits.clone()),
            wishes: Default::default(),
            sums: Sums::Any,
        }
    }

    /// A task for a CPU with one thread, in which any algorithm is allowed.
    pub fn on_cpu(name: &str, compute: &Compute, constant: &[bool], machine: &Machine) -> Task {
        Task {
            name: name.into(),
            compute: compute.clone(),
            constant: constant.to_vec(),
            machine: machine.clone(),
            cores: 1,
            gpu: None,
            wishes: Default::default(),
            sums: Sums::Any,
        }
    }

    /// The program that nothing was done to.
    pub fn naive(&self) -> Program {
        crate::lower(&self.name, &self.compute)
    }

    /// A key for the space of schedules, as 32 digits. It depends on the expression and on which
    /// inputs are constant.
    pub fn key(&self) -> String {
        let mut compute = self.compute.clone();
        for (i, stage) in compute.stages.iter_mut().enumerate() {
            stage.name = format!("s{i}");
        }
        let text = format!("{compute}{:?}", self.constant);
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }

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

    /// The program of a GPU that nobody tuned, and what it is computed by.
    pub fn untuned_on_gpu(
        self: &Arc<Task>,
        limits: &GpuLimits,
    ) -> Result<(GpuProgram, Option<Algorithm>), StepError> {
        let (sketch, scheduled) = on_gpu(self)?;
        Ok((lower(&scheduled.program, limits)?, sketch.trace.algorithm()))
    }

    /// The trace of the schedule that nobody tuned.
    pub fn untuned(self: &Arc<Task>) -> Trace {
        if self.gpu.is_some() {
            return on_gpu(self).map_or_else(|_| Trace::default(), |(sketch, _)| sketch.trace);
        }
        self.choice().map_or_else(Trace::default, |choice| choice.sketch.trace)
    }

    /// The schedule that nobody tuned.
    pub fn scheduled(&self) -> Scheduled {
        self.choice().map_or_else(|| self.unscheduled(), |choice| choice.scheduled)
    }

    /// The same of what the algorithm makes of the subgraph; of the subgraph itself, if the
    /// algorithm does not apply.
    pub fn scheduled_as(&self, algorithm: Option<Algorithm>) -> Scheduled {
        let task = Arc::new(self.clone());
        if algorithm == Some(Algorithm::Tiles)
            && let Some(tiled) = in_tiles(&task).and_then(|field| field.choices().next())
        {
            return tiled.scheduled;
        }
        let made = untuned(&task, algorithm).or_else(|| untuned(&task, None));
        made.map_or_else(|| self.unscheduled(), |(_, scheduled)| scheduled)
    }

    /// A GPU may not take a subgraph at all.
    fn unscheduled(&self) -> Scheduled {
        Scheduled { program: crate::finish(self.naive()), packings: vec![] }
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

    /// Replays a trace and makes a program of it; what is undecided is drawn.
    pub fn sample(
        self: &Arc<Task>,
        trace: &Trace,
        unfit: Unfit,
        random: &mut dyn Rng,
    ) -> Result<Sample, TraceError> {
        let recorder = trace.replay_on(Recorder::of_task(self.clone()), unfit, random)?;
        let complete = recorder.packings().cloned();
        let prepared = recorder.prepared().to_vec();
        let packed = recorder.packed().to_vec();
        let (schedule, trace) = recorder.into_parts();
        let mut scheduled = match complete {
            Some(packings) => Scheduled { program: schedule.into_program(), packings },
            None => {
                let finished = self.finished(schedule).map_err(|cause| TraceError {
                    step: trace.steps.len(),
                    instruction: "what follows from the trace".into(),
                    cause: Box::new(cause),
                })?;
                Scheduled { packings: in_turn(packed, finished.packings), ..finished }
            }
        };
        scheduled.packings = in_turn(prepared, scheduled.packings);
        Ok(Sample { trace, scheduled })
    }

    /// The program after postprocessing for the machine, if it becomes no more code than a kernel
    /// may have. For a GPU, a program that [`gpu::lower`](crate::gpu::lower) takes.
    fn finished(&self, schedule: Schedule) -> Result<Scheduled, StepError> {
        if let Some(limits) = &self.gpu {
            let program = postprocess::bound_program(schedule, limits)?;
            budget::check(&program, &budget::GPU)?;
            return Ok(Scheduled { program, packings: vec![] });
        }
        let machine =
            postprocess::Machine { cores: self.cores, vector_bytes: self.machine.vector_bytes };
        let scheduled = postprocess(schedule, &self.constant, &machine);
        budget::check(&scheduled.program, &self.machine)?;
        Ok(scheduled)
    }
}

/// Without the decisions.
fn open(sketch: Sketch) -> Sketch {
    Sketch { trace: sketch.trace.undecided(), ..sketch }
}

impl Recorder {
    /// A recorder of the task's naive program; it alone can compute it by an algorithm.
    pub fn of_task(task: Arc<Task>) -> Recorder {
        let mut recorder = Recorder::new(task.naive());
        recorder.task = Some(task);
        recorder
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::testing::*;

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
