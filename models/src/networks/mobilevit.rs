//! MobileViT-S (Mehta and Rastegari): inverted residuals, and transformers over pixels of the same
//! place in patches.

use super::attention::{Heads, feed_forward, layer_norm, self_attention};
use super::layers::{
    Conv, UNIT, concat, conv, conv_bn, conv_bn_silu, head, reshape, silu, transpose,
};
use crate::Builder;
use crate::builder::Name;

const HEADS: usize = 4;

/// The side of a patch, and its pixels.
const PATCH: usize = 2;
const PIXELS: usize = PATCH * PATCH;

fn inverted_residual(b: &mut Builder, x: &str, (from, to): (usize, usize), stride: usize) -> Name {
    let hidden = 4 * from;
    let y = conv_bn_silu(b, x, &Conv::new(from, hidden, 1));
    let y = conv_bn_silu(b, &y, &Conv::new(hidden, hidden, 3).stride(stride).groups(hidden));
    let y = conv_bn(b, &y, &Conv::new(hidden, to, 1), UNIT);
    if stride == 1 && from == to { b.op("Add", &[&y, x], &[]) } else { y }
}

/// A block with a transformer: the channels and the side of its picture, the width and the layers
/// of the transformer.
struct Global {
    channels: usize,
    size: usize,
    width: usize,
    layers: usize,
}

impl Global {
    fn patches(&self) -> usize {
        (self.size / PATCH).pow(2)
    }

    /// `[1, width, size, size]` to `[pixels of a patch, patches, width]`.
    fn unfold(&self, b: &mut Builder, x: &str) -> Name {
        let across = self.size / PATCH;
        let y = reshape(b, x, &[self.width * across, PATCH, across, PATCH]);
        let y = transpose(b, &y, &[0, 2, 1, 3]);
        let y = reshape(b, &y, &[1, self.width, self.patches(), PIXELS]);
        let y = transpose(b, &y, &[0, 3, 2, 1]);
        reshape(b, &y, &[PIXELS, self.patches(), self.width])
    }

    fn fold(&self, b: &mut Builder, x: &str) -> Name {
        let across = self.size / PATCH;
        let y = reshape(b, x, &[1, PIXELS, self.patches(), self.width]);
        let y = transpose(b, &y, &[0, 3, 2, 1]);
        let y = reshape(b, &y, &[self.width * across, across, PATCH, PATCH]);
        let y = transpose(b, &y, &[0, 2, 1, 3]);
        reshape(b, &y, &[1, self.width, self.size, self.size])
    }

    fn transformer(&self, b: &mut Builder, mut x: Name) -> Name {
        let heads = Heads { tokens: self.patches(), count: HEADS, depth: self.width / HEADS };
        for _ in 0..self.layers {
            let y = layer_norm(b, &x, self.width);
            let y = self_attention(b, &y, PIXELS, &heads, |_, scores| scores);
            x = b.op("Add", &[&x, &y], &[]);
            let y = layer_norm(b, &x, self.width);
            let y = feed_forward(b, &y, (self.width, 2 * self.width), silu);
            x = b.op("Add", &[&x, &y], &[]);
        }
        layer_norm(b, &x, self.width)
    }

    fn build(&self, b: &mut Builder, x: &str) -> Name {
        let y = conv_bn_silu(b, x, &Conv::new(self.channels, self.channels, 3));
        let y = conv(b, &y, &Conv::new(self.channels, self.width, 1));
        let y = self.unfold(b, &y);
        let y = self.transformer(b, y);
        let y = self.fold(b, &y);
        let y = conv_bn_silu(b, &y, &Conv::new(self.width, self.channels, 1));
        let y = concat(b, &[x, &y], 1);
        conv_bn_silu(b, &y, &Conv::new(2 * self.channels, self.channels, 3))
    }
}

pub(super) fn mobilevit_s(b: &mut Builder) {
    let mut size = b.choose(256, 64);
    let x = b.input("x", &[1, 3, size, size]);
    let x = conv_bn_silu(b, &x, &Conv::new(3, 16, 3).stride(2));
    let x = inverted_residual(b, &x, (16, 32), 1);
    let mut x = inverted_residual(b, &x, (32, 64), 2);
    for _ in 0..b.choose(2, 1) {
        x = inverted_residual(b, &x, (64, 64), 1);
    }
    size /= 4;
    let mut from = 64;
    for (channels, width, layers) in [(96, 144, 2), (128, 192, 4), (160, 240, 3)] {
        size /= 2;
        x = inverted_residual(b, &x, (from, channels), 2);
        let layers = b.choose(layers, 1);
        x = Global { channels, size, width, layers }.build(b, &x);
        from = channels;
    }
    let x = conv_bn_silu(b, &x, &Conv::new(from, 640, 1));
    head(b, &x, 640, 1000);
}
