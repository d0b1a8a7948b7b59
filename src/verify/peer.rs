//! ONNX Runtime as the reference: in a process of Python, which exchanges `.npy` files with this
//! one.

use std::path::Path;
use std::process::Command;

use ansc_runtime::{Tensor, npy};

use crate::Error;

/// Arguments: the model, a folder, the number of inputs, their names, the names of outputs. It
/// reads `in_N.npy`, and writes `out_N.npy`.
const SCRIPT: &str = "\
import sys
sys.path = [path for path in sys.path if path]
import numpy, onnxruntime
model, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
names, results = sys.argv[4:4 + count], sys.argv[4 + count:]
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(model, options, providers=['CPUExecutionProvider'])
values = {name: numpy.load(f'{folder}/in_{i}.npy') for i, name in enumerate(names)}
wanted = {i.name for i in session.get_inputs()}
outputs = session.run(results, {name: value for name, value in values.items() if name in wanted})
for i, value in enumerate(outputs):
    numpy.save(f'{folder}/out_{i}.npy', numpy.ascontiguousarray(value))
";

/// The outputs of these names.
pub(super) fn onnxruntime(
    python: &Path,
    model: &Path,
    inputs: &[(String, Tensor)],
    outputs: &[&str],
) -> Result<Vec<Tensor>, Error> {
    let folder = tempfile::tempdir().map_err(|e| Error::file(model, e))?;
    for (i, (_, tensor)) in inputs.iter().enumerate() {
        npy::write(folder.path().join(format!("in_{i}.npy")), tensor)?;
    }
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).arg(model).arg(folder.path()).arg(inputs.len().to_string());
    command.args(inputs.iter().map(|(name, _)| name)).args(outputs);
    let output = command.output().map_err(|e| {
        let python = python.display();
        Error::Machine(format!("`{python}` does not start: {e}; `--python PROGRAM` names another"))
    })?;
    if !output.status.success() {
        return Err(failed(python, model, &String::from_utf8_lossy(&output.stderr)));
    }
    let read = |i| Ok(npy::read(folder.path().join(format!("out_{i}.npy")))?);
    (0..outputs.len()).map(read).collect()
}

/// The last line that Python printed says why.
fn failed(python: &Path, model: &Path, stderr: &str) -> Error {
    let python = python.display();
    if ["ModuleNotFoundError", "ImportError"].iter().any(|error| stderr.contains(error)) {
        return Error::Machine(format!(
            "`{python}` has no ONNX Runtime: `{python} -m pip install onnxruntime` installs it, \
             or `--python PROGRAM` names one that has it"
        ));
    }
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason");
    Error::file(model, format!("ONNX Runtime cannot run it: {last}"))
}
