//! The compiler on one screen: [`compile`] is the list of stages, in order.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ansc_codegen::{Batch, Target, artifact};
use ansc_frontend::import::{self, ImportOptions};
use ansc_graph::fuse;
use ansc_graph::passes;
use ansc_graph::{Compute, Graph, NodeId, Op, ValueId, interp};
use ansc_runtime::Tensor;
use ansc_runtime::manifest::{BufferId, KernelInfo, Manifest, Plan, Provenance, Step};
use ansc_tuner::tune::Weighted;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::assemble::{self, Assembly, Expose, storage};
use crate::choice::Schedules;

/// Everything that decides what an artifact contains.
#[derive(Clone)]
pub struct Options {
    pub import: ImportOptions,
    pub target: Target,
    pub expose: Expose,
    pub schedules: Schedules,
    /// Run the verifiers between stages.
    pub verify: bool,
}

impl Options {
    /// Outputs only, the default schedules, everything verified.
    pub fn new(import: ImportOptions, target: Target) -> Options {
        let schedules = Schedules::untuned(&target);
        Options { import, target, expose: Expose::Outputs, schedules, verify: true }
    }
}

/// What a caller may watch.
pub trait Watch: Sync {
    fn stage(&self, _name: &'static str) {}
    fn after_pass(&self, _pass: &str, _graph: &Graph, _changed: bool) {}
    fn program(&self, _program: &ansc_sketch::Program) {}
}

/// Watches nothing.
pub struct Silent;

impl Watch for Silent {}

/// How a compilation went.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub nodes: usize,
    pub kernels: usize,
    pub distinct_kernels: usize,
    pub flops: u64,
    pub weight_bytes: usize,
    pub arena_bytes: usize,
    pub arena_bytes_without_reuse: usize,
    pub artifact_bytes: u64,
    /// Seconds by stage, in order.
    pub stages: Vec<(&'static str, f64)>,
    pub seconds: f64,
}

pub fn compile(
    model: &Path,
    output: &Path,
    options: &Options,
    watch: &dyn Watch,
) -> Result<Report, Error> {
    let mut clock = Clock::new(watch);
    let provenance = clock.time("hash", || provenance(model))?;
    let mut graph = clock.time("import", || import::load(model, &options.import))?;
    let nodes = graph.len();
    clock.time("passes", || optimise(&mut graph, options, watch))?;
    // Kernels are scheduled while the graph is walked: a schedule decides how its constants are packed.
    let mut assembly = clock
        .time("schedule", || assemble::assemble(&graph, &options.schedules, options.expose))?;
    assembly.kernels.kernels.iter().for_each(|k| watch.program(&k.program));
    let programs: Vec<_> = assembly.kernels.kernels.iter().map(|k| &k.program).collect();
    let batch = clock.time("codegen", || ansc_codegen::compile_all(&programs, &options.target))?;
    // Only now is the workspace of each kernel known, and with it the memory plan.
    let arena = clock.time("memory", || {
        add_workspaces(&mut assembly, &batch);
        storage::place(&mut assembly.buffers, &assembly.classes, &assembly.plan)
    });
    let manifest = manifest(&assembly, &batch, provenance, &options.target, &arena);
    clock.time("link", || {
        let objects: Vec<&[u8]> = batch.objects.iter().map(Vec::as_slice).collect();
        let weights: Vec<_> =
            assembly.weights.parts.iter().map(|(at, t)| (*at, t.bytes())).collect();
        artifact::write(output, &options.target, &objects, &weights, &manifest)
    })?;
    Ok(report(nodes, &assembly, &manifest, output, clock))
}

fn provenance(model: &Path) -> Result<Provenance, Error> {
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
    /// Where it occurs first.
    pub name: String,
    pub compute: Compute,
    pub occurrences: usize,
}

/// The distinct subgraphs of a model that become kernels, in the order of their first occurrence. Those of the
/// bodies of loops and branches are left out.
pub fn subgraphs(model: &Path, import: ImportOptions) -> Result<Vec<Subgraph>, Error> {
    let mut graph = import::load(model, &import)?;
    passes::run_all(&mut graph, &passes::Options::default())?;
    let mut all: Vec<Subgraph> = vec![];
    for item in fuse::schedule(&graph) {
        let fuse::Item::Group(group) = item else { continue };
        match all.iter_mut().find(|s| s.compute == group.compute) {
            _ if group.is_view => {}
            Some(known) => known.occurrences += 1,
            None => all.push(Subgraph { name: group.name, compute: group.compute, occurrences: 1 }),
        }
    }
    Ok(all)
}

/// The kernels of a model as tasks of a search, each with how often a run executes it. Those in the body of a
/// loop count as executed once.
pub fn tasks(model: &Path, options: &Options) -> Result<Vec<Weighted>, Error> {
    let mut graph = import::load(model, &options.import)?;
    optimise(&mut graph, options, &Silent)?;
    let assembly = assemble::assemble(&graph, &options.schedules, options.expose)?;
    let kernels = assembly.kernels.kernels.iter().enumerate();
    let tasks = kernels.map(|(index, kernel)| {
        let uses = assembly.uses.iter().filter(|u| u.kernel == index);
        let name = uses.clone().next().map_or("", |u| u.name.as_str());
        Weighted {
            task: Arc::new(options.schedules.task(name, &kernel.compute, &kernel.constant)),
            weight: uses.clone().count() as f64,
            flops: uses.clone().next().map_or(0, |u| u.flops),
        }
    });
    Ok(tasks.collect())
}

fn optimise(graph: &mut Graph, options: &Options, watch: &dyn Watch) -> Result<(), Error> {
    let pass_options = passes::Options { verify: options.verify, ..passes::Options::default() };
    passes::run_all_observed(graph, &pass_options, &mut |pass, graph, changed| {
        watch.after_pass(pass.name, graph, changed);
    })?;
    Ok(())
}

/// Every kernel step gets buffers for its kernel's workspace, which live only while it runs.
fn add_workspaces(assembly: &mut Assembly, batch: &Batch) {
    let mut plan = std::mem::take(&mut assembly.plan);
    add_to_plan(&mut plan, assembly, batch);
    assembly.plan = plan;
}

fn add_to_plan(plan: &mut Plan, assembly: &mut Assembly, batch: &Batch) {
    for step in &mut plan.steps {
        match step {
            Step::Kernel { kernel, args } => {
                let kernel = assembly.uses[*kernel as usize].kernel;
                let workspace = batch.kernels[kernel].workspace.iter();
                args.extend(workspace.map(|ty| assembly.workspace(ty)).collect::<Vec<BufferId>>());
            }
            Step::If { then_plan, else_plan, .. } => {
                add_to_plan(then_plan, assembly, batch);
                add_to_plan(else_plan, assembly, batch);
            }
            Step::Loop(l) => add_to_plan(&mut l.body, assembly, batch),
            Step::Host { .. } | Step::Copy { .. } => {}
        }
    }
}

fn manifest(
    assembly: &Assembly,
    batch: &Batch,
    model: Provenance,
    target: &Target,
    arena: &storage::Arena,
) -> Manifest {
    let kernels = assembly.uses.iter().map(|u| KernelInfo {
        name: u.name.clone(),
        nodes: u.nodes.clone(),
        flops: u.flops,
        bytes: u.bytes,
        reads: u.reads,
        launches: batch.kernels[u.kernel].launches.clone(),
        tuning: assembly.kernels.kernels[u.kernel].tuning.clone(),
    });
    Manifest {
        compiler: format!("ansc {}", env!("CARGO_PKG_VERSION")),
        model,
        target: target.info(),
        inputs: assembly.inputs.clone(),
        outputs: assembly.outputs.clone(),
        arena_bytes: arena.bytes,
        arena_bytes_without_reuse: arena.without_reuse,
        weight_bytes: assembly.weights.bytes,
        buffers: assembly.buffers.clone(),
        kernels: kernels.collect(),
        plan: assembly.plan.clone(),
    }
}

fn report(
    nodes: usize,
    assembly: &Assembly,
    manifest: &Manifest,
    output: &Path,
    clock: Clock<'_>,
) -> Report {
    Report {
        nodes,
        kernels: assembly.uses.len(),
        distinct_kernels: assembly.kernels.kernels.len(),
        flops: assembly.uses.iter().map(|u| u.flops).sum(),
        weight_bytes: manifest.weight_bytes,
        arena_bytes: manifest.arena_bytes,
        arena_bytes_without_reuse: manifest.arena_bytes_without_reuse,
        artifact_bytes: std::fs::metadata(output).map_or(0, |m| m.len()),
        seconds: clock.start.elapsed().as_secs_f64(),
        stages: clock.stages.into_iter().map(|(name, time)| (name, time.as_secs_f64())).collect(),
    }
}

/// Names and times the stages.
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
        self.stages.push((name, start.elapsed()));
        result
    }
}

/// What [`compile`] with [`Expose::Everything`] gives as outputs, computed by the interpreter on the
/// same optimised graph: the model's own results, then those of every kernel.
pub fn reference_of_everything(
    model: &Path,
    options: &Options,
    inputs: &[Tensor],
) -> Result<Vec<(String, Tensor)>, Error> {
    let mut graph = import::load(model, &options.import)?;
    optimise(&mut graph, options, &Silent)?;
    let exposed = assemble::exposed(&graph);
    let mut results = std::collections::HashMap::new();
    interp::run_observed(&graph, inputs, &mut |node: NodeId, outputs: &[Tensor]| {
        for (out, tensor) in outputs.iter().enumerate() {
            results.insert(ValueId { node, out: out as u32 }, tensor.clone());
        }
    })?;
    let tensor_of = |value: &ValueId| match &graph.node(value.node).op {
        Op::Const(tensor) => Some(tensor.as_ref().clone()),
        _ => results.get(value).cloned(),
    };
    Ok(exposed.iter().filter_map(|(name, value)| Some((name.clone(), tensor_of(value)?))).collect())
}
