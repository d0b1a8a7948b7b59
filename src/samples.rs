//! Samples of a model's inputs in a folder, to calibrate with.
//!
//! Each archive `*.npz` is a sample, with a value for each input by name; so is each folder with
//! `NAME.npy` for each input, or with ONNX's test data `input_0.pb` and so on. The folder that is
//! named may be one itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ansc_frontend::import;
use ansc_runtime::Tensor;

use crate::kinds::{self, Kind};
use crate::{Error, folder, npz};

/// Values for the inputs of a model, by name, and where they are from.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub inputs: BTreeMap<String, Tensor>,
}

/// All samples in a folder, by their names.
pub fn read(model: &Path, directory: &Path) -> Result<Vec<Sample>, Error> {
    let declared = import::declared(model)?;
    let names: Vec<&str> = declared.inputs.iter().map(|port| port.name.as_str()).collect();
    let mut samples = vec![];
    let own = folder::inputs(directory, &names)?;
    if !own.is_empty() {
        samples.push(sample(directory, own, &names)?);
    }
    for path in entries(directory)? {
        let is_archive = path.extension().is_some_and(|ending| ending == "npz");
        let inputs = match path.is_dir() {
            true => folder::inputs(&path, &names)?,
            false if is_archive => archive(&path)?,
            false => continue,
        };
        if !inputs.is_empty() {
            samples.push(sample(&path, inputs, &names)?);
        }
    }
    if samples.is_empty() {
        let reason = format!(
            "holds no sample of the inputs {}: neither an archive NAME.npz, nor a folder with {}.npy \
             or input_0.pb",
            names.join(", "),
            names.first().unwrap_or(&"NAME")
        );
        return Err(Error::file(directory, reason));
    }
    Ok(samples)
}

fn archive(path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    kinds::expect(path, &[Kind::Archive])?;
    npz::read(path)
}

/// The paths in a folder, sorted by name: the same folder gives the same order everywhere.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |e: std::io::Error| Error::file(directory, e);
    let entries = std::fs::read_dir(directory).map_err(failed)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect::<Result<_, Error>>()?;
    paths.sort();
    Ok(paths)
}

/// A sample has a value for every input and nothing else.
fn sample(path: &Path, inputs: BTreeMap<String, Tensor>, names: &[&str]) -> Result<Sample, Error> {
    let missing: Vec<&str> =
        names.iter().copied().filter(|name| !inputs.contains_key(*name)).collect();
    if !missing.is_empty() {
        let reason = format!("has no value for the input `{}`", missing.join("`, `"));
        return Err(Error::file(path, reason));
    }
    if let Some(name) = inputs.keys().find(|name| !names.contains(&name.as_str())) {
        let reason = format!(
            "has a value for `{name}`, which is no input of the model; those are {}",
            names.join(", ")
        );
        return Err(Error::file(path, reason));
    }
    Ok(Sample { name: path.display().to_string(), inputs })
}
