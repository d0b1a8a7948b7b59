//! Layers of transformers, as exporters write them.

use super::layers::{reshape, transpose};
use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

/// Heads of attention over a sequence.
pub(crate) struct Heads {
    pub(crate) tokens: usize,
    pub(crate) count: usize,
    pub(crate) depth: usize,
}

impl Heads {
    pub(crate) fn width(&self) -> usize {
        self.count * self.depth
    }

    /// `[1, tokens, width]` to `[1, heads, tokens, depth]`.
    pub(crate) fn split(&self, b: &mut Builder, x: &str) -> Name {
        let y = reshape(b, x, &[1, self.tokens, self.count, self.depth]);
        transpose(b, &y, &[0, 2, 1, 3])
    }

    /// The other way.
    pub(crate) fn merge(&self, b: &mut Builder, x: &str) -> Name {
        let y = transpose(b, x, &[0, 2, 1, 3]);
        reshape(b, &y, &[1, self.tokens, self.width()])
    }
}

const EPSILON: f32 = 1e-5;

pub(crate) fn layer_norm_weights(b: &mut Builder, width: usize) -> (Name, Name) {
    (b.uniform(&[width], 0.8, 1.2), b.uniform(&[width], -0.1, 0.1))
}

const LAYER_NORM: [(&str, Attribute); 2] =
    [("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(EPSILON))];

pub(crate) fn layer_norm(b: &mut Builder, x: &str, width: usize) -> Name {
    let (scale, bias) = layer_norm_weights(b, width);
    b.op("LayerNormalization", &[x, &scale, &bias], &LAYER_NORM)
}

/// The last layer normalisation, whose result is the model's.
pub(crate) fn last_hidden_state(b: &mut Builder, x: &str, tokens: usize, width: usize) {
    let (scale, bias) = layer_norm_weights(b, width);
    let shape = [1, tokens, width];
    b.result("last_hidden_state", &shape, "LayerNormalization", &[x, &scale, &bias], &LAYER_NORM);
}

/// `MatMul` and `Add`, as dense layers of sequences are exported.
pub(crate) fn linear(b: &mut Builder, x: &str, from: usize, to: usize, gain: f32) -> Name {
    let y = product(b, x, from, to, gain);
    let bias = b.uniform(&[to], -0.05, 0.05);
    b.op("Add", &[&y, &bias], &[])
}

/// A dense layer without a bias.
pub(crate) fn product(b: &mut Builder, x: &str, from: usize, to: usize, gain: f32) -> Name {
    let w = b.weight(&[from, to], from, gain);
    b.op("MatMul", &[x, &w], &[])
}

/// GELU where there is no operator for it.
pub(crate) fn gelu_erf(b: &mut Builder, x: &str) -> Name {
    let (root, one, half) = (b.scalar(std::f32::consts::SQRT_2), b.scalar(1.0), b.scalar(0.5));
    let t = b.op("Div", &[x, &root], &[]);
    let t = b.op("Erf", &[&t], &[]);
    let t = b.op("Add", &[&t, &one], &[]);
    let y = b.op("Mul", &[x, &t], &[]);
    b.op("Mul", &[&y, &half], &[])
}

/// Attention over split heads; `mask` turns scores into masked scores.
pub(crate) fn attention(
    b: &mut Builder,
    heads: &Heads,
    [q, k, v]: [Name; 3],
    mask: impl FnOnce(&mut Builder, &str) -> Name,
) -> Name {
    let k = transpose(b, &k, &[0, 1, 3, 2]);
    let scores = b.op("MatMul", &[&q, &k], &[]);
    let root = b.scalar((heads.depth as f32).sqrt());
    let scores = b.op("Div", &[&scores, &root], &[]);
    let scores = mask(b, &scores);
    let weights = softmax(b, &scores);
    let y = b.op("MatMul", &[&weights, &v], &[]);
    heads.merge(b, &y)
}

pub(crate) fn softmax(b: &mut Builder, x: &str) -> Name {
    b.op("Softmax", &[x], &[("axis", Attribute::Int(-1))])
}

/// `(1 - mask) * -10000`, broadcast over heads and queries.
pub(crate) fn padding_mask(b: &mut Builder, mask: &str) -> Name {
    let axes = b.ints(&[1, 2]);
    let m = b.op("Cast", &[mask], &[("to", Attribute::Int(1))]);
    let m = b.op("Unsqueeze", &[&m, &axes], &[]);
    let (one, low) = (b.scalar(1.0), b.scalar(-10000.0));
    let m = b.op("Sub", &[&one, &m], &[]);
    b.op("Mul", &[&m, &low], &[])
}

/// A dense layer: what it reads, from and to how many numbers, and the gain of its weights.
pub(crate) type Dense = fn(&mut Builder, &str, usize, usize, f32) -> Name;

/// A layer of BERT before its last normalisation, with or without a mask.
pub(crate) fn encoder_layer(
    b: &mut Builder,
    x: &str,
    mask: Option<&str>,
    heads: &Heads,
    dense: Dense,
) -> Name {
    let width = heads.width();
    let qkv = [(); 3].map(|()| {
        let y = dense(b, x, width, width, 1.0);
        heads.split(b, &y)
    });
    let y = attention(b, heads, qkv, |b, scores| match mask {
        Some(mask) => b.op("Add", &[scores, mask], &[]),
        None => scores.to_owned(),
    });
    let y = dense(b, &y, width, width, 1.0);
    let y = b.op("Add", &[&y, x], &[]);
    let x = layer_norm(b, &y, width);
    let y = dense(b, &x, width, 4 * width, 1.0);
    let y = gelu_erf(b, &y);
    let y = dense(b, &y, 4 * width, width, 2.0);
    b.op("Add", &[&y, &x], &[])
}

/// Queries, keys and values of one product, as vision transformers make them: split heads of
/// `[groups, tokens, width]`.
pub(crate) fn joint_qkv(b: &mut Builder, x: &str, groups: usize, heads: &Heads) -> [Name; 3] {
    let width = heads.width();
    let y = linear(b, x, width, 3 * width, 1.0);
    let y = reshape(b, &y, &[groups, heads.tokens, 3, heads.count, heads.depth]);
    let y = transpose(b, &y, &[2, 0, 3, 1, 4]);
    [0, 1, 2].map(|i| {
        let index = b.index(i);
        b.op("Gather", &[&y, &index], &[("axis", Attribute::Int(0))])
    })
}

/// Attention of vision transformers within `groups` of tokens: queries are scaled, `bias` is added
/// to scores, and a dense layer follows.
pub(crate) fn self_attention(
    b: &mut Builder,
    x: &str,
    groups: usize,
    heads: &Heads,
    bias: impl FnOnce(&mut Builder, Name) -> Name,
) -> Name {
    let [q, k, v] = joint_qkv(b, x, groups, heads);
    let scale = b.scalar((heads.depth as f32).powf(-0.5));
    let q = b.op("Mul", &[&q, &scale], &[]);
    let k = transpose(b, &k, &[0, 1, 3, 2]);
    let scores = b.op("MatMul", &[&q, &k], &[]);
    let scores = bias(b, scores);
    let weights = softmax(b, &scores);
    let y = b.op("MatMul", &[&weights, &v], &[]);
    let y = transpose(b, &y, &[0, 2, 1, 3]);
    let y = reshape(b, &y, &[groups, heads.tokens, heads.width()]);
    linear(b, &y, heads.width(), heads.width(), 1.0)
}

/// Two dense layers around an activation.
pub(crate) fn feed_forward(
    b: &mut Builder,
    x: &str,
    (width, hidden): (usize, usize),
    activation: fn(&mut Builder, &str) -> Name,
) -> Name {
    let y = linear(b, x, width, hidden, 1.0);
    let y = activation(b, &y);
    linear(b, &y, hidden, width, 2.0)
}
