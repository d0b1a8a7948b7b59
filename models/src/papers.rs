//! The workloads that the papers on search name, where `workloads` and `products` have no others of
//! their shape: the eight of OpEvo, its convolutions of one image too, which a CPU can search; and
//! of Ansor the capsule convolution and the two subgraphs, whose shapes the paper leaves open.

use crate::networks::layers::{Conv, UNIT, conv_attributes, ints};
use crate::proto::Attribute;
use crate::workloads::{SCORES, attention_scores, operator};
use crate::{Builder, Generator};

pub(crate) const PAPERS: &[Generator] = &[
    operator("MM1", "OpEvo: matrix product 512x1024x1024", |b| matmul(b, 512, 1024, 1024)),
    operator("MM2", "OpEvo: matrix product 512x4096x1024", |b| matmul(b, 512, 4096, 1024)),
    operator("MM3", "OpEvo: matrix product 512x1024x4096", |b| matmul(b, 512, 1024, 4096)),
    operator("BMM1", "OpEvo: 960 matrix products 128x64x128", |b| {
        let (left, right) = (b.input("a", &[960, 128, 128]), b.input("b", &[960, 128, 64]));
        b.result("y", &[960, 128, 64], "MatMul", &[&left, &right], &[]);
    }),
    operator("BMM2", "OpEvo: 960 matrix products 128x64x128, the left side transposed", |b| {
        let (left, right) = (b.input("a", &[960, 128, 128]), b.input("b", &[960, 128, 64]));
        let left = transposed(b, &left);
        b.result("y", &[960, 128, 64], "MatMul", &[&left, &right], &[]);
    }),
    operator("BMM3", "OpEvo: 960 matrix products 128x128x64, the right side transposed", |b| {
        let (left, right) = (b.input("a", &[960, 128, 64]), b.input("b", &[960, 128, 64]));
        let right = transposed(b, &right);
        b.result("y", &[960, 128, 128], "MatMul", &[&left, &right], &[]);
    }),
    operator("C1", "OpEvo: convolution 11x11 with stride 4, 512x3x227x227 to 64 channels", |b| {
        images(b, 512, 227, &first_of_alexnet())
    }),
    operator("C2", "OpEvo: convolution 5x5, 512x64x27x27 to 192 channels", |b| {
        images(b, 512, 27, &second_of_alexnet())
    }),
    operator("C1_image", "C1 of one image, whose tiles are those of 512", |b| {
        images(b, 1, 227, &first_of_alexnet())
    }),
    operator("C2_image", "C2 of one image, whose tiles are those of 512", |b| {
        images(b, 1, 27, &second_of_alexnet())
    }),
    operator(
        "CAP",
        "Ansor: capsule convolution 3x3 with stride 2, 16x16, 32 capsules of 4x4",
        capsule,
    ),
    operator(
        "ConvLayer",
        "Ansor: convolution 3x3, batch normalisation, ReLU, 56x56, 64 channels",
        |b| {
            let x = b.input("x", &[1, 64, 56, 56]);
            let y = crate::networks::layers::conv_bn(b, &x, &Conv::new(64, 64, 3), UNIT);
            b.result("y", &[1, 64, 56, 56], "Relu", &[&y], &[]);
        },
    ),
    operator(
        "TBS",
        "Ansor: transposed batch product and softmax, sequence 128, 12 heads of 64",
        |b| {
            let scores = attention_scores(b);
            b.result("y", &SCORES, "Softmax", &[&scores], &[("axis", Attribute::Int(-1))]);
        },
    ),
];

fn matmul(b: &mut Builder, m: usize, n: usize, k: usize) {
    let (left, right) = (b.input("a", &[m, k]), b.input("b", &[k, n]));
    b.result("y", &[m, n], "MatMul", &[&left, &right], &[]);
}

fn transposed(b: &mut Builder, x: &str) -> String {
    b.op("Transpose", &[x], &[("perm", ints(&[0, 2, 1]))])
}

fn first_of_alexnet() -> Conv {
    let mut conv = Conv::new(3, 64, 11).stride(4);
    conv.pads.fill(0);
    conv
}

fn second_of_alexnet() -> Conv {
    Conv::new(64, 192, 5)
}

/// A batch of square images.
fn images(b: &mut Builder, count: usize, size: usize, c: &Conv) {
    let x = b.input("x", &[count, c.from, size, size]);
    let (w, attributes) = conv_attributes(b, c);
    let shape = [&[count, c.to], &c.output(&[size; 2])[..]].concat();
    b.result("y", &shape, "Conv", &[&x, &w], &attributes);
}

/// Capsules are 4x4 matrices that are multiplied as numbers are in a plain convolution. Rows of the
/// left side go along unchanged: they are the first axis of three, along which the kernel is 1;
/// columns are channels.
fn capsule(b: &mut Builder) {
    const SIDE: usize = 4;
    let mut conv = Conv::of_rank(3, 32 * SIDE, 32 * SIDE, 3).stride(2);
    (conv.kernel[0], conv.strides[0], conv.pads[0]) = (1, 1, 0);
    let x = b.input("x", &[1, 32 * SIDE, SIDE, 16, 16]);
    let (w, attributes) = conv_attributes(b, &conv);
    b.result("y", &[1, 32 * SIDE, SIDE, 8, 8], "Conv", &[&x, &w], &attributes);
}
