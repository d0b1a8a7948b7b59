//! Sums with few columns, whose terms lie in lanes.

use ansc_graph::{Compute, verify};
use ansc_runtime::Tensor;

use super::{bytes, channels_last, eval, run, scheduled, task};
use crate::algorithm::{Algorithm, Rewritten};

/// For vectors of so many bytes.
fn rewritten(compute: &Compute, vector_bytes: usize) -> Option<Rewritten> {
    let mut task = task(compute.clone(), true);
    task.machine.vector_bytes = vector_bytes;
    Algorithm::Lanes.rewrite(&task)
}

/// The rewritten subgraph gives the same bits, as an expression and by untuned schedules.
fn check(compute: &Compute, vector_bytes: &[usize]) {
    let inputs = compute.inputs.iter().enumerate();
    let inputs: Vec<Tensor> = inputs.map(|(i, ty)| bytes(ty, i as u64)).collect();
    let expected = eval(compute, &inputs);
    for &vector_bytes in vector_bytes {
        let rewritten = rewritten(compute, vector_bytes).expect("it applies");
        verify::verify_compute(&rewritten.task.compute).unwrap();
        let scheduled = scheduled(&rewritten);
        let found = run(&scheduled, &inputs);
        assert_eq!(found.bytes(), expected.bytes(), "{}", scheduled.program);
    }
}

fn product(rows: usize, terms: usize, columns: usize) -> Compute {
    let text = format!(
        "compute(in0: f32[{rows}, {terms}], in1: f32[{terms}, {columns}]) -> y {{
           y: f32[{rows}, {columns}] = sum{{r0: {terms}}} mul(in0[i0, r0], in1[r0, i1])
         }}"
    );
    Compute::parse(&text).unwrap()
}

#[test]
fn convolutions_to_few_channels() {
    for (columns, kernel, stride) in [(3, [3, 3], 1), (1, [5, 2], 2), (2, [1, 3], 1)] {
        check(&channels_last(2, [7, 9], 16, columns, kernel, stride, 1), &[32, 64]);
    }
    check(&channels_last(1, [6, 5], 32, 7, [3, 3], 1, 1), &[64]);
}

#[test]
fn products_of_few_columns() {
    check(&product(9, 32, 1), &[16, 32, 64]);
    check(&product(9, 32, 3), &[32, 64]);
    check(&product(9, 32, 5), &[64]);
}

#[test]
fn other_sums_stay() {
    // Columns that fill vectors, or half of one; terms that do not, and terms that lie apart.
    assert!(rewritten(&product(9, 32, 16), 64).is_none());
    assert!(rewritten(&product(9, 32, 8), 64).is_none());
    assert!(rewritten(&product(9, 24, 3), 64).is_none());
    let apart = "compute(in0: f32[32, 9], in1: f32[32, 3]) -> y {
       y: f32[9, 3] = sum{r0: 32} mul(in0[r0, i0], in1[r0, i1])
     }";
    assert!(rewritten(&Compute::parse(apart).unwrap(), 64).is_none());
    let mut changing = task(product(9, 32, 3), false);
    changing.machine.vector_bytes = 64;
    assert!(Algorithm::Lanes.rewrite(&changing).is_none());
}
