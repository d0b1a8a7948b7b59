//! The native module of the Python packages `ansc` and `ansc_runtime`.
//!
//! `ansc_runtime` is `model` and `session` alone. `ansc` adds `compiler`, which runs the verbs of
//! the command in this process.

#![deny(missing_docs)]

mod array;
#[cfg(feature = "compiler")]
mod compiler;
mod dlpack;
mod dtype;
mod error;
mod model;
mod session;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::add(module)?;
    model::add(module)?;
    #[cfg(feature = "compiler")]
    compiler::add(module)?;
    name_the_package(module)
}

/// Classes say that they are of the package, for that is where users find them.
fn name_the_package(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let full = module.name()?.to_string();
    let package = full.rsplit_once('.').map_or(full.as_str(), |(package, _)| package);
    for (_, item) in module.dict() {
        if let Ok(class) = item.cast::<pyo3::types::PyType>() {
            class.setattr("__module__", package)?;
        }
    }
    Ok(())
}
