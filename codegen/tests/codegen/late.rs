//! Rows of tiles that are stored while the next tiles are summed up.

use ansc_codegen::{Listing, Target, listing};
use ansc_runtime::Tensor;

use crate::amx::{in_tiles, operand};
use crate::check::{compare, exact, packed};
use crate::kernel::Kernel;

/// Sums of 16 steps, each of which stores two rows of the tiles before where results are large.
fn product(rows: usize) -> String {
    format!(
        "compute(in0: bf16[{rows}, 512], in1: bf16[512, 512], in2: f32[{rows}, 512]) -> y {{
          s: f32[{rows}, 512] = sum{{r0: 512}} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
          y: f32[{rows}, 512] = max(add(s[i0, i1], in2[i0, i1]), 0.0_f32)
        }}"
    )
}

#[test]
fn steps_store_rows_of_large_results() {
    let target = Target::parse("sapphirerapids").unwrap();
    let stored = |rows: usize| {
        let (_, scheduled) = in_tiles(&product(rows), &target);
        let assembly = listing(&scheduled.program, "k", &target, Listing::Assembly).unwrap();
        assembly.lines().filter(|line| line.contains("vmaxps")).count()
    };
    // A row of 32 columns are two vectors: one row in a loop, and two in a step as well.
    assert_eq!([512, 1024].map(stored), [2, 6]);
}

/// Where there is no unit, no rows are late.
#[test]
fn late_rows_are_the_same() {
    let (native, plain) = (Target::native().unwrap(), Target::parse("x86-64").unwrap());
    let (compute, scheduled) = in_tiles(&product(1024), &native);
    let inputs: Vec<Tensor> =
        compute.inputs.iter().zip(1..).map(|(ty, seed)| operand(ty, seed)).collect();
    let given = packed(&scheduled, &inputs);
    let given: Vec<&Tensor> = given.iter().collect();
    let expected = Kernel::for_target(&scheduled.program, &plain).run_in(&given, 1);
    for pieces in [1, 3] {
        let found = Kernel::for_target(&scheduled.program, &native).run_in(&given, pieces);
        compare("late rows", &found, &expected, &exact);
    }
}
