//! MobileNet-v2 (Sandler et al.): inverted residuals with depthwise convolutions.

use super::layers::{Conv, UNIT, conv_bn, head};
use crate::Builder;
use crate::builder::Name;

fn conv_bn_relu6(b: &mut Builder, x: &str, c: &Conv) -> Name {
    let y = conv_bn(b, x, c, UNIT);
    let (low, high) = (b.scalar(0.0), b.scalar(6.0));
    b.op("Clip", &[&y, &low, &high], &[])
}

fn inverted_residual(
    b: &mut Builder,
    x: &str,
    from: usize,
    to: usize,
    expand: usize,
    stride: usize,
) -> Name {
    let hidden = from * expand;
    let y =
        if expand > 1 { conv_bn_relu6(b, x, &Conv::new(from, hidden, 1)) } else { x.to_owned() };
    let y = conv_bn_relu6(b, &y, &Conv::new(hidden, hidden, 3).stride(stride).groups(hidden));
    let y = conv_bn(b, &y, &Conv::new(hidden, to, 1), UNIT);
    if stride == 1 && from == to { b.op("Add", &[x, &y], &[]) } else { y }
}

pub(super) fn mobilenet_v2(b: &mut Builder) {
    let x = b.input("x", &[1, 3, 224, 224]);
    let mut x = conv_bn_relu6(b, &x, &Conv::new(3, 32, 3).stride(2));
    let mut from = 32;
    let stages = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ];
    for (expand, to, blocks, first_stride) in stages {
        for block in 0..blocks {
            let stride = if block == 0 { first_stride } else { 1 };
            x = inverted_residual(b, &x, from, to, expand, stride);
            from = to;
        }
    }
    let x = conv_bn_relu6(b, &x, &Conv::new(from, 1280, 1));
    head(b, &x, 1280, 1000);
}
