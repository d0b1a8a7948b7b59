//! Rewritten subgraphs compute the same, as expressions and by the untuned schedule.

use std::sync::Arc;

use ansc_graph::{Compute, Expr, Stage, TensorType, interp, verify};
use ansc_runtime::{DType, Tensor};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Algorithm, Rewritten};
use crate::exec;
use crate::machine::Machine;
use crate::packed::in_turn;
use crate::rules::nests::every_slice;
use crate::scheduled::Scheduled;
use crate::task::Sums;
use crate::task::Task;

mod dots;
mod groups;
mod halves;
mod inside;
mod lanes;
mod narrow;
mod reductions;
mod strides;
mod taps;
mod words;

/// Those of convolutions of floats.
const OF_FLOATS: [Algorithm; 4] =
    [Algorithm::Winograd2, Algorithm::Winograd4, Algorithm::Im2col, Algorithm::Taps];

fn task(compute: Compute, constant: bool) -> Task {
    let constant: Vec<bool> = (0..compute.inputs.len()).map(|i| constant && i > 0).collect();
    let machine = Machine::new(16, 16);
    Task { cores: 2, ..Task::on_cpu("k", &compute, &constant, &machine) }
}

/// `[n, h, w, c]` with a padding, a bias, something added and a maximum.
fn channels_last(
    n: usize,
    [h, w]: [usize; 2],
    c: usize,
    k: usize,
    kernel: [usize; 2],
    s: usize,
    pad: usize,
) -> Compute {
    let [r, q] = kernel;
    let (oh, ow) = ((h + 2 * pad - r) / s + 1, (w + 2 * pad - q) / s + 1);
    let (ph, pw, end_h, end_w) = (h + 2 * pad, w + 2 * pad, h + pad, w + pad);
    let text = format!(
        "compute(in0: f32[{n}, {h}, {w}, {c}], in1: f32[{r}, {q}, {c}, {k}], in2: f32[{k}], in3: f32[{n}, {oh}, {ow}, {k}]) -> y {{
           pad: f32[{n}, {ph}, {pw}, {c}] = select(and(and(and(le({pad}, i1), lt(i1, {end_h})), le({pad}, i2)), lt(i2, {end_w})), in0[i0, sub(i1, {pad}), sub(i2, {pad}), i3], 0.0_f32)
           conv: f32[{n}, {oh}, {ow}, {k}] = sum{{r0: {r}, r1: {q}, r2: {c}}} mul(pad[i0, add(mul(i1, {s}), r0), add(mul(i2, {s}), r1), r2], in1[r0, r1, r2, i3])
           y: f32[{n}, {oh}, {ow}, {k}] = max(add(add(conv[i0, i1, i2, i3], in2[i3]), in3[i0, i1, i2, i3]), 0.0_f32)
         }}"
    );
    Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// `[n, c, h, w]` without padding; the convolution is a result.
fn channels_first(n: usize, [h, w]: [usize; 2], c: usize, k: usize) -> Compute {
    let (oh, ow) = (h - 2, w - 2);
    let text = format!(
        "compute(in0: f32[{n}, {c}, {h}, {w}], in1: f32[{k}, {c}, 3, 3]) -> conv {{
           conv: f32[{n}, {k}, {oh}, {ow}] = sum{{r0: {c}, r1: 3, r2: 3}} mul(in1[i1, r0, r1, r2], in0[i0, r0, add(i2, r1), add(i3, r2)])
         }}"
    );
    Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// `[n, d, h, w, c]`, padded by one along the last two windows, `dilation` along the first.
fn frames(
    n: usize,
    [d, h, w]: [usize; 3],
    c: usize,
    k: usize,
    q: usize,
    dilation: usize,
) -> Compute {
    let (od, ph, pw) = (d - (q - 1) * dilation, h + 2, w + 2);
    let text = format!(
        "compute(in0: f32[{n}, {d}, {h}, {w}, {c}], in1: f32[{q}, 3, 3, {c}, {k}], in2: f32[{k}]) -> y {{
           pad: f32[{n}, {d}, {ph}, {pw}, {c}] = select(and(and(and(le(1, i2), le(i2, {h})), le(1, i3)), le(i3, {w})), in0[i0, i1, sub(i2, 1), sub(i3, 1), i4], 0.0_f32)
           conv: f32[{n}, {od}, {h}, {w}, {k}] = sum{{r0: {q}, r1: 3, r2: 3, r3: {c}}} mul(pad[i0, add(i1, mul(r0, {dilation})), add(i2, r1), add(i3, r2), r3], in1[r0, r1, r2, r3, i4])
           y: f32[{n}, {od}, {h}, {w}, {k}] = max(add(conv[i0, i1, i2, i3, i4], in2[i4]), 0.0_f32)
         }}"
    );
    Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// `[2, c, h, w]` without padding, of any stride and dilation.
fn spread_out(
    [h, w]: [usize; 2],
    c: usize,
    k: usize,
    kernel: [usize; 2],
    s: usize,
    d: usize,
) -> Compute {
    let [r, q] = kernel;
    let [oh, ow] = [(h, r), (w, q)].map(|(of, size)| (of - (size - 1) * d - 1) / s + 1);
    let text = format!(
        "compute(in0: f32[2, {c}, {h}, {w}], in1: f32[{k}, {c}, {r}, {q}]) -> conv {{
           conv: f32[2, {k}, {oh}, {ow}] = sum{{r0: {c}, r1: {r}, r2: {q}}} mul(in1[i1, r0, r1, r2], in0[i0, r0, add(mul(i2, {s}), mul(r1, {d})), add(mul(i3, {s}), mul(r2, {d}))])
         }}"
    );
    Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// `[1, c, d, h, w]` without padding, windows of seven by seven of stride two, and of five with
/// another one.
fn volume([d, h, w]: [usize; 3], c: usize, k: usize, stride: usize) -> Compute {
    let ([od, oh, ow], s) = ([(d - 5) / stride + 1, (h - 7) / 2 + 1, (w - 7) / 2 + 1], stride);
    let text = format!(
        "compute(in0: f32[1, {c}, {d}, {h}, {w}], in1: f32[{k}, {c}, 5, 7, 7]) -> conv {{
           conv: f32[1, {k}, {od}, {oh}, {ow}] = sum{{r0: {c}, r1: 5, r2: 7, r3: 7}} mul(in1[i1, r0, r1, r2, r3], in0[i0, r0, add(mul(i2, {s}), r1), add(mul(i3, 2), r2), add(mul(i4, 2), r3)])
         }}"
    );
    Compute::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Elements of a normal distribution.
fn normal(ty: &TensorType, seed: u64) -> Tensor {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut one = || {
        let (u, v): (f64, f64) = (random.random_range(1e-12..1.0), random.random_range(0.0..1.0));
        ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
    };
    Tensor::from_slice(&ty.shape, &(0..ty.len()).map(|_| one()).collect::<Vec<f32>>())
}

fn inputs(compute: &Compute) -> Vec<Tensor> {
    compute.inputs.iter().enumerate().map(|(i, ty)| normal(ty, i as u64)).collect()
}

/// The largest difference relative to the largest element.
fn difference(expected: &Tensor, found: &Tensor) -> f64 {
    // Axes of results may be collapsed.
    assert_eq!((expected.dtype(), expected.len()), (found.dtype(), found.len()));
    let (expected, found) = (expected.to_f64_vec(), found.to_f64_vec());
    let scale = expected.iter().fold(0.0f64, |most, x| most.max(x.abs())).max(1e-30);
    expected.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale
}

fn eval(compute: &Compute, inputs: &[Tensor]) -> Tensor {
    let mut results = interp::eval(compute, &inputs.iter().collect::<Vec<_>>()).unwrap();
    results.remove(0)
}

/// The inputs as the rewritten task wants them.
fn prepared(rewritten: &Rewritten, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut given = inputs.to_vec();
    for packing in &rewritten.prepared {
        given[packing.param] = eval(&packing.compute, &inputs[packing.param..=packing.param]);
    }
    given
}

fn scheduled(rewritten: &Rewritten) -> Scheduled {
    let made = rewritten.task.scheduled_as(None);
    Scheduled { packings: in_turn(rewritten.prepared.clone(), made.packings), ..made }
}

/// The result of a program, given its constants as it wants them.
fn run(scheduled: &Scheduled, inputs: &[Tensor]) -> Tensor {
    let mut given = inputs.to_vec();
    for packing in &scheduled.packings {
        given[packing.param] = eval(&packing.compute, &inputs[packing.param..=packing.param]);
    }
    let results = exec::run(&scheduled.program, &given.iter().collect::<Vec<_>>());
    results.unwrap_or_else(|e| panic!("{e}\n{}", scheduled.program)).remove(0)
}

/// By blocks the error is less than half of what it is one after another.
#[test]
fn long_sums_are_summed_by_blocks() {
    for (compute, sums, blocks) in [
        (channels_last(1, [5, 7], 192, 16, [3, 3], 1, 1), Sums::Direct, true),
        (channels_last(1, [5, 7], 192, 16, [3, 3], 1, 1), Sums::Any, false),
        (channels_first(2, [7, 9], 131, 16), Sums::Direct, true),
        (channels_last(1, [5, 7], 7, 16, [3, 3], 1, 1), Sums::Direct, false),
    ] {
        let task = Task { sums, ..task(compute.clone(), true) };
        let scheduled = task.scheduled_as(None);
        let program = &scheduled.program;
        let sums_blocks = |name: &str| name.ends_with("_rf") || name.starts_with("total");
        let by_blocks = program.buffers.iter().any(|b| sums_blocks(&b.name));
        assert_eq!(by_blocks, blocks, "{program}");
        let (exact, inputs) = (exact(&compute), inputs(&compute));
        let error = difference(&exact, &run(&scheduled, &inputs));
        let plain = difference(&exact, &eval(&compute, &inputs));
        println!("{error:.1e}, one after another {plain:.1e}");
        assert!(error <= if blocks { 0.5 * plain } else { 5e-6 }, "{error} of {plain}");
    }
}

/// Weights are transformed late: whole vectors of constants.
#[test]
fn late_weights_are_as_large_as_they_were() {
    for compute in [
        channels_last(1, [8, 8], 8, 8, [3, 3], 1, 1),
        channels_last(2, [7, 5], 3, 12, [3, 3], 1, 1),
        channels_first(2, [7, 9], 3, 16),
        frames(1, [4, 7, 9], 5, 8, 3, 1),
        // Two strips of rows, and three.
        channels_last(1, [4, 5], 400, 8, [3, 3], 1, 1),
        channels_last(1, [4, 4], 521, 4, [3, 3], 1, 1),
    ] {
        let task = task(compute.clone(), true);
        let made = Algorithm::Winograd4Late.rewrite(&task).expect("the algorithm applies");
        let inputs = inputs(&compute);
        let error = difference(&eval(&compute, &inputs), &run(&scheduled(&made), &inputs));
        assert!(error < 5e-6, "{error} of {compute}");
        assert!(!scheduled(&made).enlarges(), "{compute}");
    }
    let refused = |compute: Compute, constant: bool| {
        assert_eq!(Algorithm::Winograd4Late.rewrite(&task(compute, constant)), None);
    };
    refused(channels_last(1, [8, 8], 8, 8, [3, 3], 1, 1), false);
    refused(channels_last(1, [8, 8], 8, 10, [3, 3], 1, 1), true);
}

fn check(compute: &Compute, algorithm: Algorithm) {
    for constant in [false, true] {
        let task = task(compute.clone(), constant);
        let rewritten = algorithm.rewrite(&task).expect("the algorithm applies");
        verify::verify_compute(&rewritten.task.compute).unwrap();
        let text = rewritten.task.compute.to_string();
        assert_eq!(Compute::parse(&text).unwrap().to_string(), text);
        let inputs = inputs(compute);
        let expected = eval(compute, &inputs);
        let found = eval(&rewritten.task.compute, &prepared(&rewritten, &inputs));
        let error = difference(&expected, &found);
        assert!(error < 5e-6, "{algorithm}, constant {constant}: {error}\n{text}");
        let scheduled = scheduled(&rewritten);
        let found = run(&scheduled, &inputs);
        let error = difference(&expected, &found);
        assert!(error < 5e-6, "{algorithm}, constant {constant}: {error}\n{}", scheduled.program);
    }
}

#[test]
fn odd_sizes_batches_paddings_and_prime_channels() {
    for algorithm in OF_FLOATS {
        check(&channels_last(1, [8, 8], 8, 8, [3, 3], 1, 1), algorithm);
        check(&channels_last(2, [7, 5], 3, 13, [3, 3], 1, 1), algorithm);
        check(&channels_last(1, [9, 6], 7, 5, [3, 3], 1, 0), algorithm);
        check(&channels_last(3, [3, 4], 5, 11, [3, 3], 1, 2), algorithm);
        check(&channels_first(2, [7, 9], 3, 5), algorithm);
        check(&crate::testing::conv(5, 3, 7, 6, 1), algorithm);
    }
}

#[test]
fn frames_of_any_window() {
    for algorithm in [Algorithm::Winograd2, Algorithm::Winograd4] {
        check(&frames(1, [4, 7, 9], 5, 6, 3, 1), algorithm);
        check(&frames(1, [7, 5, 4], 3, 11, 2, 3), algorithm);
        check(&frames(1, [3, 8, 8], 8, 8, 1, 1), algorithm);
        // One image after the other: not by counting tiles on.
        assert_eq!(algorithm.rewrite(&task(frames(2, [4, 7, 9], 5, 6, 3, 1), true)), None);
    }
    check(&frames(2, [4, 5, 6], 5, 6, 3, 1), Algorithm::Im2col);
}

#[test]
fn large_windows_strides_and_dilations_are_dealt_out() {
    use Algorithm::{Winograd2, Winograd4, WinogradLarge};
    for algorithm in [Winograd2, Winograd4] {
        check(&channels_last(2, [9, 8], 3, 5, [3, 5], 1, 1), algorithm);
        check(&channels_last(1, [8, 11], 5, 8, [5, 5], 1, 2), algorithm);
        check(&spread_out([17, 19], 3, 5, [5, 6], 1, 1), algorithm);
    }
    for algorithm in [Winograd4, WinogradLarge] {
        check(&channels_last(2, [17, 14], 3, 8, [7, 7], 2, 3), algorithm);
        check(&spread_out([31, 27], 2, 5, [7, 7], 2, 2), algorithm);
    }
    check(&channels_last(1, [8, 9], 3, 5, [4, 4], 1, 1), WinogradLarge);
    check(&spread_out([25, 31], 3, 7, [10, 11], 3, 1), WinogradLarge);
    check(&volume([9, 17, 14], 3, 5, 1), WinogradLarge);
    check(&volume([10, 16, 15], 2, 6, 2), WinogradLarge);
    check(&volume([14, 16, 15], 2, 6, 3), WinogradLarge);
}

/// The subgraph whose results are both the convolution and the stage that follows it.
fn both(compute: Compute, outputs: [usize; 2]) -> Compute {
    Compute { outputs: outputs.into(), ..compute }
}

/// The result comes channels-first.
fn turned(mut compute: Compute) -> Compute {
    let last = compute.stages.len() - 1;
    let ty = &compute.stages[last].ty;
    let turned = [0, 3, 1, 2].map(|axis| ty.shape[axis]);
    let body = Expr::load(compute.stage_buffer(last).index(), [0, 2, 3, 1].map(Expr::var).into());
    let stage = Stage::map("turned", TensorType::new(ty.dtype, turned), body);
    compute.stages.push(stage);
    compute.outputs = vec![last + 1];
    compute
}

#[test]
fn slices_of_any_length_compute_the_same() {
    for (algorithm, compute, ways) in [
        (Algorithm::Winograd4, both(channels_last(1, [8, 6], 4, 8, [3, 3], 1, 1), [1, 2]), 1),
        (Algorithm::Winograd2, both(channels_last(2, [4, 4], 4, 8, [3, 3], 1, 1), [2, 1]), 2),
        (Algorithm::Winograd4, channels_last(1, [16, 9], 5, 18, [3, 3], 1, 1), 2),
        (Algorithm::Winograd2, channels_last(1, [8, 6], 8, 16, [3, 3], 1, 1), 2),
        (Algorithm::Winograd4, turned(channels_last(1, [16, 8], 5, 16, [3, 3], 1, 1)), 2),
        (Algorithm::Winograd4, channels_last(4, [8, 7], 3, 8, [3, 3], 1, 1), 3),
        (Algorithm::Winograd2, channels_last(2, [7, 7], 6, 9, [3, 3], 1, 0), 2),
        (Algorithm::Winograd4Late, channels_last(1, [8, 6], 5, 24, [3, 3], 1, 1), 3),
        (Algorithm::Winograd4Late, channels_last(1, [4, 3], 520, 16, [3, 3], 1, 1), 2),
        (Algorithm::Winograd4Late, both(channels_last(2, [4, 5], 3, 8, [3, 3], 1, 1), [1, 2]), 1),
        (Algorithm::Im2col, channels_last(2, [6, 5], 5, 16, [3, 3], 1, 1), 7),
        // The last slice reaches beyond the result.
        (Algorithm::Winograd4, channels_last(1, [9, 7], 5, 16, [3, 3], 1, 1), 2),
        (Algorithm::Winograd4, turned(channels_last(1, [9, 7], 5, 16, [3, 3], 1, 1)), 2),
        (Algorithm::Winograd2, turned(channels_last(2, [7, 7], 5, 16, [3, 3], 1, 1)), 1),
        (Algorithm::WinogradLarge, turned(spread_out([31, 27], 2, 5, [7, 7], 2, 2)), 1),
    ] {
        let made = algorithm.rewrite(&task(compute.clone(), true)).unwrap();
        let (task, inputs) = (&made.task, inputs(&compute));
        let expected = eval(&compute, &inputs);
        let all = every_slice(&Arc::new(task.clone()), None);
        for sliced in &all {
            let (_, sliced) = sliced.as_ref().unwrap_or_else(|| panic!("{algorithm}"));
            let packings = in_turn(made.prepared.clone(), sliced.packings.clone());
            let scheduled = Scheduled { packings, ..sliced.clone() };
            let error = difference(&expected, &run(&scheduled, &inputs));
            assert!(error < 5e-6, "{algorithm}: {error}\n{}", scheduled.program);
            let stored = sliced.program.buffers.iter().filter(|b| b.scope == crate::Scope::Global);
            let whole = ["pad", "points"];
            let allowed =
                if algorithm == Algorithm::Winograd4Late { &whole[..] } else { &whole[..1] };
            let is_allowed =
                |b: &crate::Buffer| allowed.iter().any(|name| b.name.starts_with(name));
            assert!(stored.into_iter().all(is_allowed), "{}", sliced.program);
        }
        assert_eq!(all.len(), ways, "{algorithm} of {compute}");
    }
}

/// The transformed elements of a strip of rows take the place of those that the products of the
/// last strip have read.
#[test]
fn strips_of_late_weights_share_memory() {
    let compute = channels_last(1, [4, 4], 520, 8, [3, 3], 1, 1);
    let made = Algorithm::Winograd4Late.rewrite(&task(compute, true)).unwrap();
    let task = &made.task;
    let all = every_slice(&Arc::new(task.clone()), None);
    let program = &all[0].as_ref().unwrap().1.program;
    let mut written = vec![];
    let mut visit = |block: &crate::Block| {
        if block.name.starts_with("weight") && !block.name.ends_with("_pack") {
            written.extend(block.body.writes().iter().map(|access| access.buffer));
        }
    };
    program.body.iter().for_each(|stmt| stmt.visit_blocks(&mut visit));
    assert_eq!(written.len(), 3, "{program}");
    assert!(written.iter().all(|buffer| *buffer == written[0]), "{program}");
}

#[test]
fn transforms_are_written_out_in_registers() {
    for (algorithm, constant, squares) in [
        (Algorithm::Winograd2, true, 2),
        (Algorithm::Winograd4, true, 2),
        (Algorithm::Winograd4, false, 3),
    ] {
        let compute = channels_last(1, [9, 7], 16, 24, [3, 3], 1, 1);
        let made = scheduled(&algorithm.rewrite(&task(compute, constant)).unwrap());
        // Rules may name them differently.
        let names = ["square", "half", "back"];
        let is_square = |b: &&crate::Buffer| {
            b.scope == crate::Scope::Local && names.iter().any(|name| b.name.starts_with(name))
        };
        assert_eq!(
            made.program.buffers.iter().filter(is_square).count(),
            squares,
            "{}",
            made.program
        );
    }
}

#[test]
fn rows_of_a_product_run_over_the_whole_image() {
    let compute = channels_last(2, [7, 7], 5, 16, [3, 3], 1, 1);
    let made = scheduled(&Algorithm::Im2col.rewrite(&task(compute, true)).unwrap());
    let globals = made.program.buffers.iter().filter(|b| b.scope == crate::Scope::Global);
    // Padding is part of the columns, and the product never in memory.
    assert_eq!(globals.map(|b| b.name.as_str()).collect::<Vec<_>>(), ["columns"]);
}

#[test]
fn columns_of_any_stride() {
    for (kernel, stride) in [([5, 5], 2), ([1, 3], 1), ([2, 3], 3), ([3, 3], 2)] {
        check(&channels_last(2, [9, 11], 5, 7, kernel, stride, 1), Algorithm::Im2col);
    }
    check(&crate::testing::conv(5, 3, 9, 8, 2), Algorithm::Im2col);
}

#[test]
fn what_would_not_save_products_is_refused() {
    let refused = |compute: Compute, algorithm: Algorithm| {
        assert_eq!(algorithm.rewrite(&task(compute, true)), None, "{algorithm}");
    };
    for algorithm in [Algorithm::Winograd2, Algorithm::Winograd4] {
        refused(channels_last(1, [8, 8], 4, 4, [3, 3], 2, 1), algorithm);
        refused(channels_last(1, [8, 8], 4, 4, [1, 7], 1, 3), algorithm);
        refused(spread_out([9, 8], 4, 4, [5, 5], 1, 2), algorithm);
        refused(crate::testing::matmul_bias_relu(4, 4, 4), algorithm);
    }
    for kernel in [[3, 3], [7, 3], [4, 1]] {
        refused(channels_last(1, [8, 8], 4, 4, kernel, 1, 1), Algorithm::WinogradLarge);
    }
    refused(crate::testing::matmul_bias_relu(4, 4, 4), Algorithm::Im2col);
    refused(channels_last(1, [8, 8], 4, 4, [1, 1], 1, 0), Algorithm::Im2col);
    let mut integers = channels_last(1, [8, 8], 4, 4, [3, 3], 1, 1);
    integers.inputs[1].dtype = DType::I32;
    refused(integers, Algorithm::Winograd2);
}

/// The errors that the documentation states, against sums of 64 bits.
#[test]
fn errors_stay_below_what_is_stated() {
    use Algorithm::{Winograd2, Winograd4, WinogradLarge};
    let few = |channels: usize| if cfg!(debug_assertions) { channels / 16 } else { channels };
    let small = channels_last(1, [14, 14], few(256), 16, [3, 3], 1, 1);
    let large = channels_last(1, [29, 29], few(64), 16, [7, 7], 2, 3);
    let all = [(&small, Winograd2, 2e-6), (&small, Winograd4, 5e-6), (&large, WinogradLarge, 1e-5)];
    for (compute, algorithm, most) in all {
        let (inputs, exact) = (inputs(compute), exact(compute));
        let direct = difference(&exact, &eval(compute, &inputs));
        let rewritten = algorithm.rewrite(&task(compute.clone(), true)).unwrap();
        let found = eval(&rewritten.task.compute, &prepared(&rewritten, &inputs));
        let error = difference(&exact, &found);
        println!("{algorithm}: {error:.2e}, direct: {direct:.2e}");
        assert!(error < most, "{algorithm}: {error}");
    }
}

/// The result of sums of 64 bits.
fn exact(compute: &Compute) -> Tensor {
    let wide = Compute::parse(&compute.to_string().replace("f32", "f64")).unwrap();
    let inputs = inputs(compute);
    let inputs: Vec<Tensor> =
        inputs.iter().map(|t| Tensor::from_slice(t.shape(), &t.to_f64_vec())).collect();
    let exact = eval(&wide, &inputs);
    let narrow: Vec<f32> = exact.to_f64_vec().iter().map(|&x| x as f32).collect();
    Tensor::from_slice(exact.shape(), &narrow)
}

/// All bytes, the extremes among them more often; other integers and floats that sums of products
/// keep exact.
fn bytes(ty: &TensorType, seed: u64) -> Tensor {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut byte = || match random.random_range(0..8) {
        0 => 0u8,
        1 => 127,
        2 => 128,
        3 => 255,
        _ => random.random(),
    };
    let all: Vec<u8> = (0..ty.len()).map(|_| byte()).collect();
    match ty.dtype {
        DType::U8 => Tensor::from_slice(&ty.shape, &all),
        DType::I8 => {
            Tensor::from_slice(&ty.shape, &all.iter().map(|&b| b as i8).collect::<Vec<_>>())
        }
        DType::I32 => {
            Tensor::from_slice(&ty.shape, &all.iter().map(|&b| b.into()).collect::<Vec<i32>>())
        }
        _ => Tensor::from_slice(&ty.shape, &all.iter().map(|&b| b.into()).collect::<Vec<f32>>()),
    }
}
