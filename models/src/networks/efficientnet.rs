//! EfficientNet-B0 (Tan and Le): inverted residuals with squeeze and excitation, and SiLU.

use super::layers::{Conv, Gates, UNIT, conv_bn, conv_bn_silu, head, silu, squeeze_excite};
use crate::Builder;
use crate::builder::Name;

const GATES: Gates = Gates { squeezed: silu, gate: |b, x| b.op("Sigmoid", &[x], &[]) };

/// The gates halve what they let through, so that the projection makes up for it.
const PROJECTED: (f32, f32) = (1.2, 2.2);

struct Stage {
    expand: usize,
    kernel: usize,
    stride: usize,
    to: usize,
    blocks: usize,
}

const fn stage(expand: usize, kernel: usize, stride: usize, to: usize, blocks: usize) -> Stage {
    Stage { expand, kernel, stride, to, blocks }
}

const STAGES: [Stage; 7] = [
    stage(1, 3, 1, 16, 1),
    stage(6, 3, 2, 24, 2),
    stage(6, 5, 2, 40, 2),
    stage(6, 3, 2, 80, 3),
    stage(6, 5, 1, 112, 3),
    stage(6, 5, 2, 192, 4),
    stage(6, 3, 1, 320, 1),
];

fn block(b: &mut Builder, x: &str, from: usize, stage: &Stage, stride: usize) -> Name {
    let hidden = from * stage.expand;
    let y = if stage.expand > 1 {
        conv_bn_silu(b, x, &Conv::new(from, hidden, 1))
    } else {
        x.to_owned()
    };
    let depthwise = Conv::new(hidden, hidden, stage.kernel).stride(stride).groups(hidden);
    let y = conv_bn_silu(b, &y, &depthwise);
    let y = squeeze_excite(b, &y, (hidden, from / 4), &GATES);
    let residual = stride == 1 && from == stage.to;
    let y =
        conv_bn(b, &y, &Conv::new(hidden, stage.to, 1), if residual { UNIT } else { PROJECTED });
    if residual { b.op("Add", &[&y, x], &[]) } else { y }
}

pub(super) fn efficientnet_b0(b: &mut Builder) {
    let size = b.choose(224, 64);
    let x = b.input("x", &[1, 3, size, size]);
    let mut x = conv_bn_silu(b, &x, &Conv::new(3, 32, 3).stride(2));
    let mut from = 32;
    for stage in &STAGES {
        for i in 0..b.choose(stage.blocks, stage.blocks.min(2)) {
            x = block(b, &x, from, stage, if i == 0 { stage.stride } else { 1 });
            from = stage.to;
        }
    }
    let x = conv_bn_silu(b, &x, &Conv::new(from, 1280, 1));
    head(b, &x, 1280, 1000);
}
