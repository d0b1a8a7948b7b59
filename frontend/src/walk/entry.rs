//! Operators as the walk must know them.

use ansc_graph::ValueId;

use super::context::NodeCtx;
use super::scope::Binding;
use crate::problem::Problem;

/// One ONNX operator.
pub(crate) struct OpEntry {
    /// "" for ONNX's own, "com.microsoft", or "ai.onnx.preview.training".
    pub(crate) domain: &'static str,
    pub(crate) name: &'static str,
    /// The first opset version whose semantics are supported.
    pub(crate) since: i64,
    pub(crate) import: Import,
}

/// Gives one value per output that the node declares; trailing ones may be left out.
pub(crate) type ImportFn = fn(&mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem>;

/// The same for operators that take or give sequences and optional values.
pub(crate) type BindingFn = fn(&mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem>;

#[derive(Clone, Copy)]
pub(crate) enum Import {
    Tensors(ImportFn),
    Any(BindingFn),
}

impl Import {
    pub(crate) fn run(self, ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
        match self {
            Import::Tensors(import) => {
                ctx.no_sequences()?;
                let outputs = import(ctx)?;
                Ok(ctx.bound(outputs))
            }
            Import::Any(import) => import(ctx),
        }
    }
}

impl OpEntry {
    /// An operator of ONNX's own domain.
    pub(crate) const fn onnx(name: &'static str, since: i64, import: ImportFn) -> OpEntry {
        OpEntry { domain: "", name, since, import: Import::Tensors(import) }
    }

    /// One of ONNX's own domain that takes or gives more than tensors.
    pub(crate) const fn any(name: &'static str, since: i64, import: BindingFn) -> OpEntry {
        OpEntry { domain: "", name, since, import: Import::Any(import) }
    }

    /// An operator of the domain of ONNX Runtime's own operators.
    pub(crate) const fn microsoft(name: &'static str, import: ImportFn) -> OpEntry {
        OpEntry { domain: "com.microsoft", name, since: 1, import: Import::Tensors(import) }
    }

    /// An operator of ONNX's domain for training.
    pub(crate) const fn training(name: &'static str, import: ImportFn) -> OpEntry {
        let domain = "ai.onnx.preview.training";
        OpEntry { domain, name, since: 1, import: Import::Tensors(import) }
    }
}

/// The entry of an operator by its domain and name, if it can be imported.
pub(crate) type Lookup = fn(&str, &str) -> Option<&'static OpEntry>;
