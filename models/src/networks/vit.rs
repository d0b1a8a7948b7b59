//! ViT-B/16 (Dosovitskiy et al.): a picture is 196 patches and a token for its class.

use super::attention::{Heads, feed_forward, gelu_erf, layer_norm, self_attention};
use super::layers::{Conv, concat, conv_bias, dense_weights, reshape, transpose};
use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

const WIDTH: usize = 768;
const PATCH: usize = 16;

fn patches(b: &mut Builder, size: usize) -> (Name, usize) {
    let x = b.input("x", &[1, 3, size, size]);
    let conv = Conv { pads: vec![0; 2], ..Conv::new(3, WIDTH, PATCH).stride(PATCH) };
    let y = conv_bias(b, &x, &conv);
    let count = (size / PATCH).pow(2);
    let y = reshape(b, &y, &[1, WIDTH, count]);
    let y = transpose(b, &y, &[0, 2, 1]);
    let class = b.uniform(&[1, 1, WIDTH], -0.5, 0.5);
    let y = concat(b, &[&class, &y], 1);
    let positions = b.uniform(&[1, count + 1, WIDTH], -0.5, 0.5);
    (b.op("Add", &[&y, &positions], &[]), count + 1)
}

pub(super) fn vit_b16(b: &mut Builder) {
    let size = b.choose(224, 64);
    let (mut x, tokens) = patches(b, size);
    let heads = Heads { tokens, count: 12, depth: WIDTH / 12 };
    for _ in 0..b.choose(12, 1) {
        let y = layer_norm(b, &x, WIDTH);
        let y = self_attention(b, &y, 1, &heads, |_, scores| scores);
        x = b.op("Add", &[&x, &y], &[]);
        let y = layer_norm(b, &x, WIDTH);
        let y = feed_forward(b, &y, (WIDTH, 4 * WIDTH), gelu_erf);
        x = b.op("Add", &[&x, &y], &[]);
    }
    let x = layer_norm(b, &x, WIDTH);
    let class = b.index(0);
    let x = b.op("Gather", &[&x, &class], &[("axis", Attribute::Int(1))]);
    let (w, bias) = dense_weights(b, WIDTH, 1000, 1.0);
    b.result("logits", &[1, 1000], "Gemm", &[&x, &w, &bias], &[("transB", Attribute::Int(1))]);
}
