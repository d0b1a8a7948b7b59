//! Tensors in files: how they are read, and the names of files for names of tensors.

use std::path::Path;

use ansc_frontend::tensor_file;
use ansc_graph::text::unused;
use ansc_runtime::{Tensor, npy};

use crate::Error;
use crate::kinds::{self, Kind};

/// The tensor in a file: ONNX's own format by its ending, else NumPy's.
pub fn read_tensor(path: &Path) -> Result<Tensor, Error> {
    if path.extension().is_some_and(|ending| ending == "pb") {
        return tensor_file::read(path).map_err(|problem| Error::file(path, problem));
    }
    kinds::expect(path, &[Kind::Array])?;
    Ok(npy::read(path)?)
}

/// Each name with every character that is awkward in a file name replaced; those that are alike
/// then are numbered.
pub fn file_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken: Vec<String> = vec![];
    for name in names {
        let name = unused(&plain_name(name), |name| taken.iter().any(|other| other == name));
        taken.push(name);
    }
    taken
}

fn plain_name(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    if name.chars().all(|c| c == '.') { format!("_{name}") } else { name }
}
