//! Inception-v1 (Szegedy et al.), with batch normalisation.

use super::layers::{Conv, conv_bn_relu, head, max_pool};
use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

/// Channels of a module's branches: 1x1; 3x3 reduction and 3x3; 5x5 reduction and 5x5; pool
/// projection.
type Branches = (usize, (usize, usize), (usize, usize), usize);

fn module(
    b: &mut Builder,
    x: &str,
    from: usize,
    (one, three, five, pool): Branches,
) -> (Name, usize) {
    let a = conv_bn_relu(b, x, &Conv::new(from, one, 1));
    let c = conv_bn_relu(b, x, &Conv::new(from, three.0, 1));
    let c = conv_bn_relu(b, &c, &Conv::new(three.0, three.1, 3));
    let d = conv_bn_relu(b, x, &Conv::new(from, five.0, 1));
    let d = conv_bn_relu(b, &d, &Conv::new(five.0, five.1, 5));
    let e = max_pool(b, x, 3, 1, (1, 1));
    let e = conv_bn_relu(b, &e, &Conv::new(from, pool, 1));
    let y = b.op("Concat", &[&a, &c, &d, &e], &[("axis", Attribute::Int(1))]);
    (y, one + three.1 + five.1 + pool)
}

fn modules(b: &mut Builder, mut x: Name, mut from: usize, list: &[Branches]) -> (Name, usize) {
    for branches in list {
        (x, from) = module(b, &x, from, *branches);
    }
    (x, from)
}

pub(super) fn inception_v1(b: &mut Builder) {
    let x = b.input("x", &[1, 3, 224, 224]);
    let x = conv_bn_relu(b, &x, &Conv::new(3, 64, 7).stride(2));
    let x = max_pool(b, &x, 3, 2, (0, 1));
    let x = conv_bn_relu(b, &x, &Conv::new(64, 64, 1));
    let x = conv_bn_relu(b, &x, &Conv::new(64, 192, 3));
    let x = max_pool(b, &x, 3, 2, (0, 1));
    let (x, from) =
        modules(b, x, 192, &[(64, (96, 128), (16, 32), 32), (128, (128, 192), (32, 96), 64)]);
    let x = max_pool(b, &x, 3, 2, (0, 1));
    let middle = [
        (192, (96, 208), (16, 48), 64),
        (160, (112, 224), (24, 64), 64),
        (128, (128, 256), (24, 64), 64),
        (112, (144, 288), (32, 64), 64),
        (256, (160, 320), (32, 128), 128),
    ];
    let (x, from) = modules(b, x, from, &middle);
    let x = max_pool(b, &x, 3, 2, (0, 1));
    let last = [(256, (160, 320), (32, 128), 128), (384, (192, 384), (48, 128), 128)];
    let (x, from) = modules(b, x, from, &last);
    head(b, &x, from, 1000);
}
