//! `ansc verify`: an artifact against the reference interpreter, per output and per kernel.

use std::collections::BTreeMap;

use ansc_codegen::Target;
use ansc_frontend::{ImportOptions, import};
use ansc_graph::{Graph, interp};
use ansc_runtime::{Model, Tensor};
use serde::Serialize;

use super::{import_options, print_json, read_tensors};
use crate::Error;
use crate::assemble::Expose;
use crate::cli::Verify;
use crate::compare::Difference;
use crate::inputs::{self, Seed};
use crate::pipeline::{self, Options, Silent};

#[derive(Serialize)]
struct Row {
    output: String,
    #[serde(flatten)]
    difference: Difference,
    ok: bool,
}

pub(super) fn run(args: &Verify) -> Result<(), Error> {
    let model = Model::load(&args.artifact)?;
    let options = options(args, &model)?;
    let graph = import::load(&args.model, &options)?;
    let inputs = chosen_inputs(&model, args)?;
    let reference = interp::run(&graph, &in_graph_order(&graph, &inputs)?)?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let actual = model.session()?.run(&named)?;
    let rows = compare(&actual, &reference, args.tolerance)?;
    let ok = rows.iter().all(|r| r.ok);
    let layers =
        if args.layers { Some(first_divergence(args, options, &graph, &inputs)?) } else { None };
    if args.json {
        print_json(&serde_json::json!({ "ok": ok, "outputs": rows, "first_divergence": layers }));
    } else {
        rows.iter().for_each(print_row);
        match &layers {
            Some(Some(row)) => println!(
                "first kernel that diverges: {} (relative {:.2e})",
                row.output, row.difference.max_rel
            ),
            Some(None) => println!("no kernel diverges"),
            None => {}
        }
    }
    if ok {
        Ok(())
    } else {
        Err(Error::Reported(format!("{} differs from the reference", args.artifact.display())))
    }
}

/// What the artifact was compiled for, where the arguments do not say.
fn options(args: &Verify, model: &Model) -> Result<ImportOptions, Error> {
    let mut options = import_options(&args.specialise)?;
    for (index, port) in model.inputs().iter().enumerate() {
        if let Some(value) = model.bound_value(index) {
            options.values.entry(port.name.clone()).or_insert(value);
        } else if !options.values.contains_key(&port.name) {
            options.shapes.entry(port.name.clone()).or_insert_with(|| port.shape.clone());
        }
    }
    Ok(options)
}

fn print_row(row: &Row) {
    let mark = if row.ok { "ok  " } else { "FAIL" };
    let d = row.difference;
    println!(
        "{mark} {}: relative {:.2e}, absolute {:.2e}, non-finite {}",
        row.output, d.max_rel, d.max_abs, d.non_finite
    );
}

fn chosen_inputs(model: &Model, args: &Verify) -> Result<Vec<(String, Tensor)>, Error> {
    let mut given: BTreeMap<String, Tensor> = read_tensors(&args.inputs)?;
    let mut inputs = inputs::for_model(model, Seed(0));
    for (name, tensor) in &mut inputs {
        if let Some(own) = given.remove(name) {
            *tensor = own;
        }
    }
    match given.into_keys().next() {
        Some(name) => {
            Err(Error::Usage(format!("{} has no input `{name}`", args.artifact.display())))
        }
        None => Ok(inputs),
    }
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
    actual: &[(String, Tensor)],
    reference: &[Tensor],
    tolerance: f64,
) -> Result<Vec<Row>, Error> {
    let pairs = actual.iter().zip(reference);
    pairs
        .map(|((name, a), r)| {
            if (a.shape(), a.dtype()) != (r.shape(), r.dtype()) {
                let (a, r) = ((a.dtype(), a.shape()), (r.dtype(), r.shape()));
                return Err(Error::Mismatch(format!(
                    "output `{name}` is {a:?}, the reference gives {r:?}"
                )));
            }
            let difference = Difference::between(a, r);
            Ok(Row { output: name.clone(), difference, ok: difference.within(tolerance) })
        })
        .collect()
}

/// Compiles the model once more with every kernel's results as outputs, and compares those with the
/// interpreter's run of the same optimised graph.
fn first_divergence(
    args: &Verify,
    import: ImportOptions,
    graph: &Graph,
    inputs: &[(String, Tensor)],
) -> Result<Option<Row>, Error> {
    let target = Target::native()?;
    let options = Options { expose: Expose::Everything, ..Options::new(import, target) };
    let directory = tempfile::tempdir().map_err(|e| Error::file(&args.artifact, e))?;
    let path = directory.path().join("exposed.ansc");
    pipeline::compile(&args.model, &path, &options, &Silent)?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let actual = Model::load(&path)?.session()?.run(&named)?;
    let reference =
        pipeline::reference_of_everything(&args.model, &options, &in_graph_order(graph, inputs)?)?;
    let (names, reference): (Vec<String>, Vec<Tensor>) = reference.into_iter().unzip();
    let actual: Vec<_> = actual.into_iter().filter(|(name, _)| names.contains(name)).collect();
    let rows = compare(&actual, &reference, args.tolerance)?;
    // The order of execution, after the model's own outputs.
    Ok(rows.into_iter().skip(graph.outputs.len()).find(|r| !r.ok))
}
