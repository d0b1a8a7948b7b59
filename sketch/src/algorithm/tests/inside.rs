//! Taps where they meet the image.

use ansc_graph::Compute;

use super::{check, dots, halves, task};
use crate::algorithm::Algorithm;

/// `[n, h, w, c]` with a window of 3 x 3.
fn wide_apart(
    [h, w]: [usize; 2],
    [c, k]: [usize; 2],
    stride: usize,
    dilation: usize,
    [top, left]: [usize; 2],
) -> Compute {
    let reach = 2 * dilation + 1;
    let (ph, pw) = (h + 2 * top, w + 2 * left);
    let (oh, ow) = ((ph - reach) / stride + 1, (pw - reach) / stride + 1);
    let (bottom, right) = (h + top, w + left);
    let text = format!(
        "compute(in0: f32[2, {h}, {w}, {c}], in1: f32[3, 3, {c}, {k}], in2: f32[{k}]) -> y {{
           pad: f32[2, {ph}, {pw}, {c}] = select(and(and(and(le({top}, i1), lt(i1, {bottom})), le({left}, i2)), lt(i2, {right})), in0[i0, sub(i1, {top}), sub(i2, {left}), i3], 0.0_f32)
           conv: f32[2, {oh}, {ow}, {k}] = sum{{r0: 3, r1: 3, r2: {c}}} mul(pad[i0, add(mul(i1, {stride}), mul(r0, {dilation})), add(mul(i2, {stride}), mul(r1, {dilation})), r2], in1[r0, r1, r2, i3])
           y: f32[2, {oh}, {ow}, {k}] = max(add(conv[i0, i1, i2, i3], in2[i3]), 0.0_f32)
         }}"
    );
    Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn taps_are_multiplied_where_they_meet_the_image() {
    for (image, channels, stride, dilation, padding) in [
        // Parts of rows and columns; then only the middle of the window meets the image.
        ([6, 7], [5, 9], 1, 4, [4, 4]),
        ([5, 6], [8, 16], 1, 7, [7, 7]),
        ([9, 8], [3, 7], 2, 5, [5, 5]),
        // A row of the window meets nothing; results of padding alone.
        ([8, 12], [4, 6], 3, 6, [3, 1]),
        ([4, 4], [3, 4], 1, 2, [6, 5]),
    ] {
        check(&wide_apart(image, channels, stride, dilation, padding), Algorithm::Inside);
    }
}

/// Taps of bytes and of halves are multiplied several terms at a time.
#[test]
fn taps_of_narrow_numbers_are_multiplied_together() {
    let text = |[image, weight, sum]: [&str; 3], zero: &str, [c, k]: [usize; 2]| {
        format!(
            "compute(in0: {image}[2, 6, 7, {c}], in1: {weight}[3, 3, {c}, {k}]) -> conv {{
               pad: {image}[2, 14, 15, {c}] = select(and(and(and(le(4, i1), lt(i1, 10)), le(4, i2)), lt(i2, 11)), in0[i0, sub(i1, 4), sub(i2, 4), i3], {zero})
               conv: {sum}[2, 6, 7, {k}] = sum{{r0: 3, r1: 3, r2: {c}}} mul({sum}(pad[i0, add(i1, mul(r0, 4)), add(i2, mul(r1, 4)), r2]), {sum}(in1[r0, r1, r2, i3]))
             }}"
        )
    };
    for channels in [[8, 9], [16, 16], [12, 5]] {
        let halves = text(["bf16", "bf16", "f32"], "0.0_bf16", channels);
        halves::check_by(&halves, Algorithm::Inside);
        let bytes = text(["u8", "i8", "i32"], "0_u8", channels);
        dots::check_by(&bytes, &[(Algorithm::Inside, "dot4(")]);
        // A zero point is no zero.
        let shifted = text(["u8", "i8", "i32"], "7_u8", channels);
        let compute = Compute::parse(&shifted).unwrap();
        assert_eq!(Algorithm::Inside.rewrite(&task(compute, true)), None);
    }
}

/// Products that are not computed are what it is for, and a padded image that nobody else reads.
#[test]
fn it_is_for_windows_that_miss_much_of_the_image() {
    let near = wide_apart([32, 32], [8, 16], 1, 1, [1, 1]);
    assert_eq!(Algorithm::Inside.rewrite(&task(near, true)), None);
    let far = wide_apart([8, 8], [8, 16], 1, 8, [8, 8]);
    let made = Algorithm::Inside.rewrite(&task(far.clone(), true)).unwrap().task.compute;
    let names: Vec<&str> = made.stages.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["tap_0", "conv", "y"]);
    let mut read = far;
    read.outputs.push(0);
    assert_eq!(Algorithm::Inside.rewrite(&task(read, true)), None);
}
