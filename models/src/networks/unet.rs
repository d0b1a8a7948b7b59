//! U-Net (Ronneberger et al.) with batch normalisation and padding: what was made on the way down
//! is concatenated on the way up.

use super::layers::{Conv, concat, conv_attributes, conv_bn_relu, ints, max_pool};
use crate::Builder;
use crate::builder::Name;

const WIDTHS: [usize; 5] = [64, 128, 256, 512, 1024];
const CLASSES: usize = 2;

fn double_conv(b: &mut Builder, x: &str, from: usize, to: usize) -> Name {
    let y = conv_bn_relu(b, x, &Conv::new(from, to, 3));
    conv_bn_relu(b, &y, &Conv::new(to, to, 3))
}

/// A transposed convolution that doubles the size and halves the channels.
fn up(b: &mut Builder, x: &str, from: usize) -> Name {
    let (w, bias) =
        (b.weight(&[from, from / 2, 2, 2], from, 2.0), b.uniform(&[from / 2], -0.05, 0.05));
    let attributes = [("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))];
    b.op("ConvTranspose", &[x, &w, &bias], &attributes)
}

pub(super) fn unet(b: &mut Builder) {
    let size = b.choose(256, 32);
    let x = b.input("x", &[1, 3, size, size]);
    let mut x = double_conv(b, &x, 3, WIDTHS[0]);
    let mut skipped = vec![];
    for pair in WIDTHS.windows(2) {
        skipped.push(x.clone());
        let y = max_pool(b, &x, 2, 2, (0, 0));
        x = double_conv(b, &y, pair[0], pair[1]);
    }
    for (&from, skip) in WIDTHS[1..].iter().zip(&skipped).rev() {
        let y = up(b, &x, from);
        let y = concat(b, &[skip, &y], 1);
        x = double_conv(b, &y, from, from / 2);
    }
    let (w, attributes) = conv_attributes(b, &Conv::new(WIDTHS[0], CLASSES, 1));
    let bias = b.uniform(&[CLASSES], -0.05, 0.05);
    b.result("masks", &[1, CLASSES, size, size], "Conv", &[&x, &w, &bias], &attributes);
}

pub(super) fn unet_fp16(b: &mut Builder) {
    b.half_floats();
    unet(b);
}
