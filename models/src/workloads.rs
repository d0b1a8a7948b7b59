//! The 12 operator workloads of the MetaSchedule paper (appendix A.2), batch 1.

use crate::networks::layers::{Conv, UNIT, conv_attributes, ints};
use crate::proto::Attribute;
use crate::{Builder, Generator, Kind};

pub(crate) const fn operator(
    name: &'static str,
    description: &'static str,
    make: fn(&mut Builder),
) -> Generator {
    Generator { name, description, kind: Kind::Operator, make }
}

pub(crate) const WORKLOADS: &[Generator] = &[
    operator("C1D", "1-D convolution, length 256, 64 to 128 channels, stride 2", |b| {
        conv(b, &[256], &Conv::of_rank(1, 64, 128, 3).stride(2))
    }),
    operator("C2D", "2-D convolution, 224x224, 3 to 64 channels, kernel 7, stride 2", |b| {
        conv(b, &[224; 2], &stem())
    }),
    operator("C3D", "3-D convolution, 16x224x224, 3 to 64 channels, kernel 7, stride 2", |b| {
        conv(b, &[16, 224, 224], &Conv::of_rank(3, 3, 64, 7).stride(2))
    }),
    operator("DEP", "depthwise convolution, 112x112, 32 channels", |b| {
        conv(b, &[112; 2], &Conv::new(32, 32, 3).groups(32))
    }),
    operator("DIL", "C2D with dilation 2", |b| conv(b, &[224; 2], &stem().dilation(2))),
    operator("GMM", "matrix product 128x128x128", |b| matmul(b, &[128; 2], &[128; 2])),
    operator("GRP", "grouped convolution, 56x56, 64 to 128 channels, 4 groups, stride 2", |b| {
        conv(b, &[56; 2], &Conv::new(64, 128, 3).stride(2).groups(4))
    }),
    operator(
        "T2D",
        "transposed convolution, 4x4, 512 to 256 channels, kernel 4, stride 2",
        transposed,
    ),
    operator("CBR", "C2D, batch normalisation, ReLU", conv_bn_relu),
    operator("TBG", "transposed batch product, sequence 128, 12 heads of 64", |b| {
        let (q, k) = heads(b);
        b.result("y", &SCORES, "MatMul", &[&q, &k], &[]);
    }),
    operator("NRM", "2-norm of a 256x256 matrix", norm),
    operator("SFM", "softmax of 256 rows of 256", softmax),
];

fn stem() -> Conv {
    Conv::new(3, 64, 7).stride(2)
}

pub(crate) fn conv(b: &mut Builder, size: &[usize], c: &Conv) {
    let x = b.input("x", &[&[1, c.from], size].concat());
    let (w, attributes) = conv_attributes(b, c);
    let shape = [&[1, c.to], &c.output(size)[..]].concat();
    b.result("y", &shape, "Conv", &[&x, &w], &attributes);
}

fn matmul(b: &mut Builder, left: &[usize], right: &[usize]) {
    let shape = [left[0], right[1]];
    let (left, right) = (b.input("a", left), b.input("b", right));
    b.result("y", &shape, "MatMul", &[&left, &right], &[]);
}

fn transposed(b: &mut Builder) {
    let x = b.input("x", &[1, 512, 4, 4]);
    let w = b.weight(&[512, 256, 4, 4], 512 * 4, 2.0);
    let attributes =
        [("kernel_shape", ints(&[4; 2])), ("strides", ints(&[2; 2])), ("pads", ints(&[1; 4]))];
    b.result("y", &[1, 256, 8, 8], "ConvTranspose", &[&x, &w], &attributes);
}

fn conv_bn_relu(b: &mut Builder) {
    let x = b.input("x", &[1, 3, 224, 224]);
    let y = crate::networks::layers::conv_bn(b, &x, &stem(), UNIT);
    b.result("y", &[1, 64, 112, 112], "Relu", &[&y], &[]);
}

pub(crate) const SCORES: [usize; 4] = [1, 12, 128, 128];

/// Products of all queries and keys, for each head.
pub(crate) fn attention_scores(b: &mut Builder) -> String {
    let (q, k) = heads(b);
    b.op("MatMul", &[&q, &k], &[])
}

fn heads(b: &mut Builder) -> (String, String) {
    let (q, k) = (b.input("q", &[1, 128, 12, 64]), b.input("k", &[1, 128, 12, 64]));
    let q = b.op("Transpose", &[&q], &[("perm", ints(&[0, 2, 1, 3]))]);
    let k = b.op("Transpose", &[&k], &[("perm", ints(&[0, 2, 3, 1]))]);
    (q, k)
}

fn norm(b: &mut Builder) {
    let x = b.input("x", &[1, 256, 256]);
    b.result(
        "y",
        &[1],
        "ReduceL2",
        &[&x],
        &[("axes", ints(&[1, 2])), ("keepdims", Attribute::Int(0))],
    );
}

fn softmax(b: &mut Builder) {
    let x = b.input("x", &[1, 256, 256]);
    b.result("y", &[1, 256, 256], "Softmax", &[&x], &[("axis", Attribute::Int(-1))]);
}
