//! Values in a folder: `NAME.npy` for inputs, or ONNX's test data, which is `input_N.pb` and
//! `output_N.pb` by the order of the model.

use std::collections::BTreeMap;
use std::path::Path;

use ansc_runtime::Tensor;

use crate::Error;
use crate::files::{file_names, read_tensor};

/// The values of a folder.
pub struct Folder {
    pub inputs: BTreeMap<String, Tensor>,
    /// The results that were recorded, in the model's order, if there are any.
    pub outputs: Option<Vec<Tensor>>,
}

/// Reads what there is, but at least one input or a full record. Names are those of the model.
pub fn read(folder: &Path, inputs: &[&str], outputs: &[&str]) -> Result<Folder, Error> {
    if !folder.is_dir() {
        return Err(Error::file(folder, "is no folder"));
    }
    let inputs_there = self::inputs(folder, inputs)?;
    let outputs_there = self::outputs(folder, outputs)?;
    if inputs_there.is_empty() && outputs_there.is_none() {
        let arrays = array_names(inputs);
        let reason = format!("has none of {}, and no input_0.pb", arrays.join(", "));
        return Err(Error::file(folder, reason));
    }
    Ok(Folder { inputs: inputs_there, outputs: outputs_there })
}

fn array_names(names: &[&str]) -> Vec<String> {
    let names = file_names(names.iter().copied());
    names.iter().map(|name| format!("{name}.npy")).collect()
}

/// The inputs that are there. An array goes before ONNX's own file.
pub fn inputs(folder: &Path, names: &[&str]) -> Result<BTreeMap<String, Tensor>, Error> {
    let mut all = BTreeMap::new();
    for (i, (name, array)) in names.iter().zip(array_names(names)).enumerate() {
        let files = [folder.join(array), folder.join(format!("input_{i}.pb"))];
        if let Some(path) = files.iter().find(|path| path.exists()) {
            all.insert((*name).to_owned(), read_tensor(path)?);
        }
    }
    Ok(all)
}

/// All outputs or none.
fn outputs(folder: &Path, names: &[&str]) -> Result<Option<Vec<Tensor>>, Error> {
    let path = |i: usize| folder.join(format!("output_{i}.pb"));
    let count = names.len();
    let Some(there) = (0..count).find(|&i| path(i).exists()) else { return Ok(None) };
    if let Some(missing) = (0..count).find(|&i| !path(i).exists()) {
        let name = names[missing];
        let reason = format!("has output_{there}.pb, but no output_{missing}.pb for `{name}`");
        return Err(Error::file(folder, reason));
    }
    (0..count).map(|i| read_tensor(&path(i))).collect::<Result<_, _>>().map(Some)
}
