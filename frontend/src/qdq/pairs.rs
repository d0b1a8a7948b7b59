//! Puts pairs of `QuantizeLinear` and `DequantizeLinear` into a model.
//!
//! ```text
//! Conv(x, w, b)   ->   Conv(Dequantize(Quantize(x)), Dequantize(w: i8), Dequantize(b: i32))
//! ```
//!
//! There is one pair for a tensor. All readers read what comes out of it if the tensor's maker
//! computes with integers, so that nothing else is stored; otherwise those do that compute with
//! integers.

use std::collections::{HashMap, HashSet};

use ansc_runtime::{DType, Quantization, Scaling, Tensor};
use tract_onnx::pb::NodeProto;

use super::draft::{Draft, int_attribute, node};
use super::integers;
use super::survey::{Candidate, Survey, key};
use crate::problem::Problem;

pub(super) fn insert(draft: &mut Draft, how: &Quantization) -> Result<(), Problem> {
    let survey = Survey::of(draft)?;
    let known: HashMap<&str, &Candidate> =
        survey.candidates.iter().map(|c| (c.name.as_str(), c)).collect();
    if let Some(name) = how.nodes.iter().find(|name| !known.contains_key(name.as_str())) {
        return Err(Problem::new(format!("the model has no node `{name}` to quantise")));
    }
    let mut pairs = Pairs { how, made: HashMap::new(), constants: HashMap::new() };
    let (mut names, mut nodes) = (HashSet::new(), vec![]);
    let old = std::mem::take(&mut draft.graph.node);
    let inputs: Vec<String> = draft.graph.input.iter().map(|input| input.name.clone()).collect();
    for input in inputs {
        nodes.extend(pairs.around(draft, &input, false));
    }
    for one in &old {
        let name = key(one, &mut names);
        let candidate = known.get(name.as_str()).filter(|_| how.nodes.contains(&name));
        let mut new = one.clone();
        for (i, input) in new.input.iter_mut().enumerate() {
            let reads = candidate.is_some_and(|c| c.data.iter().any(|(at, _)| *at == i));
            if let Some(pair) = pairs.made.get(&one.input[i]).filter(|p| reads || p.for_all) {
                input.clone_from(&pair.output);
            }
        }
        if let Some(candidate) = candidate {
            nodes.extend(pairs.constants(draft, candidate, &mut new)?);
        }
        nodes.push(new);
        for output in &one.output {
            nodes.extend(pairs.around(draft, output, candidate.is_some()));
        }
    }
    draft.graph.node = nodes;
    Ok(())
}

/// The result of a pair, and whether all readers of the tensor read it.
struct Pair {
    output: String,
    for_all: bool,
}

struct Pairs<'a> {
    how: &'a Quantization,
    made: HashMap<String, Pair>,
    /// Dequantised constants by name, the scale of the input they are added to, and axis.
    constants: HashMap<(String, Option<usize>), (String, Vec<f32>)>,
}

impl Pairs<'_> {
    /// The pair of a tensor, if it is to have one.
    fn around(&mut self, draft: &mut Draft, name: &str, for_all: bool) -> Vec<NodeProto> {
        let Some(&scaling) = self.how.tensors.get(name) else { return vec![] };
        let (nodes, output) = pair(draft, name, scaling);
        self.made.insert(name.into(), Pair { output, for_all });
        nodes.into()
    }

    /// Lets a product read integers in place of its constants.
    fn constants(
        &mut self,
        draft: &mut Draft,
        candidate: &Candidate,
        new: &mut NodeProto,
    ) -> Result<Vec<NodeProto>, Problem> {
        let Some(weight) = &candidate.weight else { return Ok(vec![]) };
        let axis = weight.axis.filter(|_| self.how.per_channel);
        let input = self.how.tensors.get(&candidate.data[0].1).map_or(1.0, |s| s.scale);
        let bias = match new.input.get(2).filter(|name| !name.is_empty()) {
            // A vector for the output channels, as sums are.
            Some(name) => draft.floats(name)?.filter(|bias| bias.rank() == 1),
            None => None,
        };
        let mut nodes = vec![];
        let shared = (weight.name.clone(), axis);
        let (dequantised, scales) = match self.constants.get(&shared).filter(|_| bias.is_none()) {
            Some(known) => known.clone(),
            None => {
                let Some(value) = draft.floats(&weight.name)? else { return Ok(nodes) };
                let mut scales = integers::scales(&value, axis);
                if let Some(bias) = &bias {
                    integers::make_room(&mut scales, bias.as_slice::<f32>(), input);
                }
                let integers = integers::weight(&value, scales, axis);
                let known =
                    (dequantise(draft, &weight.name, &integers, axis, &mut nodes), integers.scales);
                self.constants.insert(shared, known.clone());
                known
            }
        };
        new.input[weight.input] = dequantised;
        if let Some(bias) = bias.filter(|b| scales.len() == 1 || b.len() == scales.len()) {
            let integers = integers::bias(&bias, &scales, input);
            let name = new.input[2].clone();
            new.input[2] = dequantise(draft, &name, &integers, Some(0), &mut nodes);
        }
        Ok(nodes)
    }
}

/// Nodes that quantise a tensor and dequantise it again, and the name of the result.
pub(super) fn pair(draft: &mut Draft, name: &str, scaling: Scaling) -> ([NodeProto; 2], String) {
    let scale = draft.add(&format!("{name}_scale"), &Tensor::scalar(scaling.scale));
    let zero = match scaling.dtype {
        DType::I8 => Tensor::scalar(scaling.zero as i8),
        _ => Tensor::scalar(scaling.zero as u8),
    };
    let zero = draft.add(&format!("{name}_zero_point"), &zero);
    let [quantised, dequantised, first, second] =
        ["_quantized", "_dequantized", "_QuantizeLinear", "_DequantizeLinear"]
            .map(|ending| draft.fresh(&format!("{name}{ending}")));
    let nodes = [
        node("QuantizeLinear", first, &[name, &scale, &zero], &quantised),
        node("DequantizeLinear", second, &[&quantised, &scale, &zero], &dequantised),
    ];
    (nodes, dequantised)
}

/// Adds integers and a node that dequantises them; gives the name of its result.
pub(super) fn dequantise(
    draft: &mut Draft,
    name: &str,
    integers: &integers::Integers,
    axis: Option<usize>,
    nodes: &mut Vec<NodeProto>,
) -> String {
    let axis = axis.filter(|_| integers.scales.len() > 1);
    let shape: &[usize] = if axis.is_some() { &[integers.scales.len()] } else { &[] };
    let values = draft.add(&format!("{name}_quantized"), &integers.values);
    let scale = Tensor::from_slice(shape, &integers.scales[..shape.iter().product()]);
    let scale = draft.add(&format!("{name}_scale"), &scale);
    let zero = match Tensor::try_zeros(integers.values.dtype(), shape) {
        Ok(zero) => draft.add(&format!("{name}_zero_point"), &zero),
        Err(_) => String::new(),
    };
    let result = draft.fresh(&format!("{name}_dequantized"));
    let own = draft.fresh(&format!("{name}_DequantizeLinear"));
    let mut node = node("DequantizeLinear", own, &[&values, &scale, &zero], &result);
    node.attribute.extend(axis.map(|axis| int_attribute("axis", axis as i64)));
    nodes.push(node);
    result
}
