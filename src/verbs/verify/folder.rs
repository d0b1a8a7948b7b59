//! Values in a folder: `NAME.npy` for inputs, or ONNX's test data, which is `input_N.pb` and
//! `output_N.pb` by the order of the model.

use std::collections::BTreeMap;
use std::path::Path;

use ansc_runtime::manifest::Port;
use ansc_runtime::{Model, Tensor};

use crate::Error;
use crate::verbs::{file_names, read_tensor};

/// The values of a folder.
pub(super) struct Folder {
    pub(super) inputs: BTreeMap<String, Tensor>,
    /// The results that were recorded, in the model's order, if there are any.
    pub(super) outputs: Option<Vec<Tensor>>,
}

/// Reads what there is, but at least one input or a full record.
pub(super) fn read(folder: &Path, model: &Model) -> Result<Folder, Error> {
    let inputs = inputs(folder, model)?;
    let outputs = outputs(folder, model)?;
    if inputs.is_empty() && outputs.is_none() {
        let arrays = array_names(model.inputs());
        let reason = format!("has none of {}, and no input_0.pb", arrays.join(", "));
        return Err(Error::file(folder, reason));
    }
    Ok(Folder { inputs, outputs })
}

fn array_names(ports: &[Port]) -> Vec<String> {
    let names = file_names(ports.iter().map(|port| port.name.as_str()));
    names.iter().map(|name| format!("{name}.npy")).collect()
}

/// An array goes before ONNX's own file.
fn inputs(folder: &Path, model: &Model) -> Result<BTreeMap<String, Tensor>, Error> {
    let mut all = BTreeMap::new();
    for (i, (port, array)) in model.inputs().iter().zip(array_names(model.inputs())).enumerate() {
        let files = [folder.join(array), folder.join(format!("input_{i}.pb"))];
        if let Some(path) = files.iter().find(|path| path.exists()) {
            all.insert(port.name.clone(), read_tensor(path)?);
        }
    }
    Ok(all)
}

/// All outputs or none.
fn outputs(folder: &Path, model: &Model) -> Result<Option<Vec<Tensor>>, Error> {
    let path = |i: usize| folder.join(format!("output_{i}.pb"));
    let count = model.outputs().len();
    let Some(there) = (0..count).find(|&i| path(i).exists()) else { return Ok(None) };
    if let Some(missing) = (0..count).find(|&i| !path(i).exists()) {
        let name = &model.outputs()[missing].name;
        let reason = format!("has output_{there}.pb, but no output_{missing}.pb for `{name}`");
        return Err(Error::file(folder, reason));
    }
    (0..count).map(|i| read_tensor(&path(i))).collect::<Result<_, _>>().map(Some)
}
