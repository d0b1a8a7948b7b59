//! Residual networks (He et al.): basic blocks, bottlenecks, and the 3-D form.

use super::layers::{Conv, UNIT, conv_bn, conv_bn_relu, head, max_pool, relu};
use crate::Builder;
use crate::builder::Name;

/// The residual branch is scaled down so that the sum keeps its size through the depth.
const BRANCH: (f32, f32) = (0.2, 0.5);
const BOTTLENECK: (f32, f32) = (0.1, 0.3);

fn stem(b: &mut Builder) -> Name {
    let x = b.input("x", &[1, 3, 224, 224]);
    let x = conv_bn_relu(b, &x, &Conv::new(3, 64, 7).stride(2));
    max_pool(b, &x, 3, 2, (1, 1))
}

fn add_relu(b: &mut Builder, branch: &str, shortcut: &str) -> Name {
    let sum = b.op("Add", &[branch, shortcut], &[]);
    relu(b, &sum)
}

/// Two 3x3 convolutions around a shortcut, in 2 or 3 spatial dimensions.
fn basic(b: &mut Builder, x: &str, rank: usize, from: usize, to: usize, stride: usize) -> Name {
    let y = conv_bn_relu(b, x, &Conv::of_rank(rank, from, to, 3).stride(stride));
    let y = conv_bn(b, &y, &Conv::of_rank(rank, to, to, 3), BRANCH);
    if stride == 1 && from == to {
        return add_relu(b, &y, x);
    }
    let shortcut = conv_bn(b, x, &Conv::of_rank(rank, from, to, 1).stride(stride), UNIT);
    add_relu(b, &y, &shortcut)
}

fn bottleneck(b: &mut Builder, x: &str, from: usize, width: usize, stride: usize) -> Name {
    let y = conv_bn_relu(b, x, &Conv::new(from, width, 1));
    let y = conv_bn_relu(b, &y, &Conv::new(width, width, 3).stride(stride));
    let y = conv_bn(b, &y, &Conv::new(width, 4 * width, 1), BOTTLENECK);
    if stride == 1 && from == 4 * width {
        return add_relu(b, &y, x);
    }
    let shortcut = conv_bn(b, x, &Conv::new(from, 4 * width, 1).stride(stride), UNIT);
    add_relu(b, &y, &shortcut)
}

fn basic_stages(b: &mut Builder, mut x: Name, rank: usize) -> Name {
    let mut from = 64;
    for (to, first_stride) in [(64, 1), (128, 2), (256, 2), (512, 2)] {
        for stride in [first_stride, 1] {
            x = basic(b, &x, rank, from, to, stride);
            from = to;
        }
    }
    x
}

pub(super) fn resnet18(b: &mut Builder) {
    let x = stem(b);
    let x = basic_stages(b, x, 2);
    head(b, &x, 512, 1000);
}

pub(super) fn resnet50(b: &mut Builder) {
    let mut x = stem(b);
    let mut from = 64;
    for (width, blocks, first_stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
        for block in 0..blocks {
            let stride = if block == 0 { first_stride } else { 1 };
            x = bottleneck(b, &x, from, width, stride);
            from = 4 * width;
        }
    }
    head(b, &x, 2048, 1000);
}

pub(super) fn resnet3d_18(b: &mut Builder) {
    let x = b.input("x", &[1, 3, 16, 112, 112]);
    let stem = Conv {
        kernel: vec![3, 7, 7],
        strides: vec![1, 2, 2],
        pads: vec![1, 3, 3],
        ..Conv::of_rank(3, 3, 64, 3)
    };
    let x = conv_bn_relu(b, &x, &stem);
    let x = basic_stages(b, x, 3);
    head(b, &x, 512, 400);
}
