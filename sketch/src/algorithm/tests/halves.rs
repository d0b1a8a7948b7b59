//! Products of pairs of `bf16`.

use ansc_graph::{Compute, TensorType};
use ansc_runtime::{DType, Tensor};
use half::bf16;

use super::{bytes, eval, prepared, run, scheduled, task};
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
    for (constant, vector_bytes) in [(false, 16), (true, 16), (true, 32), (false, 64), (true, 64)] {
        let mut task = on_machine(text, constant);
        task.machine.vector_bytes = vector_bytes;
        let inputs = task.compute.inputs.iter().enumerate();
        let inputs: Vec<Tensor> = inputs.map(|(i, ty)| halves(ty, i as u64)).collect();
        let expected = eval(&task.compute, &inputs);
        let rewritten = Algorithm::DotBf16.rewrite(&task).expect("it applies");
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
    let pad = "select(and(and(and(le(1, i1), lt(i1, 8)), le(1, i2)), lt(i2, 7)), in0[i0, sub(i1, 1), sub(i2, 1), i3], 0_bf16)";
    for (stride, oh, ow) in [(1, 7, 6), (2, 4, 3)] {
        check(&format!(
            "compute(in0: bf16[2, 7, 6, 8], in1: bf16[3, 3, 8, 21], in2: f32[21]) -> y {{
               pad: bf16[2, 9, 8, 8] = {pad}
               conv: f32[2, {oh}, {ow}, 21] = sum{{r0: 3, r1: 3, r2: 8}} mul(f32(pad[i0, add(mul(i1, {stride}), r0), add(mul(i2, {stride}), r1), r2]), f32(in1[r0, r1, r2, i3]))
               y: f32[2, {oh}, {ow}, 21] = add(conv[i0, i1, i2, i3], in2[i3])
             }}"
        ));
    }
    // The channels of a picture, one of which is a zero in the last pair.
    check(
        "compute(in0: bf16[1, 9, 11, 3], in1: bf16[3, 3, 3, 20]) -> conv {
           conv: f32[1, 4, 5, 20] = sum{r0: 3, r1: 3, r2: 3} mul(f32(in0[i0, add(mul(i1, 2), r0), add(mul(i2, 2), r1), r2]), f32(in1[r0, r1, r2, i3]))
         }",
    );
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
