//! One file per verb; none has logic of its own.

mod bench;
mod check;
mod compile;
mod explain;
mod inspect;
mod lab;
mod models;
pub mod operators;
mod records;
mod report;
mod run;
mod sketches;
mod tune;
mod verify;
mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ansc_codegen::Target;
use ansc_frontend::import::ImportOptions;
use ansc_runtime::{Tensor, npy};

use crate::Error;
use crate::cli::{Command, Specialise};
use crate::pipeline::{Choices, Options};

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
        Command::Operators(args) => operators::run(&args),
        Command::Sketches(args) => sketches::run(&args),
        Command::Records(args) => records::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Worker(args) => worker::run(&args),
    }
}

/// For verbs that want all dimensions to have one size.
fn import_options(args: &Specialise) -> Result<ImportOptions, Error> {
    let (import, choices) = specialisations(args)?;
    match choices.first() {
        Some((dim, _)) => {
            Err(Error::Usage(format!("`--dim {dim}` has several sizes; one is wanted here")))
        }
        None => Ok(import),
    }
}

fn compile_options(args: &Specialise, target: Target) -> Result<Options, Error> {
    let (import, choices) = specialisations(args)?;
    Ok(Options { choices, ..Options::new(import, target) })
}

/// What is fixed, and the dimensions that have several sizes.
fn specialisations(args: &Specialise) -> Result<(ImportOptions, Choices), Error> {
    let mut import = ImportOptions {
        shapes: args.shapes.iter().cloned().collect(),
        dims: BTreeMap::new(),
        values: read_tensors(&args.values)?,
    };
    let mut choices: Choices = vec![];
    for (name, sizes) in &args.dims {
        if import.dims.contains_key(name) || choices.iter().any(|(known, _)| known == name) {
            return Err(Error::Usage(format!("`--dim {name}` is given twice")));
        }
        if let [size] = sizes.0[..] {
            import.dims.insert(name.clone(), size);
        } else {
            choices.push((name.clone(), sizes.0.clone()));
        }
    }
    Ok((import, choices))
}

fn read_tensors(files: &[(String, PathBuf)]) -> Result<BTreeMap<String, Tensor>, Error> {
    let mut tensors = BTreeMap::new();
    for (name, path) in files {
        let tensor = npy::read(path).map_err(|e| Error::file(path, e))?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(Error::Usage(format!("`{name}` is given twice")));
        }
    }
    Ok(tensors)
}

/// `path` with every byte that is awkward in a file name replaced.
fn file_name_of(output: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = output.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    if name.chars().all(|c| c == '.') { format!("_{name}") } else { name }
}

fn default_artifact(model: &Path) -> PathBuf {
    model.with_extension("ansc")
}

fn print_json(value: &impl serde::Serialize) {
    println!("{}", serde_json::to_string(value).expect("reports serialise"));
}

/// `1234567` as `1.2 MB`.
fn human_bytes(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}
