//! BERT-base and GPT-2 small at sequence 128, attention written out as exporters do.

use super::layers::ints;
use crate::Builder;
use crate::builder::Name;
use crate::proto::{Attribute, Dim, ElemType};

const SEQUENCE: usize = 128;
const WIDTH: usize = 768;
const HEADS: usize = 12;
const DEPTH: usize = WIDTH / HEADS;
const LAYERS: usize = 12;

fn ids(b: &mut Builder, name: &str) -> Name {
    b.typed_input(name, ElemType::I64, &[Dim::Size(1), Dim::Size(SEQUENCE)])
}

fn embed(b: &mut Builder, ids: &str, vocabulary: usize) -> Name {
    let table = b.uniform(&[vocabulary, WIDTH], -1.7, 1.7);
    let words = b.op("Gather", &[&table, ids], &[("axis", Attribute::Int(0))]);
    let positions = b.uniform(&[1, SEQUENCE, WIDTH], -0.5, 0.5);
    b.op("Add", &[&words, &positions], &[])
}

fn layer_norm_weights(b: &mut Builder) -> (Name, Name) {
    (b.uniform(&[WIDTH], 0.8, 1.2), b.uniform(&[WIDTH], -0.1, 0.1))
}

const LAYER_NORM: [(&str, Attribute); 2] =
    [("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(1e-5))];

fn layer_norm(b: &mut Builder, x: &str) -> Name {
    let (scale, bias) = layer_norm_weights(b);
    b.op("LayerNormalization", &[x, &scale, &bias], &LAYER_NORM)
}

/// `MatMul` and `Add`, as BERT's dense layers are exported.
fn linear(b: &mut Builder, x: &str, from: usize, to: usize, gain: f32) -> Name {
    let w = b.weight(&[from, to], from, gain);
    let y = b.op("MatMul", &[x, &w], &[]);
    let bias = b.uniform(&[to], -0.05, 0.05);
    b.op("Add", &[&y, &bias], &[])
}

/// `Reshape`, `Gemm`, `Reshape`, as GPT-2's one-dimensional convolutions are exported.
fn conv1d(b: &mut Builder, x: &str, from: usize, to: usize, gain: f32) -> Name {
    let flat = b.ints(&[SEQUENCE as i64, from as i64]);
    let x = b.op("Reshape", &[x, &flat], &[]);
    let w = b.weight(&[from, to], from, gain);
    let bias = b.uniform(&[to], -0.05, 0.05);
    let y = b.op("Gemm", &[&x, &w, &bias], &[]);
    let full = b.ints(&[1, SEQUENCE as i64, to as i64]);
    b.op("Reshape", &[&y, &full], &[])
}

fn split_heads(b: &mut Builder, x: &str) -> Name {
    let shape = b.ints(&[1, SEQUENCE as i64, HEADS as i64, DEPTH as i64]);
    let y = b.op("Reshape", &[x, &shape], &[]);
    b.op("Transpose", &[&y], &[("perm", ints(&[0, 2, 1, 3]))])
}

fn merge_heads(b: &mut Builder, x: &str) -> Name {
    let y = b.op("Transpose", &[x], &[("perm", ints(&[0, 2, 1, 3]))]);
    let shape = b.ints(&[1, SEQUENCE as i64, WIDTH as i64]);
    b.op("Reshape", &[&y, &shape], &[])
}

/// Attention over split heads; `mask` turns scores into masked scores.
fn attention(
    b: &mut Builder,
    [q, k, v]: [Name; 3],
    mask: impl FnOnce(&mut Builder, &str) -> Name,
) -> Name {
    let k = b.op("Transpose", &[&k], &[("perm", ints(&[0, 1, 3, 2]))]);
    let scores = b.op("MatMul", &[&q, &k], &[]);
    let root = b.scalar((DEPTH as f32).sqrt());
    let scores = b.op("Div", &[&scores, &root], &[]);
    let scores = mask(b, &scores);
    let weights = b.op("Softmax", &[&scores], &[("axis", Attribute::Int(-1))]);
    let y = b.op("MatMul", &[&weights, &v], &[]);
    merge_heads(b, &y)
}

fn gelu_erf(b: &mut Builder, x: &str) -> Name {
    let (root, one, half) = (b.scalar(std::f32::consts::SQRT_2), b.scalar(1.0), b.scalar(0.5));
    let t = b.op("Div", &[x, &root], &[]);
    let t = b.op("Erf", &[&t], &[]);
    let t = b.op("Add", &[&t, &one], &[]);
    let y = b.op("Mul", &[x, &t], &[]);
    b.op("Mul", &[&y, &half], &[])
}

fn gelu_tanh(b: &mut Builder, x: &str) -> Name {
    let (c, root, one, half) =
        (b.scalar(0.044715), b.scalar(0.797_884_6), b.scalar(1.0), b.scalar(0.5));
    let square = b.op("Mul", &[x, x], &[]);
    let cube = b.op("Mul", &[&square, x], &[]);
    let t = b.op("Mul", &[&cube, &c], &[]);
    let t = b.op("Add", &[x, &t], &[]);
    let t = b.op("Mul", &[&t, &root], &[]);
    let t = b.op("Tanh", &[&t], &[]);
    let t = b.op("Add", &[&t, &one], &[]);
    let y = b.op("Mul", &[x, &half], &[]);
    b.op("Mul", &[&y, &t], &[])
}

/// `(1 - mask) * -10000`, broadcast over heads and queries.
fn padding_mask(b: &mut Builder, mask: &str) -> Name {
    let axes = b.ints(&[1, 2]);
    let m = b.op("Cast", &[mask], &[("to", Attribute::Int(1))]);
    let m = b.op("Unsqueeze", &[&m, &axes], &[]);
    let (one, low) = (b.scalar(1.0), b.scalar(-10000.0));
    let m = b.op("Sub", &[&one, &m], &[]);
    b.op("Mul", &[&m, &low], &[])
}

pub(super) fn bert_base(b: &mut Builder) {
    let (words, mask) = (ids(b, "input_ids"), ids(b, "attention_mask"));
    let mask = padding_mask(b, &mask);
    let x = embed(b, &words, 30522);
    let mut x = layer_norm(b, &x);
    for layer in 0..LAYERS {
        let heads = [(); 3].map(|()| {
            let y = linear(b, &x, WIDTH, WIDTH, 1.0);
            split_heads(b, &y)
        });
        let y = attention(b, heads, |b, scores| b.op("Add", &[scores, &mask], &[]));
        let y = linear(b, &y, WIDTH, WIDTH, 1.0);
        let y = b.op("Add", &[&y, &x], &[]);
        x = layer_norm(b, &y);
        let y = linear(b, &x, WIDTH, 4 * WIDTH, 1.0);
        let y = gelu_erf(b, &y);
        let y = linear(b, &y, 4 * WIDTH, WIDTH, 2.0);
        let y = b.op("Add", &[&y, &x], &[]);
        if layer + 1 < LAYERS {
            x = layer_norm(b, &y);
        } else {
            last_hidden_state(b, &y);
        }
    }
}

/// The last layer normalisation, whose result is the model's.
fn last_hidden_state(b: &mut Builder, x: &str) {
    let (scale, bias) = layer_norm_weights(b);
    let shape = [1, SEQUENCE, WIDTH];
    b.result("last_hidden_state", &shape, "LayerNormalization", &[x, &scale, &bias], &LAYER_NORM);
}

fn causal_mask(b: &mut Builder) -> Name {
    let allowed: Vec<bool> =
        (0..SEQUENCE * SEQUENCE).map(|i| i % SEQUENCE <= i / SEQUENCE).collect();
    b.bools(&[1, 1, SEQUENCE, SEQUENCE], &allowed)
}

pub(super) fn gpt2(b: &mut Builder) {
    let words = ids(b, "input_ids");
    let mut x = embed(b, &words, 50257);
    let (mask, low) = (causal_mask(b), b.scalar(-1e9));
    let thirds = b.ints(&[WIDTH as i64; 3]);
    for _ in 0..LAYERS {
        let y = layer_norm(b, &x);
        let y = conv1d(b, &y, WIDTH, 3 * WIDTH, 1.0);
        let parts = b.ops("Split", &[&y, &thirds], &[("axis", Attribute::Int(2))], 3);
        let heads = [0, 1, 2].map(|i| split_heads(b, &parts[i]));
        let y = attention(b, heads, |b, scores| b.op("Where", &[&mask, scores, &low], &[]));
        let y = conv1d(b, &y, WIDTH, WIDTH, 1.0);
        x = b.op("Add", &[&y, &x], &[]);
        let y = layer_norm(b, &x);
        let y = conv1d(b, &y, WIDTH, 4 * WIDTH, 1.0);
        let y = gelu_tanh(b, &y);
        let y = conv1d(b, &y, 4 * WIDTH, WIDTH, 2.0);
        x = b.op("Add", &[&y, &x], &[]);
    }
    last_hidden_state(b, &x);
}
