//! BERT-base and GPT-2 small at sequence 128, attention written out as exporters do.

use super::attention::{
    Heads, attention, encoder_layer, last_hidden_state, layer_norm, linear, padding_mask,
};
use crate::Builder;
use crate::builder::Name;
use crate::proto::{Attribute, Dim, ElemType};

const SEQUENCE: usize = 128;
const WIDTH: usize = 768;
const HEADS: Heads = Heads { tokens: SEQUENCE, count: 12, depth: WIDTH / 12 };
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

pub(super) fn bert_base(b: &mut Builder) {
    let (words, mask) = (ids(b, "input_ids"), ids(b, "attention_mask"));
    let mask = padding_mask(b, &mask);
    let x = embed(b, &words, b.choose(30522, 1024));
    let mut x = layer_norm(b, &x, WIDTH);
    let layers = b.choose(LAYERS, 2);
    for layer in 0..layers {
        let y = encoder_layer(b, &x, Some(&mask), &HEADS, linear);
        if layer + 1 < layers {
            x = layer_norm(b, &y, WIDTH);
        } else {
            last_hidden_state(b, &y, SEQUENCE, WIDTH);
        }
    }
}

fn causal_mask(b: &mut Builder) -> Name {
    let allowed: Vec<bool> =
        (0..SEQUENCE * SEQUENCE).map(|i| i % SEQUENCE <= i / SEQUENCE).collect();
    b.bools(&[1, 1, SEQUENCE, SEQUENCE], &allowed)
}

pub(super) fn gpt2(b: &mut Builder) {
    let words = ids(b, "input_ids");
    let mut x = embed(b, &words, b.choose(50257, 1024));
    let (mask, low) = (causal_mask(b), b.scalar(-1e9));
    let thirds = b.ints(&[WIDTH as i64; 3]);
    for _ in 0..b.choose(LAYERS, 2) {
        let y = layer_norm(b, &x, WIDTH);
        let y = conv1d(b, &y, WIDTH, 3 * WIDTH, 1.0);
        let parts = b.ops("Split", &[&y, &thirds], &[("axis", Attribute::Int(2))], 3);
        let heads = [0, 1, 2].map(|i| HEADS.split(b, &parts[i]));
        let y = attention(b, &HEADS, heads, |b, scores| b.op("Where", &[&mask, scores, &low], &[]));
        let y = conv1d(b, &y, WIDTH, WIDTH, 1.0);
        x = b.op("Add", &[&y, &x], &[]);
        let y = layer_norm(b, &x, WIDTH);
        let y = conv1d(b, &y, WIDTH, 4 * WIDTH, 1.0);
        let y = gelu_tanh(b, &y);
        let y = conv1d(b, &y, 4 * WIDTH, WIDTH, 2.0);
        x = b.op("Add", &[&y, &x], &[]);
    }
    last_hidden_state(b, &x, SEQUENCE, WIDTH);
}
