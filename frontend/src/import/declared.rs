//! The declarations of a model, before anything is fixed.
//!
//! In: a file. Out: its producer, opsets and size, and its inputs and outputs with the names of
//! open dimensions. A user reads them to learn which `--dim`, `--shape` and `--value` to give.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use ansc_runtime::DType;
use serde::Serialize;
use tract_onnx::pb::{GraphProto, ModelProto, ValueInfoProto};

use crate::opsets::opsets;
use crate::problem::{ImportError, Problem};
use crate::read::{self, Model};
use crate::tensor_type::{checked_bytes, dtype};
use crate::walk::{Dim, ImportOptions, Kind, declaration, dim, required};

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Declared {
    /// The program that wrote it, as it says.
    pub producer: String,
    /// Version by domain; ONNX's own is "".
    pub opsets: BTreeMap<String, i64>,
    pub nodes: usize,
    pub weights: usize,
    pub weight_bytes: usize,
    pub inputs: Vec<DeclaredPort>,
    pub outputs: Vec<DeclaredPort>,
}

/// An input or output.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeclaredPort {
    pub name: String,
    /// The kind of a port that is no tensor: a `sequence` of tensors, an `optional` tensor, or
    /// both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// None where the model does not say.
    pub dtype: Option<DType>,
    /// Numbers, names of open dimensions, and `?` for those without a name; none of any rank.
    pub shape: Option<Vec<Dim>>,
}

impl DeclaredPort {
    /// Whether something is left to be fixed.
    pub fn is_open(&self) -> bool {
        let open = |shape: &Vec<Dim>| shape.iter().any(|dim| !matches!(dim, Dim::Known(_)));
        self.shape.as_ref().is_none_or(open)
    }

    fn of(info: &ValueInfoProto, model: &Model) -> DeclaredPort {
        let unknown =
            || DeclaredPort { name: info.name.clone(), kind: None, dtype: None, shape: None };
        let container = model.containers.get(&info.name);
        let Ok((kind, tensor)) = declaration(info, container) else { return unknown() };
        let kind = match kind {
            Kind::Tensor => None,
            Kind::Sequence => Some("sequence"),
            Kind::Optional => Some("optional"),
            Kind::OptionalSequence => Some("optional sequence"),
        };
        let dims = tensor.shape.as_ref().map(|s| s.dim.iter().map(dim).collect());
        let shape = dims.and_then(Result::ok);
        DeclaredPort { kind, dtype: dtype(tensor.elem_type).ok(), shape, ..unknown() }
    }
}

impl fmt::Display for DeclaredPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match self.kind {
            Some("optional") => f.write_str("optional ")?,
            Some(kind) => write!(f, "{kind} of ")?,
            None => {}
        }
        match self.dtype {
            Some(dtype) => write!(f, "{dtype}")?,
            None => f.write_str("not declared")?,
        }
        let Some(shape) = &self.shape else {
            return if self.dtype.is_some() { f.write_str(" of any rank") } else { Ok(()) };
        };
        let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
        write!(f, " [{}]", dims.join(", "))
    }
}

/// The declarations of the model in a file.
pub fn declared(path: impl AsRef<Path>) -> Result<Declared, ImportError> {
    let path = path.as_ref();
    let read = read::file(path).and_then(|model| of(&model));
    read.map_err(|p| ImportError { file: path.display().to_string(), problems: vec![p] })
}

pub(super) fn of(model: &Model) -> Result<Declared, Problem> {
    let proto: &ModelProto = &model.proto;
    let graph = proto.graph.as_ref().ok_or_else(|| Problem::new("the file holds no graph"))?;
    let port = |info: &ValueInfoProto| DeclaredPort::of(info, model);
    let required = required(proto, &ImportOptions::default());
    Ok(Declared {
        producer: format!("{} {}", proto.producer_name, proto.producer_version).trim().into(),
        opsets: (*opsets(&proto.opset_import)).clone(),
        nodes: graph.node.len(),
        weights: graph.initializer.len(),
        weight_bytes: weight_bytes(graph),
        inputs: required.into_iter().map(port).collect(),
        outputs: graph.output.iter().map(port).collect(),
    })
}

fn weight_bytes(graph: &GraphProto) -> usize {
    let each = graph.initializer.iter().filter_map(|tensor| {
        let shape: Option<Vec<usize>> =
            tensor.dims.iter().map(|&d| usize::try_from(d).ok()).collect();
        checked_bytes(dtype(tensor.data_type).ok()?, &shape?).ok()
    });
    each.fold(0, usize::saturating_add)
}
