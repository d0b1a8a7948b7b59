//! MiniLM-L6 (Wang et al.) as all-MiniLM-L6-v2 has it, sequence 128 and without its pooler: with
//! weights in float32, and quantised as ONNX Runtime's `quantize_dynamic` writes it.

use super::attention::{
    Dense, Heads, encoder_layer, last_hidden_state, layer_norm, linear, padding_mask,
};
use crate::Builder;
use crate::builder::Name;
use crate::proto::{Attribute, Dim, ElemType};

const SEQUENCE: usize = 128;
const WIDTH: usize = 384;
const HEADS: Heads = Heads { tokens: SEQUENCE, count: 12, depth: WIDTH / 12 };
const VOCABULARY: usize = 30_522;
const POSITIONS: usize = 512;

type Table = fn(&mut Builder, &str, usize, f32) -> Name;

/// Rows of a table of weights.
fn rows(b: &mut Builder, ids: &str, count: usize, range: f32) -> Name {
    let table = b.uniform(&[count, WIDTH], -range, range);
    b.op("Gather", &[&table, ids], &[("axis", Attribute::Int(0))])
}

/// Rows of a table of bytes, which become floats afterwards.
fn quantised_rows(b: &mut Builder, ids: &str, count: usize, range: f32) -> Name {
    // A uniform distribution over -range..range has a third of its square as variance.
    let (table, scale) = b.quantised_weight(&[count, WIDTH], 3, range * range);
    let zero = b.zero_point(0);
    let y = b.op("Gather", &[&table, ids], &[("axis", Attribute::Int(0))]);
    b.op("DequantizeLinear", &[&y, &scale, &zero], &[])
}

/// A product of bytes, whose left side is quantised when the model runs.
fn quantised_linear(b: &mut Builder, x: &str, from: usize, to: usize, gain: f32) -> Name {
    let (w, scale) = b.quantised_weight(&[from, to], from, gain);
    let zero = b.zero_point(0);
    let x = b.ops("DynamicQuantizeLinear", &[x], &[], 3);
    let y = b.op("MatMulInteger", &[&x[0], &w, &x[2], &zero], &[]);
    let y = b.op("Cast", &[&y], &[("to", Attribute::Int(1))]);
    let scale = b.op("Mul", &[&x[1], &scale], &[]);
    let y = b.op("Mul", &[&y, &scale], &[]);
    let bias = b.uniform(&[to], -0.05, 0.05);
    b.op("Add", &[&y, &bias], &[])
}

fn encoder(b: &mut Builder, dense: Dense, table: Table) {
    let [words, mask, types] = ["input_ids", "attention_mask", "token_type_ids"]
        .map(|name| b.typed_input(name, ElemType::I64, &[Dim::Size(1), Dim::Size(SEQUENCE)]));
    let mask = padding_mask(b, &mask);
    let places: Vec<i64> = (0..SEQUENCE as i64).collect();
    let places = b.ints(&places);
    let words = table(b, &words, b.choose(VOCABULARY, 1024), 1.7);
    let types = table(b, &types, 2, 0.5);
    let x = b.op("Add", &[&words, &types], &[]);
    let places = table(b, &places, POSITIONS, 0.5);
    let x = b.op("Add", &[&x, &places], &[]);
    let mut x = layer_norm(b, &x, WIDTH);
    let layers = b.choose(6, 1);
    for _ in 1..layers {
        let y = encoder_layer(b, &x, Some(&mask), &HEADS, dense);
        x = layer_norm(b, &y, WIDTH);
    }
    let y = encoder_layer(b, &x, Some(&mask), &HEADS, dense);
    last_hidden_state(b, &y, SEQUENCE, WIDTH);
}

pub(super) fn minilm(b: &mut Builder) {
    encoder(b, linear, rows);
}

pub(super) fn minilm_int8(b: &mut Builder) {
    encoder(b, quantised_linear, quantised_rows);
}
