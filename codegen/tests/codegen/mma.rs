//! Products by tensor cores: as PTX, which the assembler takes without spilling registers, and in
//! their form for a CPU against the interpreter.

use std::sync::Arc;

use ansc_codegen::Target;
use ansc_codegen::ptx::compile_ptx;
use ansc_graph::{Compute, TensorType, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::Machine;
use ansc_sketch::Task;
use ansc_sketch::algorithm::Algorithm;
use ansc_sketch::gpu::{GpuLimits, GpuProgram, lower};
use ansc_sketch::trace::Unfit;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::check::{Random, compare, exact};
use crate::kernel::Kernel;
use crate::ptxas;

const SMS: [u32; 4] = [80, 86, 89, 90];

/// Products as networks have them: what is sought in their PTX beside the product.
const LARGE: [(&str, &str, &[&str]); 7] = [
    (
        "matmul",
        "compute(in0: f16[4096, 4096], in1: f16[4096, 4096]) -> y {
          s: f32[4096, 4096] = sum{r0: 4096} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
          y: f16[4096, 4096] = f16(s[i0, i1])
        }",
        &["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "ldmatrix.sync.aligned.m8n8.x4.trans", "cp.async.cg"],
    ),
    (
        "attention",
        "compute(in0: bf16[12, 197, 64], in1: bf16[12, 197, 64]) -> y {
          s: f32[12, 197, 197] = sum{r0: 64} mul(f32(in0[i0, i1, r0]), f32(in1[i0, i2, r0]))
          y: f32[12, 197, 197] = mul(s[i0, i1, i2], 0.125_f32)
        }",
        &["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "ldmatrix.sync.aligned.m8n8.x4", "cp.async.cg"],
    ),
    (
        "conv3x3",
        "compute(in0: f16[1, 56, 56, 64], in1: f16[3, 3, 64, 64], in2: f32[64]) -> y {
          p: f16[1, 58, 58, 64] = select(and(and(le(1, i1), lt(i1, 57)), and(le(1, i2), lt(i2, 57))), in0[i0, sub(i1, 1), sub(i2, 1), i3], 0.0_f16)
          s: f32[1, 56, 56, 64] = sum{r0: 3, r1: 3, r2: 64} mul(f32(p[i0, add(i1, r0), add(i2, r1), r2]), f32(in1[r0, r1, r2, i3]))
          y: f16[1, 56, 56, 64] = f16(max(add(s[0, i1, i2, i3], in2[i3]), 0.0_f32))
        }",
        &["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "ldmatrix", "cp.async.cg"],
    ),
    (
        "bytes",
        "compute(in0: u8[512, 768], in1: i8[768, 768]) -> s {
          s: i32[512, 768] = sum{r0: 768} mul(i32(in0[i0, r0]), i32(in1[r0, i1]))
        }",
        &["mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", "cp.async.cg"],
    ),
    (
        "bytes, transposed",
        "compute(in0: i8[512, 768], in1: i8[768, 768]) -> s {
          s: i32[512, 768] = sum{r0: 768} mul(i32(in0[i0, r0]), i32(in1[i1, r0]))
        }",
        &["mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "ldmatrix", "cp.async.cg"],
    ),
    (
        "floats",
        "compute(in0: f32[2048, 2048], in1: f32[2048, 2048]) -> s {
          s: f32[2048, 2048] = sum{r0: 2048} mul(tf32(in0[i0, r0]), tf32(in1[r0, i1]))
        }",
        &["mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "cvt.rna.tf32.f32", "ldmatrix", "cp.async.cg"],
    ),
    (
        "floats of a convolution",
        "compute(in0: f32[1, 28, 28, 128], in1: f32[3, 3, 128, 128]) -> s {
          p: f32[1, 30, 30, 128] = select(and(and(le(1, i1), lt(i1, 29)), and(le(1, i2), lt(i2, 29))), in0[i0, sub(i1, 1), sub(i2, 1), i3], 0.0_f32)
          s: f32[1, 28, 28, 128] = sum{r0: 3, r1: 3, r2: 128} mul(tf32(p[i0, add(i1, r0), add(i2, r1), r2]), tf32(in1[r0, r1, r2, i3]))
        }",
        &["mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "cvt.rna.tf32.f32", "cp.async.cg"],
    ),
];

/// Borders on all sides; a window with strides and padding; a batch; bytes across; floats across.
const SMALL: [&str; 5] = [
    "compute(in0: f16[37, 40], in1: f16[40, 41], in2: f32[41]) -> y {
      s: f32[37, 41] = sum{r0: 40} mul(f32(in0[i0, r0]), f32(in1[r0, i1]))
      y: f32[37, 41] = max(add(s[i0, i1], in2[i1]), 0.0_f32)
    }",
    "compute(in0: bf16[2, 9, 9, 8], in1: bf16[3, 3, 8, 24]) -> y {
      p: bf16[2, 11, 11, 8] = select(and(and(le(1, i1), lt(i1, 10)), and(le(1, i2), lt(i2, 10))), in0[i0, sub(i1, 1), sub(i2, 1), i3], 0.0_bf16)
      s: f32[2, 5, 5, 24] = sum{r0: 3, r1: 3, r2: 8} mul(f32(p[i0, add(mul(i1, 2), r0), add(mul(i2, 2), r1), r2]), f32(in1[r0, r1, r2, i3]))
      y: f32[2, 5, 5, 24] = max(s[i0, i1, i2, i3], 0.0_f32)
    }",
    "compute(in0: f16[3, 33, 20], in1: f16[3, 20, 18]) -> s {
      s: f32[3, 33, 18] = sum{r0: 20} mul(f32(in0[i0, i1, r0]), f32(in1[i0, r0, i2]))
    }",
    "compute(in0: u8[30, 70], in1: i8[70, 32]) -> s {
      s: i32[30, 32] = sum{r0: 70} mul(i32(in0[i0, r0]), i32(in1[r0, i1]))
    }",
    "compute(in0: f32[37, 21], in1: f32[21, 44]) -> s {
      s: f32[37, 44] = sum{r0: 21} mul(tf32(in0[i0, r0]), tf32(in1[r0, i1]))
    }",
];

fn task(text: &str) -> Arc<Task> {
    let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut machine = Machine::new(16, 255);
    machine.units.mma = true;
    let constant = vec![false; compute.inputs.len()];
    let gpu = Some(GpuLimits::default());
    Arc::new(Task { gpu, ..Task::on_cpu("k", &compute, &constant, &machine) })
}

fn assembled(name: &str, gpu: &GpuProgram, sms: &[u32]) -> String {
    let mut text = String::new();
    for &sm in sms {
        let ptx = compile_ptx(gpu, "k", &Target::cuda(sm).unwrap());
        text = ptx.unwrap_or_else(|e| panic!("{name}: {e}\n{gpu}")).text;
        for usage in ptxas::assemble(name, sm, &text).into_iter().flatten() {
            println!("{name} sm_{sm}: {usage:?}");
            assert_eq!(usage.spilled, 0, "{name}, sm_{sm}: {usage:?}\n{gpu}");
        }
    }
    text
}

/// Untuned products use tensor cores, and ptxas spills no register of them.
#[test]
fn products_are_assembled_without_spills() {
    for (name, text, words) in LARGE {
        let (gpu, by) = task(text).untuned_on_gpu(&GpuLimits::default()).unwrap();
        let ways = [Algorithm::Matrices, Algorithm::MatricesInParts];
        assert!(by.is_some_and(|by| ways.contains(&by)), "{name}: {gpu}");
        let ptx = assembled(name, &gpu, &SMS);
        for word in words {
            assert!(ptx.contains(word), "{name}: no {word} in\n{gpu}\n{ptx}");
        }
    }
}

#[test]
fn a_device_without_the_instructions_is_refused_by_name() {
    let (gpu, _) = task(LARGE[0].1).untuned_on_gpu(&GpuLimits::default()).unwrap();
    let error = compile_ptx(&gpu, "k", &Target::cuda(75).unwrap()).unwrap_err().to_string();
    assert!(error.contains("compute capability 8.0"), "{error}");
}

/// Sampled schedules: the assembler takes them, and their form for a CPU computes the same.
#[test]
fn samples_by_tensor_cores_compute_the_same() {
    let cpu = Target { libm: false, ..Target::native().unwrap() };
    for text in SMALL {
        let task = task(text);
        let inputs: Vec<Tensor> =
            task.compute.inputs.iter().zip(1..).map(|(ty, seed)| operand(ty, seed)).collect();
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let expected = interp::eval(&task.compute, &inputs).unwrap();
        let by_matrices =
            |s: &ansc_sketch::rules::Sketch| s.trace.algorithm() == Some(Algorithm::Matrices);
        let sketch = task.sketches().into_iter().find(by_matrices).unwrap();
        let mut valid = 0;
        for seed in 0..6 {
            let random = &mut StdRng::seed_from_u64(seed);
            let Ok(sample) = task.sample(&sketch.trace, Unfit::Refuse, random) else { continue };
            let gpu = lower(&sample.scheduled.program, &GpuLimits::default()).unwrap();
            assembled(&format!("seed {seed}"), &gpu, &SMS[..1]);
            let found = Kernel::for_target(&gpu.cpu_form(), &cpu).run_in(&inputs, 2);
            compare(&format!("seed {seed}\n{gpu}"), &found, &expected, &exact);
            valid += 1;
        }
        assert!(valid > 2, "{valid} samples of\n{text}");
    }
}

/// Small whole numbers, so that sums are exact in any order; bytes of any value.
fn operand(ty: &TensorType, seed: u64) -> Tensor {
    let random = &mut Random(seed);
    let mut tensor = Tensor::zeros(ty.dtype, &ty.shape);
    let mut small = || (random.next() % 9) as f32 - 4.0;
    match ty.dtype {
        DType::F32 => tensor.as_mut_slice::<f32>().iter_mut().for_each(|x| *x = small()),
        DType::F16 => {
            let halves = tensor.as_mut_slice::<half::f16>().iter_mut();
            halves.for_each(|x| *x = half::f16::from_f32(small()));
        }
        DType::BF16 => {
            let halves = tensor.as_mut_slice::<half::bf16>().iter_mut();
            halves.for_each(|x| *x = half::bf16::from_f32(small()));
        }
        _ => tensor.bytes_mut().iter_mut().for_each(|x| *x = (random.next() % 256) as u8),
    }
    tensor
}
