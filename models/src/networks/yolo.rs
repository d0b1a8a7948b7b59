//! YOLOv8n (Jocher et al., Ultralytics): a detector whose boxes are expectations over distances.
//!
//! ```text
//! picture -> P3, P4, P5 (backbone) -> down to P3, and up again (neck)
//! each of three sizes -> sides of boxes (4 x 16 logits) and classes (80) of each place
//! sides: softmax over 16 distances, their mean -> corners around the place -> centre and size
//! ```

use super::layers::{Conv, concat, conv_bias, conv_bn_silu, max_pool, reshape, slice, transpose};
use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

const CLASSES: usize = 80;
/// Distances of a side from the place, in strides.
const DISTANCES: usize = 16;
/// Channels of the three sizes that boxes are found at, and pixels between their places.
const CHANNELS: [usize; 3] = [64, 128, 256];
const STRIDES: [usize; 3] = [8, 16, 32];

/// A convolution of 3x3 with stride 2.
fn down(b: &mut Builder, x: &str, from: usize, to: usize) -> Name {
    conv_bn_silu(b, x, &Conv::new(from, to, 3).stride(2))
}

/// Half of the channels goes through `blocks` pairs of convolutions; what each of them makes, and
/// both halves, are seen by the last convolution.
fn stage(
    b: &mut Builder,
    x: &str,
    (from, to): (usize, usize),
    blocks: usize,
    residual: bool,
) -> Name {
    let half = to / 2;
    let y = conv_bn_silu(b, x, &Conv::new(from, to, 1));
    let halves = b.ints(&[half as i64; 2]);
    let mut parts = b.ops("Split", &[&y, &halves], &[("axis", Attribute::Int(1))], 2);
    for _ in 0..blocks {
        let x = parts[parts.len() - 1].clone();
        let y = conv_bn_silu(b, &x, &Conv::new(half, half, 3));
        let y = conv_bn_silu(b, &y, &Conv::new(half, half, 3));
        parts.push(if residual { b.op("Add", &[&x, &y], &[]) } else { y });
    }
    let all: Vec<&str> = parts.iter().map(String::as_str).collect();
    let y = concat(b, &all, 1);
    conv_bn_silu(b, &y, &Conv::new(parts.len() * half, to, 1))
}

/// Maxima of windows of 5, 9 and 13, beside what they are the maxima of.
fn pyramid(b: &mut Builder, x: &str, channels: usize) -> Name {
    let mut parts = vec![conv_bn_silu(b, x, &Conv::new(channels, channels / 2, 1))];
    for _ in 0..3 {
        parts.push(max_pool(b, &parts[parts.len() - 1].clone(), 5, 1, (2, 2)));
    }
    let all: Vec<&str> = parts.iter().map(String::as_str).collect();
    let y = concat(b, &all, 1);
    conv_bn_silu(b, &y, &Conv::new(2 * channels, channels, 1))
}

/// Twice the size, beside another tensor of that size.
fn up_beside(b: &mut Builder, x: &str, other: &str) -> Name {
    let scales = b.floats(&[4], [1.0, 1.0, 2.0, 2.0].into_iter());
    let attributes = [
        ("mode", Attribute::Text("nearest")),
        ("coordinate_transformation_mode", Attribute::Text("asymmetric")),
        ("nearest_mode", Attribute::Text("floor")),
    ];
    let y = b.op("Resize", &[x, "", &scales], &attributes);
    concat(b, &[&y, other], 1)
}

/// Features of strides 8, 16 and 32.
fn features(b: &mut Builder, x: &str) -> [Name; 3] {
    let twice = b.choose(2, 1);
    let x = down(b, x, 3, 16);
    let x = down(b, &x, 16, 32);
    let x = stage(b, &x, (32, 32), 1, true);
    let x = down(b, &x, 32, 64);
    let p3 = stage(b, &x, (64, 64), twice, true);
    let x = down(b, &p3, 64, 128);
    let p4 = stage(b, &x, (128, 128), twice, true);
    let x = down(b, &p4, 128, 256);
    let x = stage(b, &x, (256, 256), 1, true);
    let p5 = pyramid(b, &x, 256);

    let x = up_beside(b, &p5, &p4);
    let p4 = stage(b, &x, (256 + 128, 128), 1, false);
    let x = up_beside(b, &p4, &p3);
    let p3 = stage(b, &x, (128 + 64, 64), 1, false);
    let x = down(b, &p3, 64, 64);
    let x = concat(b, &[&x, &p4], 1);
    let p4 = stage(b, &x, (64 + 128, 128), 1, false);
    let x = down(b, &p4, 128, 128);
    let x = concat(b, &[&x, &p5], 1);
    let p5 = stage(b, &x, (128 + 256, 256), 1, false);
    [p3, p4, p5]
}

/// Two convolutions of 3x3, and one that makes `to` channels.
fn branch(b: &mut Builder, x: &str, from: usize, width: usize, to: usize) -> Name {
    let y = conv_bn_silu(b, x, &Conv::new(from, width, 3));
    let y = conv_bn_silu(b, &y, &Conv::new(width, width, 3));
    conv_bias(b, &y, &Conv::new(width, to, 1))
}

/// Logits of all places of all sizes, `[1, 4 * 16 + 80, places]`.
fn logits(b: &mut Builder, features: &[Name; 3], places: &[usize; 3]) -> Name {
    let sides = 4 * DISTANCES;
    let mut all = vec![];
    for ((x, from), places) in features.iter().zip(CHANNELS).zip(places) {
        let boxes = branch(b, x, from, sides, sides);
        let classes = branch(b, x, from, CLASSES, CLASSES);
        let both = concat(b, &[&boxes, &classes], 1);
        all.push(reshape(b, &both, &[1, sides + CLASSES, *places]));
    }
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    concat(b, &all, 2)
}

/// The mean distance of each side, `[1, 4, places]`.
fn distances(b: &mut Builder, sides: &str, places: usize) -> Name {
    let y = reshape(b, sides, &[1, 4, DISTANCES, places]);
    let y = transpose(b, &y, &[0, 2, 1, 3]);
    let y = b.op("Softmax", &[&y], &[("axis", Attribute::Int(1))]);
    // Not learnt.
    let means = b.floats(&[1, DISTANCES, 1, 1], (0..DISTANCES).map(|d| d as f32));
    let y = b.op("Conv", &[&y, &means], &Conv::new(DISTANCES, 1, 1).attributes());
    reshape(b, &y, &[1, 4, places])
}

/// Centres and sizes in pixels, `[1, 4, places]`.
fn boxes(b: &mut Builder, distances: &str, sizes: &[usize; 3]) -> Name {
    let middle = |n: usize| n as f32 + 0.5;
    let at = |size: usize| (0..size * size).map(move |p| (middle(p % size), middle(p / size)));
    let at: Vec<(f32, f32)> = sizes.iter().flat_map(|&size| at(size)).collect();
    let strides = sizes.iter().zip(STRIDES).flat_map(|(size, s)| vec![s as f32; size * size]);
    let anchors = at.iter().map(|p| p.0).chain(at.iter().map(|p| p.1));
    let anchors = b.floats(&[1, 2, at.len()], anchors);
    let before = slice(b, distances, 1, (0, 2), 1);
    let after = slice(b, distances, 1, (2, 4), 1);
    let first = b.op("Sub", &[&anchors, &before], &[]);
    let last = b.op("Add", &[&anchors, &after], &[]);
    let sum = b.op("Add", &[&first, &last], &[]);
    let two = b.scalar(2.0);
    let centre = b.op("Div", &[&sum, &two], &[]);
    let size = b.op("Sub", &[&last, &first], &[]);
    let both = concat(b, &[&centre, &size], 1);
    let strides = b.floats(&[1, at.len()], strides);
    b.op("Mul", &[&both, &strides], &[])
}

pub(super) fn yolov8n(b: &mut Builder) {
    let size = b.choose(640, 64);
    let sizes = STRIDES.map(|stride| size / stride);
    let places = sizes.map(|size| size * size);
    let count = places.iter().sum();
    let x = b.input("images", &[1, 3, size, size]);
    let features = features(b, &x);
    let y = logits(b, &features, &places);
    let parts = b.ints(&[4 * DISTANCES as i64, CLASSES as i64]);
    let parts = b.ops("Split", &[&y, &parts], &[("axis", Attribute::Int(1))], 2);
    let distances = distances(b, &parts[0], count);
    let boxes = boxes(b, &distances, &sizes);
    let classes = b.op("Sigmoid", &[&parts[1]], &[]);
    let all = [boxes.as_str(), &classes];
    b.result("output0", &[1, 4 + CLASSES, count], "Concat", &all, &[("axis", Attribute::Int(1))]);
}
