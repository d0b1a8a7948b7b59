//! Random operators, of sizes that networks have and of odd ones: tasks beyond those of known
//! networks.
//!
//! The same seed and number give the same operator everywhere.

use ansc_models::proto::Attribute;
use ansc_models::{Builder, Model};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const CHANNELS: [usize; 14] = [3, 8, 16, 17, 24, 32, 48, 64, 80, 96, 128, 192, 256, 512];
const SIDES: [usize; 9] = [7, 9, 14, 17, 20, 28, 35, 56, 112];
const EXTENTS: [usize; 12] = [1, 7, 16, 31, 64, 100, 128, 197, 256, 384, 512, 768];
/// An operator of more operations is drawn again.
const MOST_OPERATIONS: usize = 200_000_000;

/// A model of one operator, with what commonly follows it.
pub(super) fn random(seed: u64, number: u64) -> Model {
    let mut random = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut b = Builder::new(&format!("operator_{seed}_{number}"));
    match random.random_range(0..8) {
        0..3 => convolution(&mut b, &mut random),
        3..5 => product(&mut b, &mut random),
        5 => depthwise(&mut b, &mut random),
        6 => rows(&mut b, &mut random),
        _ => elementwise(&mut b, &mut random),
    }
    b.finish()
}

fn pick<T: Copy>(all: &[T], random: &mut StdRng) -> T {
    all[random.random_range(0..all.len())]
}

fn convolution(b: &mut Builder, random: &mut StdRng) {
    let [side, from, to, kernel, stride] = loop {
        let drawn = [
            pick(&SIDES, random),
            pick(&CHANNELS, random),
            pick(&CHANNELS, random),
            pick(&[1, 1, 3, 3, 5], random),
            pick(&[1, 1, 2], random),
        ];
        let [side, from, to, kernel, stride] = drawn;
        if 2 * (side / stride).pow(2) * from * to * kernel * kernel <= MOST_OPERATIONS {
            break drawn;
        }
    };
    let x = b.input("x", &[1, from, side, side]);
    let w = b.weight(&[to, from, kernel, kernel], from * kernel * kernel, 1.0);
    let bias = b.uniform(&[to], -0.5, 0.5);
    let out = side.div_ceil(stride);
    windowed(b, [&x, &w, &bias], [kernel, stride, 1], &[1, to, out, out], random);
}

fn depthwise(b: &mut Builder, random: &mut StdRng) {
    let (side, channels) = (pick(&SIDES, random), pick(&CHANNELS, random));
    let (kernel, stride) = (pick(&[3, 5, 7], random), pick(&[1, 1, 2], random));
    let x = b.input("x", &[1, channels, side, side]);
    let w = b.weight(&[channels, 1, kernel, kernel], kernel * kernel, 1.0);
    let bias = b.uniform(&[channels], -0.5, 0.5);
    let out = side.div_ceil(stride);
    windowed(b, [&x, &w, &bias], [kernel, stride, channels], &[1, channels, out, out], random);
}

/// With padding that keeps the size, but for the stride.
fn windowed(
    b: &mut Builder,
    inputs: [&str; 3],
    [kernel, stride, group]: [usize; 3],
    out: &[usize],
    random: &mut StdRng,
) {
    let pad = (kernel / 2) as i64;
    let stride = stride as i64;
    let attributes = [
        ("pads", Attribute::Ints(vec![pad; 4])),
        ("strides", Attribute::Ints(vec![stride; 2])),
        ("group", Attribute::Int(group as i64)),
    ];
    if random.random_range(0..2) == 0 {
        b.result("y", out, "Conv", &inputs, &attributes);
    } else {
        let y = b.op("Conv", &inputs, &attributes);
        b.result("y", out, "Relu", &[&y], &[]);
    }
}

fn product(b: &mut Builder, random: &mut StdRng) {
    let [batch, m, n, k] = loop {
        let drawn = [
            pick(&[1, 1, 4, 12], random),
            pick(&EXTENTS, random),
            pick(&EXTENTS, random),
            pick(&EXTENTS, random),
        ];
        if (10_000..MOST_OPERATIONS).contains(&(2 * drawn.iter().product::<usize>())) {
            break drawn;
        }
    };
    let x = b.input("x", &[batch, m, k]);
    let y = match random.random_range(0..3) {
        0 => b.input("w", &[batch, k, n]),
        _ => b.weight(&[k, n], k, 1.0),
    };
    if random.random_range(0..2) == 0 {
        b.result("y", &[batch, m, n], "MatMul", &[&x, &y], &[]);
    } else {
        let (product, bias) = (b.op("MatMul", &[&x, &y], &[]), b.uniform(&[n], -0.5, 0.5));
        b.result("y", &[batch, m, n], "Add", &[&product, &bias], &[]);
    }
}

fn rows(b: &mut Builder, random: &mut StdRng) {
    let shape = [pick(&[1, 4, 12], random), pick(&EXTENTS, random), pick(&EXTENTS, random)];
    let x = b.input("x", &shape);
    let axis = ("axis", Attribute::Int(-1));
    b.result("y", &shape, pick(&["Softmax", "LogSoftmax"], random), &[&x], &[axis]);
}

fn elementwise(b: &mut Builder, random: &mut StdRng) {
    let shape = [pick(&CHANNELS, random), pick(&SIDES, random), pick(&EXTENTS, random)];
    let (x, z) = (b.input("x", &shape), b.input("z", &shape));
    let sum = b.op("Add", &[&x, &z], &[]);
    b.result("y", &shape, pick(&["Relu", "Sigmoid", "Tanh", "Exp"], random), &[&sum], &[]);
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
        for number in 0..24 {
            std::fs::write(&path, random(0, number).to_bytes()).unwrap();
            let target = ansc_codegen::Target::parse("x86-64-v3").unwrap();
            let options = Options::new(Default::default(), target);
            let tasks =
                pipeline::tasks(&path, &options).unwrap_or_else(|e| panic!("{number}: {e}"));
            assert!(!tasks.is_empty(), "{number}");
        }
    }
}
