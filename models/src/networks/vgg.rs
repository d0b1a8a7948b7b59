//! VGG-16 (Simonyan and Zisserman): plain 3x3 convolutions and three large dense layers.

use super::layers::{Conv, conv_bias, dense, dense_weights, max_pool, relu};
use crate::Builder;
use crate::proto::Attribute;

pub(super) fn vgg16(b: &mut Builder) {
    let size = b.choose(224, 64);
    let mut x = b.input("x", &[1, 3, size, size]);
    let mut from = 3;
    for (to, layers) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        for _ in 0..layers {
            let y = conv_bias(b, &x, &Conv::new(from, to, 3));
            x = relu(b, &y);
            from = to;
        }
        x = max_pool(b, &x, 2, 2, (0, 0));
    }
    let mut x = b.op("Flatten", &[&x], &[("axis", Attribute::Int(1))]);
    // Five poolings halve the picture.
    for from in [512 * (size / 32).pow(2), 4096] {
        let y = dense(b, &x, from, 4096, 2.0);
        x = relu(b, &y);
    }
    let (w, bias) = dense_weights(b, 4096, 1000, 1.0);
    b.result("logits", &[1, 1000], "Gemm", &[&x, &w, &bias], &[("transB", Attribute::Int(1))]);
}
