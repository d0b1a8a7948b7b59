//! The declared types of inputs that are no plain tensors: sequences, optional values, and what is
//! in them.
//!
//! The protobuf types that we take from tract leave these out; a second look at the file reads only
//! them.

use std::collections::BTreeMap;

use prost::Message;
use tract_onnx::pb::type_proto::Tensor;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Model {
    #[prost(message, optional, tag = "7")]
    pub(crate) graph: Option<Graph>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Graph {
    #[prost(message, repeated, tag = "11")]
    pub(crate) input: Vec<Info>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Info {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) r#type: Option<Type>,
}

/// One of these; none is a map or a sparse tensor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Type {
    #[prost(message, optional, tag = "1")]
    pub(crate) tensor: Option<Tensor>,
    #[prost(message, optional, boxed, tag = "4")]
    pub(crate) sequence: Option<Box<Of>>,
    #[prost(message, optional, boxed, tag = "9")]
    pub(crate) optional: Option<Box<Of>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Of {
    #[prost(message, optional, boxed, tag = "1")]
    pub(crate) element: Option<Box<Type>>,
}

/// Types by input, of those that are no tensors.
pub(crate) type Containers = BTreeMap<String, Type>;

/// The types of the inputs that are no tensors, from the bytes of a model file. There are none if
/// the bytes cannot be decoded.
pub(crate) fn read(data: &[u8]) -> Containers {
    let graph = Model::decode(data).ok().and_then(|model| model.graph).unwrap_or_default();
    let typed = graph.input.into_iter().filter_map(|info| Some((info.name, info.r#type?)));
    typed.filter(|(_, ty)| ty.tensor.is_none()).collect()
}
