//! Values that the user gives for inputs: `NAME=FILE.npy` or `NAME=FILE.npz:KEY` for one,
//! `FILE.npz` for all of an archive.

use std::collections::BTreeMap;
use std::path::Path;

use ansc_runtime::manifest::Specialisation;
use ansc_runtime::{Model, Tensor};

use crate::cli::{InputFile, once};
use crate::files::read_tensor;
use crate::inputs::{self, Seed};
use crate::kinds::{self, Kind};
use crate::{Error, npz};

/// The given values, by name.
pub(super) fn tensors(files: &[InputFile]) -> Result<BTreeMap<String, Tensor>, Error> {
    let mut all: Vec<(String, Tensor)> = vec![];
    for file in files {
        match file {
            InputFile::One(name, path) => all.push((name.clone(), read_tensor(path)?)),
            InputFile::Entry(name, path, key) => all.push((name.clone(), entry(path, key)?)),
            InputFile::All(path) => all.extend(archive(path)?),
        }
    }
    once("--input", all.into_iter())
}

fn entry(path: &Path, key: &str) -> Result<Tensor, Error> {
    kinds::expect(path, &[Kind::Archive])?;
    npz::read_one(path, key)
}

fn archive(path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    kinds::expect(path, &[Kind::Archive])?;
    npz::read(path)
}

/// The given values; if there are none, made-up ones for every input.
pub(super) fn or_made_up(
    files: &[InputFile],
    model: &Model,
    specialisation: &Specialisation,
    seed: Seed,
) -> Result<Vec<(String, Tensor)>, Error> {
    match files {
        [] => Ok(inputs::for_specialisation(model, specialisation, seed)?),
        files => Ok(tensors(files)?.into_iter().collect()),
    }
}
