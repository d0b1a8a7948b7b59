//! Windows, and positions of extremes.

use super::*;

/// A window over two axes of `[n, c, h, w]` or `[n, h, w, c]`, padded; its sum is divided.
fn window(combiner: &str, channels_last: bool, [r, q]: [usize; 2], s: usize, d: usize) -> Compute {
    let (h, w) = (11, 13);
    let (oh, ow) = ((h - (r - 1) * d - 1) / s + 1, (w - (q - 1) * d - 1) / s + 1);
    let at = |i: usize, r: usize| format!("add(mul(i{i}, {s}), mul(r{r}, {d}))");
    let (input, output, index) = match channels_last {
        true => (
            format!("2, {h}, {w}, 5"),
            format!("2, {oh}, {ow}, 5"),
            format!("i0, {}, {}, i3", at(1, 0), at(2, 1)),
        ),
        false => (
            format!("2, 5, {h}, {w}"),
            format!("2, 5, {oh}, {ow}"),
            format!("i0, i1, {}, {}", at(2, 0), at(3, 1)),
        ),
    };
    let text = format!(
        "compute(in0: f32[{input}]) -> y {{
           of: f32[{output}] = {combiner}{{r0: {r}, r1: {q}}} mul(in0[{index}], 0.5_f32)
           y: f32[{output}] = sub(of[i0, i1, i2, i3], 1.0_f32)
         }}"
    );
    Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn windows_are_taken_one_axis_after_the_other() {
    for (combiner, channels_last) in [("sum", false), ("max", true), ("min", false), ("prod", true)]
    {
        for (kernel, stride, dilation) in [([3, 3], 1, 1), ([2, 5], 2, 1), ([3, 2], 3, 2)] {
            check(&window(combiner, channels_last, kernel, stride, dilation), Algorithm::Separate);
        }
    }
}

/// Ties are as many as values are few; roots of what is negative are not numbers.
#[test]
fn places_of_extremes_are_those_of_the_one_reduction() {
    for element in
        ["in0[i0, r0, i1]", "floor(in0[i0, r0, i1])", "sqrt(add(in0[i0, r0, i1], 1.5_f32))"]
    {
        for combiner in ["argmax", "argmax_last", "argmin", "argmin_last"] {
            for n in [1, 5, 40] {
                let text = format!(
                    "compute(in0: f32[3, {n}, 21]) -> y {{ y: i64[3, 21] = {combiner}{{r0: {n}}} {element} }}"
                );
                check(
                    &Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")),
                    Algorithm::Place,
                );
            }
        }
    }
}
