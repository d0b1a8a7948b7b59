//! A model that is being rewritten: its graph, its constants by name, and names that are free.

use std::collections::{HashMap, HashSet};

use ansc_graph::text::unused;
use ansc_runtime::{DType, Tensor};
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};

use crate::external::External;
use crate::memory::Memory;
use crate::opsets::{canonical_domain, versions};
use crate::order::{definitions, subgraphs};
use crate::problem::Problem;
use crate::read::Model;
use crate::tensor_type::{dtype, extents, is_external};
use crate::{nibbles, tensor};

/// The first version whose scales may lie along an axis.
const OPSET: i64 = 13;

pub(super) struct Draft {
    proto: ModelProto,
    pub(super) graph: GraphProto,
    external: External,
    memory: Memory,
    constants: HashMap<String, Place>,
    names: HashSet<String>,
}

/// Where a constant stands.
#[derive(Clone, Copy)]
enum Place {
    Initializer(usize),
    Node(usize),
}

impl Draft {
    /// A model of floats that knows the operators of quantisation, with batch norms folded.
    pub(super) fn new(model: &Model, external: External) -> Result<Draft, Problem> {
        let mut proto = model.proto.clone();
        let graph = proto.graph.take().ok_or_else(|| Problem::new("the file holds no graph"))?;
        if versions(&proto.opset_import).get("").is_none_or(|version| *version < OPSET) {
            let reason = format!("only a model of opset {OPSET} or later can be quantised");
            let remedy = "convert it: onnx.version_converter.convert_version(model, 17)";
            return Err(Problem::new(reason).remedy(remedy));
        }
        if !model.containers.is_empty() {
            let reason = "it has inputs that are no tensors, and only tensors can be quantised";
            return Err(Problem::new(reason));
        }
        if let Some(node) = graph.node.iter().find(|node| is_quantised(node)) {
            let reason = format!("it is quantised already: it has the operator {}", node.op_type);
            return Err(Problem::new(reason).remedy("quantise the model of floats it was made of"));
        }
        let memory = Memory::for_file(model.bytes);
        let (constants, names) = (HashMap::new(), HashSet::new());
        let mut draft = Draft { proto, graph, external, memory, constants, names };
        draft.index();
        super::batch_norm::fold(&mut draft)?;
        Ok(draft)
    }

    /// Notes anew where constants stand and which names are taken.
    pub(super) fn index(&mut self) {
        let initializers = self.graph.initializer.iter().enumerate();
        let initializers = initializers.map(|(i, t)| (t.name.clone(), Place::Initializer(i)));
        let nodes = self.graph.node.iter().enumerate().filter(|(_, node)| is_constant(node));
        let nodes = nodes.map(|(i, node)| (node.output[0].clone(), Place::Node(i)));
        self.constants = initializers.chain(nodes).collect();
        self.names = definitions(&self.graph).map(str::to_owned).collect();
        self.names.extend(self.graph.node.iter().map(|node| node.name.clone()));
        let inner = self.graph.node.iter().flat_map(subgraphs).flat_map(all_definitions);
        self.names.extend(inner);
    }

    /// Whether the model knows the value of a tensor.
    pub(super) fn is_constant(&self, name: &str) -> bool {
        self.constants.contains_key(name)
    }

    pub(super) fn shape(&self, name: &str) -> Option<Vec<usize>> {
        extents(&self.constant_proto(name)?.dims).ok()
    }

    /// The value of a constant of `f32`; none if it is no such.
    pub(super) fn floats(&self, name: &str) -> Result<Option<Tensor>, Problem> {
        let Some(proto) = self.constant_proto(name) else { return Ok(None) };
        if dtype(proto.data_type) != Ok(DType::F32) {
            return Ok(None);
        }
        let decoded = tensor::decode(proto, &self.external, &self.memory);
        decoded.map(Some).map_err(|reason| Problem::new(format!("tensor `{name}`: {reason}")))
    }

    fn constant_proto(&self, name: &str) -> Option<&TensorProto> {
        match *self.constants.get(name)? {
            Place::Initializer(i) => self.graph.initializer.get(i),
            Place::Node(i) => value(self.graph.node.get(i)?),
        }
    }

    /// `wanted`, or with a number behind it where that is taken.
    pub(super) fn fresh(&mut self, wanted: &str) -> String {
        let name = unused(wanted, |name| self.names.contains(name));
        self.names.insert(name.clone());
        name
    }

    /// Adds a constant; gives its name.
    pub(super) fn add(&mut self, wanted: &str, value: &Tensor) -> String {
        let name = self.fresh(wanted);
        self.graph.initializer.push(tensor::encode(&name, value));
        name
    }

    /// Takes away constants that nothing reads any more, and what was said of tensors that are
    /// gone.
    fn sweep(&mut self) {
        let mut read: HashSet<String> = self.graph.output.iter().map(|o| o.name.clone()).collect();
        read.extend(self.graph.input.iter().map(|input| input.name.clone()));
        for node in &self.graph.node {
            read.extend(crate::order::node_reads(node).into_iter().map(str::to_owned));
        }
        self.graph.node.retain(|node| !is_constant(node) || read.contains(&node.output[0]));
        self.graph.initializer.retain(|tensor| read.contains(&tensor.name));
        let known: HashSet<String> = definitions(&self.graph).map(str::to_owned).collect();
        self.graph.value_info.retain(|v| known.contains(&v.name) && v.r#type.is_some());
    }

    /// Takes constants of other files into the model.
    pub(super) fn embed(&mut self) -> Result<(), Problem> {
        self.sweep();
        let mut graph = std::mem::take(&mut self.graph);
        let mut functions = std::mem::take(&mut self.proto.functions);
        let mut tensors = vec![];
        collect(&mut graph, &mut tensors);
        functions.iter_mut().flat_map(|f| &mut f.node).for_each(|n| within(n, &mut tensors));
        for proto in tensors {
            if !is_external(proto) {
                continue;
            }
            let problem =
                |reason: String| Problem::new(format!("tensor `{}`: {reason}", proto.name));
            if nibbles::wide(proto.data_type).is_some() {
                let reason = "elements of 4 bits in a file of their own cannot be taken along";
                return Err(problem(reason.into()).remedy("store the weights inside the model"));
            }
            let value = tensor::decode(proto, &self.external, &self.memory).map_err(problem)?;
            *proto = tensor::encode(&proto.name, &value);
        }
        (self.graph, self.proto.functions) = (graph, functions);
        Ok(())
    }

    pub(super) fn finish(mut self) -> ModelProto {
        self.sweep();
        self.proto.graph = Some(self.graph);
        self.proto
    }
}

fn is_quantised(node: &NodeProto) -> bool {
    node.op_type.starts_with("QLinear")
        || ["QuantizeLinear", "DequantizeLinear"].contains(&node.op_type.as_str())
}

fn is_constant(node: &NodeProto) -> bool {
    is_onnx(node, "Constant") && value(node).is_some()
}

fn value(node: &NodeProto) -> Option<&TensorProto> {
    node.attribute.iter().find(|a| a.name == "value")?.t.as_ref()
}

/// Whether it is that operator of ONNX's own.
pub(super) fn is_onnx(node: &NodeProto, op: &str) -> bool {
    canonical_domain(&node.domain).is_empty() && node.op_type == op
}

pub(super) fn int(node: &NodeProto, name: &str, default: i64) -> i64 {
    node.attribute.iter().find(|a| a.name == name).map_or(default, |a| a.i)
}

pub(super) fn float(node: &NodeProto, name: &str, default: f32) -> f32 {
    node.attribute.iter().find(|a| a.name == name).map_or(default, |a| a.f)
}

pub(super) fn node(op: &str, name: String, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        name,
        input: inputs.iter().map(|&input| input.into()).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    }
}

pub(super) fn int_attribute(name: &str, i: i64) -> AttributeProto {
    let r#type = AttributeType::Int as i32;
    AttributeProto { name: name.into(), i, r#type, ..AttributeProto::default() }
}

fn all_definitions(graph: &GraphProto) -> Vec<String> {
    let inner = graph.node.iter().flat_map(subgraphs).flat_map(all_definitions);
    definitions(graph).map(str::to_owned).chain(inner).collect()
}

/// All tensors of a graph and of those inside.
fn collect<'g>(graph: &'g mut GraphProto, all: &mut Vec<&'g mut TensorProto>) {
    all.extend(&mut graph.initializer);
    graph.node.iter_mut().for_each(|node| within(node, all));
}

fn within<'g>(node: &'g mut NodeProto, all: &mut Vec<&'g mut TensorProto>) {
    for attribute in &mut node.attribute {
        all.extend(attribute.t.iter_mut().chain(&mut attribute.tensors));
        attribute.g.iter_mut().chain(&mut attribute.graphs).for_each(|g| collect(g, all));
    }
}
