//! Square matrix products, single layers of ResNet-50, and row-wise operators: what shows how near
//! a kernel comes to the machine's limit.

use crate::networks::layers::Conv;
use crate::proto::Attribute;
use crate::workloads::{conv, operator};
use crate::{Builder, Generator};

pub(crate) const PRODUCTS: &[Generator] = &[
    operator("gemm_512", "matrix product 512x512x512", |b| gemm(b, 512)),
    operator("gemm_1024", "matrix product 1024x1024x1024", |b| gemm(b, 1024)),
    operator("gemm_2048", "matrix product 2048x2048x2048", |b| gemm(b, 2048)),
    operator("gemm_1024_w", "matrix product 1024x1024x1024 with a constant right side", |b| {
        let (a, w) = (b.input("a", &[1024; 2]), b.weight(&[1024; 2], 1024, 1.0));
        b.result("y", &[1024; 2], "MatMul", &[&a, &w], &[]);
    }),
    operator("conv56_64_64_k3", "convolution 3x3, 56x56, 64 to 64 channels", |b| {
        layer(b, 56, Conv::new(64, 64, 3))
    }),
    operator("conv28_128_128_k3", "convolution 3x3, 28x28, 128 to 128 channels", |b| {
        layer(b, 28, Conv::new(128, 128, 3))
    }),
    operator("conv14_256_256_k3", "convolution 3x3, 14x14, 256 to 256 channels", |b| {
        layer(b, 14, Conv::new(256, 256, 3))
    }),
    operator("conv7_512_512_k3", "convolution 3x3, 7x7, 512 to 512 channels", |b| {
        layer(b, 7, Conv::new(512, 512, 3))
    }),
    operator("conv56_256_64_k1", "convolution 1x1, 56x56, 256 to 64 channels", |b| {
        layer(b, 56, Conv::new(256, 64, 1))
    }),
    operator("conv56_256_512_k1s2", "convolution 1x1, 56x56, 256 to 512 channels, stride 2", |b| {
        layer(b, 56, Conv::new(256, 512, 1).stride(2))
    }),
    operator("layer_norm", "layer normalisation of 128 rows of 768", |b| {
        let x = b.input("x", &[1, 128, 768]);
        let (scale, bias) = (b.uniform(&[768], 0.5, 1.5), b.uniform(&[768], -0.5, 0.5));
        b.result(
            "y",
            &[1, 128, 768],
            "LayerNormalization",
            &[&x, &scale, &bias],
            &[("axis", Attribute::Int(-1))],
        );
    }),
    operator("exp_1m", "exponential of 1,048,576 elements", |b| {
        let x = b.input("x", &[1024, 1024]);
        b.result("y", &[1024; 2], "Exp", &[&x], &[]);
    }),
];

fn gemm(b: &mut Builder, n: usize) {
    let (left, right) = (b.input("a", &[n, n]), b.input("b", &[n, n]));
    b.result("y", &[n, n], "MatMul", &[&left, &right], &[]);
}

fn layer(b: &mut Builder, size: usize, c: Conv) {
    conv(b, &[size; 2], &c);
}
