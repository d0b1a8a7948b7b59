//! The encoder of wav2vec 2.0 base (Baevski et al.) on a second of sound: convolutions over
//! samples, then a transformer.

use super::attention::{Heads, encoder_layer, gelu_erf, last_hidden_state, layer_norm, linear};
use super::layers::{Conv, conv, conv_bias, slice, transpose};
use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

const CHANNELS: usize = 512;
const WIDTH: usize = 768;
const POSITIONS: usize = 128;

fn filter(from: usize, kernel: usize, stride: usize) -> Conv {
    Conv { pads: vec![0], ..Conv::of_rank(1, from, CHANNELS, kernel).stride(stride) }
}

/// A group normalisation with a group for each channel.
fn group_norm(b: &mut Builder, x: &str) -> Name {
    let shape = b.ints(&[0, CHANNELS as i64, -1]);
    let groups = b.op("Reshape", &[x, &shape], &[]);
    let one = b.floats(&[CHANNELS], std::iter::repeat_n(1.0, CHANNELS));
    let zero = b.floats(&[CHANNELS], std::iter::repeat_n(0.0, CHANNELS));
    let epsilon = [("epsilon", Attribute::Float(1e-5))];
    let y = b.op("InstanceNormalization", &[&groups, &one, &zero], &epsilon);
    let shape = b.op("Shape", &[x], &[]);
    let y = b.op("Reshape", &[&y, &shape], &[]);
    let (scale, bias) = (b.uniform(&[CHANNELS, 1], 0.8, 1.2), b.uniform(&[CHANNELS, 1], -0.1, 0.1));
    let y = b.op("Mul", &[&y, &scale], &[]);
    b.op("Add", &[&y, &bias], &[])
}

/// A number for each 20 ms and channel.
fn features(b: &mut Builder, samples: usize) -> (Name, usize) {
    let x = b.input("input_values", &[1, samples]);
    let axes = b.ints(&[1]);
    let x = b.op("Unsqueeze", &[&x, &axes], &[]);
    let first = filter(1, 10, 5);
    let y = conv(b, &x, &first);
    let y = group_norm(b, &y);
    let mut x = gelu_erf(b, &y);
    let mut frames = first.output(&[samples]);
    for kernel in [3, 3, 3, 3, 2, 2] {
        let next = filter(CHANNELS, kernel, 2);
        let y = conv(b, &x, &next);
        x = gelu_erf(b, &y);
        frames = next.output(&frames);
    }
    (transpose(b, &x, &[0, 2, 1]), frames[0])
}

/// Positions are relative: a wide grouped convolution finds them.
fn positions(b: &mut Builder, x: &str) -> Name {
    let y = transpose(b, x, &[0, 2, 1]);
    let y = conv_bias(b, &y, &Conv::of_rank(1, WIDTH, WIDTH, POSITIONS).groups(16));
    let y = slice(b, &y, 2, (0, -1), 1);
    let y = gelu_erf(b, &y);
    let y = transpose(b, &y, &[0, 2, 1]);
    b.op("Add", &[x, &y], &[])
}

pub(super) fn wav2vec2(b: &mut Builder) {
    let samples = b.choose(16_000, 4_000);
    let (x, tokens) = features(b, samples);
    let x = layer_norm(b, &x, CHANNELS);
    let x = linear(b, &x, CHANNELS, WIDTH, 1.0);
    let x = positions(b, &x);
    let mut x = layer_norm(b, &x, WIDTH);
    let heads = Heads { tokens, count: 12, depth: WIDTH / 12 };
    let layers = b.choose(12, 1);
    for _ in 1..layers {
        let y = encoder_layer(b, &x, None, &heads, linear);
        x = layer_norm(b, &y, WIDTH);
    }
    let y = encoder_layer(b, &x, None, &heads, linear);
    last_hidden_state(b, &y, tokens, WIDTH);
}
