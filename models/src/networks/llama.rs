//! A step of a decoder as Llama has them (Touvron et al.), of the size of TinyLlama-1.1B (Zhang et
//! al.): 4 of its 22 layers, without the embedding and the head. One token reads the keys and
//! values of 127.

use super::attention::{product, softmax};
use super::layers::{concat, reshape, silu, slice, transpose};
use crate::Builder;
use crate::builder::Name;
use crate::proto::{Attribute, Dim, ElemType};

const WIDTH: usize = 2048;
const HIDDEN: usize = 5632;
const DEPTH: usize = 64;
const HEADS: usize = WIDTH / DEPTH;
const SHARED: usize = 4;
const PAST: usize = 127;
const LAYERS: usize = 4;

/// `x / sqrt(mean(x^2) + epsilon) * scale`, in the nodes of exporters; the scale is left to the
/// caller.
fn normalised(b: &mut Builder, x: &str) -> Name {
    let (two, epsilon, one) = (b.scalar(2.0), b.scalar(1e-5), b.scalar(1.0));
    let y = b.op("Pow", &[x, &two], &[]);
    let y = b.op("ReduceMean", &[&y], &[("axes", Attribute::Ints(vec![-1]))]);
    let y = b.op("Add", &[&y, &epsilon], &[]);
    let y = b.op("Sqrt", &[&y], &[]);
    let y = b.op("Div", &[&one, &y], &[]);
    b.op("Mul", &[x, &y], &[])
}

fn rms_norm(b: &mut Builder, x: &str) -> Name {
    let y = normalised(b, x);
    let scale = b.uniform(&[WIDTH], 0.8, 1.2);
    b.op("Mul", &[&scale, &y], &[])
}

/// Cosines and sines of the angles by which pairs are rotated at a position.
fn angles(b: &mut Builder) -> [Name; 2] {
    let position = b.typed_input("position_ids", ElemType::I64, &[Dim::Size(1), Dim::Size(1)]);
    let axes = b.ints(&[1]);
    let position = b.op("Unsqueeze", &[&position, &axes], &[]);
    let position = b.op("Cast", &[&position], &[("to", Attribute::Int(1))]);
    let frequency = |i: usize| 10_000f32.powf(-2.0 * i as f32 / DEPTH as f32);
    let frequencies = b.floats(&[1, DEPTH / 2, 1], (0..DEPTH / 2).map(frequency));
    let y = b.op("MatMul", &[&frequencies, &position], &[]);
    let y = transpose(b, &y, &[0, 2, 1]);
    let y = concat(b, &[&y, &y], -1);
    ["Cos", "Sin"].map(|op| {
        let y = b.op(op, &[&y], &[]);
        b.op("Unsqueeze", &[&y, &axes], &[])
    })
}

fn rotated(b: &mut Builder, x: &str, [cos, sin]: &[Name; 2]) -> Name {
    let straight = b.op("Mul", &[x, cos], &[]);
    let first = slice(b, x, 3, (0, DEPTH as i64 / 2), 1);
    let second = slice(b, x, 3, (DEPTH as i64 / 2, i64::MAX), 1);
    let second = b.op("Neg", &[&second], &[]);
    let turned = concat(b, &[&second, &first], -1);
    let turned = b.op("Mul", &[&turned, sin], &[]);
    b.op("Add", &[&straight, &turned], &[])
}

/// `[1, 1, heads * depth]` to `[1, heads, 1, depth]`.
fn split(b: &mut Builder, x: &str, heads: usize) -> Name {
    let y = reshape(b, x, &[1, 1, heads, DEPTH]);
    transpose(b, &y, &[0, 2, 1, 3])
}

/// Keys or values of all tokens: what came before, and the new one. The result is an output, too.
fn remembered(b: &mut Builder, layer: usize, what: &str, new: &str) -> Name {
    let past = b.input(&format!("past_key_values.{layer}.{what}"), &[1, SHARED, PAST, DEPTH]);
    let present = format!("present.{layer}.{what}");
    let shape = [1, SHARED, PAST + 1, DEPTH];
    b.result(&present, &shape, "Concat", &[&past, new], &[("axis", Attribute::Int(-2))]);
    present
}

/// Each head of keys or values serves several of queries.
fn repeated(b: &mut Builder, x: &str) -> Name {
    let axes = b.ints(&[2]);
    let y = b.op("Unsqueeze", &[x, &axes], &[]);
    let shape = [1, SHARED, HEADS / SHARED, PAST + 1, DEPTH].map(|n| n as i64);
    let shape = b.ints(&shape);
    let y = b.op("Expand", &[&y, &shape], &[]);
    reshape(b, &y, &[1, HEADS, PAST + 1, DEPTH])
}

fn attention(b: &mut Builder, x: &str, layer: usize, angles: &[Name; 2]) -> Name {
    let [q, k, v] = [HEADS, SHARED, SHARED].map(|heads| {
        let y = product(b, x, WIDTH, heads * DEPTH, 1.0);
        split(b, &y, heads)
    });
    let (q, k) = (rotated(b, &q, angles), rotated(b, &k, angles));
    let (k, v) = (remembered(b, layer, "key", &k), remembered(b, layer, "value", &v));
    let (k, v) = (repeated(b, &k), repeated(b, &v));
    let k = transpose(b, &k, &[0, 1, 3, 2]);
    let scores = b.op("MatMul", &[&q, &k], &[]);
    let scale = b.scalar((DEPTH as f32).powf(-0.5));
    let scores = b.op("Mul", &[&scores, &scale], &[]);
    let weights = softmax(b, &scores);
    let y = b.op("MatMul", &[&weights, &v], &[]);
    let y = transpose(b, &y, &[0, 2, 1, 3]);
    let y = reshape(b, &y, &[1, 1, WIDTH]);
    product(b, &y, WIDTH, WIDTH, 1.0)
}

fn swiglu(b: &mut Builder, x: &str) -> Name {
    let gate = product(b, x, WIDTH, HIDDEN, 1.0);
    let gate = silu(b, &gate);
    let y = product(b, x, WIDTH, HIDDEN, 1.0);
    let y = b.op("Mul", &[&gate, &y], &[]);
    product(b, &y, HIDDEN, WIDTH, 2.0)
}

pub(super) fn llama_step(b: &mut Builder) {
    let mut x = b.input("inputs_embeds", &[1, 1, WIDTH]);
    let angles = angles(b);
    for layer in 0..b.choose(LAYERS, 1) {
        let y = rms_norm(b, &x);
        let y = attention(b, &y, layer, &angles);
        x = b.op("Add", &[&x, &y], &[]);
        let y = rms_norm(b, &x);
        let y = swiglu(b, &y);
        x = b.op("Add", &[&x, &y], &[]);
    }
    let y = normalised(b, &x);
    let scale = b.uniform(&[WIDTH], 0.8, 1.2);
    b.result("last_hidden_state", &[1, 1, WIDTH], "Mul", &[&scale, &y], &[]);
}
