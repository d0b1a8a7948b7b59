//! ConvNeXt-T (Liu et al.): depthwise 7x7 convolutions, and dense layers with channels last.

use super::attention::{feed_forward, gelu_erf, layer_norm};
use super::layers::{Conv, conv_bias, dense_weights, transpose};
use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

const LAST: [usize; 4] = [0, 2, 3, 1];
const FIRST: [usize; 4] = [0, 3, 1, 2];

/// Normalises over the channels of a picture.
fn channel_norm(b: &mut Builder, x: &str, width: usize) -> Name {
    let y = transpose(b, x, &LAST);
    let y = layer_norm(b, &y, width);
    transpose(b, &y, &FIRST)
}

fn block(b: &mut Builder, x: &str, width: usize) -> Name {
    let y = conv_bias(b, x, &Conv::new(width, width, 7).groups(width));
    let y = transpose(b, &y, &LAST);
    let y = layer_norm(b, &y, width);
    let y = feed_forward(b, &y, (width, 4 * width), gelu_erf);
    let scale = b.uniform(&[width], 0.2, 0.6);
    let y = b.op("Mul", &[&y, &scale], &[]);
    let y = transpose(b, &y, &FIRST);
    b.op("Add", &[x, &y], &[])
}

/// A convolution whose kernel is as wide as its stride.
fn patches(from: usize, to: usize, kernel: usize) -> Conv {
    Conv { pads: vec![0; 2], ..Conv::new(from, to, kernel).stride(kernel) }
}

pub(super) fn convnext_t(b: &mut Builder) {
    let size = b.choose(224, 64);
    let x = b.input("x", &[1, 3, size, size]);
    let x = conv_bias(b, &x, &patches(3, 96, 4));
    let mut x = channel_norm(b, &x, 96);
    let mut width = 96;
    for (stage, blocks) in [3, 3, 9, 3].into_iter().enumerate() {
        if stage > 0 {
            let y = channel_norm(b, &x, width);
            x = conv_bias(b, &y, &patches(width, 2 * width, 2));
            width *= 2;
        }
        for _ in 0..b.choose(blocks, 1) {
            x = block(b, &x, width);
        }
    }
    let x = b.op("GlobalAveragePool", &[&x], &[]);
    let x = channel_norm(b, &x, width);
    let x = b.op("Flatten", &[&x], &[("axis", Attribute::Int(1))]);
    let (w, bias) = dense_weights(b, width, 1000, 1.0);
    b.result("logits", &[1, 1000], "Gemm", &[&x, &w, &bias], &[("transB", Attribute::Int(1))]);
}
