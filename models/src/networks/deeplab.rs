//! DeepLabV3 (Chen et al.) on MobileNetV3-Large (Howard et al.): depthwise convolutions with
//! dilation, HardSwish, pooled pyramids and a picture that grows back.

use super::layers::{
    Conv, Gates, UNIT, concat, conv_bias, conv_bn, conv_bn_relu, relu, squeeze_excite,
};
use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Activation {
    Relu,
    HardSwish,
}

use Activation::{HardSwish, Relu};

impl Activation {
    fn apply(self, b: &mut Builder, x: &str) -> Name {
        b.op(if self == Relu { "Relu" } else { "HardSwish" }, &[x], &[])
    }
}

/// Kernel, expanded channels, results, squeeze and excitation, activation, stride, dilation.
type Block = (usize, usize, usize, bool, Activation, usize, usize);

/// The last stage has dilation in place of its stride.
const BLOCKS: [Block; 15] = [
    (3, 16, 16, false, Relu, 1, 1),
    (3, 64, 24, false, Relu, 2, 1),
    (3, 72, 24, false, Relu, 1, 1),
    (5, 72, 40, true, Relu, 2, 1),
    (5, 120, 40, true, Relu, 1, 1),
    (5, 120, 40, true, Relu, 1, 1),
    (3, 240, 80, false, HardSwish, 2, 1),
    (3, 200, 80, false, HardSwish, 1, 1),
    (3, 184, 80, false, HardSwish, 1, 1),
    (3, 184, 80, false, HardSwish, 1, 1),
    (3, 480, 112, true, HardSwish, 1, 1),
    (3, 672, 112, true, HardSwish, 1, 1),
    (5, 672, 160, true, HardSwish, 1, 2),
    (5, 960, 160, true, HardSwish, 1, 2),
    (5, 960, 160, true, HardSwish, 1, 2),
];

const CLASSES: usize = 21;
const WIDTH: usize = 256;

fn hard_sigmoid(b: &mut Builder, x: &str) -> Name {
    b.op("HardSigmoid", &[x], &[("alpha", Attribute::Float(1.0 / 6.0))])
}

const GATES: Gates = Gates { squeezed: relu, gate: hard_sigmoid };

/// To the nearest multiple of 8 that is not less than nine tenths.
fn rounded(channels: usize) -> usize {
    let nearest = (channels + 4) / 8 * 8;
    if nearest * 10 < channels * 9 { nearest + 8 } else { nearest.max(8) }
}

/// A convolution that keeps the size of a picture in spite of its dilation.
fn dilated(from: usize, to: usize, kernel: usize, dilation: usize) -> Conv {
    let conv = Conv::new(from, to, kernel).dilation(dilation);
    Conv { pads: vec![kernel / 2 * dilation; 2], ..conv }
}

fn activated(b: &mut Builder, x: &str, c: &Conv, activation: Activation) -> Name {
    let y = conv_bn(b, x, c, UNIT);
    activation.apply(b, &y)
}

fn block(b: &mut Builder, x: &str, from: usize, block: Block) -> Name {
    let (kernel, hidden, to, squeezes, activation, stride, dilation) = block;
    let mut y = x.to_owned();
    if hidden != from {
        y = activated(b, &y, &Conv::new(from, hidden, 1), activation);
    }
    let depthwise = dilated(hidden, hidden, kernel, dilation).stride(stride).groups(hidden);
    y = activated(b, &y, &depthwise, activation);
    if squeezes {
        y = squeeze_excite(b, &y, (hidden, rounded(hidden / 4)), &GATES);
    }
    let y = conv_bn(b, &y, &Conv::new(hidden, to, 1), UNIT);
    if stride == 1 && from == to { b.op("Add", &[&y, x], &[]) } else { y }
}

/// Bilinear, to a square of `size`.
fn upsample(b: &mut Builder, x: &str, channels: usize, size: usize) -> Name {
    let sizes = b.ints(&[1, channels as i64, size as i64, size as i64]);
    b.op("Resize", &[x, "", "", &sizes], &UPSAMPLE)
}

const UPSAMPLE: [(&str, Attribute); 2] = [
    ("mode", Attribute::Text("linear")),
    ("coordinate_transformation_mode", Attribute::Text("pytorch_half_pixel")),
];

/// Atrous spatial pyramid pooling: one point, three dilations and the mean of the whole picture.
fn pyramid(b: &mut Builder, x: &str, from: usize, size: usize) -> Name {
    let mut parts = vec![conv_bn_relu(b, x, &Conv::new(from, WIDTH, 1))];
    for dilation in [12, 24, 36] {
        parts.push(conv_bn_relu(b, x, &dilated(from, WIDTH, 3, dilation)));
    }
    let y = b.op("GlobalAveragePool", &[x], &[]);
    let y = conv_bn_relu(b, &y, &Conv::new(from, WIDTH, 1));
    parts.push(upsample(b, &y, WIDTH, size));
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let y = concat(b, &parts, 1);
    conv_bn_relu(b, &y, &Conv::new(5 * WIDTH, WIDTH, 1))
}

pub(super) fn deeplabv3_mobilenet_v3(b: &mut Builder) {
    let size = b.choose(512, 128);
    let x = b.input("x", &[1, 3, size, size]);
    let mut x = activated(b, &x, &Conv::new(3, 16, 3).stride(2), HardSwish);
    let mut from = 16;
    for one in BLOCKS {
        x = block(b, &x, from, one);
        from = one.2;
    }
    let x = activated(b, &x, &Conv::new(from, 960, 1), HardSwish);
    let x = pyramid(b, &x, 960, size / 16);
    let x = conv_bn_relu(b, &x, &Conv::new(WIDTH, WIDTH, 3));
    let x = conv_bias(b, &x, &Conv::new(WIDTH, CLASSES, 1));
    let sizes = b.ints(&[1, CLASSES as i64, size as i64, size as i64]);
    b.result("out", &[1, CLASSES, size, size], "Resize", &[&x, "", "", &sizes], &UPSAMPLE);
}
