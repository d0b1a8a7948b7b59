//! Loading artifacts, and what they say about themselves.

use std::path::PathBuf;
use std::time::Duration;

use ansc_runtime::manifest::{self, Specialisation};
use ansc_runtime::{LoadOptions, Model, SessionOptions};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::session::PySession;
use crate::{dtype, error};

/// Adds the classes and `load` to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPort>()?;
    module.add_class::<PySpecialisation>()?;
    module.add_class::<PyModel>()?;
    module.add_class::<PySession>()?;
    module.add_function(wrap_pyfunction!(load, module)?)
}

/// Loads an artifact from a file, or from bytes.
///
/// An artifact is native code: load only what you would run as a program. Weights of 16 MiB or more
/// are copied to large pages, which makes reading them faster; with `share_weights` they stay in
/// the pages of the file, which processes share.
#[pyfunction]
#[pyo3(signature = (artifact, /, *, share_weights = false))]
fn load(py: Python<'_>, artifact: &Bound<'_, PyAny>, share_weights: bool) -> PyResult<PyModel> {
    let model = match artifact.cast::<PyBytes>() {
        Ok(bytes) => {
            let bytes = bytes.as_bytes();
            py.detach(|| Model::from_bytes(bytes))
        }
        Err(_) => {
            let path: PathBuf = artifact.extract()?;
            py.detach(|| Model::load_with(path, &LoadOptions { share_weights }))
        }
    };
    Ok(PyModel { model: model.map_err(error::load)? })
}

/// An input, output or state of a model.
#[pyclass(name = "Port", frozen)]
pub(crate) struct PyPort {
    port: manifest::Port,
}

#[pymethods]
impl PyPort {
    /// The name, by which runs take or give the value.
    #[getter]
    fn name(&self) -> &str {
        &self.port.name
    }

    /// The type of its elements, as NumPy names it: `float32`, `int64`, `bool`, `bfloat16`.
    #[getter]
    fn dtype(&self) -> &'static str {
        dtype::name(self.port.dtype)
    }

    /// The extents; the largest possible ones, where the data or the shapes of a run decide, and
    /// for a state.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.port.shape)
    }

    /// Whether the value of this input was fixed when the model was compiled, so that runs need not
    /// give it.
    #[getter]
    fn is_bound(&self) -> bool {
        self.port.bound.is_some()
    }

    fn __repr__(&self) -> String {
        let (name, dtype) = (&self.port.name, self.dtype());
        format!("Port({name:?}, {dtype}, {:?})", self.port.shape)
    }
}

/// Ports, for Python.
pub(crate) fn ports<'a>(all: impl IntoIterator<Item = &'a manifest::Port>) -> Vec<PyPort> {
    all.into_iter().map(|port| PyPort { port: port.clone() }).collect()
}

/// One of the sets of shapes that a model was compiled for.
#[pyclass(name = "Specialisation", frozen)]
struct PySpecialisation {
    specialisation: Specialisation,
}

#[pymethods]
impl PySpecialisation {
    /// As in `batch=4`; empty if there is nothing to choose.
    #[getter]
    fn name(&self) -> &str {
        &self.specialisation.name
    }

    /// The inputs, in the model's order.
    #[getter]
    fn inputs(&self) -> Vec<PyPort> {
        ports(&self.specialisation.inputs)
    }

    /// The outputs, in the model's order.
    #[getter]
    fn outputs(&self) -> Vec<PyPort> {
        ports(&self.specialisation.outputs)
    }

    fn __repr__(&self) -> String {
        format!("Specialisation({:?})", self.specialisation.name)
    }
}

/// A loaded model. It never changes; all threads may use it.
#[pyclass(name = "Model", frozen)]
struct PyModel {
    model: Model,
}

#[pymethods]
impl PyModel {
    /// The name of the ONNX file that it was compiled from.
    #[getter]
    fn name(&self) -> &str {
        &self.model.manifest().model.name
    }

    /// The inputs, with the shapes of the first specialisation.
    #[getter]
    fn inputs(&self) -> Vec<PyPort> {
        ports(self.model.inputs())
    }

    /// The outputs, with the shapes of the first specialisation.
    #[getter]
    fn outputs(&self) -> Vec<PyPort> {
        ports(self.model.outputs())
    }

    /// The sets of shapes that it was compiled for, at least one. Each run takes the one that its
    /// inputs fit. One for a range of sizes has the shapes for the largest ones.
    #[getter]
    fn specialisations(&self) -> Vec<PySpecialisation> {
        let all = self.model.specialisations().iter();
        all.map(|one| PySpecialisation { specialisation: one.clone() }).collect()
    }

    /// A session with memory and threads of its own.
    ///
    /// `threads` run a kernel, the calling one included; 0 takes all cores. `cores` are those that
    /// threads are pinned to. Idle threads look for work for `spin` seconds before they sleep.
    /// `keep_denormals` computes with numbers below the smallest normal one, which is slow; else
    /// they are zeros.
    #[pyo3(signature = (*, threads=0, cores=vec![], spin=None, keep_denormals=false))]
    fn session(
        &self,
        py: Python<'_>,
        threads: usize,
        cores: Vec<usize>,
        spin: Option<f64>,
        keep_denormals: bool,
    ) -> PyResult<PySession> {
        let spin = spin.map(Duration::try_from_secs_f64).transpose();
        let spin = spin.map_err(|e| error::usage(format!("spin: {e}")))?;
        let options = SessionOptions {
            threads,
            spin,
            affinity: cores,
            keep_denormals,
            ..SessionOptions::default()
        };
        let made = py.detach(|| self.model.session_with(&options));
        Ok(PySession::new(py, self.model.clone(), made.map_err(error::session)?))
    }

    fn __repr__(&self) -> String {
        format!("Model({:?})", self.name())
    }
}
