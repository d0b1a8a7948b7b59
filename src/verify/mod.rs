//! An artifact against a reference, per output and per kernel.

mod dump;
mod peer;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ansc_codegen::Target;
use ansc_frontend::import::DeclaredPort;
use ansc_frontend::{ImportOptions, import};
use ansc_graph::{Graph, interp};
use ansc_runtime::manifest::{Port, Size, Specialisation};
use ansc_runtime::{Model, Precisions, Session, SessionError, SessionOptions, Tensor};
use ansc_sketch::task::Sums;
use serde::Serialize;

use crate::assemble::Expose;
use crate::choice::{Aim, Gpus};
use crate::compare::Difference;
use crate::folder::{self, Folder};
use crate::inputs::{self, Seed};
use crate::kinds::{self, Kind};
use crate::layers::{self, Layer, Rounding};
use crate::pipeline::{self, Silent};
use crate::precision;
use crate::states::outside::{self, opened};
use crate::{Error, chosen};
pub use dump::Compared;

/// Two ways to compute the same round differently, and errors grow from there: a kernel's result
/// may be this many times as far off as that of the interpreter, which rounds at the same places.
const PREDICTED: f64 = 4.0;

/// The artifact, and what it is compared with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model that the artifact was compiled from.
    pub model: PathBuf,
    pub artifact: PathBuf,
    /// How the model is imported, where the artifact does not say.
    pub import: ImportOptions,
    /// Which size, if no values say so.
    pub size: chosen::Wanted,
    /// Values of inputs, by name, in place of made-up ones.
    pub given: BTreeMap<String, Tensor>,
    /// A folder with values of inputs, and of outputs perhaps.
    pub input_dir: Option<PathBuf>,
    /// If nothing is said, recorded outputs are, and else the interpreter is.
    pub against: Option<Against>,
    /// The Python that has ONNX Runtime.
    pub python: PathBuf,
    /// Where to write what was compared.
    pub dump_tensors: Option<PathBuf>,
    /// The error that outputs may have, if it is not that of the precision.
    pub tolerance: Option<f64>,
    /// Compare the results of every kernel, too.
    pub layers: bool,
    pub keep_denormals: bool,
}

/// The values that an artifact's outputs are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Against {
    /// The compiler's own interpreter of the model
    Reference,
    /// ONNX Runtime, of a Python that has it
    Onnxruntime,
    /// The outputs `output_0.pb`, `output_1.pb` and so on in the folder of --input-dir
    Recorded,
}

/// The results of all sizes that were checked.
pub struct Verified {
    pub outcomes: Vec<Outcome>,
    /// The reference, as the report calls it.
    pub against: &'static str,
    /// The artifact's.
    pub precision: Precisions,
}

impl Verified {
    pub fn ok(&self) -> bool {
        self.outcomes.iter().flat_map(|o| &o.outputs).all(|compared| compared.row.ok)
    }
}

/// How far a tensor is from its reference.
#[derive(Serialize, Clone)]
pub struct Row {
    pub output: String,
    /// The name of the specialisation. It is left out where there is only one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub specialisation: String,
    #[serde(flatten)]
    pub difference: Difference,
    /// With `--layers`: of a kernel that handles fewer bits than `f32`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounding: Option<Rounding>,
    pub ok: bool,
}

/// The result of checking one specialisation.
pub struct Outcome {
    pub outputs: Vec<Compared>,
    /// With `--layers`: the results of every kernel, in the order of execution.
    pub layers: Option<Vec<Compared>>,
    /// The error that outputs may have.
    pub tolerance: f64,
    /// The model rounds floats to bytes itself.
    pub rounds: bool,
}

impl Outcome {
    fn all(&self) -> impl Iterator<Item = &Compared> {
        self.outputs.iter().chain(self.layers.iter().flatten())
    }

    /// The first kernel that diverges, if one does and they were looked at.
    pub fn first_divergence(&self) -> Option<&Row> {
        self.rows().find(|row| !row.ok)
    }

    /// The kernel that adds the largest error of its own.
    pub fn coarsest(&self) -> Option<&Row> {
        let own = |row: &Row| row.rounding.as_ref().map(|r| r.own.max_rel);
        let rounding = self.rows().filter(|row| own(row).is_some());
        rounding.max_by(|a, b| own(a).unwrap_or(0.0).total_cmp(&own(b).unwrap_or(0.0)))
    }

    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.layers.iter().flatten().map(|c| &c.row)
    }
}

/// The values that outputs are compared with.
enum Reference {
    Interpreter,
    OnnxRuntime,
    /// The results that a folder holds, in the model's order.
    Recorded(Vec<Tensor>),
}

impl Reference {
    /// As the report calls it.
    fn name(&self) -> &'static str {
        match self {
            Reference::Interpreter => "the reference",
            Reference::OnnxRuntime => "ONNX Runtime",
            Reference::Recorded(_) => "the recorded outputs",
        }
    }
}

/// Compares what the artifact says that it was compiled from: the outputs of another model tell
/// nothing.
pub fn same_model(model: &Path, artifact: &Path) -> Result<(), Error> {
    if (Kind::of(model)?, Kind::of(artifact)?) == (Kind::Artifact, Kind::Model) {
        let right = format!("ansc verify {} {}", artifact.display(), model.display());
        return Err(Error::Usage(format!("the model comes first: `{right}`")));
    }
    kinds::expect(model, &[Kind::Model])?;
    kinds::expect(artifact, &[Kind::Artifact])?;
    let compiled = Model::read_manifest(artifact)?.model;
    let found = pipeline::provenance(model)?;
    if compiled.sha256 == found.sha256 {
        return Ok(());
    }
    let (name, was, is) = (compiled.name, compiled.sha256, found.sha256);
    let reason = format!(
        "is not the model that {} was compiled from: that is {name} with sha256 {was}, and this one has {is}",
        artifact.display()
    );
    Err(Error::file(model, reason))
}

/// Compares the artifact with the reference, at all sizes that the options leave.
pub fn verify(options: &Options) -> Result<Verified, Error> {
    let model = Model::load(&options.artifact)?;
    let (given, reference) = values(options, &model)?;
    let outcomes = specialisations(options, &model, &given)?
        .into_iter()
        .map(|one| outcome(options, &model, &one, &given, &reference))
        .collect::<Result<Vec<Outcome>, _>>()?;
    if let Some(folder) = &options.dump_tensors {
        dump::write(folder, outcomes.iter().flat_map(Outcome::all))?;
    }
    let precision = model.manifest().precision.clone();
    Ok(Verified { outcomes, against: reference.name(), precision })
}

/// The error that outputs may have: what was asked for, or what the artifact's precision costs.
fn tolerance(options: &Options, model: &Model, graph: &Graph) -> f64 {
    let precision = model.manifest().precision.coarsest();
    options.tolerance.unwrap_or_else(|| precision::tolerance_of(graph, precision))
}

/// The values that were given for inputs (in a folder, and by name, which goes before), and what
/// to compare with.
fn values(
    options: &Options,
    model: &Model,
) -> Result<(BTreeMap<String, Tensor>, Reference), Error> {
    let folder = match &options.input_dir {
        Some(folder) => {
            let (inputs, outputs) = ports(options, model)?;
            folder::read(folder, &names(&inputs), &names(&outputs))?
        }
        None => Folder { inputs: BTreeMap::new(), outputs: None },
    };
    let reference = reference(options, folder.outputs)?;
    let mut all = folder.inputs;
    if let (Reference::Recorded(_), Some(folder)) = (&reference, &options.input_dir) {
        complete(options, model, folder, &all)?;
    }
    all.extend(options.given.clone());
    Ok((all, reference))
}

/// Inputs and outputs, states among them, in the order of the model.
fn ports(options: &Options, model: &Model) -> Result<(Vec<Port>, Vec<Port>), Error> {
    let mut one = opened(&model.specialisations()[0]);
    if !model.specialisations()[0].states.is_empty() {
        let declared = import::declared(&options.model)?;
        let place =
            |all: &[DeclaredPort], port: &Port| all.iter().position(|p| p.name == port.name);
        one.inputs.sort_by_key(|port| place(&declared.inputs, port));
        one.outputs.sort_by_key(|port| place(&declared.outputs, port));
    }
    Ok((one.inputs, one.outputs))
}

fn names(ports: &[Port]) -> Vec<&str> {
    ports.iter().map(|port| port.name.as_str()).collect()
}

/// The reference that was asked for, or else recorded outputs, or else the interpreter.
fn reference(options: &Options, recorded: Option<Vec<Tensor>>) -> Result<Reference, Error> {
    let part = !(options.import.inputs.is_empty() && options.import.outputs.is_empty());
    match (options.against, recorded) {
        (Some(Against::Reference), _) | (None, None) => Ok(Reference::Interpreter),
        (Some(Against::Onnxruntime), _) if options.layers || part => Err(Error::Usage(
            "ONNX Runtime runs the whole model and gives its outputs alone; `--layers`, \
             `--inputs` and `--outputs` compare with the reference"
                .into(),
        )),
        (Some(Against::Onnxruntime), _) => Ok(Reference::OnnxRuntime),
        (Some(Against::Recorded), None) => Err(Error::Usage(
            "`--against recorded` needs `--input-dir DIR`, a folder with output_0.pb and so on"
                .into(),
        )),
        (_, Some(_)) if part => Err(Error::Usage(
            "recorded outputs are those of the whole model; with `--inputs` or `--outputs`, add \
             `--against reference`"
                .into(),
        )),
        (_, Some(outputs)) => Ok(Reference::Recorded(outputs)),
    }
}

/// Recorded outputs belong to recorded inputs, which must be all there.
fn complete(
    options: &Options,
    model: &Model,
    folder: &Path,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<(), Error> {
    if !options.given.is_empty() {
        let reason = "recorded outputs belong to the inputs of their folder; with `--input`, add \
                      `--against reference`";
        return Err(Error::Usage(reason.into()));
    }
    let missing =
        |(_, port): &(usize, &Port)| port.bound.is_none() && !inputs.contains_key(&port.name);
    match ports(options, model)?.0.iter().enumerate().find(missing) {
        None => Ok(()),
        Some((i, port)) => {
            let reason = format!(
                "has recorded outputs, but no input_{i}.pb for `{}`; `--against reference` \
                 compares with made-up values",
                port.name
            );
            Err(Error::file(folder, reason))
        }
    }
}

/// All specialisations that take the given inputs; one for ranges of sizes at the given ones, or
/// else at the smallest, the largest, and some between.
fn specialisations(
    options: &Options,
    model: &Model,
    values: &BTreeMap<String, Tensor>,
) -> Result<Vec<Specialisation>, Error> {
    let shapes: Vec<_> = values.iter().map(|(name, t)| (name.as_str(), t.shape())).collect();
    let inputs = opened(&model.specialisations()[0]).inputs;
    let known = |name: &String| inputs.iter().any(|port| port.name == *name);
    if let Some(name) = values.keys().find(|name| !known(name)) {
        let message = format!("{} has no input `{name}`", options.artifact.display());
        return Err(Error::Usage(message));
    }
    if values.is_empty() && !options.size.is_any() {
        return Ok(vec![chosen::specialisation(model, &options.size)?]);
    }
    // At least one, or the error that says which there are.
    let of_caller = |name: &str| model.inputs().iter().any(|port| port.name == name);
    let given: Vec<_> = shapes.iter().copied().filter(|(name, _)| of_caller(name)).collect();
    let first = &opened(model.specialisation(&given)?);
    if !shapes.is_empty() && !first.sizes.is_empty() {
        return Ok(vec![chosen::with_shapes(first, &shapes)]);
    }
    let fits = |one: &&Specialisation| {
        one.inputs.iter().all(|p| values.get(&p.name).is_none_or(|t| t.shape() == p.shape))
    };
    let all: Vec<Specialisation> = model.specialisations().iter().map(opened).collect();
    let all = all.iter().filter(fits);
    Ok(all
        .flat_map(|one| if one.sizes.is_empty() { vec![one.clone()] } else { some(one) })
        .collect())
}

/// A specialisation for ranges at some of its sizes.
fn some(one: &Specialisation) -> Vec<Specialisation> {
    let part = |of: usize, parts: usize| {
        let at = |size: &Size| size.low + (size.high - size.low) * of / parts;
        chosen::fixed(one, &one.sizes.iter().map(at).collect::<Vec<_>>())
    };
    let mut all: Vec<Specialisation> = (0..=3).filter_map(|of| part(of, 3)).collect();
    all.dedup_by(|a, b| a.name == b.name);
    all
}

fn outcome(
    options: &Options,
    model: &Model,
    specialisation: &Specialisation,
    given: &BTreeMap<String, Tensor>,
    reference: &Reference,
) -> Result<Outcome, Error> {
    let import = import_options(options, model, specialisation);
    let mut inputs = inputs::for_specialisation(model, specialisation, Seed(0))?;
    for (name, tensor) in &mut inputs {
        if let Some(own) = given.get(name) {
            *tensor = own.clone();
        }
    }
    let source = import::Source::open(&options.model, import.quantization.as_deref())?;
    let graph = crate::reference::decided(&source, &import, |graph: &Graph| {
        in_graph_order(graph, &inputs)
    })?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let mut actual = outside::run(&mut session(options, model)?, &named)?;
    actual.sort_by_key(|(name, _)| graph.outputs.iter().position(|(other, _)| other == name));
    let expected = match reference {
        Reference::Interpreter => interp::run(&graph, &in_graph_order(&graph, &inputs)?)?,
        Reference::OnnxRuntime => {
            let outputs: Vec<&str> = actual.iter().map(|(name, _)| name.as_str()).collect();
            peer::onnxruntime(&options.python, &options.model, &inputs, &outputs)?
        }
        Reference::Recorded(outputs) => outputs.clone(),
    };
    let tolerance = tolerance(options, model, &graph);
    let rounds = precision::rounds_to_bytes(&graph);
    let mut outputs = compare(actual, expected, tolerance)?;
    let mut layers = match options.layers {
        true => Some(every_kernel(options, model, import, &graph, &inputs)?),
        false => None,
    };
    for compared in outputs.iter_mut().chain(layers.iter_mut().flatten()) {
        compared.row.specialisation.clone_from(&specialisation.name);
    }
    Ok(Outcome { outputs, layers, tolerance, rounds })
}

fn session(options: &Options, model: &Model) -> Result<Session, SessionError> {
    let keep_denormals = options.keep_denormals;
    model.session_with(&SessionOptions { keep_denormals, ..SessionOptions::default() })
}

/// The import options that the specialisation was compiled with, where the options do not say.
fn import_options(
    options: &Options,
    model: &Model,
    specialisation: &Specialisation,
) -> ImportOptions {
    let mut import = options.import.clone();
    for (index, port) in specialisation.inputs.iter().enumerate() {
        if let Some(value) = model.bound_value(index) {
            import.values.entry(port.name.clone()).or_insert(value);
        } else if !import.values.contains_key(&port.name) {
            import.shapes.entry(port.name.clone()).or_insert_with(|| port.shape.clone());
        }
    }
    import
}

fn in_graph_order(graph: &Graph, inputs: &[(String, Tensor)]) -> Result<Vec<Tensor>, Error> {
    let find = |name: &str| inputs.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone());
    let names = graph.inputs().iter().map(|n| &graph.node(*n).name);
    names
        .map(|name| {
            find(name).ok_or_else(|| Error::Mismatch(format!("the artifact has no input `{name}`")))
        })
        .collect()
}

fn compare(
    actual: Vec<(String, Tensor)>,
    reference: Vec<Tensor>,
    tolerance: f64,
) -> Result<Vec<Compared>, Error> {
    let pairs = actual.into_iter().zip(reference);
    pairs
        .map(|((name, a), r)| {
            if (a.shape(), a.dtype()) != (r.shape(), r.dtype()) {
                let (a, r) = ((a.dtype(), a.shape()), (r.dtype(), r.shape()));
                return Err(Error::Mismatch(format!(
                    "output `{name}` is {a:?}, the reference gives {r:?}"
                )));
            }
            let difference = Difference::between(&a, &r);
            let (output, ok) = (name, difference.within(tolerance));
            let row = Row { output, specialisation: String::new(), difference, rounding: None, ok };
            Ok(Compared { row, actual: a, reference: r })
        })
        .collect()
}

/// Compiles the model once more with every kernel's results as outputs, and compares those with the
/// interpreter's run of the same optimised graph in `f32`.
fn every_kernel(
    options: &Options,
    model: &Model,
    import: ImportOptions,
    graph: &Graph,
    inputs: &[(String, Tensor)],
) -> Result<Vec<Compared>, Error> {
    let target = Target::native()?;
    let precision = model.manifest().precision.clone();
    let quantization = model.manifest().quantization.clone().map(Arc::new);
    let import = ImportOptions { quantization, ..import };
    let mut compiled = pipeline::Options {
        expose: Expose::Everything,
        precision,
        calibrated: true,
        ..pipeline::Options::new(import, target)
    };
    if model.manifest().accurate {
        compiled.schedules.sums = Sums::Direct;
    }
    if let Some(sms) = model.manifest().target.gpus() {
        let known: Vec<u32> = Target::sms().filter(|sm| sms.contains(sm)).collect();
        compiled.schedules.aim_at(Aim::Gpu(Gpus::of(&known)));
    }
    let directory = tempfile::tempdir().map_err(|e| Error::file(&options.artifact, e))?;
    let path = directory.path().join("exposed.ansc");
    pipeline::compile(&options.model, &path, &compiled, &Silent)?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let actual = session(options, &Model::load(&path)?)?.run(&named)?;
    let mut reference: HashMap<String, Layer> =
        layers::layers(&options.model, &compiled, &in_graph_order(graph, inputs)?)?
            .into_iter()
            .map(|layer| (layer.name.clone(), layer))
            .collect();
    let mut all = vec![];
    // The order of execution, after the model's own outputs.
    for (name, actual) in actual.into_iter().skip(graph.outputs.len()) {
        if let Some(layer) = reference.remove(&name) {
            let predicted = PREDICTED * layer.predicted.max_rel;
            let by_precision = || tolerance(options, model, graph).max(predicted);
            let allowed = options.tolerance.unwrap_or_else(by_precision);
            all.push(compared(layer, &actual, allowed)?);
        }
    }
    Ok(all)
}

/// A kernel is good if its result is near enough to that of `f32`, and adds no more error of its
/// own than its precision does.
fn compared(layer: Layer, actual: &Tensor, tolerance: f64) -> Result<Compared, Error> {
    let Layer { name, reference, rounding, .. } = layer;
    let actual = layers::converted(actual, reference.dtype())?;
    let difference = Difference::between(&actual, &reference);
    let is_fine = |r: &Rounding| r.own.within(precision::tolerance_of_kernel(r.precision));
    let ok = difference.within(tolerance) && rounding.as_ref().is_none_or(is_fine);
    let row = Row { output: name, specialisation: String::new(), difference, rounding, ok };
    Ok(Compared { row, actual, reference })
}
