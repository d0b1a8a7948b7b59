//! One file per verb: from the options of the command line to those of the library, and from what
//! comes back to words.

mod bench;
mod candidates;
mod check;
mod compile;
mod completions;
mod dataset;
mod explain;
#[cfg(feature = "fleet")]
mod fleet;
mod given;
mod inspect;
mod lab;
mod man;
mod models;
pub mod operators;
mod quantize;
mod records;
mod report;
mod run;
mod show;
mod sketches;
mod train;
mod tune;
mod verify;
#[cfg(feature = "fleet")]
mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ansc_codegen::Target;
use ansc_frontend::import::{self, ImportOptions};
use ansc_runtime::Tensor;

use crate::Error;
use crate::cli::{Command, Extent, Given, Sizes, Specialise, once};
use crate::files::read_tensor;
use crate::host::{self, Report};
use crate::kinds::{self, Kind};
use crate::pipeline::Options;
use crate::sizes::{Choices, Span};

pub fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Compile(args) => compile::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Operators(args) => operators::run(&args),
        Command::Sketches(args) => sketches::run(&args),
        Command::Records(args) => records::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Dataset(args) => dataset::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        #[cfg(feature = "fleet")]
        Command::Worker(args) => worker::run(&args),
        #[cfg(feature = "fleet")]
        Command::Fleet(args) => fleet::run(&args),
        Command::Candidates(args) => candidates::run(&args),
    }
}

/// For verbs that want all dimensions to have one size.
fn import_options(model: &Path, args: &Specialise) -> Result<ImportOptions, Error> {
    let (import, choices) = specialisations(model, args)?;
    match choices.first() {
        Some((dim, _)) => {
            Err(Error::Usage(format!("`--dim {dim}` has several sizes; one is wanted here")))
        }
        None => Ok(import),
    }
}

fn compile_options(model: &Path, args: &Specialise, target: Target) -> Result<Options, Error> {
    let (import, choices) = specialisations(model, args)?;
    let states = args.states.clone();
    Ok(Options { choices, states, ..Options::new(import, target) })
}

/// The import options with everything that is fixed, and the dimensions that have several sizes.
fn specialisations(model: &Path, args: &Specialise) -> Result<(ImportOptions, Choices), Error> {
    kinds::expect(model, &[Kind::Model])?;
    let shapes = once("--shape", args.shapes.iter().cloned())?;
    let mut import = ImportOptions {
        shapes,
        dims: BTreeMap::new(),
        follows: BTreeMap::new(),
        values: values(model, &args.values)?,
        most: once("--most", args.most.iter().cloned())?,
        inputs: args.begins.clone(),
        outputs: args.ends.clone(),
        quantization: None,
    };
    let mut choices: Choices = vec![];
    for (name, sizes) in once("--dim", args.dims.iter().cloned())? {
        match sizes {
            Extent::Follows(text) => {
                import.follows.insert(name, text);
            }
            Extent::Sizes(Sizes(spans)) => match spans[..] {
                [Span::One(size)] => {
                    import.dims.insert(name, size);
                }
                _ => choices.push((name, spans)),
            },
        }
    }
    // The last choice varies fastest.
    choices.sort_by_key(|(name, _)| args.dims.iter().position(|(given, _)| given == name));
    Ok((import, choices))
}

/// The values of inputs: files as they are, literals as the model declares the input.
fn values(model: &Path, given: &[(String, Given)]) -> Result<BTreeMap<String, Tensor>, Error> {
    let mut declared = None;
    let mut tensors = BTreeMap::new();
    for (name, value) in once("--value", given.iter().map(|(n, v)| (n.clone(), v)))? {
        let tensor = match value {
            Given::File(path) => read_value(&name, path)?,
            Given::Literal(literal) => {
                if declared.is_none() {
                    declared = Some(import::declared(model)?);
                }
                let inputs = declared.iter().flat_map(|d| &d.inputs);
                let known: Vec<&str> = inputs.clone().map(|p| p.name.as_str()).collect();
                let port = inputs.into_iter().find(|p| p.name == name).ok_or_else(|| {
                    let known = known.join(", ");
                    let reason =
                        format!("the model has no input `{name}`; its inputs are: {known}");
                    Error::file(model, reason)
                })?;
                literal.tensor(port).map_err(|e| Error::Usage(format!("`--value {name}`: {e}")))?
            }
        };
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

fn read_value(name: &str, path: &Path) -> Result<Tensor, Error> {
    if !path.exists() {
        let text = path.display();
        return Err(Error::Usage(format!(
            "`--value {name}={text}`: there is no file `{text}`, and it is not a literal such as 16000, true or [1,2]"
        )));
    }
    read_tensor(path)
}

/// In the current folder, with the name of `file` and another ending.
fn here(file: &Path, ending: &str) -> PathBuf {
    file.with_extension(ending).file_name().map_or_else(|| ending.into(), PathBuf::from)
}

fn print_json(value: &impl serde::Serialize) {
    print_as(Report::Result, value);
}

fn print_as(kind: fn(serde_json::Value) -> Report, value: &impl serde::Serialize) {
    if !host::report(value, kind) {
        println!("{}", serde_json::to_string(value).expect("reports serialise"));
    }
}
