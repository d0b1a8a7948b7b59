//! ONNX model to graph.
//!
//! In: a file, and what the user fixed for this compilation. Out: a graph with static shapes, whose
//! constants are folded as far as shapes depend on them, or all problems at once. After a node that
//! cannot be imported its outputs are *poisoned*: nodes that read them are skipped without
//! a word, so that only root causes are reported.

mod attributes;
mod build;
mod constants;
pub(crate) mod containers;
mod context;
mod cut;
mod data;
mod deciding;
mod declared;
mod fold;
mod function;
mod inputs;
mod memory;
mod options;
mod problems;
mod report;
mod scope;
mod subgraph;
#[cfg(test)]
mod tests;
mod unfold;
mod unsupported;

use std::path::Path;

use ansc_graph::Graph;
pub(crate) use build::{Importer, canonical_domain, versions};
pub(crate) use context::NodeCtx;
pub use declared::{Declared, DeclaredPort, declared};
pub use inputs::Dim;
pub(crate) use inputs::MAX_ELEMENTS;
pub(crate) use memory::Memory;
pub use options::ImportOptions;
pub(crate) use problems::Problems;
pub use report::{OperatorCount, Report};
pub(crate) use scope::Binding;
pub(crate) use subgraph::{Body, nameless};

use containers::Containers;

use crate::external::External;
pub use crate::problem::{ImportError, Problem};
use crate::read::Model;
use crate::{qdq, read, validate};

/// Imports the model in a file.
pub fn load(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Graph, ImportError> {
    let path = path.as_ref();
    read::file(path)
        .map_err(|problem| vec![problem])
        .and_then(|model| model_graph(&model, path.parent(), options))
        .map_err(|problems| ImportError { file: path.display().to_string(), problems })
}

/// Imports a model from memory; its external data is looked for in `directory`.
pub fn from_bytes(
    data: &[u8],
    directory: Option<&Path>,
    options: &ImportOptions,
) -> Result<Graph, ImportError> {
    read::bytes(data)
        .map_err(|problem| vec![problem])
        .and_then(|model| model_graph(&model, directory, options))
        .map_err(|problems| ImportError { file: "<memory>".into(), problems })
}

/// Everything that stands in the way of compiling a model, and the operators that it consists of.
pub fn check(path: impl AsRef<Path>, options: &ImportOptions) -> Report {
    let path = path.as_ref();
    let file = path.display().to_string();
    match read::file(path) {
        Err(problem) => Report { problems: vec![problem], ..Report::unreadable(file) },
        Ok(model) => {
            let problems = model_graph(&model, path.parent(), options).err().unwrap_or_default();
            Report { problems, ..Report::of(file, &model.proto) }
        }
    }
}

fn model_graph(
    model: &Model,
    directory: Option<&Path>,
    options: &ImportOptions,
) -> Result<Graph, Vec<Problem>> {
    let problems = validate::model(&model.proto);
    if !problems.is_empty() {
        return Err(problems);
    }
    let quantised = match &options.quantization {
        None => None,
        Some(how) => {
            let proto = qdq::quantized(model, directory, how).map_err(|problem| vec![problem])?;
            let containers = Containers::default();
            Some(Model { proto, bytes: model.bytes, containers })
        }
    };
    let model = quantised.as_ref().unwrap_or(model);
    Importer::new(model, External::beside(directory)).run(model, options)
}
