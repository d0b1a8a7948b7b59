//! The compiler on one screen: [`compile`] is the list of stages, in order.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ansc_codegen::{Batch, Target, bundle};
use ansc_frontend::import::{self, ImportOptions, Source};
use ansc_graph::fuse;
use ansc_graph::passes;
use ansc_graph::verify::Verifier;
use ansc_graph::{Compute, Graph};
use ansc_runtime::manifest::{BufferId, KernelInfo, Manifest, Plan, Preparation, Provenance, Step};
use ansc_runtime::{DType, Precisions};
use ansc_sketch::MIN_ROWS_TO_TURN;
use ansc_sketch::task::Sums;
use ansc_tuner::scheduler::Use;
use ansc_tuner::tune::Weighted;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::assemble::{Assembly, Draft, Expose, KernelUse, storage};
use crate::choice::{Aim, Form, Schedules};
use crate::imports::{Imports, Specialised};
use crate::machine_code::Code;
use crate::origins::Origins;
use crate::precision;
use crate::sizes::{self, Choices, Sizes, Wanted};
use crate::states::{Pattern, States};

/// Everything that decides what an artifact contains.
#[derive(Clone)]
pub struct Options {
    pub import: ImportOptions,
    /// Symbolic dimensions with several sizes each: there is a specialisation for every
    /// combination of sizes and of parts of ranges.
    pub choices: Choices,
    /// Inputs and outputs that are tensors of the session.
    pub states: Vec<Pattern>,
    pub target: Target,
    /// The bits of operands of convolutions and matrix products.
    pub precision: Precisions,
    /// Samples decided on the precision: names of nodes in it are those of products.
    pub calibrated: bool,
    pub expose: Expose,
    pub schedules: Schedules,
    /// Run the verifiers between stages.
    pub verify: bool,
    /// Write a bundle in place of an artifact.
    pub bundle: Option<Bundle>,
}

/// How a bundle is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bundle {
    /// The weights go to a file of their own.
    pub weights_beside: bool,
}

/// A GPU orders lanes of so many elements by counting in less time than a host's function takes.
const COUNTED: usize = 1 << 14;

impl Options {
    /// Outputs only, all bits, the untuned schedules, everything verified.
    pub fn new(import: ImportOptions, target: Target) -> Options {
        let schedules = Schedules::untuned(&target);
        let (choices, states) = (vec![], vec![]);
        let expose = Expose::Outputs;
        let (verify, bundle, calibrated) = (true, None, false);
        let precision = Precisions::default();
        Options {
            import,
            choices,
            states,
            target,
            precision,
            calibrated,
            expose,
            schedules,
            verify,
            bundle,
        }
    }

    /// An error for a precision that the target does not have, and for names of nodes that none can
    /// be chosen for.
    fn check_precision(&self, graph: &Graph) -> Result<(), Error> {
        if let Some(unfit) =
            self.precision.all().find(|p| p.is_of_gpus() && self.schedules.aim.is_cpu())
        {
            return Err(Error::Usage(format!(
                "`--precision {unfit}` is what tensor cores of GPUs read: add `--target cuda`, or ask \
                 for `f32` or `bf16`"
            )));
        }
        if self.calibrated { Ok(()) } else { precision::check(graph, &self.precision) }
    }

    fn states(&self, source: &Source, model: &Path) -> Result<States, Error> {
        let refuse = |what: &str| {
            Err(Error::Usage(format!(
                "{what} keeps no state: leave `--state` out, and give each run what the last one \
                 left"
            )))
        };
        match self.schedules.aim {
            _ if self.states.is_empty() => {}
            _ if self.bundle.is_some() => return refuse("a bundle"),
            Aim::Gpu(_) | Aim::GpuOnCpu(_) => return refuse("an artifact for a GPU"),
            Aim::Cpu => {}
        }
        let largest = sizes::largest(&self.import, &self.choices);
        States::find(source, model, &largest, &self.states)
    }

    fn specialisations(&self, states: &States) -> Result<Vec<Wanted>, Error> {
        let all = sizes::wanted(&self.import, &self.choices, &states.lengths);
        let Some(range) = all.iter().flat_map(|one| &one.ranges).next() else { return Ok(all) };
        let refuse = |what: &str| {
            Err(Error::Usage(format!(
                "{what} knows no ranges of sizes: list single ones, as in `--dim {}={},{}`",
                range.name, range.low, range.high
            )))
        };
        match self.schedules.aim {
            _ if self.bundle.is_some() => Err(Error::Usage(format!(
                "a bundle is for one size of each input: give one, as in `--dim {}={}`",
                range.name, range.high
            ))),
            Aim::Gpu(_) | Aim::GpuOnCpu(_) => refuse("a GPU"),
            _ if self.expose == Expose::Everything => refuse("a comparison of all kernels"),
            Aim::Cpu => Ok(all),
        }
    }

    /// An error for kernels that do not take sizes which only the data decides.
    fn check_counts(&self, model: &Path, sizes: &Sizes) -> Result<(), Error> {
        let what = match self.schedules.aim {
            _ if sizes.counts.is_empty() => return Ok(()),
            _ if self.bundle.is_some() => "a bundle",
            Aim::Gpu(_) | Aim::GpuOnCpu(_) => "a GPU",
            _ if self.expose == Expose::Everything => "a comparison of all kernels",
            Aim::Cpu => return Ok(()),
        };
        let reason = format!(
            "operators read values whose size only the data decides, and {what} knows no such \
             sizes: end the model before them, with `--outputs`"
        );
        Err(Error::file(model, reason))
    }

    fn source(&self, model: &Path) -> Result<Source, Error> {
        Ok(Source::open(model, self.import.quantization.as_deref())?)
    }

    /// The options of the passes for the target. Nothing is widened for GPUs, which multiply halves
    /// as they are, nor for small artifacts, since wide constants are larger. CPUs turn operands of
    /// 32 bits as they multiply them.
    fn passes(&self) -> passes::Options {
        let multiplies_bf16 = self.target.has("amx-bf16") || self.target.multiplies_bf16();
        let is_cpu = self.schedules.aim.is_cpu();
        let (widen, widen_groups) = match is_cpu && !self.schedules.small {
            // Tiles, which are not for groups, or vectors of pairs.
            true if multiplies_bf16 => (vec![DType::F16], vec![DType::BF16]),
            true => (vec![DType::F16, DType::BF16], vec![]),
            false => (vec![], vec![]),
        };
        let precision = self.precision.clone();
        let count_ranks = if is_cpu { 0 } else { COUNTED };
        let in_tiles = is_cpu && precision == Precisions::default();
        let turned_uses = if in_tiles { MIN_ROWS_TO_TURN } else { 0 };
        // Vectors of pairs go along columns, of which a group should have a vector.
        let lanes = self.target.vector_bytes / DType::F32.size();
        let few_columns = if self.target.multiplies_bf16() { lanes - 1 } else { usize::MAX };
        passes::Options {
            widen,
            widen_groups,
            few_columns,
            count_ranks,
            turned_uses,
            precision,
            ..passes::Options::default()
        }
    }

    pub(crate) fn verifier(&self) -> Verifier {
        if self.verify { Verifier::new() } else { Verifier::off() }
    }
}

/// The events of a compilation that a caller may watch.
pub trait Watch: Sync {
    fn stage(&self, _name: &'static str) {}
    fn after_pass(&self, _pass: &str, _graph: &Graph, _changed: bool) {}
    fn program(&self, _program: &Form) {}
}

/// Watches nothing.
pub struct Silent;

impl Watch for Silent {}

/// How a compilation went. Nodes that compute something, kernels and their work are those of all
/// specialisations together, the arena is that of the largest.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub nodes: usize,
    pub kernels: usize,
    pub distinct_kernels: usize,
    pub schedules: Origins,
    pub flops: u64,
    pub weight_bytes: usize,
    /// Bytes of the weights that are made when the artifact is loaded.
    pub prepared_bytes: usize,
    pub arena_bytes: usize,
    pub arena_bytes_without_reuse: usize,
    pub artifact_bytes: u64,
    /// Their names; one that is empty if there is nothing to choose.
    pub specialisations: Vec<String>,
    /// Seconds by stage, in order.
    pub stages: Vec<(&'static str, f64)>,
    pub seconds: f64,
    /// The kernel that took longest to make.
    pub slowest_kernel: Option<KernelTime>,
}

/// Seconds that one kernel took on one thread.
#[derive(Clone, Debug, Serialize)]
pub struct KernelTime {
    pub name: String,
    pub schedule: f64,
    pub codegen: f64,
}

pub fn compile(
    model: &Path,
    output: &Path,
    options: &Options,
    watch: &dyn Watch,
) -> Result<Report, Error> {
    let mut clock = Clock::new(watch);
    // Nothing asks for it before the manifest is written.
    let hash = std::thread::spawn({
        let model = model.to_owned();
        move || provenance(&model)
    });
    let mut assembly = Assembly::new(&options.schedules, options.verifier());
    assembly.weights.stores_all = options.bundle.is_some();
    let mut nodes = 0;
    let source = clock.time("import", || options.source(model))?;
    let kept = clock.time("import", || options.states(&source, model))?;
    let wanted = options.specialisations(&kept)?;
    let mut imports = Imports::new(model, source, kept, wanted);
    while let Some((name, made)) = clock.time("import", || imports.next())? {
        let Specialised { mut graph, sizes, states } = made;
        nodes += graph.operations();
        options.check_precision(&graph)?;
        options.check_counts(model, &sizes)?;
        clock.time("passes", || optimise(&mut graph, options, &mut assembly.verifier, watch))?;
        clock.move_time("passes", "verify", assembly.verifier.take_spent());
        // Kernels are scheduled while the graph is walked: a schedule decides how its constants are
        // packed.
        clock
            .time("schedule", || assembly.add(&name, &graph, (&sizes, &states), options.expose))?;
        clock.move_time("schedule", "verify", assembly.verifier.take_spent());
    }
    assembly.drafts.reverse();
    assembly.prepared.settle(&mut assembly.drafts);
    assembly.kernels.kernels.iter().for_each(|k| watch.program(&k.form));
    if options.verify {
        clock.time("verify", || assembly.kernels.verify())?;
    }
    let aim = &options.schedules.aim;
    let code = clock.time("codegen", || Code::generate(&assembly, aim, &options.target))?;
    // Only now is the workspace of each kernel known, and with it the memory plan.
    clock.time("memory", || {
        let models = assembly.drafts.iter_mut().map(|draft| (draft, &assembly.uses));
        let prepared = &mut assembly.prepared;
        for (draft, uses) in models.chain([(&mut prepared.draft, &prepared.uses)]) {
            add_workspaces(draft, uses, &code.batch);
            storage::place(draft);
        }
    });
    let provenance = clock.time("hash", || hash.join().expect("hashing does not panic"))?;
    let manifest = manifest(&assembly, &code, options, provenance);
    clock.time("link", || match options.bundle {
        None => Ok(code.write(output, &assembly, &options.target, &manifest)?),
        Some(how) => {
            let files = bundle::Files::beside(output, how.weights_beside);
            let written = code.write_bundle(&files, &assembly, &options.target, &manifest);
            written.map_err(|e| if e.is_of_the_model() { Error::file(model, e) } else { e.into() })
        }
    })?;
    Ok(report(nodes, &assembly, &code, &manifest, output, clock))
}

/// Which file it is.
pub(crate) fn provenance(model: &Path) -> Result<Provenance, Error> {
    let mut file = std::fs::File::open(model).map_err(|e| Error::file(model, e))?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut HashWriter(&mut hasher)).map_err(|e| Error::file(model, e))?;
    let name = model.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let sha256 = hasher.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok(Provenance { name, sha256 })
}

struct HashWriter<'a>(&'a mut Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One expression that a model computes, however often.
pub struct Subgraph {
    /// Where it occurs first: the kernel, and the nodes of the model.
    pub name: String,
    pub nodes: Vec<String>,
    pub compute: Compute,
    pub occurrences: usize,
}

/// The distinct subgraphs of a model that become kernels, in the order of their first occurrence.
/// Those of the bodies of loops and branches are left out.
pub fn subgraphs(model: &Path, options: &Options) -> Result<Vec<Subgraph>, Error> {
    let mut graph = import::load(model, &options.import)?;
    options.check_precision(&graph)?;
    passes::run_all(&mut graph, &options.passes())?;
    let mut all: Vec<Subgraph> = vec![];
    for item in fuse::schedule_with(&graph, options.schedules.fusion()) {
        let fuse::Item::Group(group) = item else { continue };
        match all.iter_mut().find(|s| s.compute == group.compute) {
            _ if group.is_view => {}
            Some(known) => known.occurrences += 1,
            None => all.push(Subgraph {
                name: group.name,
                nodes: group.nodes.iter().map(|n| graph.node(*n).name.clone()).collect(),
                compute: group.compute,
                occurrences: 1,
            }),
        }
    }
    Ok(all)
}

/// The kernels of a model as tasks of a search, each with how often a run executes it. Those in the
/// body of a loop count as executed once. For a range it is the kernels of its largest size, with
/// which those for the range share what does not ask for sizes.
pub fn tasks(model: &Path, options: &Options) -> Result<Vec<Weighted>, Error> {
    let mut assembly = Assembly::new(&options.schedules, options.verifier());
    let source = options.source(model)?;
    let kept = options.states(&source, model)?;
    for one in options.specialisations(&kept)? {
        let one = kept.stretched(one, &source)?;
        let mut graph = kept.appended(source.largest(&one.largest())?);
        let states = kept.settle(&mut graph, model, None)?;
        options.check_precision(&graph)?;
        optimise(&mut graph, options, &mut assembly.verifier, &Silent)?;
        assembly.add(&one.name, &graph, (&Sizes::default(), &states), options.expose)?;
    }
    let kernels = assembly.kernels.kernels.iter().enumerate();
    let tasks = kernels.filter_map(|(index, kernel)| {
        let uses = assembly.uses.iter().filter(|u| u.kernel == index);
        // A kernel that runs only when the artifact is loaded has no use here: it is not worth a
        // search.
        let first = uses.clone().next()?;
        let name = first.name.as_str();
        let task = options.schedules.task(name, &kernel.compute, &kernel.constant);
        Some(Weighted {
            known: options.schedules.tuned.get(&task.key()).map(|tuned| tuned.trace.clone()),
            task: Arc::new(task),
            uses: vec![Use { network: 0, weight: uses.clone().count() as f64 }],
            flops: first.flops,
            places: uses.map(|u| u.nodes.clone()).collect(),
        })
    });
    Ok(tasks.collect())
}

/// All passes over a graph, for the precision that the options ask for.
pub(crate) fn optimise(
    graph: &mut Graph,
    options: &Options,
    verifier: &mut Verifier,
    watch: &dyn Watch,
) -> Result<(), Error> {
    passes::run_all_observed(graph, &options.passes(), verifier, &mut |pass, graph, changed| {
        watch.after_pass(pass.name, graph, changed);
    })?;
    Ok(())
}

/// Every kernel step gets buffers for its kernel's workspace, which live only while it runs.
fn add_workspaces(draft: &mut Draft, uses: &[KernelUse], batch: &Batch) {
    let mut plan = std::mem::take(&mut draft.specialisation.plan);
    add_to_plan(&mut plan, draft, uses, batch);
    draft.specialisation.plan = plan;
}

fn add_to_plan(plan: &mut Plan, draft: &mut Draft, uses: &[KernelUse], batch: &Batch) {
    for step in &mut plan.steps {
        match step {
            Step::Kernel { kernel, args } => {
                let kernel = uses[*kernel as usize].kernel;
                let workspace = batch.kernels[kernel].workspace.iter();
                args.extend(workspace.map(|ty| draft.workspace(ty)).collect::<Vec<BufferId>>());
            }
            Step::If { then_plan, else_plan, .. } => {
                add_to_plan(then_plan, draft, uses, batch);
                add_to_plan(else_plan, draft, uses, batch);
            }
            Step::Loop(l) => add_to_plan(&mut l.body, draft, uses, batch),
            Step::Host { .. } | Step::Copy { .. } => {}
        }
    }
}

fn manifest(assembly: &Assembly, code: &Code, options: &Options, model: Provenance) -> Manifest {
    let info = |u: &KernelUse| KernelInfo {
        name: u.name.clone(),
        nodes: u.nodes.clone(),
        flops: u.flops,
        work: assembly.kernels.kernels[u.kernel].work,
        bytes: u.bytes,
        args: code.arguments(&assembly.kernels.kernels[u.kernel], u.kernel),
        reads: u.reads,
        precision: u.precision,
        launches: code.batch.kernels[u.kernel].launches.clone(),
        algorithm: assembly.kernels.kernels[u.kernel].algorithm.map(str::to_owned),
        tuning: assembly.kernels.kernels[u.kernel].tuning.clone(),
    };
    let prepared = &assembly.prepared;
    let preparation = (!prepared.uses.is_empty()).then(|| Preparation {
        bytes: prepared.bytes,
        kernels: prepared.uses.iter().map(info).collect(),
        plan: prepared.draft.specialisation.clone(),
    });
    Manifest {
        compiler: format!("ansc {}", env!("CARGO_PKG_VERSION")),
        model,
        target: code.target.clone(),
        weight_bytes: assembly.weights.bytes,
        accurate: options.schedules.sums == Sums::Direct,
        precision: options.precision.clone(),
        quantization: options.import.quantization.as_deref().cloned(),
        dims: options.import.dims.clone(),
        preparation,
        kernels: assembly.uses.iter().map(info).collect(),
        specialisations: assembly.drafts.iter().map(|d| d.specialisation.clone()).collect(),
    }
}

fn report(
    nodes: usize,
    assembly: &Assembly,
    code: &Code,
    manifest: &Manifest,
    output: &Path,
    clock: Clock<'_>,
) -> Report {
    let all = &manifest.specialisations;
    let largest = all.iter().max_by_key(|s| s.arena_bytes);
    let used: BTreeSet<usize> = assembly.uses.iter().map(|u| u.kernel).collect();
    Report {
        nodes,
        kernels: assembly.uses.len(),
        distinct_kernels: used.len(),
        schedules: Origins::of(used.iter().map(|&k| assembly.kernels.kernels[k].tuning.as_ref())),
        flops: assembly.uses.iter().map(|u| u.flops).sum(),
        weight_bytes: manifest.weight_bytes,
        prepared_bytes: assembly.prepared.bytes,
        arena_bytes: largest.map_or(0, |s| s.arena_bytes),
        arena_bytes_without_reuse: largest.map_or(0, |s| s.arena_bytes_without_reuse),
        artifact_bytes: std::fs::metadata(output).map_or(0, |m| m.len()),
        specialisations: all.iter().map(|s| s.name.clone()).collect(),
        seconds: clock.start.elapsed().as_secs_f64(),
        stages: clock.stages.into_iter().map(|(name, time)| (name, time.as_secs_f64())).collect(),
        slowest_kernel: slowest_kernel(assembly, code),
    }
}

fn slowest_kernel(assembly: &Assembly, code: &Code) -> Option<KernelTime> {
    let uses = assembly.uses.iter().chain(&assembly.prepared.uses);
    let times = uses.map(|usage| KernelTime {
        name: usage.name.clone(),
        schedule: assembly.kernels.kernels[usage.kernel].spent.as_secs_f64(),
        codegen: code.batch.kernels[usage.kernel].spent.as_secs_f64(),
    });
    let total = |time: &KernelTime| time.schedule + time.codegen;
    times.max_by(|a, b| total(a).total_cmp(&total(b)))
}

/// Names and times the stages. One that runs again adds to its time.
struct Clock<'a> {
    watch: &'a dyn Watch,
    start: Instant,
    stages: Vec<(&'static str, Duration)>,
}

impl Clock<'_> {
    fn new(watch: &dyn Watch) -> Clock<'_> {
        Clock { watch, start: Instant::now(), stages: Vec::new() }
    }

    fn time<T>(&mut self, name: &'static str, stage: impl FnOnce() -> T) -> T {
        self.watch.stage(name);
        let start = Instant::now();
        let result = stage();
        *self.stage(name) += start.elapsed();
        result
    }

    /// Counts a part of what `from` took as a stage of its own, where there is such a part.
    fn move_time(&mut self, from: &'static str, to: &'static str, part: Duration) {
        if !part.is_zero() {
            *self.stage(from) -= part;
            *self.stage(to) += part;
        }
    }

    fn stage(&mut self, name: &'static str) -> &mut Duration {
        let known = self.stages.iter().position(|(known, _)| *known == name);
        let at = known.unwrap_or_else(|| {
            self.stages.push((name, Duration::ZERO));
            self.stages.len() - 1
        });
        &mut self.stages[at].1
    }
}
