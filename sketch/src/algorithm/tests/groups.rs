//! Convolutions of groups.

use super::*;

/// `[h, w, c]` by weights `[k, c, r, s]`; of one place, if `window` is 1.
fn grouped(groups: usize, channels: usize, columns: usize, window: usize) -> Compute {
    let (c, k, out) = (groups * channels, groups * columns, 8 - window);
    let text = format!(
        "compute(in0: f32[7, 7, {c}], in1: f32[{k}, {channels}, {window}, {window}], in2: f32[{k}]) -> y {{
           conv: f32[{out}, {out}, {k}] = sum{{r0: {channels}, r1: {window}, r2: {window}}} mul(in0[add(i0, r1), add(i1, r2), add(mul(floor_div(i2, {columns}), {channels}), r0)], in1[i2, r0, r1, r2])
           y: f32[{out}, {out}, {k}] = max(add(conv[i0, i1, i2], in2[i2]), 0.0_f32)
         }}"
    );
    Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn rewritten(compute: &Compute) -> Option<Rewritten> {
    Algorithm::Groups.rewrite(&task(compute.clone(), true))
}

#[test]
fn groups_have_columns_of_their_own() {
    for (groups, channels, columns) in
        [(2, 5, 7), (3, 4, 13), (8, 1, 2), (8, 3, 1), (6, 2, 2), (4, 4, 4), (2, 3, 2)]
    {
        for window in [1, 3] {
            check(&grouped(groups, channels, columns, window), Algorithm::Groups);
        }
    }
}

/// Vectors of the task have four lanes.
#[test]
fn small_groups_become_one() {
    let shape = |groups, channels, columns| {
        let found = rewritten(&grouped(groups, channels, columns, 3))?;
        let sum = found.task.compute.stages.iter().find(|s| s.reduce.is_some())?;
        Some((sum.extents(), found.task.compute.inputs[1].shape.to_vec()))
    };
    assert_eq!(shape(8, 3, 1), Some((vec![5, 5, 2, 4, 12, 3, 3], vec![8, 12, 3, 3])));
    assert_eq!(shape(6, 2, 2), Some((vec![5, 5, 3, 4, 4, 3, 3], vec![12, 4, 3, 3])));
    // All of them.
    assert_eq!(shape(2, 3, 2), Some((vec![5, 5, 4, 6, 3, 3], vec![4, 6, 3, 3])));
    // Groups that are long enough stay.
    assert_eq!(shape(2, 5, 7), Some((vec![5, 5, 2, 7, 5, 3, 3], vec![14, 5, 3, 3])));
}

/// Weights that are known at run time only are not made wider.
#[test]
fn weights_of_a_run_stay_as_they_are() {
    let compute = grouped(6, 2, 2, 3);
    let found = Algorithm::Groups.rewrite(&task(compute.clone(), false)).unwrap();
    assert_eq!(found.task.compute.inputs, compute.inputs);
    assert!(found.prepared.is_empty());
}

#[test]
fn other_sums_have_no_groups() {
    assert_eq!(rewritten(&channels_last(1, [5, 5], 4, 6, [3, 3], 1, 1)), None);
    assert_eq!(rewritten(&channels_first(1, [5, 5], 4, 6)), None);
    // Neighbours that differ in what they read are no group.
    let text = grouped(2, 5, 7, 3).to_string();
    let other = text.replace("floor_div(i2, 7)", "floor_mod(i2, 2)");
    assert_ne!(text, other);
    assert_eq!(rewritten(&Compute::parse(&other).unwrap()), None);
}
