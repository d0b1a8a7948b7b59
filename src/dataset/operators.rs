//! Random operators, of sizes that networks have and of odd ones: tasks beyond those of known
//! networks.
//!
//! The same seed and number give the same operator everywhere.

use ansc_models::proto::Attribute;
use ansc_models::{Builder, Model};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const CHANNELS: [usize; 24] = [
    1, 2, 3, 5, 8, 12, 16, 17, 24, 31, 32, 40, 48, 63, 64, 80, 96, 100, 128, 160, 192, 255, 256,
    512,
];
const SIDES: [usize; 18] = [3, 5, 7, 9, 10, 13, 14, 17, 20, 28, 32, 35, 53, 56, 64, 80, 112, 128];
const EXTENTS: [usize; 20] =
    [1, 2, 3, 7, 8, 13, 16, 31, 32, 50, 64, 100, 128, 197, 256, 384, 512, 513, 768, 1024];
/// Operations of an operator at least and at most.
const OPERATIONS: std::ops::Range<usize> = 20_000..400_000_000;
/// Elements of a tensor at most.
const ELEMENTS: usize = 4_000_000;

/// A model of one operator, with what commonly follows it.
pub(super) fn random(seed: u64, number: u64) -> Model {
    let mut random = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut b = Builder::new(&format!("operator_{seed}_{number}"));
    match random.random_range(0..16) {
        0..5 => convolution(&mut b, &mut random, Kind::Dense),
        5 => convolution(&mut b, &mut random, Kind::Grouped),
        6..8 => convolution(&mut b, &mut random, Kind::Depthwise),
        8 => transposed_convolution(&mut b, &mut random),
        9..13 => product(&mut b, &mut random),
        13 => pool(&mut b, &mut random),
        14 => rows(&mut b, &mut random),
        _ => elementwise(&mut b, &mut random),
    }
    b.finish()
}

fn pick<T: Copy>(all: &[T], random: &mut StdRng) -> T {
    all[random.random_range(0..all.len())]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dense,
    Grouped,
    Depthwise,
}

/// Windows over pictures of one, two or three axes.
struct Windows {
    sides: Vec<usize>,
    kernel: Vec<usize>,
    pads: Vec<usize>,
    stride: usize,
    dilation: usize,
}

impl Windows {
    /// Windows that fit.
    fn random(kernels: &[usize], dilations: &[usize], random: &mut StdRng) -> Windows {
        let rank = pick(&[2, 2, 2, 2, 1, 3], random);
        loop {
            let each = |all: &[usize], random: &mut StdRng| match random.random_range(0..10) {
                0..7 => vec![pick(all, random); rank],
                _ => (0..rank).map(|_| pick(all, random)).collect(),
            };
            let mut sides = each(&SIDES, random);
            match rank {
                1 => sides[0] *= pick(&[1, 8, 32], random),
                3 => sides.iter_mut().for_each(|side| *side = side.div_ceil(4)),
                _ => {}
            }
            let kernel = each(kernels, random);
            let (stride, dilation) = (pick(&[1, 1, 1, 2, 2, 3], random), pick(dilations, random));
            let pads = kernel.iter().map(|k| random.random_range(0..=(k - 1) * dilation / 2));
            let windows = Windows { pads: pads.collect(), sides, kernel, stride, dilation };
            if windows.padded().all(|(padded, reach)| padded >= reach) {
                return windows;
            }
        }
    }

    /// The padded extent of each axis, and how many places of it a window spans.
    fn padded(&self) -> impl Iterator<Item = (usize, usize)> {
        let axes = self.sides.iter().zip(&self.pads).zip(&self.kernel);
        axes.map(|((side, pad), k)| (side + 2 * pad, (k - 1) * self.dilation + 1))
    }

    fn out(&self) -> Vec<usize> {
        self.padded().map(|(padded, reach)| (padded - reach) / self.stride + 1).collect()
    }

    /// Operations of one channel that reads one channel.
    fn operations(&self) -> usize {
        self.out().iter().chain(&self.kernel).product()
    }

    fn attributes(&self) -> Vec<(&'static str, Attribute)> {
        let ints =
            |all: &mut dyn Iterator<Item = usize>| Attribute::Ints(all.map(|n| n as i64).collect());
        let rank = self.sides.len();
        vec![
            ("kernel_shape", ints(&mut self.kernel.iter().copied())),
            ("pads", ints(&mut self.pads.iter().chain(&self.pads).copied())),
            ("strides", ints(&mut std::iter::repeat_n(self.stride, rank))),
        ]
    }
}

fn shape(first: [usize; 2], sides: &[usize]) -> Vec<usize> {
    first.iter().chain(sides).copied().collect()
}

/// The result, of which an activation may be taken first.
fn result(
    b: &mut Builder,
    shape: &[usize],
    op: &str,
    inputs: &[&str],
    attributes: &[(&str, Attribute)],
    random: &mut StdRng,
) {
    match pick(&[None, None, Some("Relu"), Some("Sigmoid")], random) {
        None => b.result("y", shape, op, inputs, attributes),
        Some(activation) => {
            let y = b.op(op, inputs, attributes);
            b.result("y", shape, activation, &[&y], &[]);
        }
    }
}

fn convolution(b: &mut Builder, random: &mut StdRng, kind: Kind) {
    let kernels: &[usize] = match kind {
        Kind::Depthwise => &[3, 3, 3, 5, 7, 9],
        _ => &[1, 1, 1, 2, 3, 3, 3, 4, 5, 7],
    };
    let (batch, from, to, groups, windows) = loop {
        let windows = Windows::random(kernels, &[1, 1, 1, 1, 1, 2, 3], random);
        let [batch, from, to] =
            [pick(&[1, 1, 1, 2, 4], random), pick(&CHANNELS, random), pick(&CHANNELS, random)];
        let (from, to, groups) = match kind {
            Kind::Dense => (from, to, 1),
            Kind::Depthwise => (from, from * pick(&[1, 1, 2], random), from),
            Kind::Grouped => {
                let groups = pick(&[2, 3, 4, 8], random);
                (from.div_ceil(groups) * groups, to.div_ceil(groups) * groups, groups)
            }
        };
        let operations = batch * windows.operations() * from / groups * to;
        let elements = batch * windows.sides.iter().product::<usize>() * from.max(to);
        if OPERATIONS.contains(&operations) && elements <= ELEMENTS {
            break (batch, from, to, groups, windows);
        }
    };
    let x = b.input("x", &shape([batch, from], &windows.sides));
    let window: usize = windows.kernel.iter().product();
    let each = from / groups;
    let w = b.weight(&shape([to, each], &windows.kernel), each * window, 1.0);
    let bias = b.uniform(&[to], -0.5, 0.5);
    let mut attributes = windows.attributes();
    attributes.push(("group", Attribute::Int(groups as i64)));
    let dilations = vec![windows.dilation as i64; windows.sides.len()];
    attributes.push(("dilations", Attribute::Ints(dilations)));
    let out = shape([batch, to], &windows.out());
    result(b, &out, "Conv", &[&x, &w, &bias], &attributes, random);
}

fn transposed_convolution(b: &mut Builder, random: &mut StdRng) {
    let [side, from, to, kernel, stride] = loop {
        let drawn = [
            pick(&SIDES, random),
            pick(&CHANNELS, random),
            pick(&CHANNELS, random),
            pick(&[2, 3, 4, 5], random),
            pick(&[1, 2, 2, 3], random),
        ];
        let [side, from, to, kernel, stride] = drawn;
        let operations = side * side * from * to * kernel * kernel;
        if OPERATIONS.contains(&operations) && (side * stride).pow(2) * from.max(to) <= ELEMENTS {
            break drawn;
        }
    };
    let pad = random.random_range(0..=(kernel - 1) / 2);
    let x = b.input("x", &[1, from, side, side]);
    let w = b.weight(&[from, to, kernel, kernel], from * kernel * kernel, 1.0);
    let bias = b.uniform(&[to], -0.5, 0.5);
    let attributes = [
        ("pads", Attribute::Ints(vec![pad as i64; 4])),
        ("strides", Attribute::Ints(vec![stride as i64; 2])),
    ];
    let out = (side - 1) * stride + kernel - 2 * pad;
    result(b, &[1, to, out, out], "ConvTranspose", &[&x, &w, &bias], &attributes, random);
}

fn pool(b: &mut Builder, random: &mut StdRng) {
    let (channels, windows) = loop {
        let windows = Windows::random(&[2, 3, 3, 5, 7], &[1], random);
        let channels = pick(&CHANNELS, random);
        let elements = windows.sides.iter().product::<usize>() * channels;
        if OPERATIONS.contains(&(windows.operations() * channels)) && elements <= ELEMENTS {
            break (channels, windows);
        }
    };
    let x = b.input("x", &shape([1, channels], &windows.sides));
    let op = pick(&["MaxPool", "AveragePool"], random);
    b.result("y", &shape([1, channels], &windows.out()), op, &[&x], &windows.attributes());
}

/// Products of matrices: of a constant, of two inputs, and of one that is transposed.
fn product(b: &mut Builder, random: &mut StdRng) {
    let [batch, m, n, k] = loop {
        let drawn = [
            pick(&[1, 1, 1, 4, 12], random),
            pick(&EXTENTS, random),
            pick(&EXTENTS, random),
            pick(&EXTENTS, random),
        ];
        if OPERATIONS.contains(&drawn.iter().product()) {
            break drawn;
        }
    };
    let x = b.input("x", &[batch, m, k]);
    let y = match random.random_range(0..4) {
        0 => b.input("w", &[batch, k, n]),
        1 => {
            let w = b.input("w", &[batch, n, k]);
            b.op("Transpose", &[&w], &[("perm", Attribute::Ints(vec![0, 2, 1]))])
        }
        _ => b.weight(&[k, n], k, 1.0),
    };
    if random.random_range(0..2) == 0 {
        b.result("y", &[batch, m, n], "MatMul", &[&x, &y], &[]);
    } else {
        let (product, bias) = (b.op("MatMul", &[&x, &y], &[]), b.uniform(&[n], -0.5, 0.5));
        b.result("y", &[batch, m, n], "Add", &[&product, &bias], &[]);
    }
}

fn extents(least: usize, random: &mut StdRng) -> [usize; 3] {
    loop {
        let drawn = [pick(&[1, 4, 12], random), pick(&EXTENTS, random), pick(&EXTENTS, random)];
        if (least..ELEMENTS).contains(&drawn.iter().product()) {
            return drawn;
        }
    }
}

/// Operators that read a row, or a column, as a whole.
fn rows(b: &mut Builder, random: &mut StdRng) {
    let shape = extents(1000, random);
    let x = b.input("x", &shape);
    let axis = pick(&[1, 2, 2], random);
    match pick(&["Softmax", "LogSoftmax", "LayerNormalization", "ReduceMean"], random) {
        "LayerNormalization" => {
            let last = shape[2];
            let (scale, bias) = (b.uniform(&[last], 0.5, 1.5), b.uniform(&[last], -0.5, 0.5));
            b.result("y", &shape, "LayerNormalization", &[&x, &scale, &bias], &[]);
        }
        "ReduceMean" => {
            let axes = b.ints(&[axis as i64]);
            let mut out = shape;
            out[axis] = 1;
            b.result("y", &out, "ReduceMean", &[&x, &axes], &[]);
        }
        op => b.result("y", &shape, op, &[&x], &[("axis", Attribute::Int(axis as i64))]),
    }
}

fn elementwise(b: &mut Builder, random: &mut StdRng) {
    let shape = extents(1000, random);
    let x = b.input("x", &shape);
    let other = shape.map(|extent| if random.random_range(0..10) < 7 { extent } else { 1 });
    let z = b.input("z", &other);
    let sum = b.op("Add", &[&x, &z], &[]);
    match random.random_range(0..4) {
        0 => {
            let [first, second, third] = shape;
            let swap = [("perm", Attribute::Ints(vec![0, 2, 1]))];
            b.result("y", &[first, third, second], "Transpose", &[&sum], &swap);
        }
        _ => {
            let op = pick(&["Relu", "Sigmoid", "Tanh", "Exp"], random);
            b.result("y", &shape, op, &[&sum], &[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_is_the_same_operator() {
        let bytes = |seed, number| random(seed, number).to_bytes();
        assert!((0..20).all(|n| bytes(3, n) == bytes(3, n)));
        let distinct: std::collections::BTreeSet<Vec<u8>> = (0..20).map(|n| bytes(3, n)).collect();
        assert_eq!(distinct.len(), 20);
        assert!(bytes(3, 0) != bytes(4, 0));
    }

    /// Every family imports, and has a task.
    #[test]
    fn operators_have_tasks() {
        use crate::pipeline::{self, Options};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("o.onnx");
        for number in 0..48 {
            std::fs::write(&path, random(0, number).to_bytes()).unwrap();
            let target = ansc_codegen::Target::parse("x86-64-v3").unwrap();
            let options = Options::new(Default::default(), target);
            let tasks =
                pipeline::tasks(&path, &options).unwrap_or_else(|e| panic!("{number}: {e}"));
            assert!(!tasks.is_empty(), "{number}");
        }
    }
}
