//! ShuffleNet v1 with 3 groups (Zhang et al.) and v2 1x (Ma et al.): channels are shuffled between
//! cheap convolutions.

use super::layers::{
    Conv, UNIT, concat, conv_bn, conv_bn_relu, head, ints, max_pool, relu, reshape, transpose,
};
use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

/// `[groups, channels / groups]` to `[channels / groups, groups]`.
fn shuffle(b: &mut Builder, x: &str, channels: usize, groups: usize, size: usize) -> Name {
    let y = reshape(b, x, &[1, groups, channels / groups, size, size]);
    let y = transpose(b, &y, &[0, 2, 1, 3, 4]);
    reshape(b, &y, &[1, channels, size, size])
}

const GROUPS: usize = 3;

/// The scale of a branch that is added to a shortcut: sums keep their size through the depth.
const BRANCH: (f32, f32) = (0.2, 0.5);

/// A unit of v1. With stride 2 the shortcut is an average pool, and both are concatenated.
fn grouped_unit(b: &mut Builder, x: &str, (from, to): (usize, usize), size: usize) -> Name {
    let downsamples = from != to;
    let (made, stride) = if downsamples { (to - from, 2) } else { (to, 1) };
    let middle = to / 4;
    // The first unit has so few channels that its first convolution is not grouped.
    let groups = if from == 24 { 1 } else { GROUPS };
    let y = conv_bn_relu(b, x, &Conv::new(from, middle, 1).groups(groups));
    let y = shuffle(b, &y, middle, GROUPS, size * stride);
    let y = conv_bn(b, &y, &Conv::new(middle, middle, 3).stride(stride).groups(middle), UNIT);
    let scale = if downsamples { UNIT } else { BRANCH };
    let y = conv_bn(b, &y, &Conv::new(middle, made, 1).groups(GROUPS), scale);
    let y = if downsamples {
        let pool = [
            ("kernel_shape", ints(&[3, 3])),
            ("strides", ints(&[2, 2])),
            ("pads", ints(&[1; 4])),
            ("count_include_pad", Attribute::Int(1)),
        ];
        let shortcut = b.op("AveragePool", &[x], &pool);
        concat(b, &[&shortcut, &y], 1)
    } else {
        b.op("Add", &[x, &y], &[])
    };
    relu(b, &y)
}

fn stem(b: &mut Builder, size: usize) -> Name {
    let x = b.input("x", &[1, 3, size, size]);
    let x = conv_bn_relu(b, &x, &Conv::new(3, 24, 3).stride(2));
    max_pool(b, &x, 3, 2, (1, 1))
}

pub(super) fn shufflenet_v1(b: &mut Builder) {
    let mut size = b.choose(224, 64);
    let mut x = stem(b, size);
    size /= 4;
    let mut from = 24;
    for (to, units) in [(240, 4), (480, 8), (960, 4)] {
        size /= 2;
        for _ in 0..b.choose(units, 2) {
            x = grouped_unit(b, &x, (from, to), size);
            from = to;
        }
    }
    head(b, &x, 960, 1000);
}

/// A unit of v2 that keeps half of the channels as they are.
fn split_unit(b: &mut Builder, x: &str, channels: usize, size: usize) -> Name {
    let half = channels / 2;
    let halves = b.ints(&[half as i64; 2]);
    let parts = b.ops("Split", &[x, &halves], &[("axis", Attribute::Int(1))], 2);
    let y = branch(b, &parts[1], half, half, 1);
    let y = concat(b, &[&parts[0], &y], 1);
    shuffle(b, &y, channels, 2, size)
}

fn branch(b: &mut Builder, x: &str, from: usize, to: usize, stride: usize) -> Name {
    let y = conv_bn_relu(b, x, &Conv::new(from, to, 1));
    let y = conv_bn(b, &y, &Conv::new(to, to, 3).stride(stride).groups(to), UNIT);
    conv_bn_relu(b, &y, &Conv::new(to, to, 1))
}

/// A unit of v2 that halves the picture: both branches work on all channels.
fn reducing_unit(b: &mut Builder, x: &str, (from, to): (usize, usize), size: usize) -> Name {
    let shortcut = conv_bn(b, x, &Conv::new(from, from, 3).stride(2).groups(from), UNIT);
    let shortcut = conv_bn_relu(b, &shortcut, &Conv::new(from, to / 2, 1));
    let y = branch(b, x, from, to / 2, 2);
    let y = concat(b, &[&shortcut, &y], 1);
    shuffle(b, &y, to, 2, size)
}

pub(super) fn shufflenet_v2(b: &mut Builder) {
    let mut size = b.choose(224, 64);
    let mut x = stem(b, size);
    size /= 4;
    let mut from = 24;
    for (to, units) in [(116, 4), (232, 8), (464, 4)] {
        size /= 2;
        x = reducing_unit(b, &x, (from, to), size);
        from = to;
        for _ in 1..b.choose(units, 2) {
            x = split_unit(b, &x, to, size);
        }
    }
    let x = conv_bn_relu(b, &x, &Conv::new(from, 1024, 1));
    head(b, &x, 1024, 1000);
}
