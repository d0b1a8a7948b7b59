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

/// The same by weights `[r, s, c, k]`, with results `[k, h, w]` if they are `turned`.
fn channels_at_the_end(groups: usize, channels: usize, columns: usize, turned: bool) -> Compute {
    let (c, k) = (groups * channels, groups * columns);
    let (shape, at, bias) = match turned {
        true => (format!("{k}, 5, 5"), "i1, i2, i0", "i0"),
        false => (format!("5, 5, {k}"), "i0, i1, i2", "i2"),
    };
    let text = format!(
        "compute(in0: f32[7, 7, {c}], in1: f32[3, 3, {channels}, {k}], in2: f32[{k}]) -> y {{
           conv: f32[5, 5, {k}] = sum{{r0: 3, r1: 3, r2: {channels}}} mul(in0[add(i0, r0), add(i1, r1), add(mul(floor_div(i2, {columns}), {channels}), r2)], in1[r0, r1, r2, i2])
           y: f32[{shape}] = max(add(conv[{at}], in2[{bias}]), 0.0_f32)
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

/// Panels of weights begin anew with each group, and results go where they belong from tiles.
#[test]
fn odd_columns_of_weights_with_columns_last_are_tiled() {
    for (groups, channels, columns) in [(2, 5, 7), (3, 4, 13), (2, 3, 33)] {
        for turned in [false, true] {
            let compute = channels_at_the_end(groups, channels, columns, turned);
            check(&compute, Algorithm::Groups);
            let choice = task(compute, true).choice().unwrap();
            assert_eq!(choice.by, Some(Algorithm::Groups), "{columns}, turned {turned}");
            assert_eq!(choice.sketch.rules, ["contraction"], "{columns}, turned {turned}");
            // Sums go from tiles to the result, and to no memory in between.
            let program = choice.scheduled.program.to_string();
            assert!(program.contains(" local\n") && !program.contains(" global\n"), "{program}");
        }
    }
}

/// The only image has no index of its own in what follows.
#[test]
fn what_follows_groups_of_one_image_is_computed_in_tiles() {
    let compute = Compute::parse(
        "compute(in0: f32[1, 6, 6, 12], in1: f32[3, 3, 4, 12]) -> map {
  conv: f32[1, 4, 4, 12] = sum{r0: 3, r1: 3, r2: 4} mul(in0[i0, add(i1, r0), add(i2, r1), \
         add(mul(floor_div(i3, 4), 4), r2)], in1[r0, r1, r2, i3])
  map: f32[1, 4, 4, 12] = max(conv[0, i1, i2, i3], 0.0_f32)
}",
    );
    let compute = compute.unwrap();
    check(&compute, Algorithm::Groups);
    let field = crate::choose::field(&Arc::new(task(compute, true)), Some(Algorithm::Groups));
    let program = field.unwrap().choices().next().unwrap().scheduled.program.to_string();
    assert!(program.contains(" local\n") && !program.contains(" global\n"), "{program}");
}

#[test]
fn groups_of_few_columns_stay() {
    assert_eq!(rewritten(&grouped(8, 3, 1, 3)), None);
    let half = grouped(6, 2, 2, 3);
    assert_eq!(rewritten(&half), None);
    // Vectors of 64 bytes have sixteen lanes.
    for (columns, are_apart) in [(7, false), (8, true)] {
        let mut wide = task(grouped(2, 3, columns, 3), true);
        wide.machine = Machine::new(64, 32);
        assert_eq!(Algorithm::Groups.rewrite(&wide).is_some(), are_apart, "{columns}");
    }
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
