//! The nodes of a model that can compute with integers, and which of them do if some products do.
//!
//! Products are chosen. Everything else follows: bytes flow from product to product, through
//! whatever stands between. A node that is no product computes with integers if all readers of its
//! results do.
//!
//! ```text
//! Conv -> Add -> Relu -> Conv        all of them: the Add is read by a product alone
//! MatMul -> Add -> LayerNormalization    the MatMul only: the norm reads all bits of the Add
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tract_onnx::pb::{AttributeProto, NodeProto};

use super::draft::{Draft, float, int, is_onnx};
use crate::order::{node_reads, subgraphs};
use crate::problem::Problem;

/// How a node handles integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It multiplies and adds up.
    Product,
    /// It computes with what products make: sums of two activations, averages, sigmoids.
    Arithmetic,
    /// Its results are elements of its input, and have the same scaling.
    Movement,
    /// It cuts off a range. Right after the only product that it reads, nothing is rounded between.
    Clip,
}

/// A node that can compute with integers.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// Its name, or that of its first output.
    pub name: String,
    pub op: String,
    pub role: Role,
    /// Inputs that are quantised, by position: no constants.
    pub data: Vec<(usize, String)>,
    /// Constants that a product multiplies with: its weight, and the axis of output channels.
    pub weight: Option<Weight>,
    pub outputs: Vec<String>,
}

/// The constant operand of a product.
#[derive(Clone, PartialEq, Debug)]
pub struct Weight {
    pub input: usize,
    pub name: String,
    /// None if output channels are no axis of their own.
    pub axis: Option<usize>,
}

/// All candidates of a model, in its order, and who reads what.
pub struct Survey {
    pub candidates: Vec<Candidate>,
    /// Candidates that read a tensor; nothing for a reader that is none.
    readers: HashMap<String, Vec<Option<usize>>>,
    makers: HashMap<String, usize>,
    /// Candidates that turned out to be none.
    left_out: HashSet<usize>,
}

/// The nodes and tensors that a choice of products affects.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Chosen {
    /// Nodes that compute with integers.
    pub nodes: BTreeSet<String>,
    /// Tensors that are quantised, and the tensor whose range decides the scaling.
    pub tensors: BTreeMap<String, String>,
}

impl Survey {
    pub(super) fn of(draft: &Draft) -> Result<Survey, Problem> {
        let (mut candidates, mut readers, mut makers) = (vec![], HashMap::new(), HashMap::new());
        let mut names = HashSet::new();
        for node in &draft.graph.node {
            let name = key(node, &mut names);
            let candidate = candidate(draft, node, name)?;
            let index = candidate.as_ref().map(|_| candidates.len());
            let data = candidate.iter().flat_map(|c| &c.data).map(|(i, _)| *i);
            let data: HashSet<usize> = data.collect();
            for (i, input) in node.input.iter().enumerate() {
                let by = index.filter(|_| data.contains(&i));
                readers.entry(input.clone()).or_insert_with(Vec::new).push(by);
            }
            for inner in subgraphs(node).flat_map(|_| node_reads(node)) {
                readers.entry(inner.to_owned()).or_insert_with(Vec::new).push(None);
            }
            if let Some(index) = index {
                makers.extend(node.output.iter().map(|output| (output.clone(), index)));
            }
            candidates.extend(candidate);
        }
        for output in &draft.graph.output {
            readers.entry(output.name.clone()).or_default().push(None);
        }
        Ok(Survey { candidates, readers, makers, left_out: HashSet::new() })
    }

    /// The products, which may be chosen.
    pub fn products(&self) -> impl Iterator<Item = &Candidate> {
        let candidates = self.candidates.iter().enumerate();
        let left = candidates.filter(|(i, _)| !self.left_out.contains(i)).map(|(_, c)| c);
        left.filter(|c| c.role == Role::Product)
    }

    /// Leaves out what reads these tensors, which are no `f32`.
    pub fn leave_out(&mut self, tensors: &BTreeSet<String>) {
        let reads = |c: &Candidate| c.data.iter().any(|(_, name)| tensors.contains(name));
        let found = self.candidates.iter().enumerate().filter(|(_, c)| reads(c)).map(|(i, _)| i);
        self.left_out.extend(found);
    }

    /// All tensors that some choice quantises.
    pub fn tensors(&self) -> BTreeSet<&str> {
        let data = self.candidates.iter().flat_map(|c| &c.data);
        data.map(|(_, name)| name.as_str()).collect()
    }

    /// The nodes and tensors that are affected if these products compute with integers.
    pub fn chosen(&self, products: &BTreeSet<String>) -> Chosen {
        let may = |c: &Candidate| c.role != Role::Product || products.contains(&c.name);
        let candidates = self.candidates.iter().enumerate();
        let mut is_in: Vec<bool> =
            candidates.map(|(i, c)| may(c) && !self.left_out.contains(&i)).collect();
        // The largest set in which each node has its reason to be.
        while let Some(out) = (0..is_in.len()).find(|&i| is_in[i] && !self.belongs(i, &is_in)) {
            is_in[out] = false;
        }
        let chosen = || self.candidates.iter().zip(&is_in).filter(|(_, is_in)| **is_in);
        let read = chosen().filter(|(c, _)| !self.is_inside(c, &is_in)).flat_map(|(c, _)| &c.data);
        let tensors = read.map(|(_, name)| (name.clone(), self.origin(name, &is_in).to_owned()));
        Chosen {
            tensors: tensors.collect(),
            nodes: chosen().map(|(c, _)| c.name.clone()).collect(),
        }
    }

    fn belongs(&self, index: usize, is_in: &[bool]) -> bool {
        let candidate = &self.candidates[index];
        match candidate.role {
            Role::Product => true,
            Role::Movement => self.feeds(candidate, is_in),
            Role::Arithmetic | Role::Clip => {
                let is_there = |(_, name): &(usize, String)| self.is_there(name, is_in);
                self.feeds(candidate, is_in) && candidate.data.iter().all(is_there)
            }
        }
    }

    /// Whether all readers of its results compute with integers.
    fn feeds(&self, candidate: &Candidate, is_in: &[bool]) -> bool {
        let readers = candidate.outputs.iter().flat_map(|name| self.readers(name));
        let mut readers = readers.peekable();
        readers.peek().is_some() && readers.all(|reader| reader.is_some_and(|i| is_in[i]))
    }

    /// Whether a tensor comes as integers, or is made ones for a product anyway.
    fn is_there(&self, name: &str, is_in: &[bool]) -> bool {
        let made = self.makers.get(name).is_some_and(|&i| is_in[i]);
        let product = |i: &usize| is_in[*i] && self.candidates[*i].role == Role::Product;
        made || self.readers(name).flatten().any(|i| product(&i))
    }

    fn readers(&self, name: &str) -> impl Iterator<Item = Option<usize>> {
        self.readers.get(name).into_iter().flatten().copied()
    }

    /// Whether nothing is rounded before the candidate.
    fn is_inside(&self, candidate: &Candidate, is_in: &[bool]) -> bool {
        let mut data = candidate.data.iter();
        candidate.role == Role::Clip
            && data.all(|(_, name)| {
                let made = self
                    .makers
                    .get(name)
                    .is_some_and(|&i| is_in[i] && self.candidates[i].role != Role::Movement);
                made && self.readers(name).count() == 1
            })
    }

    /// The tensor whose range is that of `name`: the one that it was moved from.
    fn origin<'a>(&'a self, name: &'a str, is_in: &[bool]) -> &'a str {
        let mut name = name;
        while let Some(&maker) = self.makers.get(name) {
            let maker_of = &self.candidates[maker];
            if !is_in[maker] || maker_of.role != Role::Movement {
                break;
            }
            name = &maker_of.data[0].1;
        }
        name
    }
}

/// The name of a node that no node before has.
pub(super) fn key(node: &NodeProto, names: &mut HashSet<String>) -> String {
    let first = || node.output.iter().find(|o| !o.is_empty()).cloned().unwrap_or_default();
    match node.name.as_str() {
        "" => first(),
        name if names.insert(name.to_owned()) => name.into(),
        _ => first(),
    }
}

fn candidate(draft: &Draft, node: &NodeProto, name: String) -> Result<Option<Candidate>, Problem> {
    let Some(role) = role(draft, node) else { return Ok(None) };
    let weight = match role {
        Role::Product => match operands(draft, node)? {
            Some(weight) => weight,
            None => return Ok(None),
        },
        _ => None,
    };
    let positions = match role {
        Role::Product if weight.is_some() => vec![0],
        Role::Product => vec![0, 1],
        Role::Arithmetic => (0..node.input.len()).collect(),
        Role::Movement | Role::Clip => vec![0],
    };
    let mut data = vec![];
    for position in positions {
        match node.input.get(position).filter(|name| !name.is_empty()) {
            Some(input) if !draft.is_constant(input) => data.push((position, input.clone())),
            _ => return Ok(None),
        }
    }
    if data.is_empty() {
        return Ok(None);
    }
    let outputs = node.output.iter().filter(|output| !output.is_empty()).cloned().collect();
    Ok(Some(Candidate { name, op: node.op_type.clone(), role, data, weight, outputs }))
}

const PRODUCTS: &[&str] = &["Conv", "ConvTranspose", "Gemm", "MatMul"];
const ARITHMETIC: &[&str] = &[
    "Add",
    "AveragePool",
    "Concat",
    "GlobalAveragePool",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Mul",
    "Sigmoid",
];
const MOVEMENTS: &[&str] = &[
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "MaxPool",
    "Pad",
    "Reshape",
    "Resize",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

fn role(draft: &Draft, node: &NodeProto) -> Option<Role> {
    let any = |ops: &[&str]| ops.iter().any(|op| is_onnx(node, op));
    if any(PRODUCTS) {
        Some(Role::Product)
    } else if any(ARITHMETIC) {
        Some(Role::Arithmetic)
    } else if any(MOVEMENTS) {
        is_movement(draft, node).then_some(Role::Movement)
    } else {
        (any(&["Relu"]) || any(&["Clip"]) && has_bounds(draft, node)).then_some(Role::Clip)
    }
}

/// Whether each result is an element of the input, or zero.
fn is_movement(draft: &Draft, node: &NodeProto) -> bool {
    let text = |a: &AttributeProto| String::from_utf8_lossy(&a.s).into_owned();
    let mode = node.attribute.iter().find(|a| a.name == "mode").map(text);
    let wanted = |i: usize| node.input.get(i).is_some_and(|name| !name.is_empty());
    match node.op_type.as_str() {
        "MaxPool" => node.output.len() == 1,
        "Pad" => mode.is_some_and(|mode| mode != "constant") || !wanted(2),
        "Resize" => mode.is_none_or(|mode| mode == "nearest"),
        // Indices are integers, and so may be what they choose from.
        "Gather" => !draft.is_constant(&node.input[0]),
        _ => true,
    }
}

/// Whether the range that it cuts off is known, and holds zero.
fn has_bounds(draft: &Draft, node: &NodeProto) -> bool {
    let bound = |i: usize, sign: f32| match node.input.get(i).filter(|name| !name.is_empty()) {
        None => true,
        Some(name) => matches!(draft.floats(name), Ok(Some(bound))
            if bound.len() == 1 && bound.as_slice::<f32>()[0] * sign >= 0.0),
    };
    bound(1, -1.0) && bound(2, 1.0)
}

/// The constant operand of a product, if it has one; none at all if it cannot compute with
/// integers.
fn operands(draft: &Draft, node: &NodeProto) -> Result<Option<Option<Weight>>, Problem> {
    let Some(name) = node.input.get(1) else { return Ok(None) };
    let Some(shape) = draft.shape(name).filter(|_| draft.is_constant(name)) else {
        return Ok(is_onnx(node, "MatMul").then_some(None));
    };
    // Only floats have another form.
    if draft.floats(name)?.is_none() {
        return Ok(None);
    }
    let axis = match node.op_type.as_str() {
        "Conv" => Some(0),
        // With groups an output channel is an element of two axes.
        "ConvTranspose" => Some(1).filter(|_| int(node, "group", 1) == 1),
        "Gemm" => {
            let plain = float(node, "alpha", 1.0) == 1.0 && float(node, "beta", 1.0) == 1.0;
            if !plain || int(node, "transA", 0) != 0 {
                return Ok(None);
            }
            Some(if int(node, "transB", 0) == 0 { 1 } else { 0 })
        }
        _ => Some(1).filter(|_| shape.len() == 2),
    };
    let axis = axis.filter(|axis| *axis < shape.len());
    Ok(Some(Some(Weight { input: 1, name: name.clone(), axis })))
}
