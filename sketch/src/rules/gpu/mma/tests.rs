use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::budget;
use crate::gpu::Blocks;
use crate::gpu::{GpuLimits, lower};
use crate::testing::{compare, task};
use crate::trace::Unfit;
use crate::tree;

/// For a GPU with tensor cores.
fn on_gpu(text: &str) -> Arc<Task> {
    let mut task = Task::clone(&task(text));
    task.machine.units.mma = true;
    task.gpu = Some(GpuLimits::default());
    Arc::new(task)
}

/// Each: whole tiles; borders on all sides, and a map; terms that are no whole step; columns side
/// by side and terms side by side; a batch; a convolution with padding and stride; a factor whose
/// rows lie side by side; bytes; `f32` of which fewer bits are read.
const PRODUCTS: [&str; 10] = [
    "compute(in0: f16[64, 64], in1: f16[64, 64]) -> s {
      s: f32[64, 64] = sum{r0: 64} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
    }",
    "compute(in0: f16[37, 32], in1: f16[32, 41], in2: f32[41]) -> y {
      s: f32[37, 41] = sum{r0: 32} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
      y: f16[37, 41] = f16(max(add(s[i0, i1], in2[i1]), 0.0_f32))
    }",
    "compute(in0: f16[20, 21], in1: f16[24, 21]) -> s {
      s: f32[20, 24] = sum{r0: 21} mul(f32(in0[i0, r0]), f32(in1[i1, r0]))
    }",
    "compute(in0: bf16[2, 3, 20, 40], in1: bf16[2, 3, 24, 40]) -> y {
      s: f32[2, 3, 20, 24] = sum{r0: 40} mul(f32(in0[i0, i1, i2, r0]), f32(in1[i0, i1, i3, r0]))
      y: f32[2, 3, 20, 24] = mul(s[i0, i1, i2, i3], 0.25_f32)
    }",
    "compute(in0: f16[1, 9, 9, 8], in1: f16[3, 3, 8, 24], in2: f16[1, 5, 5, 24]) -> y {
      p: f16[1, 11, 11, 8] = select(and(and(le(1, i1), lt(i1, 10)), and(le(1, i2), lt(i2, 10))), in0[i0, sub(i1, 1), sub(i2, 1), i3], 0.0_f16)
      s: f32[1, 5, 5, 24] = sum{r0: 3, r1: 3, r2: 8} mul(f32(p[i0, add(mul(i1, 2), r0), add(mul(i2, 2), r1), r2]), f32(in1[r0, r1, r2, i3]))
      y: f16[1, 5, 5, 24] = f16(max(add(s[0, i1, i2, i3], f32(in2[0, i1, i2, i3])), 0.0_f32))
    }",
    "compute(in0: f16[32, 48], in1: f16[32, 40]) -> y, z {
      s: f32[48, 40] = sum{r0: 32} mul(f32(in0[r0, i0]), f32(in1[r0, i1]))
      y: f32[48, 40] = neg(s[i0, i1])
      z: f32[48, 40] = exp(s[i0, i1])
    }",
    "compute(in0: u8[30, 64], in1: i8[64, 32]) -> y {
      s: i32[30, 32] = sum{r0: 64} mul(i32(in0[i0, r0]), i32(in1[r0, i1]))
      y: f32[30, 32] = mul(f32(s[i0, i1]), 0.5_f32)
    }",
    "compute(in0: i8[17, 33], in1: i8[9, 33]) -> s {
      s: i32[17, 9] = sum{r0: 33} mul(i32(in0[i0, r0]), i32(in1[i1, r0]))
    }",
    "compute(in0: f32[37, 32], in1: f32[32, 44], in2: f32[44]) -> y {
      s: f32[37, 44] = sum{r0: 32} mul(tf32(in0[i0, r0]), tf32(in1[r0, i1]))
      y: f32[37, 44] = max(add(s[i0, i1], in2[i1]), 0.0_f32)
    }",
    "compute(in0: f32[2, 20, 21], in1: f32[2, 24, 21]) -> s {
      s: f32[2, 20, 24] = sum{r0: 21} mul(tf32(in0[i0, i1, r0]), tf32(in1[i0, i2, r0]))
    }",
];

/// Programs that issue more than this take the interpreter seconds.
const LARGE: usize = 1 << 20;
/// The same of long sums, of which hardly any program issues less.
const LARGE_IN_PARTS: usize = 4 << 20;

/// Few results of long sums: with what follows them; a window; floats of which fewer bits are read.
const IN_PARTS: [&str; 3] = [
    "compute(in0: f16[20, 1536], in1: f16[1536, 40], in2: f32[40]) -> y {
      s: f32[20, 40] = sum{r0: 1536} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
      y: f16[20, 40] = f16(max(add(s[i0, i1], in2[i1]), 0.0_f32))
    }",
    "compute(in0: bf16[1, 5, 5, 160], in1: bf16[3, 3, 160, 24]) -> s {
      s: f32[1, 3, 3, 24] = sum{r0: 3, r1: 3, r2: 160} mul(f32(in0[i0, add(i1, r0), add(i2, r1), r2]), f32(in1[r0, r1, r2, i3]))
    }",
    "compute(in0: f32[2, 17, 1024], in1: f32[2, 12, 1024]) -> s {
      s: f32[2, 17, 12] = sum{r0: 1024} mul(tf32(in0[i0, i1, r0]), tf32(in1[i0, i2, r0]))
    }",
];

/// The interpreter runs schedules that nobody tuned, and watches for races.
#[test]
fn products_by_tensor_cores_compute_the_same() {
    let whole = PRODUCTS.iter().chain(&IN_PARTS).map(|text| (text, Algorithm::Matrices));
    let in_parts = IN_PARTS.iter().map(|text| (text, Algorithm::MatricesInParts));
    for (text, by) in whole.chain(in_parts) {
        let task = on_gpu(text);
        let Sketch { trace, .. } = sketch(&task, by).unwrap_or_else(|| panic!("no {by}\n{text}"));
        let sample = task.sample(&trace, Unfit::Refuse, &mut crate::rules::fixed_random());
        let sample = sample.unwrap_or_else(|e| panic!("{e}\n{text}\n{trace}"));
        let gpu = lower(&sample.scheduled.program, &GpuLimits::default()).unwrap();
        assert!(gpu.to_string().contains("tensor(mma_dot"), "{gpu}");
        let compared = compare(&task.compute, &gpu.checked_form());
        compared.unwrap_or_else(|e| panic!("{e}\n{trace}\n{gpu}"));
        let watched = crate::gpu::watch(&gpu, Blocks::Sampled);
        watched.unwrap_or_else(|e| panic!("{e}\n{trace}\n{gpu}"));
    }
}

/// Whatever is decided: `ANSC_TRACES` samples of each product, or of those from number
/// `ANSC_FIRST` on.
#[test]
fn samples_compute_the_same() {
    let asked = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let traces: u64 = asked("ANSC_TRACES").unwrap_or(4);
    let first = asked("ANSC_FIRST").map_or(0, |n| n as usize);
    let whole = PRODUCTS.iter().map(|text| (text, Algorithm::Matrices));
    let in_parts = IN_PARTS.iter().map(|text| (text, Algorithm::MatricesInParts));
    for (text, by) in whole.chain(in_parts).skip(first) {
        let task = on_gpu(text);
        let trace = sketch(&task, by).unwrap().trace.undecided();
        let large = if by == Algorithm::MatricesInParts { LARGE_IN_PARTS } else { LARGE };
        let (mut run, mut valid) = (0, 0);
        for seed in 0..traces {
            let random = &mut StdRng::seed_from_u64(seed);
            let Ok(sample) = task.sample(&trace, Unfit::Refuse, random) else { continue };
            let program = &sample.scheduled.program;
            valid += 1;
            let gpu = lower(program, &GpuLimits::default()).unwrap();
            if budget::issued(program, &budget::GPU) > large {
                continue;
            }
            let compared = compare(&task.compute, &gpu.checked_form());
            compared.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{gpu}", sample.trace));
            run += 1;
        }
        println!("{run} run of {valid} valid of {traces}\n{text}");
        assert!(2 * valid >= traces, "{valid} of {traces}\n{text}");
        assert!(traces < 50 || run > 0, "{text}");
    }
}

/// A lane that reads what another one holds is refused.
#[test]
fn lanes_read_what_they_hold() {
    let task = on_gpu(PRODUCTS[0]);
    let trace = sketch(&task, Algorithm::Matrices).unwrap().trace;
    let sample = task.sample(&trace, Unfit::Refuse, &mut crate::rules::fixed_random()).unwrap();
    let lowered = |lane: fn(Expr) -> Expr| {
        let mut program = sample.scheduled.program.clone();
        tree::visit_blocks_mut(&mut program.body, &mut |block| {
            let value = block.body.value_mut();
            if let (Expr::Load(_, at), "s") = (value, block.name.as_str()) {
                let axis = at.len() - 2;
                at[axis] = lane(at[axis].clone());
            }
        });
        lower(&program, &GpuLimits::default())
    };
    assert!(lowered(|lane| lane).is_ok());
    let refused = lowered(|lane| Expr::int(31) - lane).unwrap_err().to_string();
    assert!(refused.contains("other lanes hold"), "{refused}");
}
