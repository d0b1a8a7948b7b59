use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::exec::{self, Blocks};
use crate::gpu::{GpuLimits, lower};
use crate::testing::{compare, task};
use crate::trace::Unfit;

/// For a GPU with tensor cores.
fn on_gpu(text: &str) -> Arc<Task> {
    let mut task = Task::clone(&task(text));
    task.machine.units.mma = true;
    task.gpu = Some(GpuLimits::default());
    Arc::new(task)
}

/// Each: whole tiles; borders on all sides, and a map; terms that are no whole step; columns side
/// by side and terms side by side; a batch; a convolution with padding and stride; a factor whose
/// rows lie side by side; bytes.
const PRODUCTS: [&str; 8] = [
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
];

/// The first candidates, and then samples: with races watched for, by the interpreter.
fn check(text: &str, samples: u64) -> (usize, usize) {
    let task = on_gpu(text);
    let product = Product::of(&task).unwrap_or_else(|| panic!("no product\n{text}"));
    if let Err(e) = product.scheduled(&task) {
        panic!("{e}\n{text}");
    }
    let sketch = sketch(&task).unwrap();
    let limits = task.gpu.clone().unwrap();
    let (mut valid, mut refused) = (0, 0);
    for seed in 0..=samples {
        let trace = if seed == 0 { sketch.trace.clone() } else { sketch.trace.clone().undecided() };
        let random = &mut StdRng::seed_from_u64(seed);
        let sample = match task.sample(&trace, Unfit::Refuse, random) {
            Ok(sample) => sample,
            Err(e) if seed == 0 => panic!("{e}\n{text}\n{trace}"),
            Err(e) => {
                println!("{seed}: {}", e.cause.to_string().lines().next().unwrap_or_default());
                refused += 1;
                continue;
            }
        };
        let gpu = lower(&sample.scheduled.program, &limits).unwrap();
        assert!(gpu.to_string().contains("tensor(mma_dot"), "{gpu}");
        if let Err(e) = compare(&task.compute, &gpu.checked_form()) {
            panic!("seed {seed}: {e}\n{}\n{gpu}", sample.trace);
        }
        if seed == 0
            && let Err(e) = exec::watch(&gpu, Blocks::Sampled)
        {
            panic!("{e}\n{}\n{gpu}", sample.trace);
        }
        valid += 1;
    }
    (valid, refused)
}

#[test]
fn products_by_tensor_cores_compute_the_same() {
    let mut all = 0;
    for text in PRODUCTS {
        let found = std::panic::catch_unwind(|| check(text, 3));
        println!("{found:?} {text}");
        all += found.map_or(0, |(valid, refused)| usize::from(valid > refused));
    }
    assert_eq!(all, PRODUCTS.len());
}
