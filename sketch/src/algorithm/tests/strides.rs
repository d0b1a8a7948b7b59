//! Windows over columns that lie a stride apart.

use ansc_graph::{Compute, verify};
use ansc_runtime::Tensor;

use super::{bytes, eval, run, scheduled, task};
use crate::algorithm::Algorithm;

fn applied(text: &str) -> bool {
    let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    Algorithm::Strides.rewrite(&task(compute, true)).is_some()
}

/// The rewritten subgraph gives the same bits, as an expression and by untuned schedules of several
/// machines.
fn check(text: &str) {
    let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let inputs = compute.inputs.iter().enumerate();
    let inputs: Vec<Tensor> = inputs.map(|(i, ty)| bytes(ty, i as u64)).collect();
    let expected = eval(&compute, &inputs);
    for vector_bytes in [16, 32, 64] {
        let mut task = task(compute.clone(), true);
        task.machine.vector_bytes = vector_bytes;
        let rewritten = Algorithm::Strides.rewrite(&task).expect("it applies");
        verify::verify_compute(&rewritten.task.compute).unwrap();
        let new = rewritten.task.compute.to_string();
        assert!(new.contains("columns"), "{new}");
        let found = eval(&rewritten.task.compute, &inputs);
        assert_eq!(found.bytes(), expected.bytes(), "{new}");
        let scheduled = scheduled(&rewritten);
        let found = run(&scheduled, &inputs);
        assert_eq!(found.bytes(), expected.bytes(), "{}", scheduled.program);
    }
}

/// One filter for each of five channels, over an image that is padded by `pad`, or not at all.
fn depthwise([size, window, stride, dilation, pad]: [usize; 5]) -> String {
    let (padded, end) = (size + 2 * pad, size + pad);
    let out = (padded - (window - 1) * dilation - 1) / stride + 1;
    let (stage, read) = match pad {
        0 => (String::new(), "in0"),
        _ => (
            format!(
                "pad: f32[2, 5, {padded}, {padded}] = select(and(and(and(le({pad}, i2), lt(i2, {end})), le({pad}, i3)), lt(i3, {end})), in0[i0, i1, sub(i2, {pad}), sub(i3, {pad})], 0.0_f32)"
            ),
            "pad",
        ),
    };
    let at = |i: usize, r: usize| format!("add(mul(i{i}, {stride}), mul(r{r}, {dilation}))");
    let [y, x] = [at(2, 0), at(3, 1)].map(|at| match dilation {
        1 => at.replace("mul(r0, 1)", "r0").replace("mul(r1, 1)", "r1"),
        _ => at,
    });
    format!(
        "compute(in0: f32[2, 5, {size}, {size}], in1: f32[5, {window}, {window}]) -> conv {{
           {stage}
           conv: f32[2, 5, {out}, {out}] = sum{{r0: {window}, r1: {window}}} mul({read}[i0, i1, {y}, {x}], in1[i1, r0, r1])
         }}"
    )
}

#[test]
fn windows_of_one_channel() {
    for sizes in [
        [23, 7, 2, 1, 3],
        [23, 7, 2, 1, 0],
        [20, 5, 3, 1, 1],
        [21, 3, 4, 1, 1],
        [33, 3, 2, 3, 2],
        [18, 4, 2, 2, 0],
    ] {
        check(&depthwise(sizes));
    }
}

#[test]
fn a_source_with_another_reader_stays() {
    check(
        "compute(in0: f32[3, 41], in1: f32[4, 3, 5]) -> z {
           x: f32[3, 41] = mul(in0[i0, i1], 2.0_f32)
           y: f32[4, 19] = sum{r0: 3, r1: 5} mul(x[r0, add(mul(i1, 2), r1)], in1[i0, r0, r1])
           z: f32[4, 19] = add(y[i0, i1], x[0, i1])
         }",
    );
}

/// A source that chooses by its own elements has no element behind its end, so columns of a stride
/// that reach further may not read its condition there.
#[test]
fn a_source_that_chooses_by_data_is_not_read_behind_its_end() {
    check(
        "compute(in0: f32[3, 41], in1: f32[4, 3, 5]) -> y {
           x: f32[3, 41] = select(lt(9.0_f32, in0[i0, i1]), in0[i0, i1], 0.0_f32)
           y: f32[4, 19] = sum{r0: 3, r1: 5} mul(x[r0, add(mul(i1, 2), r1)], in1[i0, r0, r1])
         }",
    );
}

#[test]
fn what_vectors_read_as_it_lies_is_left_alone() {
    assert!(applied(&depthwise([23, 7, 2, 1, 3])));
    assert!(!applied(&depthwise([23, 7, 1, 1, 3])));
    // Few columns of such a stride are read at all.
    assert!(!applied(&depthwise([23, 3, 5, 1, 1])));
    // A maximum alone gains nothing from neighbours that are not there before.
    assert!(!applied(
        "compute(in0: f32[3, 41]) -> y {
           y: f32[3, 19] = max{r0: 5} in0[i0, add(mul(i1, 2), r0)]
         }"
    ));
    // The channels, which are innermost, lie side by side.
    assert!(!applied(
        "compute(in0: f32[9, 8], in1: f32[3, 8]) -> y {
           y: f32[4, 8] = sum{r0: 3} mul(in0[add(mul(i0, 2), r0), i1], in1[r0, i1])
         }"
    ));
}
