//! Batch norms become a part of the convolution before.
//!
//! ```text
//! Conv(x, w, b) -> BatchNormalization(scale, bias, mean, var)
//! ->  Conv(x, w * f, (b - mean) * f + bias)    with f = scale / sqrt(var + epsilon)
//! ```
//!
//! A weight is quantised as it is multiplied: with the factor in it, and with a scale for each
//! output channel. Others than that between a convolution and a norm that is its only reader stay.

use std::collections::HashMap;

use ansc_runtime::Tensor;
use tract_onnx::pb::NodeProto;

use super::draft::{Draft, float, int, is_onnx};
use crate::order::node_reads;
use crate::problem::Problem;

pub(super) fn fold(draft: &mut Draft) -> Result<(), Problem> {
    let mut readers: HashMap<String, usize> = HashMap::new();
    let outputs = draft.graph.output.iter().map(|output| output.name.as_str());
    for name in draft.graph.node.iter().flat_map(node_reads).chain(outputs) {
        *readers.entry(name.to_owned()).or_default() += 1;
    }
    let nodes = draft.graph.node.iter().enumerate();
    let makers: HashMap<String, usize> =
        nodes.filter(|(_, n)| is_onnx(n, "Conv")).map(|(i, n)| (n.output[0].clone(), i)).collect();
    let mut gone = vec![];
    for norm in 0..draft.graph.node.len() {
        let node = &draft.graph.node[norm];
        if !is_inference(node) || readers.get(&node.input[0]) != Some(&1) {
            continue;
        }
        let Some(&conv) = makers.get(&node.input[0]) else { continue };
        if merge(draft, conv, norm)? {
            gone.push(norm);
        }
    }
    gone.iter().rev().for_each(|&norm| drop(draft.graph.node.remove(norm)));
    draft.index();
    Ok(())
}

fn is_inference(node: &NodeProto) -> bool {
    let one_output = node.output.iter().skip(1).all(String::is_empty);
    is_onnx(node, "BatchNormalization")
        && node.input.len() == 5
        && one_output
        && int(node, "training_mode", 0) == 0
}

/// Whether the norm is a part of the convolution now.
fn merge(draft: &mut Draft, conv: usize, norm: usize) -> Result<bool, Problem> {
    let (convolution, batch_norm) = (&draft.graph.node[conv], &draft.graph.node[norm]);
    let weight_name = convolution.input.get(1).cloned().unwrap_or_default();
    let Some(weight) = draft.floats(&weight_name)? else { return Ok(false) };
    let mut parameters = vec![];
    for name in &batch_norm.input[1..] {
        let Some(parameter) = draft.floats(name)? else { return Ok(false) };
        parameters.push(parameter);
    }
    let channels = weight.shape().first().copied().unwrap_or(0);
    let bias = match convolution.input.get(2).filter(|name| !name.is_empty()) {
        None => vec![0.0; channels],
        Some(name) => match draft.floats(name)? {
            Some(bias) => bias.as_slice::<f32>().to_vec(),
            None => return Ok(false),
        },
    };
    let fits = parameters.iter().all(|p| p.len() == channels) && bias.len() == channels;
    if channels == 0 || !fits {
        return Ok(false);
    }
    let of = |i: usize| parameters[i].as_slice::<f32>();
    let epsilon = float(batch_norm, "epsilon", 1e-5);
    let factors: Vec<f32> =
        of(0).iter().zip(of(3)).map(|(scale, var)| scale / (var + epsilon).sqrt()).collect();
    let shifted: Vec<f32> =
        (0..channels).map(|c| (bias[c] - of(2)[c]) * factors[c] + of(1)[c]).collect();
    let mut scaled = weight;
    let each = scaled.len() / channels;
    let elements = scaled.as_mut_slice::<f32>();
    if each > 0 {
        let rows = elements.chunks_mut(each).zip(&factors);
        rows.for_each(|(row, factor)| row.iter_mut().for_each(|w| *w *= factor));
    }
    let result = batch_norm.output[0].clone();
    let weight = draft.add(&format!("{weight_name}_folded"), &scaled);
    let bias =
        draft.add(&format!("{weight_name}_bias"), &Tensor::from_slice(&[channels], &shifted));
    let convolution = &mut draft.graph.node[conv];
    convolution.input.truncate(1);
    convolution.input.extend([weight, bias]);
    convolution.output[0] = result;
    Ok(true)
}
