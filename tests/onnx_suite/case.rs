//! One case: read, compile, run, compare.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ansc::choice::{Aim, Gpus};
use ansc::pipeline::{self, Options, Silent};
use ansc_codegen::Target;
use ansc_frontend::ImportOptions;
use ansc_runtime::{Model, SessionOptions, Tensor, npy};
use ansc_sketch::Task;
use ansc_sketch::gpu::GpuLimits;
use ansc_sketch::gpu::{Blocks, watch};
use prost::Message;
use serde::{Deserialize, Serialize};
use tract_onnx::pb::ModelProto;

use crate::compare::compare;

/// How a case ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Pass,
    /// Passes once the values of its inputs are fixed at compile time, since shapes depend on them.
    PassBound,
    Fail(String),
    /// A panic in the importer, a kernel or the runtime. It must never happen, whatever the model
    /// is.
    Panic(String),
    Crash(String),
    Timeout,
}

impl Outcome {
    pub(crate) fn passes(&self) -> bool {
        matches!(self, Outcome::Pass | Outcome::PassBound)
    }
}

struct Case {
    model: PathBuf,
    /// Elements of sequences under names of their own.
    inputs: Vec<(String, Tensor)>,
    /// Inputs of which there is no tensor: empty sequences, or optional values that are not there.
    empty: Vec<String>,
    outputs: Vec<Tensor>,
}

/// A generation without units for matrices.
const SM: u32 = 70;

/// The schedules that are tested: those of a CPU, or with `ANSC_SUITE=gpu` those of a GPU, in their
/// form for a CPU.
fn aim() -> Aim {
    match std::env::var("ANSC_SUITE").as_deref() {
        Ok("gpu") => Aim::GpuOnCpu(Gpus::of(&[SM])),
        _ => Aim::Cpu,
    }
}

/// Runs the case in `folder`; the artifact is written to `artifact`.
pub(crate) fn run(folder: &Path, artifact: &Path) -> Outcome {
    let result = read(folder).and_then(|case| {
        let bound = compile(&case, artifact)?;
        execute(&case, artifact)?;
        Ok(bound)
    });
    match result {
        Ok(false) => Outcome::Pass,
        Ok(true) => Outcome::PassBound,
        Err(reason) => Outcome::Fail(reason),
    }
}

fn read(folder: &Path) -> Result<Case, String> {
    let path = folder.join("model.onnx");
    let data = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let model = ModelProto::decode(&data[..]).map_err(|e| e.to_string())?;
    let graph = model.graph.ok_or("the model has no graph")?;
    let filled: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    let given = graph.input.iter().filter(|i| !filled.contains(i.name.as_str()));
    let (mut inputs, mut empty) = (Vec::new(), Vec::new());
    for (i, info) in given.enumerate() {
        let tensors = tensors(folder, &format!("input_{i}"))?;
        if tensors.is_empty() {
            empty.push(info.name.clone());
        }
        inputs.extend(tensors.into_iter().map(|(suffix, t)| (format!("{}{suffix}", info.name), t)));
    }
    let outputs = (0..graph.output.len()).map(|i| tensors(folder, &format!("output_{i}")));
    let outputs: Vec<_> = outputs.collect::<Result<_, _>>()?;
    let outputs = outputs.into_iter().flatten().map(|(_, tensor)| tensor).collect();
    Ok(Case { model: path, inputs, empty, outputs })
}

/// A tensor, or the elements of a sequence with what is added to its name.
fn tensors(folder: &Path, name: &str) -> Result<Vec<(String, Tensor)>, String> {
    let read = |suffix: String| {
        let file = format!("{name}{suffix}.npy");
        let tensor = npy::read(folder.join(&file)).map_err(|e| format!("{file}: {e}"))?;
        Ok((suffix, tensor))
    };
    if folder.join(format!("{name}.npy")).exists() {
        return Ok(vec![read(String::new())?]);
    }
    let elements = (0..).map(|j| format!(".{j}"));
    let exists = |suffix: &String| folder.join(format!("{name}{suffix}.npy")).exists();
    elements.take_while(exists).map(read).collect()
}

/// Whether the inputs' values had to be fixed.
fn compile(case: &Case, artifact: &Path) -> Result<bool, String> {
    let shapes = case.inputs.iter().map(|(name, t)| (name.clone(), t.shape().to_vec()));
    let mut import = ImportOptions { shapes: shapes.collect(), ..ImportOptions::default() };
    let mut result = compile_with(case, import.clone(), artifact);
    if let Err(error) = &result
        && error.contains("is a sequence of unknown length")
    {
        import.shapes.extend(case.empty.iter().map(|name| (name.clone(), vec![0])));
        result = compile_with(case, import.clone(), artifact);
    }
    let Err(error) = result else { return Ok(false) };
    // Messages of importers have one of these texts where the values of inputs decide shapes.
    let hints = ["must be known at compile time", "--value ", "depends on the data of"];
    if !hints.iter().any(|hint| error.contains(hint)) {
        return Err(error);
    }
    for (name, tensor) in &case.inputs {
        import.shapes.remove(name);
        import.values.insert(name.clone(), tensor.clone());
    }
    compile_with(case, import, artifact).map(|()| true)
}

fn compile_with(case: &Case, import: ImportOptions, artifact: &Path) -> Result<(), String> {
    let target = Target::native().map_err(|e| e.to_string())?;
    let mut options = Options::new(import, target);
    options.schedules.aim_at(aim());
    let report = pipeline::compile(&case.model, artifact, &options, &Silent);
    report.map_err(|e| format!("compile: {e}"))?;
    match options.schedules.aim.gpus() {
        Some(gpus) => watch_for_races(case, options.import, gpus.limits()),
        None => Ok(()),
    }
}

/// Some thread blocks of every kernel.
fn watch_for_races(case: &Case, import: ImportOptions, limits: &GpuLimits) -> Result<(), String> {
    let target = Target::native().map_err(|e| e.to_string())?;
    let options = Options::new(import, target);
    let subgraphs = pipeline::subgraphs(&case.model, &options).map_err(|e| e.to_string())?;
    for subgraph in &subgraphs {
        let untuned = Arc::new(Task::on_gpu("k", &subgraph.compute, limits)).untuned_on_gpu(limits);
        let (kernels, _) = untuned.map_err(|e| e.to_string())?;
        let found = watch(&kernels, Blocks::Sampled);
        found.map_err(|e| format!("kernel {}: {e}\n{kernels}", subgraph.name))?;
    }
    Ok(())
}

fn execute(case: &Case, artifact: &Path) -> Result<(), String> {
    let model = Model::load(artifact).map_err(|e| format!("load: {e}"))?;
    let options = SessionOptions { threads: 2, ..SessionOptions::default() };
    let mut session = model.session_with(&options).map_err(|e| format!("session: {e}"))?;
    let inputs: Vec<_> = case.inputs.iter().map(|(name, t)| (name.as_str(), t)).collect();
    let results = session.run(&inputs).map_err(|e| format!("run: {e}"))?;
    if results.len() != case.outputs.len() {
        return Err(format!("{} outputs, not {}", results.len(), case.outputs.len()));
    }
    let mut pairs = results.iter().zip(&case.outputs);
    pairs.try_for_each(|((name, found), expected)| {
        compare(expected, found).map_err(|e| format!("output `{name}`: {e}"))
    })
}
