use ansc_graph::{Compute, Expr, Stage};

use super::*;
use crate::gpu::GpuProgram;
use crate::testing::*;
use crate::trace::{Decision, Instruction, Unfit};

fn on_gpu(compute: &Compute) -> Arc<Task> {
    Arc::new(Task::on_gpu("k", compute, &GpuLimits::default()))
}

fn kernels(compute: &Compute) -> GpuProgram {
    let (_, made) = sketch(&on_gpu(compute)).unwrap_or_else(|e| panic!("{e}\n{compute}"));
    lower(&made.program, &GpuLimits::default()).unwrap_or_else(|e| panic!("{e}\n{compute}"))
}

/// Small subgraphs of each rule: whole tiles and borders, strides, a matrix and a vector, rows,
/// rows whose statistics are results too, columns, several axes, vectors, one element, windows, one
/// long row, channels in groups, a large window.
const FORMS: [&str; 21] = [
    "compute(in0: f32[32, 16], in1: f32[16, 32], in2: f32[32]) -> y {
      s: f32[32, 32] = sum{r0: 16} mul(in0[i0, r0], in1[r0, i1])
      y: f32[32, 32] = max(add(s[i0, i1], in2[i1]), 0.0_f32)
    }",
    "compute(in0: f32[37, 29], in1: f32[29, 41]) -> s {
      s: f32[37, 41] = sum{r0: 29} mul(in0[i0, r0], in1[r0, i1])
    }",
    "compute(in0: f32[8, 9, 9], in1: f32[12, 8, 3, 3], in2: f32[12]) -> y {
      p: f32[8, 11, 11] = select(and(and(le(1, i1), lt(i1, 10)), and(le(1, i2), lt(i2, 10))), in0[i0, sub(i1, 1), sub(i2, 1)], 0.0_f32)
      s: f32[12, 5, 5] = sum{r0: 8, r1: 3, r2: 3} mul(p[r0, add(mul(i1, 2), r1), add(mul(i2, 2), r2)], in1[i0, r0, r1, r2])
      y: f32[12, 5, 5] = add(s[i0, i1, i2], in2[i0])
    }",
    "compute(in0: f32[3, 20, 30], in1: f32[3, 30, 10]) -> s {
      s: f32[3, 20, 10] = sum{r0: 30} mul(in0[i0, i1, r0], in1[i0, r0, i2])
    }",
    "compute(in0: f32[1, 129], in1: f32[129, 37], in2: f32[37]) -> y {
      s: f32[1, 37] = sum{r0: 129} mul(in0[i0, r0], in1[r0, i1])
      y: f32[1, 37] = max(add(s[i0, i1], in2[i1]), 0.0_f32)
    }",
    "compute(in0: f32[1, 200], in1: f32[30, 200]) -> s {
      s: f32[1, 30] = sum{r0: 200} mul(in0[i0, r0], in1[i1, r0])
    }",
    "compute(in0: f32[1, 6, 70]) -> y {
      m: f32[1, 6, 1] = max{r0: 70} in0[0, i1, r0]
      e: f32[1, 6, 70] = exp(sub(in0[0, i1, i2], m[0, i1, 0]))
      s: f32[1, 6, 1] = sum{r0: 70} e[0, i1, r0]
      y: f32[1, 6, 70] = div(e[0, i1, i2], s[0, i1, 0])
    }",
    "compute(in0: f32[4, 6, 70]) -> s, m, y {
      s: f32[4, 6] = sum{r0: 70} in0[i0, i1, r0]
      m: f32[4, 6] = div(s[i0, i1], 70.0_f32)
      y: f32[4, 6, 70] = sub(in0[i0, i1, i2], m[i0, i1])
    }",
    "compute(in0: f32[3, 10, 8, 4]) -> y {
      s: f32[3, 10, 4] = sum{r0: 8} in0[i0, i1, r0, i2]
      t: f32[3] = sum{r0: 10, r1: 4} s[i0, r0, r1]
      y: f32[3, 10, 4] = div(s[i0, i1, i2], t[i0])
    }",
    "compute(in0: f32[1000]) -> y { y: f32[] = sum{r0: 1000} in0[r0] }",
    "compute(in0: f32[20, 17, 40]) -> y { y: f32[20] = max{r0: 17, r1: 40} in0[i0, r0, r1] }",
    "compute(in0: f32[2, 9, 100]) -> y { y: f32[2, 100] = sum{r0: 9} in0[i0, r0, i1] }",
    "compute(in0: f32[2, 9, 50]) -> y { y: i64[2, 50] = argmax{r0: 9} in0[i0, r0, i1] }",
    "compute(in0: f32[64, 256], in1: f32[256]) -> y { y: f32[64, 256] = add(in0[i0, i1], in1[i1]) }",
    "compute(in0: f32[2, 3, 20, 30]) -> y {
      s: f32[2, 3, 9, 14] = sum{r0: 3, r1: 3} in0[i0, i1, add(mul(i2, 2), r0), add(mul(i3, 2), r1)]
      y: f32[2, 3, 9, 14] = mul(s[i0, i1, i2, i3], 0.125_f32)
    }",
    "compute(in0: f32[]) -> y { y: f32[] = neg(in0[]) }",
    "compute(in0: f32[2, 20000]) -> y {
      s: f32[2] = sum{r0: 20000} mul(in0[i0, r0], in0[i0, r0])
      y: f32[2] = sqrt(s[i0])
    }",
    "compute(in0: f32[5, 6, 40], in1: f32[2, 20, 64]) -> y {
      s: f32[4, 6, 64] = sum{r0: 2, r1: 20} mul(in0[add(i0, r0), i1, add(mul(floor_div(i2, 32), 20), r1)], in1[r0, r1, i2])
      y: f32[4, 6, 64] = max(s[i0, i1, i2], 0.0_f32)
    }",
    "compute(in0: f32[6, 7, 8, 3], in1: f32[5, 5, 5, 3, 12]) -> s {
      s: f32[2, 3, 4, 12] = sum{r0: 5, r1: 5, r2: 5, r3: 3} mul(in0[add(i0, r0), add(i1, r1), add(i2, r2), r3], in1[r0, r1, r2, r3, i3])
    }",
    "compute(in0: f32[14, 512], in1: f32[512, 20], in2: f32[20]) -> y {
      s: f32[14, 20] = sum{r0: 512} mul(in0[i0, r0], in1[r0, i1])
      y: f32[14, 20] = max(add(s[i0, i1], in2[i1]), 0.0_f32)
    }",
    "compute(in0: f32[8, 700]) -> y {
      s: f32[1] = sum{r0: 8, r1: 700} in0[r0, r1]
      y: f32[1] = mul(s[i0], 0.5_f32)
    }",
];

/// Every candidate of every choice, one at a time: those that a GPU takes compute the same, and
/// races are watched for. Some are too large for the device; most are not.
#[test]
fn every_choice_computes_the_same() {
    let random = &mut crate::rules::fixed_random();
    for text in FORMS {
        let compute = Compute::parse(text).unwrap();
        let task = on_gpu(&compute);
        let (Sketch { trace, rules }, first) =
            sketch(&task).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let again = task.sample(&trace, Unfit::Refuse, random).unwrap();
        assert_eq!(again.scheduled, first);
        let (mut all, mut refused) = (1, vec![]);
        check(&compute, &first, &trace.to_string());
        for step in trace.choices() {
            let Instruction::SampleCategorical { candidates, .. } = &trace.steps[step] else {
                panic!("{}", trace.steps[step]);
            };
            for choice in 1..candidates.len() as i64 {
                let other = trace.clone().decide(step, Decision::Choice(choice));
                all += 1;
                match task.sample(&other, Unfit::Refuse, random) {
                    Ok(sample) => check(&compute, &sample.scheduled, &sample.trace.to_string()),
                    Err(e) => refused.push(format!("{choice} at {step}: {e}")),
                }
            }
        }
        let valid = all - refused.len();
        println!("{rules:?}: {valid} of {all}\n{}", refused.join("\n"));
        assert!(4 * valid >= 3 * all, "{text}\n{trace}\n{}", refused.join("\n"));
    }
}

fn check(compute: &Compute, scheduled: &Scheduled, trace: &str) {
    let gpu = lower(&scheduled.program, &GpuLimits::default()).unwrap();
    compare(compute, &gpu.checked_form()).unwrap_or_else(|e| panic!("{e}\n{trace}\n{gpu}"));
}

/// The rules that make them: parts of long rows, tiles of groups, and rounds of outer loops.
#[test]
fn long_rows_groups_and_large_windows() {
    let of = |at: usize| {
        let task = on_gpu(&Compute::parse(FORMS[at]).unwrap());
        let (Sketch { trace, rules }, _) = sketch(&task).unwrap();
        (trace.to_string(), rules.concat())
    };
    let first = FORMS.iter().position(|text| text.contains("20000")).unwrap();
    assert!(of(first).1.contains("split"));
    let (trace, rules) = of(first + 1);
    assert!(rules.contains("tile") && trace.contains("floor_div(v2, 32)"), "{trace}");
    let (trace, rules) = of(first + 2);
    assert!(rules.contains("tile") && trace.contains("pipeline"), "{rules} {trace}");
    assert!(!of(first).0.contains("pipeline"));
}

#[test]
fn few_long_sums_are_cut_into_parts() {
    for text in &FORMS[FORMS.len() - 2..FORMS.len() - 1] {
        let gpu = kernels(&Compute::parse(text).unwrap());
        // The parts, and their sums with what follows them.
        let [parts, _] = &gpu.kernels[..] else { panic!("{gpu}") };
        assert!(parts.blocks() >= 4, "{gpu}");
    }
}

#[test]
fn operands_are_in_shared_memory_whatever_their_extents() {
    for c in [
        matmul_bias_relu(128, 128, 64),
        matmul_bias_relu(37, 41, 29),
        conv(32, 16, 14, 14, 1),
        conv(32, 16, 14, 14, 2),
    ] {
        let gpu = kernels(&c);
        let shared = gpu.kernels.iter().map(|k| gpu.bytes(k, Scope::Shared)).max();
        assert!(shared > Some(0), "{gpu}");
    }
}

#[test]
fn a_matrix_and_a_vector_are_shared_by_threads() {
    for (n, k) in [(1000, 2048), (37, 129), (7, 64)] {
        let gpu = kernels(&matmul_bias_relu(1, n, k));
        // Another kernel adds up the parts of long sums.
        let kernel = &gpu.kernels[0];
        assert!(gpu.kernels.len() <= 2 && kernel.threads() >= 128, "{gpu}");
        assert!(gpu.bytes(kernel, Scope::Shared) > 0, "{gpu}");
    }
}

#[test]
fn rows_are_one_kernel() {
    let gpu = kernels(&softmax(64, 200));
    assert_eq!(gpu.kernels.len(), 1, "{gpu}");
    assert_eq!((gpu.kernels[0].blocks(), gpu.kernels[0].threads()), (64, 64));
    // Statistics that are results too are read from registers all the same.
    let gpu = kernels(&Compute::parse(FORMS[7]).unwrap());
    assert_eq!(gpu.kernels.len(), 1, "{gpu}");
    let text = gpu.to_string();
    assert!(text.contains("m_local[0, 0])"), "{text}");
    assert_eq!(gpu.kernels[0].barriers(), 2, "{gpu}");
}

/// A sum of so many elements: that of one half, and that of the other.
fn long_sum(terms: usize) -> Compute {
    fn sum(from: usize, to: usize) -> Expr {
        match to - from {
            1 => load(0, &[v(0), (v(1) + Expr::index(from)).floor_mod(128)]) * f32c(from as f64),
            n => sum(from, from + n / 2) + sum(from + n / 2, to),
        }
    }
    let ty = f32s(&[128, 128]);
    let stages = vec![Stage::map("y", ty.clone(), sum(0, terms))];
    Compute { inputs: vec![ty], stages, outputs: vec![0] }
}

#[test]
fn what_would_be_too_much_code_is_written_out_less() {
    let lanes = |compute: &Compute| {
        let (sketch, _) = sketch(&on_gpu(compute)).unwrap_or_else(|e| panic!("{e}"));
        let vectors = |i: &&Instruction| matches!(i, Instruction::Vectorize { .. });
        sketch.trace.steps.iter().filter(vectors).count()
    };
    assert_eq!(lanes(&long_sum(10)), 1);
    // Whatever it becomes then, it is not refused.
    assert_eq!(lanes(&long_sum(6000)), 0);
}

/// A convolution of 3 x 3 as networks have them, with padding.
fn deep(n: usize, channels: usize) -> Compute {
    let (p, q, c) = (n + 2, n + 1, channels);
    let text = format!(
        "compute(in0: f32[1, {n}, {n}, {c}], in1: f32[3, 3, {c}, {c}]) -> s {{
          p: f32[1, {p}, {p}, {c}] = select(and(and(le(1, i1), lt(i1, {q})), and(le(1, i2), lt(i2, {q}))), in0[0, sub(i1, 1), sub(i2, 1), i3], 0.0_f32)
          s: f32[1, {n}, {n}, {c}] = sum{{r0: 3, r1: 3, r2: {c}}} mul(p[0, add(i1, r0), add(i2, r1), r2], in1[r0, r1, r2, i3])
        }}"
    );
    Compute::parse(&text).unwrap()
}

#[test]
fn deep_convolutions_have_blocks_of_threads_for_many_multiprocessors() {
    for (n, channels) in [(7, 512), (14, 256), (28, 128), (56, 64)] {
        let gpu = kernels(&deep(n, channels));
        let few = gpu.kernels.iter().find(|k| k.blocks() < 64);
        assert!(few.is_none(), "{n} {channels}\n{gpu}");
    }
}

/// Batches of one have no tile of their own.
#[test]
fn tiles_of_a_batch_have_two_sides() {
    let text = "compute(in0: f32[1, 12, 128, 64], in1: f32[1, 12, 64, 128]) -> s {
      s: f32[1, 12, 128, 128] = sum{r0: 64} mul(in0[0, i1, i2, r0], in1[0, i1, r0, i3])
    }";
    let gpu = kernels(&Compute::parse(text).unwrap());
    let sums = 12 * 128 * 128 / (gpu.kernels[0].blocks() * gpu.kernels[0].threads());
    assert!(sums >= 16, "{gpu}");
}

/// Where copies of several rounds do not fit the shared memory, fewer are on their way at once.
#[test]
fn large_halos_are_tiled_in_little_shared_memory() {
    let gpu = kernels(&conv(64, 64, 224, 224, 1));
    assert!(gpu.kernels.iter().any(|k| gpu.bytes(k, Scope::Shared) > 0), "{gpu}");
}
