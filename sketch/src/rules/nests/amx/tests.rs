use std::sync::Arc;

use super::super::{Nests, Way, amx_sketches};
use ansc_graph::Compute;

use crate::algorithm::Algorithm;
use crate::task::Task;
use crate::testing::{compare_scheduled, task};
use crate::trace::Unfit;

/// For a processor with units for matrices.
fn with_units(text: &str, constant: &[bool]) -> Arc<Task> {
    let mut task = Task::clone(&task(text));
    task.machine.units.amx_bf16 = true;
    task.machine.units.amx_int8 = true;
    task.constant = constant.to_vec();
    Arc::new(task)
}

/// Each: whole blocks; a tail of rows and columns; rows along another axis; strides; a batch;
/// bytes; a sum that two stages read; convolutions of few channels; at first, pairs along an axis
/// of two, blocks of rows along another axis the last of which is smaller, and one that is
/// transposed.
const PRODUCTS: [&str; 14] = [
    "compute(in0: bf16[1, 4, 5, 5, 16], in1: bf16[3, 3, 3, 16, 512]) -> y {
      s: f32[1, 2, 3, 3, 512] = sum{r0: 3, r1: 3, r2: 3, r3: 16} mul(f32(in0[i0, add(i1, r0), add(i2, r1), add(i3, r2), r3]), f32(in1[r0, r1, r2, r3, i4]))
      y: f32[1, 2, 3, 3, 512] = max(s[0, i1, i2, i3, i4], 0.0_f32)
    }",
    "compute(in0: bf16[1, 7, 7, 32], in1: bf16[3, 3, 32, 256]) -> y {
      s: f32[1, 5, 5, 256] = sum{r0: 3, r1: 3, r2: 32} mul(f32(in0[i0, add(i1, r0), add(i2, r1), r2]), f32(in1[r0, r1, r2, i3]))
      y: f32[1, 5, 5, 256] = max(s[0, i1, i2, i3], 0.0_f32)
    }",
    "compute(in0: bf16[1, 9, 9, 64], in1: bf16[3, 3, 64, 64]) -> y {
      s: f32[1, 7, 7, 64] = sum{r0: 3, r1: 3, r2: 64} mul(f32(in0[i0, add(i1, r0), add(i2, r1), r2]), f32(in1[r0, r1, r2, i3]))
      y: bf16[1, 7, 7, 64] = bf16(max(s[0, i1, i2, i3], 0.0_f32))
    }",
    "compute(in0: bf16[18, 32], in1: bf16[32, 48]) -> y {
      s: f32[18, 48] = sum{r0: 32} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
      t: f32[18, 48] = max(s[i0, i1], 0.0_f32)
      y: f32[48, 18] = neg(t[i1, i0])
    }",
    "compute(in0: bf16[64, 64], in1: bf16[64, 64], in2: f32[64]) -> y {
      s: f32[64, 64] = sum{r0: 64} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
      y: f32[64, 64] = max(add(s[i0, i1], in2[i1]), 0.0_f32)
    }",
    "compute(in0: bf16[37, 40], in1: bf16[40, 41]) -> s {
      s: f32[37, 41] = sum{r0: 40} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
    }",
    "compute(in0: bf16[1, 14, 14, 16], in1: bf16[3, 3, 16, 32], in2: f32[32]) -> y {
      p: bf16[1, 16, 16, 16] = select(and(and(le(1, i1), lt(i1, 15)), and(le(1, i2), lt(i2, 15))), in0[i0, sub(i1, 1), sub(i2, 1), i3], 0.0_bf16)
      s: f32[1, 14, 14, 32] = sum{r0: 3, r1: 3, r2: 16} mul(f32(p[i0, add(i1, r0), add(i2, r1), r2]), f32(in1[r0, r1, r2, i3]))
      y: bf16[1, 14, 14, 32] = bf16(max(add(s[0, i1, i2, i3], in2[i3]), 0.0_f32))
    }",
    "compute(in0: bf16[1, 17, 19, 8], in1: bf16[3, 3, 8, 24]) -> s {
      s: f32[1, 8, 9, 24] = sum{r0: 3, r1: 3, r2: 8} mul(f32(in0[i0, add(mul(i1, 2), r0), add(mul(i2, 2), r1), r2]), f32(in1[r0, r1, r2, i3]))
    }",
    "compute(in0: bf16[2, 3, 20, 16], in1: bf16[2, 3, 24, 16]) -> y {
      s: f32[2, 3, 20, 24] = sum{r0: 16} mul(f32(in0[i0, i1, i2, r0]), f32(in1[i0, i1, i3, r0]))
      y: f32[2, 3, 20, 24] = mul(s[i0, i1, i2, i3], 0.25_f32)
    }",
    "compute(in0: u8[30, 64], in1: i8[64, 32]) -> y {
      s: i32[30, 32] = sum{r0: 64} mul(i32(in0[i0, r0]), i32(in1[r0, i1]))
      y: f32[30, 32] = mul(f32(s[i0, i1]), 0.5_f32)
    }",
    "compute(in0: bf16[20, 32], in1: bf16[32, 16]) -> y, z {
      s: f32[20, 16] = sum{r0: 32} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
      y: f32[20, 16] = neg(s[i0, i1])
      z: f32[20, 16] = exp(s[i0, i1])
    }",
    "compute(in0: bf16[2, 21, 32], in1: bf16[32, 48]) -> y {
      s: f32[2, 21, 48] = sum{r0: 32} mul(f32(in0[i0, i1, r0]), f32(in1[r0, i2]))
      y: f32[2, 21, 48] = max(s[i0, i1, i2], 0.0_f32)
    }",
    "compute(in0: bf16[1, 3, 20, 22], in1: bf16[7, 7, 3, 40]) -> y {
      p: bf16[1, 3, 25, 27] = select(and(and(le(3, i2), lt(i2, 23)), and(le(3, i3), lt(i3, 25))), in0[i0, i1, sub(i2, 3), sub(i3, 3)], 0.0_bf16)
      s: f32[1, 10, 11, 40] = sum{r0: 7, r1: 7, r2: 3} mul(f32(p[i0, r2, add(mul(i1, 2), r0), add(mul(i2, 2), r1)]), f32(in1[r0, r1, r2, i3]))
      y: bf16[1, 10, 11, 40] = bf16(max(s[0, i1, i2, i3], 0.0_f32))
    }",
    "compute(in0: u8[2, 9, 34, 1], in1: i8[3, 3, 1, 16]) -> s {
      s: i32[2, 7, 16, 16] = sum{r0: 3, r1: 3, r2: 1} mul(i32(in0[i0, add(i1, r0), add(mul(i2, 2), r1), r2]), i32(in1[r0, r1, r2, i3]))
    }",
];

#[test]
fn products_in_tiles_compute_the_same() {
    for text in PRODUCTS {
        for constant in [false, true] {
            let constants = [false, constant, false];
            let inputs = Compute::parse(text).unwrap().inputs.len();
            let task = with_units(text, &constants[..inputs]);
            let mut nests = Nests::in_tiles(&task).unwrap();
            let stages = 0..nests.compute.stages.len();
            let applied = stages.map(|stage| super::apply(&mut nests, stage, &Way::new(0)));
            let applied: Result<Vec<_>, _> = applied.collect();
            if !applied.as_ref().is_ok_and(|all| all.contains(&Some(2))) {
                let program = nests.recorder.schedule().program();
                panic!("{applied:?}\n{}\n{}\n{program}", nests.compute, nests.recorder.trace());
            }
            let all = amx_sketches(&task);
            assert_ne!(all.len(), 0, "{text}");
            for (sketch, made) in all {
                compare_scheduled(&task.compute, &made)
                    .unwrap_or_else(|e| panic!("{e}\n{}\n{}", sketch.trace, made.program));
            }
        }
    }
}

/// A unit is worth the panels that it wants where there are several rows, and is not asked for
/// where there is none.
#[test]
fn products_that_nobody_tuned_use_the_unit() {
    let task = with_units(PRODUCTS[6], &[false, true, false]);
    assert_eq!(task.preferred(), Some(Algorithm::Tiles));
    let trace = task.untuned();
    let sample = task.sample(&trace, Unfit::Refuse, &mut crate::rules::fixed_random()).unwrap();
    assert_eq!(sample.scheduled, task.scheduled());
    assert!(sample.scheduled.program.to_string().contains("tensor(amx_dot_bf16_bf16_14x8)"));
    assert!(task.sketches()[0].trace.same_sketch(&trace));
    let plain = crate::testing::task(PRODUCTS[6]);
    assert_ne!(plain.preferred(), Some(Algorithm::Tiles));
}

/// All rows meet a panel while it is in the cache, whether a block of them leaves a smaller one or
/// not.
#[test]
fn rows_that_stay_in_the_cache_are_inside_of_columns() {
    let parallel = |product: &str| -> Vec<String> {
        let program = with_units(product, &[false, true]).scheduled().program.to_string();
        let loops = program.lines().filter(|line| line.ends_with(" parallel {"));
        loops.map(|line| line.split(" in ").last().unwrap_or(line).to_owned()).collect()
    };
    assert_eq!(parallel(PRODUCTS[0]), ["0..16 parallel {"]);
    assert_eq!(parallel(PRODUCTS[1]), ["0..16 parallel {"]);
}
