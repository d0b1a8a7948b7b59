//! Swin-T (Liu et al.): attention within windows that every second block shifts.

use super::attention::{Heads, feed_forward, gelu_erf, layer_norm, product, self_attention};
use super::layers::{Conv, concat, conv_bias, dense_weights, ints, reshape, slice, transpose};
use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

const WINDOW: usize = 7;
const TOKENS: usize = WINDOW * WINDOW;
const SHIFT: usize = WINDOW / 2;
const DEPTH: usize = 32;

/// A block's place: pictures of `size` times `size` tokens of `width` numbers.
struct Place {
    size: usize,
    width: usize,
    shift: usize,
}

impl Place {
    fn windows(&self) -> usize {
        (self.size / WINDOW).pow(2)
    }

    /// `torch.roll` along both axes of a picture; exporters write it as slices.
    fn roll(&self, b: &mut Builder, x: &str, by: usize) -> Name {
        [1, 2].into_iter().fold(x.to_owned(), |x, axis| {
            let end = slice(b, &x, axis, (by as i64, i64::MAX), 1);
            let start = slice(b, &x, axis, (0, by as i64), 1);
            concat(b, &[&end, &start], axis)
        })
    }

    fn partition(&self, b: &mut Builder, x: &str) -> Name {
        let across = self.size / WINDOW;
        let y = reshape(b, x, &[1, across, WINDOW, across, WINDOW, self.width]);
        let y = transpose(b, &y, &[0, 1, 3, 2, 4, 5]);
        reshape(b, &y, &[self.windows(), TOKENS, self.width])
    }

    fn merge(&self, b: &mut Builder, x: &str) -> Name {
        let across = self.size / WINDOW;
        let y = reshape(b, x, &[1, across, across, WINDOW, WINDOW, self.width]);
        let y = transpose(b, &y, &[0, 1, 3, 2, 4, 5]);
        reshape(b, &y, &[1, self.size, self.size, self.width])
    }

    /// Which of nine regions each place of a shifted picture came from: those of one window that
    /// differ must not see each other.
    fn mask(&self) -> Vec<f32> {
        let region =
            |i: usize| usize::from(i >= self.size - WINDOW) + usize::from(i >= self.size - SHIFT);
        let across = self.size / WINDOW;
        let of = |window: usize, token: usize| {
            let row = window / across * WINDOW + token / WINDOW;
            let column = window % across * WINDOW + token % WINDOW;
            3 * region(row) + region(column)
        };
        (0..self.windows() * TOKENS * TOKENS)
            .map(|i| {
                let (window, pair) = (i / (TOKENS * TOKENS), i % (TOKENS * TOKENS));
                let same = of(window, pair / TOKENS) == of(window, pair % TOKENS);
                if same { 0.0 } else { -100.0 }
            })
            .collect()
    }

    /// Scores with the bias of relative positions, and masked where the picture is shifted.
    fn biased(&self, b: &mut Builder, scores: &str, heads: usize) -> Name {
        let bias = relative_positions(b, heads);
        let scores = b.op("Add", &[scores, &bias], &[]);
        if self.shift == 0 {
            return scores;
        }
        let windows = self.windows();
        let mask = b.floats(&[1, windows, 1, TOKENS, TOKENS], self.mask().into_iter());
        let y = reshape(b, &scores, &[1, windows, heads, TOKENS, TOKENS]);
        let y = b.op("Add", &[&y, &mask], &[]);
        reshape(b, &y, &[windows, heads, TOKENS, TOKENS])
    }
}

/// A trained number for each head and each way from one token of a window to another.
fn relative_positions(b: &mut Builder, heads: usize) -> Name {
    let ways = 2 * WINDOW - 1;
    let table = b.uniform(&[ways * ways, heads], -0.5, 0.5);
    let index: Vec<i64> = (0..TOKENS * TOKENS)
        .map(|i| {
            let (from, to) = (i / TOKENS, i % TOKENS);
            let rows = from / WINDOW + WINDOW - 1 - to / WINDOW;
            let columns = from % WINDOW + WINDOW - 1 - to % WINDOW;
            (rows * ways + columns) as i64
        })
        .collect();
    let index = b.ints(&index);
    let y = b.op("Gather", &[&table, &index], &[("axis", Attribute::Int(0))]);
    let y = reshape(b, &y, &[TOKENS, TOKENS, heads]);
    let y = transpose(b, &y, &[2, 0, 1]);
    let axes = b.ints(&[0]);
    b.op("Unsqueeze", &[&y, &axes], &[])
}

fn block(b: &mut Builder, x: &str, place: &Place) -> Name {
    let heads = Heads { tokens: TOKENS, count: place.width / DEPTH, depth: DEPTH };
    let mut y = layer_norm(b, x, place.width);
    if place.shift > 0 {
        y = place.roll(b, &y, place.shift);
    }
    let y = place.partition(b, &y);
    let y = self_attention(b, &y, place.windows(), &heads, |b, scores| {
        place.biased(b, &scores, heads.count)
    });
    let mut y = place.merge(b, &y);
    if place.shift > 0 {
        y = place.roll(b, &y, place.size - place.shift);
    }
    let x = b.op("Add", &[x, &y], &[]);
    let y = layer_norm(b, &x, place.width);
    let y = feed_forward(b, &y, (place.width, 4 * place.width), gelu_erf);
    b.op("Add", &[&x, &y], &[])
}

/// Four neighbours become one token of twice the width.
fn merge_patches(b: &mut Builder, x: &str, width: usize) -> Name {
    let parts = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(row, column)| {
        let y = slice(b, x, 1, (row, i64::MAX), 2);
        slice(b, &y, 2, (column, i64::MAX), 2)
    });
    let y = concat(b, &parts.each_ref().map(String::as_str), -1);
    let y = layer_norm(b, &y, 4 * width);
    product(b, &y, 4 * width, 2 * width, 1.0)
}

pub(super) fn swin_t(b: &mut Builder) {
    let mut size = b.choose(224, 112);
    let mut width = 96;
    let x = b.input("x", &[1, 3, size, size]);
    let x = conv_bias(b, &x, &Conv { pads: vec![0; 2], ..Conv::new(3, width, 4).stride(4) });
    let x = transpose(b, &x, &[0, 2, 3, 1]);
    let mut x = layer_norm(b, &x, width);
    size /= 4;
    // The reduced picture is too small for the last two stages.
    for (stage, blocks) in b.choose(&[2, 2, 6, 2][..], &[2, 1]).iter().enumerate() {
        if stage > 0 {
            x = merge_patches(b, &x, width);
            (size, width) = (size / 2, 2 * width);
        }
        for i in 0..*blocks {
            let shift = if i % 2 == 1 && size > WINDOW { SHIFT } else { 0 };
            x = block(b, &x, &Place { size, width, shift });
        }
    }
    let x = layer_norm(b, &x, width);
    let means = [("axes", ints(&[1, 2])), ("keepdims", Attribute::Int(0))];
    let x = b.op("ReduceMean", &[&x], &means);
    let (w, bias) = dense_weights(b, width, 1000, 1.0);
    b.result("logits", &[1, 1000], "Gemm", &[&x, &w, &bias], &[("transB", Attribute::Int(1))]);
}
