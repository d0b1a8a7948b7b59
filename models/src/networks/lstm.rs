//! A sequence tagger: embedding, bidirectional LSTM, a dense layer and a softmax over tags.

use super::layers::ints;
use crate::Builder;
use crate::proto::{Attribute, Dim, ElemType};

const TOKENS: usize = 32;
const EMBEDDING: usize = 128;
const HIDDEN: usize = 256;
const TAGS: usize = 17;
const VOCABULARY: usize = 10_000;

pub(super) fn lstm_tagger(b: &mut Builder) {
    let ids = b.typed_input("input_ids", ElemType::I64, &[Dim::Size(TOKENS), Dim::Size(1)]);
    let table = b.uniform(&[VOCABULARY, EMBEDDING], -1.0, 1.0);
    let x = b.op("Gather", &[&table, &ids], &[("axis", Attribute::Int(0))]);
    let w = b.weight(&[2, 4 * HIDDEN, EMBEDDING], EMBEDDING, 1.0);
    let r = b.weight(&[2, 4 * HIDDEN, HIDDEN], HIDDEN, 1.0);
    let bias = b.uniform(&[2, 8 * HIDDEN], -0.05, 0.05);
    let attributes = [
        ("hidden_size", Attribute::Int(HIDDEN as i64)),
        ("direction", Attribute::Text("bidirectional")),
    ];
    let y = b.ops("LSTM", &[&x, &w, &r, &bias], &attributes, 3).swap_remove(0);
    // [tokens, directions, batch, hidden] to [tokens, batch, directions * hidden]
    let y = b.op("Transpose", &[&y], &[("perm", ints(&[0, 2, 1, 3]))]);
    let shape = b.ints(&[TOKENS as i64, 1, 2 * HIDDEN as i64]);
    let y = b.op("Reshape", &[&y, &shape], &[]);
    let w = b.weight(&[2 * HIDDEN, TAGS], 2 * HIDDEN, 1.0);
    let y = b.op("MatMul", &[&y, &w], &[]);
    b.result("tags", &[TOKENS, 1, TAGS], "Softmax", &[&y], &[("axis", Attribute::Int(-1))]);
}
