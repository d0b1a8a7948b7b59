//! `ansc verify`: an artifact against a reference, per output and per kernel.

mod dump;
mod peer;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use ansc_codegen::Target;
use ansc_frontend::import::DeclaredPort;
use ansc_frontend::{ImportOptions, import};
use ansc_graph::{Graph, interp};
use ansc_runtime::manifest::{Port, Size, Specialisation};
use ansc_runtime::{Model, Session, SessionError, SessionOptions, Tensor};
use ansc_sketch::algorithm::Sums;
use serde::Serialize;

use super::{given, import_options, print_json, sizes};
use crate::Error;
use crate::assemble::Expose;
use crate::choice::{Aim, Gpus};
use crate::cli::{self, Against, Specialise, Verify};
use crate::compare::Difference;
use crate::folder::{self, Folder};
use crate::inputs::{self, Seed};
use crate::kinds::{self, Kind};
use crate::layers::{self, Layer, Rounding};
use crate::pipeline::{self, Options, Silent};
use crate::precision;
use crate::states::outside::{self, opened};
use dump::Compared;

/// Two ways to compute the same round differently, and errors grow from there: a kernel's result
/// may be this many times as far off as that of the interpreter, which rounds at the same places.
const PREDICTED: f64 = 4.0;

#[derive(Serialize, Clone)]
struct Row {
    output: String,
    /// The name of the specialisation. It is left out where there is only one.
    #[serde(skip_serializing_if = "String::is_empty")]
    specialisation: String,
    #[serde(flatten)]
    difference: Difference,
    /// With `--layers`: of a kernel that handles fewer bits than `f32`.
    #[serde(skip_serializing_if = "Option::is_none")]
    rounding: Option<Rounding>,
    ok: bool,
}

/// The result of checking one specialisation.
struct Outcome {
    outputs: Vec<Compared>,
    /// With `--layers`: the results of every kernel, in the order of execution.
    layers: Option<Vec<Compared>>,
    /// The error that outputs may have.
    tolerance: f64,
    /// The model rounds floats to bytes itself.
    rounds: bool,
}

impl Outcome {
    fn all(&self) -> impl Iterator<Item = &Compared> {
        self.outputs.iter().chain(self.layers.iter().flatten())
    }

    /// The first kernel that diverges, if one does and they were looked at.
    fn first_divergence(&self) -> Option<&Row> {
        self.rows().find(|row| !row.ok)
    }

    /// The kernel that adds the largest error of its own.
    fn coarsest(&self) -> Option<&Row> {
        let own = |row: &Row| row.rounding.as_ref().map(|r| r.own.max_rel);
        let rounding = self.rows().filter(|row| own(row).is_some());
        rounding.max_by(|a, b| own(a).unwrap_or(0.0).total_cmp(&own(b).unwrap_or(0.0)))
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
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

pub(super) fn run(args: &Verify) -> Result<(), Error> {
    same_model(args)?;
    let model = Model::load(&args.artifact)?;
    let (given, reference) = values(args, &model)?;
    let outcomes: Vec<Outcome> = chosen(args, &model, &given)?
        .into_iter()
        .map(|one| verify(args, &model, &one, &given, &reference))
        .collect::<Result<_, _>>()?;
    if let Some(folder) = &args.dump_tensors {
        dump::write(folder, outcomes.iter().flat_map(Outcome::all))?;
    }
    let rows: Vec<&Row> = outcomes.iter().flat_map(|o| &o.outputs).map(|c| &c.row).collect();
    let ok = rows.iter().all(|r| r.ok);
    if args.json {
        let divergence = outcomes.iter().find_map(Outcome::first_divergence);
        let layers: Vec<&Row> = outcomes.iter().flat_map(Outcome::rows).collect();
        print_json(&serde_json::json!({
            "ok": ok, "against": reference.name(), "precision": model.manifest().precision,
            "tolerance": outcomes.iter().map(|o| o.tolerance).fold(0.0, f64::max),
            "outputs": rows, "layers": layers,
            "first_divergence": divergence,
        }));
    } else {
        outcomes.iter().take(1).for_each(|outcome| print_precision(outcome, &model));
        outcomes.iter().for_each(print_outcome);
    }
    if ok {
        Ok(())
    } else {
        let (artifact, reference) = (args.artifact.display(), reference.name());
        Err(Error::Reported(format!("{artifact} differs from {reference}")))
    }
}

/// The error that outputs may have: what was asked for, or what the artifact's precision costs.
fn tolerance(args: &Verify, model: &Model, graph: &Graph) -> f64 {
    let precision = model.manifest().precision.coarsest();
    args.tolerance.unwrap_or_else(|| precision::tolerance_of(graph, precision))
}

fn print_precision(outcome: &Outcome, model: &Model) {
    let precision = &model.manifest().precision;
    let allowed = outcome.tolerance;
    match precision.is_full() {
        false => println!("precision {precision}: errors up to {allowed:.1e} are allowed"),
        true if outcome.rounds => {
            println!("the model computes with int8: errors up to {allowed:.1e} are allowed");
        }
        true => {}
    }
}

/// The values that were given for inputs (in a folder, and by name, which goes before), and what
/// to compare with.
fn values(args: &Verify, model: &Model) -> Result<(BTreeMap<String, Tensor>, Reference), Error> {
    let folder = match &args.input_dir {
        Some(folder) => {
            let (inputs, outputs) = ports(args, model)?;
            folder::read(folder, &names(&inputs), &names(&outputs))?
        }
        None => Folder { inputs: BTreeMap::new(), outputs: None },
    };
    let reference = reference(args, folder.outputs)?;
    let mut all = folder.inputs;
    if let (Reference::Recorded(_), Some(folder)) = (&reference, &args.input_dir) {
        complete(args, model, folder, &all)?;
    }
    all.extend(given::tensors(&args.inputs)?);
    Ok((all, reference))
}

/// Inputs and outputs, states among them, in the order of the model.
fn ports(args: &Verify, model: &Model) -> Result<(Vec<Port>, Vec<Port>), Error> {
    let mut one = opened(&model.specialisations()[0]);
    if !model.specialisations()[0].states.is_empty() {
        let declared = import::declared(&args.model)?;
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
fn reference(args: &Verify, recorded: Option<Vec<Tensor>>) -> Result<Reference, Error> {
    let part = args.specialise.begins.iter().chain(&args.specialise.ends).next().is_some();
    match (args.against, recorded) {
        (Some(Against::Reference), _) | (None, None) => Ok(Reference::Interpreter),
        (Some(Against::Onnxruntime), _) if args.layers || part => Err(Error::Usage(
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
    args: &Verify,
    model: &Model,
    folder: &Path,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<(), Error> {
    if !args.inputs.is_empty() {
        let reason = "recorded outputs belong to the inputs of their folder; with `--input`, add \
                      `--against reference`";
        return Err(Error::Usage(reason.into()));
    }
    let missing =
        |(_, port): &(usize, &Port)| port.bound.is_none() && !inputs.contains_key(&port.name);
    match ports(args, model)?.0.iter().enumerate().find(missing) {
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

/// Compares what the artifact says that it was compiled from: the outputs of another model tell
/// nothing.
fn same_model(args: &Verify) -> Result<(), Error> {
    let (model, artifact) = (&args.model, &args.artifact);
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

/// All specialisations that take the given inputs; one for ranges of sizes at the given ones, or
/// else at the smallest, the largest, and some between.
fn chosen(
    args: &Verify,
    model: &Model,
    values: &BTreeMap<String, Tensor>,
) -> Result<Vec<Specialisation>, Error> {
    let shapes: Vec<_> = values.iter().map(|(name, t)| (name.as_str(), t.shape())).collect();
    let inputs = opened(&model.specialisations()[0]).inputs;
    let known = |name: &String| inputs.iter().any(|port| port.name == *name);
    if let Some(name) = values.keys().find(|name| !known(name)) {
        let message = format!("{} has no input `{name}`", args.artifact.display());
        return Err(Error::Usage(message));
    }
    let Specialise { shapes: wanted, dims, .. } = &args.specialise;
    if values.is_empty() && !(wanted.is_empty() && dims.is_empty()) {
        let size = cli::Size { shapes: wanted.clone(), dims: args.specialise.sizes() };
        return Ok(vec![sizes::chosen(model, &size)?]);
    }
    // At least one, or the error that says which there are.
    let of_caller = |name: &str| model.inputs().iter().any(|port| port.name == name);
    let given: Vec<_> = shapes.iter().copied().filter(|(name, _)| of_caller(name)).collect();
    let first = &opened(model.specialisation(&given)?);
    if !shapes.is_empty() && !first.sizes.is_empty() {
        return Ok(vec![sizes::with_shapes(first, &shapes)]);
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
        sizes::fixed(one, &one.sizes.iter().map(at).collect::<Vec<_>>())
    };
    let mut all: Vec<Specialisation> = (0..=3).filter_map(|of| part(of, 3)).collect();
    all.dedup_by(|a, b| a.name == b.name);
    all
}

fn verify(
    args: &Verify,
    model: &Model,
    specialisation: &Specialisation,
    given: &BTreeMap<String, Tensor>,
    reference: &Reference,
) -> Result<Outcome, Error> {
    let options = options(args, model, specialisation)?;
    let mut inputs = inputs::for_specialisation(model, specialisation, Seed(0))?;
    for (name, tensor) in &mut inputs {
        if let Some(own) = given.get(name) {
            *tensor = own.clone();
        }
    }
    let source = import::Source::open(&args.model, options.quantization.as_deref())?;
    let graph = crate::reference::decided(&source, &options, |graph: &Graph| {
        in_graph_order(graph, &inputs)
    })?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let mut actual = outside::run(&mut session(args, model)?, &named)?;
    actual.sort_by_key(|(name, _)| graph.outputs.iter().position(|(other, _)| other == name));
    let expected = match reference {
        Reference::Interpreter => interp::run(&graph, &in_graph_order(&graph, &inputs)?)?,
        Reference::OnnxRuntime => {
            let outputs: Vec<&str> = actual.iter().map(|(name, _)| name.as_str()).collect();
            peer::onnxruntime(&args.python, &args.model, &inputs, &outputs)?
        }
        Reference::Recorded(outputs) => outputs.clone(),
    };
    let tolerance = tolerance(args, model, &graph);
    let rounds = precision::rounds_to_bytes(&graph);
    let mut outputs = compare(actual, expected, tolerance)?;
    let mut layers = match args.layers {
        true => Some(every_kernel(args, model, options, &graph, &inputs)?),
        false => None,
    };
    for compared in outputs.iter_mut().chain(layers.iter_mut().flatten()) {
        compared.row.specialisation.clone_from(&specialisation.name);
    }
    Ok(Outcome { outputs, layers, tolerance, rounds })
}

fn session(args: &Verify, model: &Model) -> Result<Session, SessionError> {
    let keep_denormals = args.keep_denormals;
    model.session_with(&SessionOptions { keep_denormals, ..SessionOptions::default() })
}

/// The import options that the specialisation was compiled with, where the arguments do not say.
fn options(
    args: &Verify,
    model: &Model,
    specialisation: &Specialisation,
) -> Result<ImportOptions, Error> {
    let mut options = import_options(&args.model, &args.specialise)?;
    for (index, port) in specialisation.inputs.iter().enumerate() {
        if let Some(value) = model.bound_value(index) {
            options.values.entry(port.name.clone()).or_insert(value);
        } else if !options.values.contains_key(&port.name) {
            options.shapes.entry(port.name.clone()).or_insert_with(|| port.shape.clone());
        }
    }
    Ok(options)
}

fn print_outcome(outcome: &Outcome) {
    outcome.outputs.iter().for_each(|c| print_row(&c.row));
    if let Some(coarsest) = outcome.coarsest() {
        outcome.rows().for_each(print_row);
        print_coarsest(coarsest);
    }
    match outcome.first_divergence() {
        Some(row) => println!(
            "first kernel that diverges: {} (relative {:.2e})",
            row.output, row.difference.max_rel
        ),
        None if outcome.layers.is_some() => println!("no kernel diverges"),
        None => {}
    }
}

fn print_row(row: &Row) {
    let mark = if row.ok { "ok  " } else { "FAIL" };
    let d = row.difference;
    let space = if row.specialisation.is_empty() { "" } else { " " };
    println!(
        "{mark} {}{space}{}: relative {:.2e}, absolute {:.2e}, non-finite {}{}",
        row.specialisation,
        row.output,
        d.max_rel,
        d.max_abs,
        d.non_finite,
        row.rounding.as_ref().map_or(String::new(), in_words)
    );
}

fn in_words(rounding: &Rounding) -> String {
    let Rounding { precision, own, .. } = rounding;
    let allowed = precision::tolerance_of_kernel(*precision);
    format!("; of its own {:.2e} of {allowed:.1e} that {precision} allows", own.max_rel)
}

/// Says which kernel spoils the result most, and what keeps it from doing so.
fn print_coarsest(row: &Row) {
    let Some(Rounding { own, product, .. }) = &row.rounding else { return };
    let remedy = product.as_ref().map_or(String::new(), |node| {
        format!("; `--precision {node}=f32` when compiling lets it read all bits")
    });
    println!("{} rounds most: relative {:.2e} of its own{remedy}", row.output, own.max_rel);
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
    args: &Verify,
    model: &Model,
    import: ImportOptions,
    graph: &Graph,
    inputs: &[(String, Tensor)],
) -> Result<Vec<Compared>, Error> {
    let target = Target::native()?;
    let precision = model.manifest().precision.clone();
    let quantization = model.manifest().quantization.clone().map(Arc::new);
    let import = ImportOptions { quantization, ..import };
    let mut options = Options {
        expose: Expose::Everything,
        precision,
        calibrated: true,
        ..Options::new(import, target)
    };
    if model.manifest().accurate {
        options.schedules.sums = Sums::Direct;
    }
    if let Some(sms) = model.manifest().target.gpus() {
        let known: Vec<u32> = Target::sms().filter(|sm| sms.contains(sm)).collect();
        options.schedules.aim_at(Aim::Gpu(Gpus::of(&known)));
    }
    let directory = tempfile::tempdir().map_err(|e| Error::file(&args.artifact, e))?;
    let path = directory.path().join("exposed.ansc");
    pipeline::compile(&args.model, &path, &options, &Silent)?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let actual = session(args, &Model::load(&path)?)?.run(&named)?;
    let mut reference: HashMap<String, Layer> =
        layers::layers(&args.model, &options, &in_graph_order(graph, inputs)?)?
            .into_iter()
            .map(|layer| (layer.name.clone(), layer))
            .collect();
    let mut all = vec![];
    // The order of execution, after the model's own outputs.
    for (name, actual) in actual.into_iter().skip(graph.outputs.len()) {
        if let Some(layer) = reference.remove(&name) {
            let predicted = PREDICTED * layer.predicted.max_rel;
            let by_precision = || tolerance(args, model, graph).max(predicted);
            let allowed = args.tolerance.unwrap_or_else(by_precision);
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
