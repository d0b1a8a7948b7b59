//! Layers as exporters write them.

use crate::Builder;
use crate::builder::Name;
use crate::proto::Attribute;

/// A convolution of any spatial rank, with the same size along every axis unless its fields are set
/// apart.
#[derive(Clone)]
pub(crate) struct Conv {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kernel: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) pads: Vec<usize>,
    pub(crate) dilation: usize,
    pub(crate) groups: usize,
}

impl Conv {
    /// 2-D, stride 1, "same" padding for odd kernels.
    pub(crate) fn new(from: usize, to: usize, kernel: usize) -> Conv {
        Conv::of_rank(2, from, to, kernel)
    }

    pub(crate) fn of_rank(rank: usize, from: usize, to: usize, kernel: usize) -> Conv {
        Conv {
            from,
            to,
            kernel: vec![kernel; rank],
            strides: vec![1; rank],
            pads: vec![kernel / 2; rank],
            dilation: 1,
            groups: 1,
        }
    }

    pub(crate) fn stride(mut self, stride: usize) -> Conv {
        self.strides.fill(stride);
        self
    }

    pub(crate) fn groups(mut self, groups: usize) -> Conv {
        self.groups = groups;
        self
    }

    pub(crate) fn dilation(mut self, dilation: usize) -> Conv {
        self.dilation = dilation;
        self
    }

    /// The extents of what it makes of `size`.
    pub(crate) fn output(&self, size: &[usize]) -> Vec<usize> {
        let axis = |(i, &n): (usize, &usize)| {
            let reach = self.dilation * (self.kernel[i] - 1) + 1;
            (n + 2 * self.pads[i] - reach) / self.strides[i] + 1
        };
        size.iter().enumerate().map(axis).collect()
    }

    fn fan_in(&self) -> usize {
        self.from / self.groups * self.kernel.iter().product::<usize>()
    }

    pub(crate) fn attributes(&self) -> Vec<(&'static str, Attribute)> {
        let pads = self.pads.repeat(2);
        vec![
            ("kernel_shape", ints(&self.kernel)),
            ("strides", ints(&self.strides)),
            ("pads", ints(&pads)),
            ("dilations", ints(&vec![self.dilation; self.kernel.len()])),
            ("group", Attribute::Int(self.groups as i64)),
        ]
    }
}

pub(crate) fn ints(values: &[usize]) -> Attribute {
    Attribute::Ints(values.iter().map(|&v| v as i64).collect())
}

/// The weight of a convolution, and the attributes of its node.
pub(crate) fn conv_attributes(b: &mut Builder, c: &Conv) -> (Name, Vec<(&'static str, Attribute)>) {
    let dims = [&[c.to, c.from / c.groups], c.kernel.as_slice()].concat();
    (b.weight(&dims, c.fan_in(), 2.0), c.attributes())
}

pub(crate) fn conv(b: &mut Builder, x: &str, c: &Conv) -> Name {
    let (w, attributes) = conv_attributes(b, c);
    b.op("Conv", &[x, &w], &attributes)
}

pub(crate) fn conv_bias(b: &mut Builder, x: &str, c: &Conv) -> Name {
    let (w, attributes) = conv_attributes(b, c);
    let bias = b.uniform(&[c.to], -0.05, 0.05);
    b.op("Conv", &[x, &w, &bias], &attributes)
}

pub(crate) fn batch_norm(b: &mut Builder, x: &str, channels: usize, scale: (f32, f32)) -> Name {
    let scale = b.uniform(&[channels], scale.0, scale.1);
    let bias = b.uniform(&[channels], -0.1, 0.1);
    let mean = b.statistic(&[channels], -0.1, 0.1);
    let variance = b.statistic(&[channels], 0.6, 1.4);
    b.op(
        "BatchNormalization",
        &[x, &scale, &bias, &mean, &variance],
        &[("epsilon", Attribute::Float(1e-5))],
    )
}

/// The usual range of a batch normalisation's scale.
pub(crate) const UNIT: (f32, f32) = (0.7, 1.2);

pub(crate) fn conv_bn(b: &mut Builder, x: &str, c: &Conv, scale: (f32, f32)) -> Name {
    let y = conv(b, x, c);
    batch_norm(b, &y, c.to, scale)
}

pub(crate) fn conv_bn_relu(b: &mut Builder, x: &str, c: &Conv) -> Name {
    let y = conv_bn(b, x, c, UNIT);
    relu(b, &y)
}

pub(crate) fn relu(b: &mut Builder, x: &str) -> Name {
    b.op("Relu", &[x], &[])
}

/// `pads`: begin and end, the same for both axes.
pub(crate) fn max_pool(
    b: &mut Builder,
    x: &str,
    kernel: usize,
    stride: usize,
    pads: (usize, usize),
) -> Name {
    let pads = [pads.0, pads.0, pads.1, pads.1];
    let attributes = [
        ("kernel_shape", ints(&[kernel; 2])),
        ("strides", ints(&[stride; 2])),
        ("pads", ints(&pads)),
    ];
    b.op("MaxPool", &[x], &attributes)
}

/// `Gemm` with the weight transposed, as frameworks store it.
pub(crate) fn dense(b: &mut Builder, x: &str, from: usize, to: usize, gain: f32) -> Name {
    let (w, bias) = dense_weights(b, from, to, gain);
    b.op("Gemm", &[x, &w, &bias], &[("transB", Attribute::Int(1))])
}

pub(crate) fn dense_weights(b: &mut Builder, from: usize, to: usize, gain: f32) -> (Name, Name) {
    (b.weight(&[to, from], from, gain), b.uniform(&[to], -0.05, 0.05))
}

/// Global average pooling and a classifier; its result is the model's output.
pub(crate) fn head(b: &mut Builder, x: &str, channels: usize, classes: usize) {
    let y = b.op("GlobalAveragePool", &[x], &[]);
    let y = b.op("Flatten", &[&y], &[("axis", Attribute::Int(1))]);
    let (w, bias) = dense_weights(b, channels, classes, 1.0);
    b.result("logits", &[1, classes], "Gemm", &[&y, &w, &bias], &[("transB", Attribute::Int(1))]);
}

/// `x * sigmoid(x)`, of which ONNX has no operator at this opset.
pub(crate) fn silu(b: &mut Builder, x: &str) -> Name {
    let gate = b.op("Sigmoid", &[x], &[]);
    b.op("Mul", &[x, &gate], &[])
}

pub(crate) fn conv_bn_silu(b: &mut Builder, x: &str, c: &Conv) -> Name {
    let y = conv_bn(b, x, c, UNIT);
    silu(b, &y)
}

pub(crate) fn concat(b: &mut Builder, parts: &[&str], axis: i64) -> Name {
    b.op("Concat", parts, &[("axis", Attribute::Int(axis))])
}

pub(crate) fn reshape(b: &mut Builder, x: &str, shape: &[usize]) -> Name {
    let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    let shape = b.ints(&shape);
    b.op("Reshape", &[x, &shape], &[])
}

pub(crate) fn transpose(b: &mut Builder, x: &str, perm: &[usize]) -> Name {
    b.op("Transpose", &[x], &[("perm", ints(perm))])
}

/// `x[.., from..to:step, ..]` along one axis.
pub(crate) fn slice(b: &mut Builder, x: &str, axis: i64, range: (i64, i64), step: i64) -> Name {
    let [from, to, axis, step] = [range.0, range.1, axis, step].map(|n| b.ints(&[n]));
    b.op("Slice", &[x, &from, &to, &axis, &step], &[])
}

/// The activations inside of a squeeze-and-excitation block.
pub(crate) struct Gates {
    pub(crate) squeezed: fn(&mut Builder, &str) -> Name,
    pub(crate) gate: fn(&mut Builder, &str) -> Name,
}

/// Squeeze and excitation: each channel is scaled by a gate that depends on the means of all.
pub(crate) fn squeeze_excite(
    b: &mut Builder,
    x: &str,
    (channels, squeezed): (usize, usize),
    gates: &Gates,
) -> Name {
    let y = b.op("GlobalAveragePool", &[x], &[]);
    let y = conv_bias(b, &y, &Conv::new(channels, squeezed, 1));
    let y = (gates.squeezed)(b, &y);
    let y = conv_bias(b, &y, &Conv::new(squeezed, channels, 1));
    let y = (gates.gate)(b, &y);
    b.op("Mul", &[x, &y], &[])
}
