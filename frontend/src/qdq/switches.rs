//! One model of floats in which each product reads its operands in any of several precisions.
//!
//! ```text
//! MatMul(x, w)   ->   MatMul(Where(s, Dequantize(Quantize(x)), x), Where(s, Dequantize(w: i8), w))
//! ```
//!
//! The switch `s` is an input of the model. What a choice of precisions costs in accuracy is
//! measured by runs of one compiled model, not by compiling each choice.

use std::collections::{BTreeMap, HashMap, HashSet};

use ansc_runtime::{DType, Scaling};
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::{NodeProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto};

use super::draft::{Draft, int_attribute, node};
use super::integers;
use super::pairs::{dequantise, pair};
use super::survey::{Candidate, Survey, key};
use crate::problem::Problem;
use crate::tensor_type::onnx_type;

/// The kind of operands that a product reads while a switch is on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Alternative {
    /// Integers of 8 bits.
    Integers,
    /// Floats of 16 bits, `f16` or `bf16`.
    Halves(DType),
}

/// A switch for one product. Of those that are on, the last counts.
#[derive(Clone, PartialEq, Debug)]
pub struct Switch {
    /// The product, as the survey names it.
    pub product: String,
    /// The input that the model gets: a `bool` without axes.
    pub input: String,
    pub to: Alternative,
}

/// All switches, and what integers stand for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Switches {
    pub all: Vec<Switch>,
    /// By the name of the tensor.
    pub tensors: BTreeMap<String, Scaling>,
    pub per_channel: bool,
}

pub(super) fn insert(draft: &mut Draft, how: &Switches) -> Result<(), Problem> {
    let survey = Survey::of(draft)?;
    let known: HashMap<&str, &Candidate> =
        survey.products().map(|c| (c.name.as_str(), c)).collect();
    draft.graph.input.extend(how.all.iter().map(|switch| boolean(&switch.input)));
    draft.index();
    let mut made = HashMap::new();
    let (mut names, mut nodes) = (HashSet::new(), vec![]);
    for mut one in std::mem::take(&mut draft.graph.node) {
        let name = key(&one, &mut names);
        if let Some(&candidate) = known.get(name.as_str()) {
            let weight = candidate.weight.iter().map(|w| (w.input, w.name.clone()));
            for (at, operand) in candidate.data.iter().cloned().chain(weight) {
                let mut current = operand.clone();
                for switch in how.all.iter().filter(|s| s.product == name) {
                    let mut place = Place { draft, how, made: &mut made, nodes: &mut nodes };
                    let other = place.alternative(candidate, &operand, switch.to)?;
                    current = place.chosen(&switch.input, &other, &current);
                }
                one.input[at] = current;
            }
        }
        nodes.push(one);
    }
    draft.graph.node = nodes;
    Ok(())
}

/// An input of the model that is true or false.
fn boolean(name: &str) -> ValueInfoProto {
    let shape = Some(TensorShapeProto::default());
    let ty = type_proto::Tensor { elem_type: DataType::Bool as i32, shape };
    let value = Some(type_proto::Value::TensorType(ty));
    let r#type = Some(TypeProto { value, ..TypeProto::default() });
    ValueInfoProto { name: name.into(), r#type, ..ValueInfoProto::default() }
}

/// Where nodes are added.
struct Place<'a> {
    draft: &'a mut Draft,
    how: &'a Switches,
    /// Results that are there already.
    made: &'a mut HashMap<(String, Alternative), String>,
    nodes: &'a mut Vec<NodeProto>,
}

impl Place<'_> {
    fn alternative(
        &mut self,
        candidate: &Candidate,
        operand: &str,
        to: Alternative,
    ) -> Result<String, Problem> {
        if let Some(known) = self.made.get(&(operand.into(), to)) {
            return Ok(known.clone());
        }
        let weight = candidate.weight.as_ref().filter(|w| w.name == operand);
        let result = match (to, weight, self.how.tensors.get(operand)) {
            (Alternative::Halves(dtype), ..) => self.rounded(operand, dtype),
            (Alternative::Integers, Some(weight), _) => {
                let axis = weight.axis.filter(|_| self.how.per_channel);
                let Some(value) = self.draft.floats(operand)? else { return Ok(operand.into()) };
                let integers = integers::weight(&value, integers::scales(&value, axis), axis);
                dequantise(self.draft, operand, &integers, axis, self.nodes)
            }
            (Alternative::Integers, None, Some(&scaling)) => {
                let (nodes, result) = pair(self.draft, operand, scaling);
                self.nodes.extend(nodes);
                result
            }
            (Alternative::Integers, None, None) => operand.into(),
        };
        self.made.insert((operand.into(), to), result.clone());
        Ok(result)
    }

    fn rounded(&mut self, operand: &str, dtype: DType) -> String {
        let narrow = self.cast(operand, dtype);
        self.cast(&narrow, DType::F32)
    }

    fn cast(&mut self, from: &str, to: DType) -> String {
        let result = self.draft.fresh(&format!("{from}_{to}"));
        let mut cast = node("Cast", String::new(), &[from], &result);
        cast.attribute.push(int_attribute("to", onnx_type(to).into()));
        self.nodes.push(cast);
        result
    }

    fn chosen(&mut self, switch: &str, on: &str, off: &str) -> String {
        let result = self.draft.fresh(&format!("{off}_chosen"));
        self.nodes.push(node("Where", String::new(), &[switch, on, off], &result));
        result
    }
}
