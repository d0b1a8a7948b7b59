//! Importers of operators, one file per family.
//!
//! An importer sees one ONNX node through [`NodeCtx`](crate::walk::NodeCtx), resolves attributes,
//! opset differences and optional inputs, and adds what the node means to the graph. The meaning
//! itself, a tensor expression, is made by the constructors of `ansc_graph::ops`.

mod activation;
mod activations;
mod args;
mod attention;
mod attention_core;
mod batch_norm;
mod binary;
mod branch;
mod broadcast;
mod cast;
mod causal_conv;
mod clip;
mod compose;
mod constant;
mod conv;
mod conv_integer;
mod conv_transpose;
mod conv_transpose_integer;
mod cumulative;
mod deform_conv;
mod dropout;
mod einsum;
mod embed;
mod fill;
mod gather;
mod gather_block;
mod gelu;
mod gemm;
mod gradient;
mod grid;
mod grouped_attention;
mod indices;
mod integer;
mod join;
mod linear_attention;
mod loss;
mod matmul_integer;
mod matmul_nbits;
mod moved_bytes;
mod ms_attention;
mod normalize;
mod optional;
mod pad;
mod pool;
mod qgemm;
mod qlinear;
mod quantize;
mod random;
mod rearrange;
mod recurrent;
mod reduce;
mod repeat;
mod repetition;
mod requantize;
mod reshape;
mod resize;
mod roi_align;
mod rotary;
mod scan;
mod scatter;
mod search;
mod sequence;
mod slice;
mod softmax;
mod spectrum;
mod tfidf;
mod unary;
mod variadic;
mod window;
mod window_function;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Serialize;

use crate::walk::OpEntry;

/// Every family; a new one is a module above and a row here.
#[rustfmt::skip]
const FAMILIES: &[&[OpEntry]] = &[
    activations::OPS,
    attention::OPS,
    batch_norm::OPS,
    binary::OPS,
    branch::OPS,
    cast::OPS,
    causal_conv::OPS,
    clip::OPS,
    constant::OPS,
    conv::OPS,
    conv_integer::OPS,
    conv_transpose::OPS,
    cumulative::OPS,
    deform_conv::OPS,
    dropout::OPS,
    einsum::OPS,
    embed::OPS,
    fill::OPS,
    gather::OPS,
    gather_block::OPS,
    gelu::OPS,
    gemm::OPS,
    gradient::OPS,
    grid::OPS,
    grouped_attention::OPS,
    join::OPS,
    linear_attention::OPS,
    loss::OPS,
    matmul_integer::OPS,
    matmul_nbits::OPS,
    ms_attention::OPS,
    normalize::OPS,
    optional::OPS,
    pad::OPS,
    pool::OPS,
    qgemm::OPS,
    qlinear::OPS,
    quantize::OPS,
    random::OPS,
    rearrange::OPS,
    recurrent::OPS,
    reduce::OPS,
    repeat::OPS,
    repetition::OPS,
    reshape::OPS,
    resize::OPS,
    roi_align::OPS,
    rotary::OPS,
    scan::OPS,
    scatter::OPS,
    search::OPS,
    sequence::OPS,
    slice::OPS,
    softmax::OPS,
    spectrum::OPS,
    tfidf::OPS,
    unary::OPS,
    variadic::OPS,
    window_function::OPS,
];

type Table = BTreeMap<(&'static str, &'static str), &'static OpEntry>;

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        FAMILIES.iter().copied().flatten().map(|e| ((e.domain, e.name), e)).collect()
    })
}

/// An operator that can be imported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Operator {
    /// Empty for ONNX's own operators.
    pub domain: &'static str,
    pub name: &'static str,
    /// The first opset version of which the semantics are known.
    pub since: i64,
}

/// All of them, by domain and name.
pub fn operators() -> Vec<Operator> {
    let entries = table().values();
    entries.map(|e| Operator { domain: e.domain, name: e.name, since: e.since }).collect()
}

pub(crate) fn lookup(domain: &str, name: &str) -> Option<&'static OpEntry> {
    table().get(&(domain, name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_is_listed_once() {
        assert_eq!(table().len(), FAMILIES.iter().map(|family| family.len()).sum::<usize>());
    }
}
