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

/// Vectors of the task have four lanes.
#[test]
fn groups_have_columns_of_their_own() {
    for (groups, channels, columns) in [(2, 5, 7), (3, 4, 13), (6, 2, 3), (4, 4, 4)] {
        for window in [1, 3] {
            check(&grouped(groups, channels, columns, window), Algorithm::Groups);
        }
    }
    let found = rewritten(&grouped(2, 5, 7, 3)).unwrap().task.compute;
    let sum = found.stages.iter().find(|s| s.reduce.is_some()).unwrap();
    assert_eq!(sum.extents(), [5, 5, 2, 7, 5, 3, 3]);
    let text = sum.body.to_string();
    assert!(!text.contains("floor"), "{text}");
}

#[test]
fn groups_of_few_columns_stay() {
    assert_eq!(rewritten(&grouped(8, 3, 1, 3)), None);
    assert_eq!(rewritten(&grouped(6, 2, 2, 3)), None);
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
