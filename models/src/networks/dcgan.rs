//! The generator of DCGAN (Radford et al.): transposed convolutions from noise to a 64x64 picture.

use super::layers::{UNIT, batch_norm, ints, relu};
use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

/// A transposed convolution with a 4x4 kernel.
pub(crate) fn up(
    b: &mut Builder,
    x: &str,
    from: usize,
    to: usize,
    stride: usize,
    pad: usize,
) -> Name {
    let (w, attributes) = up_parts(b, from, to, stride, pad);
    b.op("ConvTranspose", &[x, &w], &attributes)
}

fn up_parts(
    b: &mut Builder,
    from: usize,
    to: usize,
    stride: usize,
    pad: usize,
) -> (Name, [(&'static str, Attribute); 3]) {
    let w = b.weight(&[from, to, 4, 4], from * 16 / (stride * stride), 2.0);
    let attributes = [
        ("kernel_shape", ints(&[4; 2])),
        ("strides", ints(&[stride; 2])),
        ("pads", ints(&[pad; 4])),
    ];
    (w, attributes)
}

pub(super) fn dcgan(b: &mut Builder) {
    let z = b.input("z", &[1, 100, 1, 1]);
    let mut x = z;
    let mut from = 100;
    for (to, stride, pad) in [(512, 1, 0), (256, 2, 1), (128, 2, 1), (64, 2, 1)] {
        let y = up(b, &x, from, to, stride, pad);
        let y = batch_norm(b, &y, to, UNIT);
        x = relu(b, &y);
        from = to;
    }
    let y = up(b, &x, from, 3, 2, 1);
    b.result("image", &[1, 3, 64, 64], "Tanh", &[&y], &[]);
}
