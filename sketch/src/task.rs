//! A subgraph to be scheduled, and the space of its schedules.
//!
//! ```text
//! Task --sketches--> traces without decisions --sample--> trace with decisions, program, packed constants
//! ```
//!
//! The sketches for a CPU are the [default schedule](crate::default) with its knobs open, the same
//! of every other [algorithm](crate::algorithm) that applies, and those that the
//! [rules](crate::rules) derive; for a GPU, they are all derived by rules. Two tasks that differ in
//! names only have the same [`Task::key`].

use std::sync::Arc;

use ansc_graph::Compute;
use rand::Rng;
use xxhash_rust::xxh3::xxh3_128;

use crate::algorithm::{Algorithm, Sums};
use crate::budget;
use crate::choose::{Untuned, by_tensor_cores, in_tiles, on_gpu};
use crate::default::{self, Knob, Knobs, Machine, Scheduled};
use crate::gpu::{GpuLimits, GpuProgram, lower};
use crate::packed::in_turn;
use crate::postprocess::{self, postprocess};
use crate::program::Program;
use crate::rules::{Sketch, Space, gpu, nests};
use crate::schedule::Schedule;
use crate::trace::{Decision, Recorder, StepError, Trace, TraceError, Unfit};

#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    pub name: String,
    pub compute: Compute,
    /// Which inputs are known when compiling, and may be packed.
    pub constant: Vec<bool>,
    pub machine: Machine,
    /// Threads that the schedule is for.
    pub cores: usize,
    /// What a GPU allows, if the schedule is for one.
    pub gpu: Option<GpuLimits>,
    /// Which algorithms there are for it. Two tasks that differ only in this have the same key, as
    /// a trace says what it uses.
    pub sums: Sums,
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
            sums: Sums::Any,
        }
    }

    /// The program that nothing was done to.
    pub fn naive(&self) -> Program {
        crate::lower(&self.name, &self.compute)
    }

    /// What decides the space of schedules, as 32 digits.
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
        let named = |algorithm: Option<Algorithm>| {
            let trace = self.default_sketch(algorithm).ok()?.0.undecided();
            let name = algorithm.map(|a| a.name().to_owned());
            Some(Sketch {
                trace,
                rules: name.into_iter().chain(["default schedule".into()]).collect(),
            })
        };
        let preferred = self.preferred();
        let (ruled, by_rules) = self.ruled(preferred);
        let all = [None].into_iter().chain(Algorithm::ALL.map(Some));
        let algorithms = [preferred].into_iter().chain(all.filter(|a| *a != preferred));
        let is_tiled = |a: &Option<Algorithm>| *a == Some(Algorithm::Tiles);
        let tiled = nests::tensor_sketches(self).into_iter().map(|(sketch, _)| sketch);
        let (first, last): (Vec<Sketch>, _) = match is_tiled(&preferred) {
            true => (tiled.collect(), vec![]),
            false => (vec![], tiled.collect()),
        };
        let others = algorithms.filter(|a| !is_tiled(a)).filter_map(named);
        let derived = Space::cpu(self.cores).sketches(self.naive());
        let all = first.into_iter().chain(others).chain(last).chain(derived);
        match ruled {
            true => by_rules.into_iter().chain(all).collect(),
            false => all.chain(by_rules).collect(),
        }
    }

    /// Sketches that rules write down to vectors and threads, of what the algorithm makes of the
    /// subgraph; whether the first of them is what nobody tuned gets.
    fn ruled(self: &Arc<Task>, algorithm: Option<Algorithm>) -> (bool, Vec<Sketch>) {
        let open = |sketch: Sketch| Sketch { trace: sketch.trace.undecided(), ..sketch };
        let chosen = match (algorithm, Untuned::of(self, algorithm)) {
            (Some(Algorithm::Tiles), _) => None,
            (_, Some(Untuned::Rules(sketch, _))) => Some(open(sketch)),
            _ => None,
        };
        let ruled = chosen.is_some();
        let mut all: Vec<Sketch> = chosen.into_iter().collect();
        for by in [algorithm, None].into_iter().filter(|by| *by != Some(Algorithm::Tiles)) {
            let ways = nests::families(self, by);
            for sketch in ways.into_iter().flatten().map(|(sketch, _)| open(sketch)) {
                if all.iter().all(|other| other.trace != sketch.trace) {
                    all.push(sketch);
                }
            }
        }
        let others = Algorithm::ALL.into_iter().filter(|by| Some(*by) != algorithm);
        let sliced = others.flat_map(|by| nests::sliced_sketches(self, Some(by)));
        all.extend(sliced.map(|(sketch, _)| open(sketch)));
        (ruled, all)
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
        let algorithm = self.preferred();
        if algorithm == Some(Algorithm::Tiles)
            && let Some((sketch, _)) = in_tiles(self)
        {
            return sketch.trace;
        }
        let chosen = match Untuned::of(self, algorithm) {
            Some(Untuned::Rules(sketch, _)) => return sketch.trace,
            Some(Untuned::Default(choices, _)) => choices,
            None => vec![],
        };
        let sketch = self.default_sketch(algorithm);
        let (mut trace, knobs) = sketch.expect("the default schedule always applies");
        for (step, knob) in trace.choices().into_iter().zip(knobs) {
            let value = chosen.iter().find(|(of, _)| *of == knob).map(|(_, value)| value);
            let place = knob.candidates().iter().position(|c| Some(c) == value);
            trace = trace.decide(step, Decision::Choice(place.unwrap_or(0) as i64));
        }
        trace
    }

    /// The schedule that nobody tuned.
    pub fn default_schedule(&self) -> Scheduled {
        self.scheduled_as(self.preferred())
    }

    /// The same of what the algorithm makes of the subgraph; of the subgraph itself, if the
    /// algorithm does not apply.
    pub fn scheduled_as(&self, algorithm: Option<Algorithm>) -> Scheduled {
        let task = Arc::new(self.clone());
        if algorithm == Some(Algorithm::Tiles)
            && let Some((_, scheduled)) = in_tiles(&task)
        {
            return scheduled;
        }
        let untuned = Untuned::of(&task, algorithm).or_else(|| Untuned::of(&task, None));
        // A GPU may not take a subgraph at all.
        let naive = || Scheduled { program: crate::finish(self.naive()), packings: vec![] };
        untuned.map_or_else(naive, Untuned::scheduled)
    }

    /// The schedules of a GPU: what rules write down to threads, products of matrices by tensor
    /// cores, and those that other rules derive.
    fn gpu_sketches(self: &Arc<Task>, limits: &GpuLimits) -> Vec<Sketch> {
        let open = |s: Sketch| Sketch { trace: s.trace.undecided(), ..s };
        let default = nests::gpu::sketch(self).ok().map(|(sketch, _)| open(sketch));
        let derived = Space::gpu(limits.clone()).sketches(self.naive());
        let matrices = gpu::tensor::sketch(self).map(open);
        let (first, last) = match by_tensor_cores(self).is_some() {
            true => (matrices, None),
            false => (None, matrices),
        };
        first.into_iter().chain(default).chain(last).chain(derived).collect()
    }

    /// The default schedule of what the algorithm makes of the subgraph, and the knobs that matter
    /// for it, each of which the trace samples.
    fn default_sketch(
        self: &Arc<Task>,
        algorithm: Option<Algorithm>,
    ) -> Result<(Trace, Vec<Knob>), StepError> {
        let random = &mut crate::rules::fixed_random();
        let mut recorder = Recorder::of_task(self.clone());
        if let Some(algorithm) = algorithm {
            recorder.algorithm(algorithm)?;
        }
        let task = recorder.task.clone().expect("the recorder of a task knows it");
        let knobs = Knobs::default().summing(task.sums);
        default::schedule_with(&task.name, &task.compute, &task.constant, &task.machine, &knobs);
        let mut sampled = vec![];
        for knob in knobs.asked() {
            let candidates = knob.candidates();
            let weights = vec![1.0 / candidates.len() as f64; candidates.len()];
            let value = recorder.sample_categorical(candidates, &weights, random)?;
            sampled.push((knob, value.into()));
        }
        recorder.default_schedule(&sampled)?;
        Ok((recorder.into_parts().1, sampled.into_iter().map(|(knob, _)| knob).collect()))
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

impl Recorder {
    /// A recorder of the task's naive program; it alone can execute the default schedule.
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
        let constant = compute.inputs.iter().map(|_| false).collect();
        let machine = Machine::new(16, 16);
        Arc::new(Task {
            name: "k".into(),
            compute,
            constant,
            machine,
            cores: 2,
            gpu: None,
            sums: Sums::Any,
        })
    }

    #[test]
    fn the_first_candidates_are_what_nobody_tuned_gets() {
        let task = task(matmul_bias_relu(12, 7, 10));
        let random = &mut StdRng::seed_from_u64(0);
        let sample = task.sample(&task.untuned(), Unfit::Refuse, random).unwrap();
        assert_eq!(sample.scheduled, task.default_schedule());
        let expected = default::schedule("k", &task.compute, &task.constant, &task.machine);
        assert_eq!(sample.scheduled.program.code_hash(), expected.program.code_hash());
        assert_eq!(task.sketches()[0].trace, sample.trace.undecided());
    }

    #[test]
    fn every_knob_computes_the_same() {
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
        assert_eq!(direct.default_schedule(), direct.scheduled_as(direct.preferred()));
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
