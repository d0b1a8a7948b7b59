//! Which schedule a kernel gets, and with it which program: the one that tuning found, or the
//! default one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ansc_codegen::Target;
use ansc_graph::{Compute, TensorType, fuse};
use ansc_runtime::DType;
use ansc_runtime::manifest::{GPU_TRIPLE, Tuning, gpu_cpu};
use ansc_sketch::algorithm::Algorithm;
use ansc_sketch::gpu::{self, GpuLimits, GpuProgram};
use ansc_sketch::packed::Packing;
use ansc_sketch::task::{Sums, Wishes};
use ansc_sketch::trace::Unfit;
use ansc_sketch::{Choice, Machine, Scheduled, price};
use ansc_sketch::{Program, Task, Trace, finish};
use ansc_tuner::Records;
use ansc_tuner::candidate::Candidate;
use ansc_tuner::dataset::COLD;
use ansc_tuner::records::{Key, RecordsError, best_allowed, seconds_of};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::Error;

/// The first generation of GPUs whose warps multiply matrices by the instructions that we know.
const LEAST_MMA: u32 = 80;

/// The machine, and what is known to be fast on it.
#[derive(Clone, Debug)]
pub struct Schedules {
    pub machine: Machine,
    /// Threads that tuned schedules are for.
    pub threads: usize,
    /// The best known by [`Task::key`].
    pub tuned: BTreeMap<String, Tuned>,
    pub aim: Aim,
    /// Only such as store weights in no more room than they take: less memory, for more time.
    pub small: bool,
    /// Allows some algorithms for kernels, whoever found their schedules. To be set before any
    /// schedule is taken up.
    pub sums: Sums,
    /// The panels in which constants of these types lie already: where it costs little, other
    /// kernels read them there.
    pub widths: HashMap<TensorType, usize>,
}

/// A tuned schedule of a task, as records know it.
#[derive(Clone, Debug)]
pub struct Tuned {
    pub trace: Trace,
    pub seconds: f64,
    pub untuned_seconds: Option<f64>,
    /// The untuned program that it was compared with, if another one may be chosen today.
    pub against: Option<u64>,
    pub origin: Origin,
}

/// Where a schedule was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The machine that measured, as records name it.
    pub machine: String,
    pub threads: usize,
    /// Whether it comes with the compiler, and not from records of the user.
    pub shipped: bool,
    /// Whether that is another kind of processor than kernels are compiled for. What was faster
    /// there is taken only where prices say that it is faster here.
    pub elsewhere: bool,
}

/// The kind of processor that kernels are scheduled for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Aim {
    Cpu,
    /// The artifact is loaded on a CPU all the same.
    Gpu(Gpus),
    /// Schedules of a GPU in their form for this CPU: slow, for checking.
    GpuOnCpu(Gpus),
}

/// The generations of GPUs that kernels are for, and what all of these can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gpus {
    sms: Vec<u32>,
    limits: GpuLimits,
}

impl Gpus {
    /// Those of these generations, by compute capability times ten.
    pub fn of(sms: &[u32]) -> Gpus {
        let mut sms = sms.to_vec();
        sms.sort_unstable();
        sms.dedup();
        Gpus { limits: GpuLimits::of(&sms), sms }
    }

    /// Each generation once, the oldest first.
    pub fn sms(&self) -> &[u32] {
        &self.sms
    }

    pub fn limits(&self) -> &GpuLimits {
        &self.limits
    }

    /// Whether the warps of all multiply matrices.
    fn multiply_matrices(&self) -> bool {
        self.sms.iter().all(|&sm| sm >= LEAST_MMA)
    }
}

/// How a kernel is computed. All kernels of an artifact have the same form.
#[derive(Clone, PartialEq, Debug)]
pub enum Form {
    Cpu(Program),
    Gpu(GpuProgram),
}

impl Form {
    pub fn cpu(&self) -> Option<&Program> {
        match self {
            Form::Cpu(program) => Some(program),
            Form::Gpu(_) => None,
        }
    }

    pub fn gpu(&self) -> Option<&GpuProgram> {
        match self {
            Form::Cpu(_) => None,
            Form::Gpu(program) => Some(program),
        }
    }
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Form::Cpu(program) => program.fmt(f),
            Form::Gpu(program) => program.fmt(f),
        }
    }
}

/// The form that was chosen for a kernel, and the origin of its schedule.
pub struct Chosen {
    pub form: Form,
    pub packings: Vec<Packing>,
    /// Where the schedule comes from records.
    pub tuning: Option<Tuning>,
    /// As in the manifest.
    pub algorithm: Option<&'static str>,
}

impl Chosen {
    fn new(
        scheduled: Scheduled,
        tuning: Option<Tuning>,
        algorithm: Option<&'static str>,
    ) -> Chosen {
        let Scheduled { program, packings } = scheduled;
        Chosen { form: Form::Cpu(program), packings, tuning, algorithm }
    }
}

impl Aim {
    /// The GPUs, if the schedules are for some.
    pub fn gpus(&self) -> Option<&Gpus> {
        match self {
            Aim::Cpu => None,
            Aim::Gpu(gpus) | Aim::GpuOnCpu(gpus) => Some(gpus),
        }
    }

    /// Whether the schedules are those of a CPU.
    pub fn is_cpu(&self) -> bool {
        self.gpus().is_none()
    }
}

impl Schedules {
    /// The untuned schedule for every kernel, by analytic prices.
    pub fn untuned(target: &Target) -> Schedules {
        Schedules {
            machine: target.facts(),
            threads: 1,
            tuned: BTreeMap::new(),
            aim: Aim::Cpu,
            small: false,
            sums: Sums::Any,
            widths: HashMap::new(),
        }
    }

    /// Lets schedules be for these GPUs, or for the CPU.
    pub fn aim_at(&mut self, aim: Aim) {
        self.machine.units.mma = aim.gpus().is_some_and(Gpus::multiply_matrices);
        self.aim = aim;
    }

    /// The bounds of a kernel. One for a GPU has one product at most, and so has one by a unit for
    /// matrices.
    pub fn fusion(&self) -> fuse::Options {
        let units = &self.machine.units;
        let chains: &[DType] = match self.aim {
            Aim::Cpu if units.bf16 && !units.amx_bf16 => &[DType::F32, DType::BF16],
            Aim::Cpu => &[DType::F32],
            Aim::Gpu(_) | Aim::GpuOnCpu(_) => &[],
        };
        fuse::Options { chains, ..fuse::Options::default() }
    }

    pub fn task(&self, name: &str, compute: &Compute, constant: &[bool]) -> Task {
        Task {
            name: name.into(),
            compute: compute.clone(),
            constant: constant.to_vec(),
            machine: self.machine.clone(),
            cores: self.threads,
            gpu: self.aim.gpus().map(|gpus| gpus.limits.clone()),
            wishes: Wishes { widths: self.widths_of(compute, constant), apart: false },
            sums: self.sums,
        }
    }

    /// The program for runs that need a part of each axis; none, where that is the same one.
    pub(crate) fn apart(&self, compute: &Compute, constant: &[bool]) -> Option<Program> {
        let mut task = self.task("", compute, constant);
        task.wishes.apart = true;
        let (scheduled, ..) = self.default(&task);
        scheduled.packings.is_empty().then_some(scheduled.program)
    }

    /// The panels in which constants of an expression lie already.
    fn widths_of(&self, compute: &Compute, constant: &[bool]) -> Vec<Option<usize>> {
        let inputs = compute.inputs.iter().zip(constant);
        let width = |(ty, constant): (&TensorType, &bool)| {
            self.widths.get(ty).copied().filter(|_| *constant)
        };
        inputs.map(width).collect()
    }

    /// Looks up what is better than the untuned schedule of a task.
    pub fn learn(
        &mut self,
        task: &Arc<Task>,
        target: &str,
        records: &dyn Records,
    ) -> Result<(), RecordsError> {
        let key = Key { task: task.key(), target: target.into(), threads: self.threads };
        let untuned = Candidate::exactly(task, &task.untuned()).map(|c| c.program);
        if let Some((trace, seconds)) = best_allowed(records, &key, untuned, self.sums)? {
            let untuned_seconds = untuned.map(|p| Ok(seconds_of(&records.of(&key)?, p)));
            let untuned_seconds = untuned_seconds.transpose()?.flatten();
            let (machine, threads) = (key.target, key.threads);
            let origin = Origin { machine, threads, shipped: false, elsewhere: false };
            let tuned = Tuned { trace, seconds, untuned_seconds, against: None, origin };
            self.tuned.insert(key.task, tuned);
        }
        Ok(())
    }

    /// Those by algorithms that are allowed.
    pub(crate) fn add(&mut self, all: impl IntoIterator<Item = (String, Tuned)>) {
        let all = all.into_iter();
        self.tuned.extend(all.filter(|(_, tuned)| self.sums.allow(tuned.trace.algorithm())));
    }

    /// A trace that does not replay, as one of another version may, gives way to the untuned one.
    pub(crate) fn of(
        &self,
        name: &str,
        compute: &Compute,
        constant: &[bool],
    ) -> Result<Chosen, Error> {
        let learned = self.learned(name, compute, constant);
        let task = self.task(name, compute, constant);
        Ok(match &self.aim {
            Aim::Cpu => {
                let (scheduled, tuning, algorithm) = match learned {
                    Some((scheduled, tuning, by)) => (scheduled, Some(tuning), by),
                    None => self.default(&task),
                };
                Chosen::new(scheduled, tuning, task.computed_by(algorithm))
            }
            Aim::Gpu(gpus) => {
                let task = Arc::new(task);
                let (program, tuning, by) = for_gpu(&task, &gpus.limits, learned)?;
                let (form, algorithm) = (Form::Gpu(program), task.computed_by(by));
                Chosen { form, packings: vec![], tuning, algorithm }
            }
            Aim::GpuOnCpu(gpus) => {
                let task = Arc::new(task);
                let (program, _, by) = for_gpu(&task, &gpus.limits, learned)?;
                let program = finish(program.cpu_form());
                // Times of a GPU say nothing of this form.
                let scheduled = Scheduled { program, packings: vec![] };
                Chosen::new(scheduled, None, task.computed_by(by))
            }
        })
    }

    fn default(&self, task: &Task) -> (Scheduled, Option<Tuning>, Option<Algorithm>) {
        let choice = task.choice();
        let allowed = choice.filter(|choice| self.allows(&choice.scheduled));
        match allowed.or_else(|| task.small_choice()) {
            Some(Choice { by, scheduled, .. }) => (scheduled, None, by),
            None => (task.scheduled(), None, None),
        }
    }

    fn allows(&self, scheduled: &Scheduled) -> bool {
        !self.small || !scheduled.enlarges()
    }

    /// Whether what tuning found is better than the untuned schedule. That may be another one than
    /// when it was measured, since it is chosen by prices that measurements correct.
    fn is_better(&self, task: &Arc<Task>, tuned: &Tuned, found: &Scheduled) -> bool {
        let may_differ = self.machine.correction.0.is_some() && tuned.against.is_some();
        if !may_differ && !tuned.origin.elsewhere {
            return true;
        }
        let Some(Choice { scheduled, .. }) = task.choice() else { return true };
        let was_faster = Some(scheduled.program.code_hash()) == tuned.against;
        let price = |made: &Scheduled| price::cycles(&made.program, &task.machine);
        was_faster && !tuned.origin.elsewhere || price(found) < price(&scheduled)
    }

    /// The schedule that tuning found, if its trace still replays and the schedule is allowed and
    /// better than the untuned one.
    fn learned(
        &self,
        name: &str,
        compute: &Compute,
        constant: &[bool],
    ) -> Option<(Scheduled, Tuning, Option<Algorithm>)> {
        if self.tuned.is_empty() {
            return None;
        }
        let task = Arc::new(self.task(name, compute, constant));
        let tuned = self.tuned.get(&task.key())?;
        let random = &mut StdRng::seed_from_u64(0);
        let sample = task.sample(&tuned.trace, Unfit::Refuse, random).ok()?;
        (self.allows(&sample.scheduled) && self.is_better(&task, tuned, &sample.scheduled))
            .then_some(())?;
        Some((sample.scheduled, tuned.tuning(&task), tuned.trace.algorithm()))
    }
}

/// The kernels of a GPU for one subgraph: those that tuning found, if a GPU takes them, or the
/// default ones.
fn for_gpu(
    task: &Arc<Task>,
    limits: &GpuLimits,
    learned: Option<(Scheduled, Tuning, Option<Algorithm>)>,
) -> Result<(GpuProgram, Option<Tuning>, Option<Algorithm>), Error> {
    if let Some((scheduled, tuning, by)) = learned
        && let Ok(program) = gpu::lower(&scheduled.program, limits)
    {
        return Ok((program, Some(tuning), by));
    }
    let untuned = task.untuned_on_gpu(limits);
    let (program, by) =
        untuned.map_err(|e| Error::Machine(format!("kernel {}: {e}", task.name)))?;
    Ok((program, None, by))
}

impl Tuned {
    fn tuning(&self, task: &Arc<Task>) -> Tuning {
        Tuning {
            trace: serde_json::to_value(&self.trace).expect("traces are data"),
            steps: self.trace.in_words(),
            rules: rules_of(task, &self.trace),
            seconds: self.seconds,
            untuned_seconds: self.untuned_seconds,
            measured_on: self.origin.machine.clone(),
            threads: self.origin.threads,
            shipped: self.origin.shipped,
        }
    }
}

/// The rules that derived the sketch of a trace; none if it is none of the task's.
pub fn rules_of(task: &Arc<Task>, trace: &Trace) -> Vec<String> {
    let sketch = task.sketches().into_iter().find(|s| s.trace.same_sketch(trace));
    sketch.map_or(vec![], |s| s.rules)
}

/// The name under which records of a generation of GPUs are filed.
pub fn gpu_name(sm: u32) -> String {
    format!("{GPU_TRIPLE} {}", gpu_cpu(sm))
}

/// Features that code generation uses, and that no schedule depends on.
const OF_CODE_ALONE: [&str; 1] = ["avx512vbmi"];

/// The name of a processor in records. It lists the features, because schedules of one processor
/// are not those of another.
pub fn target_name(target: &Target) -> String {
    let info = target.info();
    let features: Vec<&str> =
        info.features.iter().map(String::as_str).filter(|f| !OF_CODE_ALONE.contains(f)).collect();
    format!("{} {} {}", info.triple, target.tune, features.join(" "))
}

/// The same for kernels that had to fetch their constants from memory.
pub fn cold_target_name(target: &Target) -> String {
    target_name(target) + COLD
}

#[cfg(test)]
mod tests {
    use ansc_runtime::manifest::TargetInfo;
    use serde_json::json;

    use super::*;

    const COMPUTE: &str = "compute(in0: f32[64, 32]) -> root {
        root: f32[64, 32] = sqrt(in0[i0, i1])
    }";

    /// The choice for [`COMPUTE`] if records name a trace that consists of the untuned one and
    /// these steps after it, and whether the trace replays.
    fn chosen(more: &[serde_json::Value]) -> (Chosen, bool) {
        let target = Target::parse("x86-64").unwrap();
        let aim = Aim::Gpu(Gpus::of(&[80]));
        let mut schedules = Schedules { aim, ..Schedules::untuned(&target) };
        let compute = Compute::parse(COMPUTE).unwrap();
        let task = Arc::new(schedules.task("k", &compute, &[false]));
        let mut steps = serde_json::to_value(task.untuned()).unwrap();
        steps.as_array_mut().unwrap().extend_from_slice(more);
        let trace: Trace = serde_json::from_value(steps).unwrap();
        let replays = task.sample(&trace, Unfit::Refuse, &mut StdRng::seed_from_u64(0)).is_ok();
        let origin = Origin {
            machine: "nvptx64-nvidia-cuda sm_80".into(),
            threads: 1,
            shipped: false,
            elsewhere: false,
        };
        let tuned = Tuned { trace, seconds: 1e-6, untuned_seconds: None, against: None, origin };
        schedules.tuned.insert(task.key(), tuned);
        (schedules.of("k", &compute, &[false]).unwrap(), replays)
    }

    /// Records of users have the names, and artifacts the text.
    #[test]
    fn gpus_have_the_names_that_they_always_had() {
        assert_eq!(gpu_name(80), "nvptx64-nvidia-cuda sm_80");
        let told = TargetInfo::of_gpus(Gpus::of(&[90, 80, 90]).sms());
        assert_eq!((told.cpu.as_str(), told.gpus()), ("sm_80,sm_90", Some(vec![80, 90])));
        assert_eq!(Target::parse("x86-64").unwrap().info().gpus(), None);
    }

    #[test]
    fn a_trace_that_no_gpu_takes_is_not_named() {
        let (used, replays) = chosen(&[]);
        assert!(replays && used.tuning.is_some());
        // A second loop of threads around a block that depends on the first: no thread runs most
        // iterations.
        let (dropped, replays) = chosen(&[
            json!({ "op": "get_block", "name": "root", "out": 100 }),
            json!({ "op": "add_unit_loop", "block": 100, "out": 101 }),
            json!({ "op": "bind", "target": 101, "axis": "thread_x" }),
        ]);
        assert!(replays, "the program is refused only when it becomes kernels");
        assert_eq!(dropped.form, used.form);
        assert_eq!(dropped.tuning.map(|tuning| tuning.steps), None);
    }
}
