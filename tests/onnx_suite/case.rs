//! One case: read, compile, run, compare.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ansc::pipeline::{self, Options, Silent};
use ansc_codegen::Target;
use ansc_frontend::ImportOptions;
use ansc_runtime::{Model, SessionOptions, Tensor, npy};
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
    /// What must never happen, whatever the model: in the importer, a kernel or the runtime.
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
    inputs: Vec<(String, Tensor)>,
    outputs: Vec<Tensor>,
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
    let names = graph.input.iter().map(|i| &i.name).filter(|n| !filled.contains(n.as_str()));
    let mut inputs = Vec::new();
    for (i, name) in names.enumerate() {
        inputs.extend(tensors(folder, &format!("input_{i}"))?.map(|t| (name.clone(), t)));
    }
    let outputs = (0..graph.output.len()).map(|i| tensors(folder, &format!("output_{i}")));
    let outputs: Vec<_> = outputs.collect::<Result<_, _>>()?;
    Ok(Case { model: path, inputs, outputs: outputs.into_iter().flatten().collect() })
}

/// A tensor, or the elements of a sequence.
fn tensors(folder: &Path, name: &str) -> Result<std::vec::IntoIter<Tensor>, String> {
    let read = |file: &str| npy::read(folder.join(file)).map_err(|e| format!("{file}: {e}"));
    let whole = format!("{name}.npy");
    if folder.join(&whole).exists() {
        return Ok(vec![read(&whole)?].into_iter());
    }
    let elements = (0..).map(|j| format!("{name}.{j}.npy"));
    let elements = elements.take_while(|file| folder.join(file).exists());
    Ok(elements.map(|file| read(&file)).collect::<Result<Vec<_>, _>>()?.into_iter())
}

/// Whether the inputs' values had to be fixed.
fn compile(case: &Case, artifact: &Path) -> Result<bool, String> {
    let shapes = case.inputs.iter().map(|(name, t)| (name.clone(), t.shape().to_vec()));
    let free = ImportOptions { shapes: shapes.collect(), ..ImportOptions::default() };
    let Err(error) = compile_with(case, free, artifact) else { return Ok(false) };
    // What importers say where the values of inputs decide shapes.
    let hints = ["must be known at compile time", "--value "];
    if !hints.iter().any(|hint| error.contains(hint)) {
        return Err(error);
    }
    let values = case.inputs.iter().cloned().collect();
    let bound = ImportOptions { values, ..ImportOptions::default() };
    compile_with(case, bound, artifact).map(|()| true)
}

fn compile_with(case: &Case, import: ImportOptions, artifact: &Path) -> Result<(), String> {
    let target = Target::native().map_err(|e| e.to_string())?;
    let options = Options::new(import, target);
    let report = pipeline::compile(&case.model, artifact, &options, &Silent);
    report.map(|_| ()).map_err(|e| format!("compile: {e}"))
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
