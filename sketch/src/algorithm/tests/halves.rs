//! Products of pairs of `bf16`.

use ansc_graph::{Compute, TensorType};
use ansc_runtime::{DType, Tensor};
use half::bf16;

use super::dots::narrow_convolutions;
use super::{bytes, difference, eval, prepared, run, scheduled, task};
use crate::algorithm::Algorithm;
use crate::task::Task;

fn on_machine(text: &str, constant: bool) -> Task {
    let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut task = task(compute, constant);
    task.machine.units.bf16 = true;
    task
}

/// Small whole numbers, so that sums are exact in any order.
fn halves(ty: &TensorType, seed: u64) -> Tensor {
    let bytes = bytes(&TensorType::new(DType::I8, ty.shape.clone()), seed);
    let values = bytes.to_f64_vec().into_iter().map(|v| bf16::from_f64(v / 8.0).to_f64());
    match ty.dtype {
        DType::BF16 => {
            let all: Vec<bf16> = values.map(bf16::from_f64).collect();
            Tensor::from_slice(&ty.shape, &all)
        }
        _ => Tensor::from_slice(&ty.shape, &values.map(|v| v as f32).collect::<Vec<_>>()),
    }
}

/// The rewritten subgraph gives the same bits, as an expression and by untuned schedules of several
/// machines.
fn check(text: &str) {
    check_by(text, Algorithm::DotBf16);
}

/// The same by an algorithm that multiplies pairs.
pub(super) fn check_by(text: &str, algorithm: Algorithm) {
    for (constant, vector_bytes) in [(false, 16), (true, 16), (true, 32), (false, 64), (true, 64)] {
        let mut task = on_machine(text, constant);
        task.machine.vector_bytes = vector_bytes;
        let inputs = task.compute.inputs.iter().enumerate();
        let inputs: Vec<Tensor> = inputs.map(|(i, ty)| halves(ty, i as u64)).collect();
        let expected = eval(&task.compute, &inputs);
        let rewritten = algorithm.rewrite(&task).expect("it applies");
        assert_eq!(rewritten.prepared.len(), usize::from(constant), "{text}");
        let new = rewritten.task.compute.to_string();
        assert!(new.contains("dot_bf16("), "{new}");
        assert_eq!(Compute::parse(&new).unwrap().to_string(), new);
        let found = eval(&rewritten.task.compute, &prepared(&rewritten, &inputs));
        assert_eq!(found.bytes(), expected.bytes(), "constant {constant}:\n{new}");
        let scheduled = scheduled(&rewritten);
        let found = run(&scheduled, &inputs);
        assert_eq!(found.bytes(), expected.bytes(), "constant {constant}:\n{}", scheduled.program);
    }
}

fn product([m, k, n]: [usize; 3], turned: bool) -> String {
    let (rows, columns, at) = if turned { (n, k, "i1, r0") } else { (k, n, "r0, i1") };
    format!(
        "compute(in0: bf16[{m}, {k}], in1: bf16[{rows}, {columns}], in2: f32[{n}]) -> y {{
           product: f32[{m}, {n}] = sum{{r0: {k}}} mul(f32(in0[i0, r0]), f32(in1[{at}]))
           y: f32[{m}, {n}] = add(product[i0, i1], in2[i1])
         }}"
    )
}

#[test]
fn products_of_halves_are_those_of_floats() {
    for sizes in [[5, 64, 33], [1, 12, 7], [21, 6, 48], [18, 63, 20], [7, 11, 1]] {
        check(&product(sizes, false));
        check(&product(sizes, true));
    }
}

#[test]
fn convolutions_of_halves() {
    let all = narrow_convolutions(["bf16", "bf16", "f32"], "0_bf16");
    all.iter().for_each(|text| check(text));
}

/// Algorithms for floats compute the same of a convolution of halves.
#[test]
fn convolutions_of_halves_as_of_floats() {
    let all = narrow_convolutions(["bf16", "bf16", "f32"], "0_bf16");
    let far = "compute(in0: bf16[1, 5, 6, 8], in1: bf16[3, 3, 8, 4]) -> conv {
      pad: bf16[1, 13, 14, 8] = select(and(and(and(le(4, i1), lt(i1, 9)), le(4, i2)), lt(i2, 10)), in0[i0, sub(i1, 4), sub(i2, 4), i3], 0_bf16)
      conv: f32[1, 5, 6, 4] = sum{r0: 3, r1: 3, r2: 8} mul(f32(pad[i0, add(i1, mul(r0, 4)), add(i2, mul(r1, 4)), r2]), f32(in1[r0, r1, r2, i3]))
    }";
    for (text, by) in [
        (all[0].as_str(), Algorithm::Winograd2),
        (all[0].as_str(), Algorithm::Winograd4),
        (far, Algorithm::Inside),
    ] {
        let task = on_machine(text, true);
        let inputs = task.compute.inputs.iter().enumerate();
        let inputs: Vec<Tensor> = inputs.map(|(i, ty)| halves(ty, i as u64)).collect();
        let expected = eval(&task.compute, &inputs);
        let made = by.rewrite(&task).unwrap_or_else(|| panic!("{by} of {text}"));
        let found = eval(&made.task.compute, &prepared(&made, &inputs));
        assert!(difference(&expected, &found) < 1e-5, "{by}: {}", made.task.compute);
        let found = run(&scheduled(&made), &inputs);
        assert!(difference(&expected, &found) < 1e-5, "{by}: {}", made.task.compute);
    }
}

#[test]
fn a_machine_that_has_no_vectors_of_halves_keeps_the_product() {
    let with = |units: bool, [rows, depth]: [usize; 2], constant: bool| {
        let mut task = on_machine(&product([rows, depth, 48], false), constant);
        task.machine.units.bf16 = units;
        (task.preferred(), Algorithm::DotBf16.rewrite(&task).is_some())
    };
    assert_eq!(with(true, [8, 64], true), (Some(Algorithm::DotBf16), true));
    assert_eq!(with(true, [1, 64], true), (Some(Algorithm::DotBf16), true));
    assert!(!with(false, [8, 64], true).1);
    assert_ne!(with(false, [8, 64], true).0, Some(Algorithm::DotBf16));
    // A second factor that is made in each run would have to be rearranged for a single row.
    assert_ne!(with(true, [1, 64], false).0, Some(Algorithm::DotBf16));
    // Half of the terms would be zeros.
    assert!(!with(true, [8, 1], true).1);
}

/// Both products of a chain go by pairs, which come first: slices of rows read them as a whole.
#[test]
fn chains_of_products_of_halves() {
    let text = "compute(in0: bf16[21, 12], in1: bf16[12, 30], in2: bf16[30, 7]) -> y {
      s: f32[21, 30] = sum{r0: 12} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
      p: bf16[21, 30] = bf16(max(s[i0, i1], 0.0_f32))
      y: f32[21, 7] = sum{r0: 30} mul(f32(p[i0, r0]), f32(in2[r0, i1]))
    }";
    let mut task = on_machine(text, false);
    task.constant = vec![false; 3];
    let inputs = task.compute.inputs.iter().enumerate();
    let inputs: Vec<Tensor> = inputs.map(|(i, ty)| halves(ty, i as u64)).collect();
    let rewritten = Algorithm::DotBf16.rewrite(&task).expect("it applies");
    let names: Vec<&str> = rewritten.task.compute.stages.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["pairs", "pairs", "s", "p", "y"]);
    assert_eq!(rewritten.task.compute.to_string().matches("dot_bf16(").count(), 2);
    let expected = eval(&task.compute, &inputs);
    assert_eq!(eval(&rewritten.task.compute, &inputs).bytes(), expected.bytes());
    assert_eq!(run(&scheduled(&rewritten), &inputs).bytes(), expected.bytes());
}
