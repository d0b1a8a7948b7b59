//! Products with weights of few bits, against sums of 64 bits that are written out here.

use ansc_graph::ops::matmul_nbits::{Packed, matmul_nbits};

use super::*;

/// Random bytes, integers below 16, or floats of a normal distribution.
fn given(compute: &Compute, seed: u64) -> Vec<Tensor> {
    let inputs = compute.inputs.iter().enumerate();
    let one = |(i, ty): (usize, &TensorType)| match ty.dtype {
        DType::F32 => normal(ty, seed + i as u64),
        _ => bytes(ty, seed + i as u64),
    };
    inputs.map(one).collect()
}

/// The rewritten task computes what is expected, as an expression and scheduled for several
/// machines. All inputs but the first are constants.
fn check_narrow(compute: &Compute, inputs: &[Tensor], expected: &[f64]) {
    check_narrow_of(&task(compute.clone(), true), inputs, expected);
}

fn check_narrow_of(given: &Task, inputs: &[Tensor], expected: &[f64]) {
    let compute = &given.compute;
    for (vector_bytes, registers) in [(16, 16), (32, 16), (64, 32)] {
        let mut task = given.clone();
        task.machine = Machine::new(vector_bytes, registers);
        let rewritten = Algorithm::Narrow.rewrite(&task);
        let rewritten = rewritten.unwrap_or_else(|| panic!("it applies to {compute}"));
        verify::verify_compute(&rewritten.task.compute).unwrap();
        assert_eq!(task.preferred(), Some(Algorithm::Narrow));
        let text = rewritten.task.compute.to_string();
        assert_eq!(Compute::parse(&text).unwrap().to_string(), text);
        let found = eval(&rewritten.task.compute, &prepared(&rewritten, inputs));
        close(&found, expected, &text);
        let scheduled = scheduled(&rewritten);
        let fault = crate::verify::verify(&scheduled.program);
        assert!(fault.is_ok(), "{fault:?}\n{}", scheduled.program);
        close(&run(&scheduled, inputs), expected, &scheduled.program);
        // Neither weights nor their sums in a block are in memory at run time.
        let made = ["packed", "part", "weight", "dequantize"];
        let mut globals =
            scheduled.program.buffers.iter().filter(|b| b.scope == crate::Scope::Global);
        let is_made = |b: &crate::Buffer| made.iter().any(|name| b.name.starts_with(name));
        assert!(!globals.any(is_made), "{}", scheduled.program);
        for packing in &scheduled.packings {
            let bytes = |ty: &TensorType| ty.bytes();
            let (from, to) = (&packing.compute.inputs[0], packing.compute.output_types());
            // Rows are rounded up to whole blocks, columns to whole vectors.
            assert!(bytes(&to[0]) <= 2 * bytes(from) + 4096 || from.bytes() < 4096);
        }
    }
}

fn close(found: &Tensor, expected: &[f64], of: &dyn std::fmt::Display) {
    let found = found.to_f64_vec();
    assert_eq!(found.len(), expected.len(), "{of}");
    let scale = expected.iter().fold(0.0f64, |most, x| most.max(x.abs())).max(1e-30);
    let error = expected.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(error <= 1e-6 * scale, "{} of\n{of}", error / scale);
}

#[derive(Clone, Copy, PartialEq)]
enum Zeros {
    Middle,
    Packed,
    Floats,
}

/// The number at a place of a row of packed numbers.
fn number(row: &[u8], bits: usize, at: usize) -> f64 {
    let byte = row[at * bits / 8] as usize;
    ((byte >> (at * bits % 8)) & ((1 << bits) - 1)) as f64
}

fn check_nbits(rows: &[usize], packed: Packed, zeros: Zeros) {
    let Packed { n, k, bits, block } = packed;
    let [weight, scales, zero] = packed.shapes().unwrap();
    let blocks = scales[1];
    let a = TensorType::new(DType::F32, [rows, &[k]].concat());
    let weight = TensorType::new(DType::U8, weight);
    let scales = TensorType::new(DType::F32, scales);
    let zero = match zeros {
        Zeros::Middle => None,
        Zeros::Packed => Some(TensorType::new(DType::U8, zero)),
        Zeros::Floats => Some(scales.clone()),
    };
    let op = matmul_nbits(packed, &a, &weight, &scales, zero.as_ref(), None).unwrap();
    let inputs = given(&op.expr, (n * k + bits) as u64);
    let (x, w, s) = (inputs[0].to_f64_vec(), inputs[1].bytes(), inputs[2].to_f64_vec());
    let (row_bytes, zero_bytes) = (w.len() / n, (blocks * bits).div_ceil(8));
    let zero_of = |j: usize, b: usize| match zeros {
        Zeros::Middle => (1 << (bits - 1)) as f64,
        Zeros::Packed => number(&inputs[3].bytes()[j * zero_bytes..], bits, b),
        Zeros::Floats => inputs[3].to_f64_vec()[j * blocks + b],
    };
    let weight_of = |j: usize, t: usize| {
        let b = t / block;
        let code = number(&w[j * row_bytes..], bits, t);
        (code - zero_of(j, b)) * s[j * blocks + b]
    };
    let m: usize = rows.iter().product();
    let all: Vec<Vec<f64>> = (0..n).map(|j| (0..k).map(|t| weight_of(j, t)).collect()).collect();
    let dot = |i: usize, j: usize| (0..k).map(|t| x[i * k + t] * all[j][t]).sum::<f64>();
    let expected: Vec<f64> =
        (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| dot(i, j)).collect();
    check_narrow(&op.expr, &inputs, &expected);
}

#[test]
fn all_bits_blocks_and_zero_points() {
    for zeros in [Zeros::Middle, Zeros::Packed, Zeros::Floats] {
        for bits in [2, 4, 8] {
            check_nbits(&[1], Packed { n: 48, k: 128, bits, block: 32 }, zeros);
            // No whole number of blocks, vectors or rows of tiles.
            check_nbits(&[5], Packed { n: 37, k: 121, bits, block: 16 }, zeros);
        }
        check_nbits(&[2, 3], Packed { n: 20, k: 300, bits: 4, block: 256 }, zeros);
        check_nbits(&[1, 1], Packed { n: 129, k: 40, bits: 4, block: 64 }, zeros);
    }
}

/// Activations of 8 bits are what they stand for; no digits are made of them.
#[test]
fn activations_of_bytes_are_one_digit() {
    for (rows, k, block) in [(1, 128, 32), (5, 121, 16), (40, 256, 128), (3, 300, 256)] {
        let packed = Packed { n: 37, k, bits: 4, block };
        let [weight, scales, _] = packed.shapes().unwrap();
        let blocks = scales[1];
        let of = |dtype, shape: &[usize]| TensorType::new(dtype, shape);
        let (a, step) = (of(DType::I8, &[rows, k]), of(DType::F32, &[rows, blocks]));
        let (weight, scales) = (of(DType::U8, &weight), of(DType::F32, &scales));
        let op = matmul_nbits(packed, &a, &weight, &scales, None, Some(&step)).unwrap();
        let inputs = given(&op.expr, k as u64);
        let [x, s, steps] = [0, 2, 3].map(|i| inputs[i].to_f64_vec());
        let row_bytes = inputs[1].bytes().len() / 37;
        let term = |i: usize, j: usize, t: usize| {
            let code = number(&inputs[1].bytes()[j * row_bytes..], 4, t) - 8.0;
            let b = t / block;
            x[i * k + t] * steps[i * blocks + b] * code * s[j * blocks + b]
        };
        let places = (0..rows).flat_map(|i| (0..37).map(move |j| (i, j)));
        let expected: Vec<f64> = places.map(|(i, j)| (0..k).map(|t| term(i, j, t)).sum()).collect();
        let mut task = task(Compute::clone(&op.expr), true);
        task.constant[3] = false;
        check_narrow_of(&task, &inputs, &expected);
        let made = Algorithm::Narrow.rewrite(&task).unwrap().task.compute.to_string();
        assert!(!made.contains("whole"), "{made}");
    }
}

/// `f32(q - zero) * scale`, and what the scale's index is.
fn dequantized(ty: &str, [k, n]: [usize; 2], zero: &str, scale: (&str, &str)) -> Compute {
    let (scales, at) = scale;
    let text = format!(
        "compute(in0: f32[3, {k}], in1: {ty}[{k}, {n}], in2: f32[{scales}], in3: f32[{n}]) -> y {{
           weight: f32[{k}, {n}] = mul({zero}, in2[{at}])
           matmul: f32[3, {n}] = sum{{r0: {k}}} mul(in0[i0, r0], weight[r0, i1])
           y: f32[3, {n}] = max(add(matmul[i0, i1], in3[i1]), 0.0_f32)
         }}"
    );
    Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn dequantized_weights_and_what_follows() {
    let (k, n) = (150, 50);
    for (ty, zero, point) in [
        ("i8", "f32(in1[i0, i1])", 0.0),
        ("u8", "f32(sub(i32(in1[i0, i1]), 131_i32))", 131.0),
        ("i8", "sub(f32(in1[i0, i1]), -3.5_f32)", -3.5),
        ("u8", "sub(f32(in1[i0, i1]), 128.0_f32)", 128.0),
    ] {
        for (scale, block) in [(("50", "i1"), k), (("5, 50", "floor_div(i0, 32), i1"), 32)] {
            let compute = dequantized(ty, [k, n], zero, scale);
            let inputs = given(&compute, 7);
            let values: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64_vec).collect();
            let dot = |i: usize, j: usize| {
                let scale = |t: usize| values[2][t / block * n + j];
                let weight = |t: usize| (values[1][t * n + j] - point) * scale(t);
                let sum: f64 = (0..k).map(|t| values[0][i * k + t] * weight(t)).sum();
                f64::max(sum + values[3][j], 0.0)
            };
            let places = (0..3).flat_map(|i| (0..n).map(move |j| (i, j)));
            let expected: Vec<f64> = places.map(|(i, j)| dot(i, j)).collect();
            check_narrow(&compute, &inputs, &expected);
        }
    }
}

/// A vector times a transposed matrix; blocks of zeros, and of numbers far apart.
#[test]
fn one_row_of_any_magnitude() {
    let text = "compute(in0: f32[128], in1: i8[40, 128], in2: f32[40]) -> y {
      y: f32[40] = sum{r0: 128} mul(mul(f32(in1[i0, r0]), in2[i0]), in0[r0])
    }";
    let compute = Compute::parse(text).unwrap();
    let mut inputs = given(&compute, 3);
    for magnitude in [0.0f32, 1e-20, 1.0, 1e30] {
        let x: Vec<f32> = (0..128).map(|t| magnitude * (t as f32 - 50.0)).collect();
        inputs[0] = Tensor::from_slice(&[128], &x);
        let values: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64_vec).collect();
        let dot = |j: usize| {
            let terms = (0..128).map(|t| values[0][t] * values[1][j * 128 + t]);
            terms.sum::<f64>() * values[2][j]
        };
        let expected: Vec<f64> = (0..40).map(dot).collect();
        check_narrow(&compute, &inputs, &expected);
    }
}

/// Without products of bytes, many rows are multiplied as floats.
#[test]
fn many_rows_need_fast_products_of_bytes() {
    let preferred = |rows: usize, bytes: bool| {
        let packed = Packed { n: 64, k: 128, bits: 4, block: 32 };
        let [weight, scales, _] = packed.shapes().unwrap();
        let a = TensorType::new(DType::F32, [rows, 128]);
        let weight = TensorType::new(DType::U8, weight);
        let scales = TensorType::new(DType::F32, scales);
        let op = matmul_nbits(packed, &a, &weight, &scales, None, None).unwrap();
        let mut task = task(Compute::clone(&op.expr), true);
        task.machine = Machine::new(32, 16);
        task.machine.units.bytes = bytes;
        task.preferred()
    };
    assert_eq!(preferred(1, false), Some(Algorithm::Narrow));
    assert_ne!(preferred(64, false), Some(Algorithm::Narrow));
    assert_eq!(preferred(64, true), Some(Algorithm::Narrow));
}

#[test]
fn what_has_no_narrow_weight_is_refused() {
    let (ty, zero) = ("i8", "f32(in1[i0, i1])");
    let refused = |compute: Compute, constant: bool| {
        let made = Algorithm::Narrow.rewrite(&task(compute, constant));
        assert!(made.is_none(), "{}", made.unwrap().task.compute);
    };
    let of = |scale| dequantized(ty, [128, 48], zero, scale);
    assert!(Algorithm::Narrow.rewrite(&task(of(("48", "i1")), true)).is_some());
    refused(of(("48", "i1")), false);
    // Scales of each row, and of blocks that words do not fit.
    refused(of(("128, 48", "i0, i1")), true);
    refused(of(("43, 48", "floor_div(i0, 3), i1")), true);
    // The weight is a result as well.
    refused(Compute { outputs: vec![2, 0], ..of(("48", "i1")) }, true);
    // Few weights, and wide ones.
    refused(dequantized(ty, [16, 48], zero, ("48", "i1")), true);
    refused(dequantized("i32", [128, 48], zero, ("48", "i1")), true);
    refused(crate::testing::matmul_bias_relu(4, 48, 128), true);
}
