//! ONNX Runtime as the reference: in a process of Python, which exchanges `.npy` files with this one.

use std::path::Path;
use std::process::Command;

use ansc_runtime::{Tensor, npy};

use crate::Error;

/// Reads `in_N.npy` by the names in its arguments, and writes `out_N.npy`.
const SCRIPT: &str = "\
import sys, numpy, onnxruntime
model, folder, names = sys.argv[1], sys.argv[2], sys.argv[3:]
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(model, options, providers=['CPUExecutionProvider'])
values = {name: numpy.load(f'{folder}/in_{i}.npy') for i, name in enumerate(names)}
wanted = {i.name for i in session.get_inputs()}
outputs = session.run(None, {name: value for name, value in values.items() if name in wanted})
for i, value in enumerate(outputs):
    numpy.save(f'{folder}/out_{i}.npy', numpy.ascontiguousarray(value))
";

/// The model's outputs in its order, of which there are `count`.
pub(super) fn onnxruntime(
    python: &Path,
    model: &Path,
    inputs: &[(String, Tensor)],
    count: usize,
) -> Result<Vec<Tensor>, Error> {
    let folder = tempfile::tempdir().map_err(|e| Error::file(model, e))?;
    for (i, (_, tensor)) in inputs.iter().enumerate() {
        npy::write(folder.path().join(format!("in_{i}.npy")), tensor)?;
    }
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).arg(model).arg(folder.path());
    command.args(inputs.iter().map(|(name, _)| name));
    let output = command.output().map_err(|e| {
        let python = python.display();
        Error::Machine(format!("`{python}` does not start: {e}; `--python PROGRAM` names another"))
    })?;
    if !output.status.success() {
        return Err(failed(python, model, &String::from_utf8_lossy(&output.stderr)));
    }
    let read = |i| Ok(npy::read(folder.path().join(format!("out_{i}.npy")))?);
    (0..count).map(read).collect()
}

/// What Python said last is why.
fn failed(python: &Path, model: &Path, stderr: &str) -> Error {
    let python = python.display();
    if stderr.contains("ModuleNotFoundError") {
        return Error::Machine(format!(
            "`{python}` has no ONNX Runtime: `{python} -m pip install onnxruntime` installs it, \
             or `--python PROGRAM` names one that has it"
        ));
    }
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason");
    Error::file(model, format!("ONNX Runtime cannot run it: {last}"))
}
