//! Products of bytes, four or two at a time.

use ansc_graph::{Compute, verify};
use ansc_runtime::Tensor;

use super::{bytes, eval, prepared, run, scheduled, task};
use crate::algorithm::Algorithm;

/// The rewritten subgraph gives the same bits, as an expression and by untuned schedules of several
/// machines.
fn check(text: &str) {
    check_by(text, &[(Algorithm::Dot4, "dot4("), (Algorithm::Dot2, "dot2(")]);
}

/// The same by algorithms that multiply by such operations.
pub(super) fn check_by(text: &str, algorithms: &[(Algorithm, &str)]) {
    let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let inputs: Vec<Tensor> =
        compute.inputs.iter().enumerate().map(|(i, ty)| bytes(ty, i as u64)).collect();
    let expected = eval(&compute, &inputs);
    let machines = [(false, 16), (true, 16), (true, 32), (false, 64), (true, 64)];
    let all = machines.into_iter().flat_map(|m| algorithms.iter().map(move |a| (a, m)));
    for ((algorithm, operation), (constant, vector_bytes)) in all {
        let mut task = task(compute.clone(), constant);
        task.machine.vector_bytes = vector_bytes;
        let rewritten =
            algorithm.rewrite(&task).unwrap_or_else(|| panic!("{algorithm} applies to {text}"));
        assert_eq!(rewritten.prepared.len(), usize::from(constant), "{text}");
        verify::verify_compute(&rewritten.task.compute).unwrap();
        let new = rewritten.task.compute.to_string();
        assert!(new.contains(operation), "{new}");
        assert_eq!(Compute::parse(&new).unwrap().to_string(), new);
        let found = eval(&rewritten.task.compute, &prepared(&rewritten, &inputs));
        assert_eq!(found.bytes(), expected.bytes(), "constant {constant}:\n{new}");
        let scheduled = scheduled(&rewritten);
        let found = run(&scheduled, &inputs);
        assert_eq!(found.bytes(), expected.bytes(), "constant {constant}:\n{}", scheduled.program);
    }
}

/// `y = f32(a * b) * scale` of matrices, `a` of the first type.
fn byte_product([a, b]: [&str; 2], [m, k, n]: [usize; 3], turned: bool) -> String {
    let (shape, at) = if turned { ([n, k], "i1, r0") } else { ([k, n], "r0, i1") };
    let [rows, columns] = shape;
    format!(
        "compute(in0: {a}[{m}, {k}], in1: {b}[{rows}, {columns}], in2: f32[{n}]) -> y {{
           product: i32[{m}, {n}] = sum{{r0: {k}}} mul(i32(in0[i0, r0]), i32(in1[{at}]))
           y: f32[{m}, {n}] = mul(f32(product[i0, i1]), in2[i1])
         }}"
    )
}

#[test]
fn products_of_bytes_keep_every_bit() {
    for types in [["u8", "i8"], ["i8", "u8"]] {
        let whole = [[5, 64, 33], [1, 12, 7], [21, 4, 48], [18, 132, 1]];
        let filled_up = [[5, 63, 33], [1, 11, 7], [21, 3, 48], [18, 130, 1]];
        for sizes in whole.into_iter().chain(filled_up) {
            check(&byte_product(types, sizes, false));
            check(&byte_product(types, sizes, true));
        }
    }
}

#[test]
fn batches_of_products_of_bytes() {
    for (shape, at) in [("3, 16, 9", "i0, r0, i2"), ("16, 9", "r0, i2")] {
        check(&format!(
            "compute(in0: u8[3, 5, 16], in1: i8[{shape}]) -> y {{
               y: i32[3, 5, 9] = sum{{r0: 16}} mul(i32(in0[i0, i1, r0]), i32(in1[{at}]))
             }}"
        ));
    }
}

/// Padded convolutions of two strides, and one of the channels of a picture, whose terms fill no
/// instruction; the types of factors and sums, and the text of what surrounds the image.
pub(super) fn narrow_convolutions([a, b, sum]: [&str; 3], outside: &str) -> Vec<String> {
    let pad = format!(
        "select(and(and(and(le(1, i1), lt(i1, 8)), le(1, i2)), lt(i2, 7)), in0[i0, sub(i1, 1), sub(i2, 1), i3], {outside})"
    );
    let padded = [(1, 7, 6), (2, 4, 3)].map(|(stride, oh, ow)| {
        format!(
            "compute(in0: {a}[2, 7, 6, 8], in1: {b}[3, 3, 8, 21], in2: {sum}[21]) -> y {{
               pad: {a}[2, 9, 8, 8] = {pad}
               conv: {sum}[2, {oh}, {ow}, 21] = sum{{r0: 3, r1: 3, r2: 8}} mul({sum}(pad[i0, add(mul(i1, {stride}), r0), add(mul(i2, {stride}), r1), r2]), {sum}(in1[r0, r1, r2, i3]))
               y: {sum}[2, {oh}, {ow}, 21] = add(conv[i0, i1, i2, i3], in2[i3])
             }}"
        )
    });
    let picture = format!(
        "compute(in0: {a}[1, 9, 11, 3], in1: {b}[3, 3, 3, 20]) -> conv {{
           conv: {sum}[1, 4, 5, 20] = sum{{r0: 3, r1: 3, r2: 3}} mul({sum}(in0[i0, add(mul(i1, 2), r0), add(mul(i2, 2), r1), r2]), {sum}(in1[r0, r1, r2, i3]))
         }}"
    );
    // Of two groups, each of 8 channels and 20 columns.
    let groups = format!(
        "compute(in0: {a}[2, 5, 6, 16], in1: {b}[3, 3, 8, 40]) -> conv {{
           conv: {sum}[2, 3, 4, 40] = sum{{r0: 3, r1: 3, r2: 8}} mul({sum}(in0[i0, add(i1, r0), add(i2, r1), add(mul(floor_div(i3, 20), 8), r2)]), {sum}(in1[r0, r1, r2, i3]))
         }}"
    );
    padded.into_iter().chain([picture, groups]).collect()
}

#[test]
fn convolutions_of_bytes() {
    narrow_convolutions(["u8", "i8", "i32"], "7_u8").iter().for_each(|text| check(text));
    // Groups of few columns.
    check(
        "compute(in0: u8[7, 8], in1: i8[4, 6]) -> y {
           y: i32[7, 6] = sum{r0: 4} mul(i32(in0[i0, add(mul(floor_div(i1, 3), 4), r0)]), i32(in1[r0, i1]))
         }",
    );
    check(
        "compute(in0: u8[2, 12, 7, 19], in1: i8[5, 12, 3, 3]) -> conv {
           conv: i32[2, 5, 5, 17] = sum{r0: 12, r1: 3, r2: 3} mul(i32(in1[i1, r0, r1, r2]), i32(in0[i0, r0, add(i2, r1), add(i3, r2)]))
         }",
    );
}

#[test]
fn what_is_no_product_of_four_bytes_is_refused() {
    let refused = |text: &str| {
        let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        for algorithm in [Algorithm::Dot4, Algorithm::Dot2] {
            assert_eq!(algorithm.rewrite(&task(compute.clone(), true)), None, "{text}");
        }
    };
    refused(&byte_product(["u8", "u8"], [5, 64, 33], false));
    refused(&byte_product(["i8", "i8"], [5, 64, 33], false));
    // Half of the terms would be zeros.
    refused(&byte_product(["u8", "i8"], [5, 1, 33], false));
    // Groups that begin within four bytes, or two.
    refused(
        "compute(in0: u8[7, 12], in1: i8[4, 6]) -> y {
           y: i32[7, 6] = sum{r0: 4} mul(i32(in0[i0, add(mul(floor_div(i1, 3), 5), r0)]), i32(in1[r0, i1]))
         }",
    );
    // Only a part of the axis, which need not begin at a quad of the other's.
    refused(
        "compute(in0: u8[7, 9], in1: i8[8, 6]) -> y {
           y: i32[7, 6] = sum{r0: 8} mul(i32(in0[i0, r0]), i32(in1[r0, i1]))
         }",
    );
    refused(
        "compute(in0: u8[7, 8], in1: i8[8, 6]) -> y {
           y: i32[7, 6] = max{r0: 8} mul(i32(in0[i0, r0]), i32(in1[r0, i1]))
         }",
    );
    let pairs = Compute::parse(&byte_product(["u8", "i8"], [5, 2, 33], false)).unwrap();
    let rewritten = |algorithm: Algorithm| algorithm.rewrite(&task(pairs.clone(), true)).is_some();
    assert!(rewritten(Algorithm::Dot2) && !rewritten(Algorithm::Dot4));
    let floats = task(crate::testing::matmul_bias_relu(4, 4, 4), true);
    assert_eq!(Algorithm::Dot4.rewrite(&floats), None);
}

#[test]
fn a_factor_is_not_rearranged_for_a_single_row() {
    let preferred = |rows: usize, constant: bool| {
        let text = byte_product(["u8", "i8"], [rows, 64, 33], false);
        task(Compute::parse(&text).unwrap(), constant).preferred()
    };
    assert_eq!(preferred(1, true), Some(Algorithm::Dot4));
    assert_eq!(preferred(1, false), None);
    assert_eq!(preferred(16, false), Some(Algorithm::Dot4));
}

/// Words take twice the memory of bytes, and are made in each run: there have to be rows and
/// columns enough.
#[test]
fn words_are_for_machines_that_multiply_no_bytes() {
    let preferred = |pairs: bool, [rows, columns]: [usize; 2], constant: bool| {
        let text = byte_product(["u8", "i8"], [rows, 64, columns], false);
        let mut task = task(Compute::parse(&text).unwrap(), constant);
        task.machine.units.pairs = pairs;
        task.preferred()
    };
    assert_eq!(preferred(true, [32, 64], true), Some(Algorithm::Dot2));
    assert_eq!(preferred(false, [32, 64], true), Some(Algorithm::Dot4));
    assert_eq!(preferred(true, [8, 64], true), Some(Algorithm::Dot4));
    assert_eq!(preferred(true, [32, 16], true), Some(Algorithm::Dot4));
    assert_eq!(preferred(true, [32, 64], false), Some(Algorithm::Dot4));
}
