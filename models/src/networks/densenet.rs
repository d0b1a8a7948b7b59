//! DenseNet-121 (Huang et al.): each layer reads the concatenation of all before it.

use super::layers::{
    Conv, UNIT, batch_norm, concat, conv, conv_bn_relu, head, ints, max_pool, relu,
};
use crate::Builder;
use crate::builder::Name;

const GROWTH: usize = 32;
const BOTTLENECK: usize = 4 * GROWTH;

fn bn_relu_conv(b: &mut Builder, x: &str, c: &Conv) -> Name {
    let y = batch_norm(b, x, c.from, UNIT);
    let y = relu(b, &y);
    conv(b, &y, c)
}

fn dense_block(b: &mut Builder, x: Name, from: usize, layers: usize) -> (Name, usize) {
    let mut features = vec![x];
    for layer in 0..layers {
        let parts: Vec<&str> = features.iter().map(String::as_str).collect();
        let x = if layer == 0 { parts[0].to_owned() } else { concat(b, &parts, 1) };
        let y = bn_relu_conv(b, &x, &Conv::new(from + layer * GROWTH, BOTTLENECK, 1));
        features.push(bn_relu_conv(b, &y, &Conv::new(BOTTLENECK, GROWTH, 3)));
    }
    let parts: Vec<&str> = features.iter().map(String::as_str).collect();
    (concat(b, &parts, 1), from + layers * GROWTH)
}

/// Half of the channels, at half of the size.
fn transition(b: &mut Builder, x: &str, from: usize) -> Name {
    let y = bn_relu_conv(b, x, &Conv::new(from, from / 2, 1));
    b.op("AveragePool", &[&y], &[("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))])
}

pub(super) fn densenet121(b: &mut Builder) {
    let size = b.choose(224, 64);
    let x = b.input("x", &[1, 3, size, size]);
    let x = conv_bn_relu(b, &x, &Conv::new(3, 64, 7).stride(2));
    let mut x = max_pool(b, &x, 3, 2, (1, 1));
    let mut from = 64;
    for (i, layers) in [6, 12, 24, 16].into_iter().enumerate() {
        if i > 0 {
            x = transition(b, &x, from);
            from /= 2;
        }
        let layers = b.choose(layers, 2);
        (x, from) = dense_block(b, x, from, layers);
    }
    let x = batch_norm(b, &x, from, UNIT);
    let x = relu(b, &x);
    head(b, &x, from, 1000);
}
