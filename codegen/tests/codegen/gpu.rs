//! The GPU schedules that nobody tuned: as PTX, which the assembler takes, and in their form for a
//! CPU, compiled and run without the C library's functions, as on a GPU.

use std::sync::Arc;

use ansc_codegen::Target;
use ansc_codegen::ptx::{Ptx, compile_ptx, join};
use ansc_graph::op::{Channels, ComputeOp, ConvAttrs, PoolAttrs, PoolMode};
use ansc_graph::ops::*;
use ansc_graph::{BinOp, Compute, Expr, Stage, TensorType, UnOp, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::Machine;
use ansc_sketch::Task;
use ansc_sketch::gpu::{GpuLimits, GpuProgram, lower};
use ansc_sketch::trace::Unfit;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::check::{Close, Random, compare, filled, relative};
use crate::elementwise::{SHAPE, binary_defined, element, unary_defined};
use crate::kernel::Kernel;
use crate::ptxas;

const SMS: [u32; 5] = [70, 80, 86, 89, 90];

fn scheduled(name: &str, compute: &Compute) -> GpuProgram {
    let limits = GpuLimits::default();
    let untuned = Arc::new(Task::on_gpu(name, compute, &limits)).untuned_on_gpu(&limits);
    untuned.unwrap_or_else(|e| panic!("{name}: {e}")).0
}

fn ptx(gpu: &GpuProgram, symbol: &str, sm: u32) -> Ptx {
    compile_ptx(gpu, symbol, &Target::cuda(sm).unwrap()).unwrap_or_else(|e| panic!("{e}\n{gpu}"))
}

/// Compiles for a GPU, and compares the form for a CPU with the reference.
pub(crate) fn check(
    name: &str,
    compute: &Compute,
    inputs: &[&Tensor],
    expected: &[Tensor],
    close: Close<'_>,
) {
    let gpu = scheduled(name, compute);
    ptx(&gpu, "k", 80);
    let target = Target { libm: false, ..Target::native().unwrap() };
    let found = Kernel::for_target(&gpu.cpu_form(), &target).run_in(inputs, 3);
    // Large arguments of periodic functions lose precision, and powers of `f64` some digits.
    let periodic = ["sin_", "cos_", "tan_"].iter().any(|f| name.starts_with(f));
    if periodic {
        return;
    }
    let near = relative(2e-13);
    let close = |f: f64, e: f64| close(f, e) || (name.ends_with("f64") && near(f, e));
    compare(&format!("{name} on a GPU"), &found, expected, &close);
}

/// Operations that models use, in sizes that they have.
fn workloads() -> Vec<(&'static str, Compute)> {
    let f = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let op = |op: Result<ComputeOp, OpError>| (*op.unwrap().expr).clone();
    let conv_of = |kernel: usize, stride: usize, groups: usize, c: usize, m: usize, size: usize| {
        let pad = kernel / 2;
        let attrs = ConvAttrs {
            channels: Channels::First,
            input: Channels::First,
            kernel: vec![kernel; 2],
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            pads_begin: vec![pad; 2],
            pads_end: vec![pad; 2],
            groups,
        };
        op(conv::conv(attrs, &f(&[1, c, size, size]), &f(&[m, c / groups, kernel, kernel])))
    };
    let pool = PoolAttrs {
        mode: PoolMode::Max,
        channels: Channels::First,
        kernel: vec![3; 2],
        strides: vec![2; 2],
        dilations: vec![1; 2],
        pads_begin: vec![1; 2],
        pads_end: vec![1; 2],
    };
    vec![
        ("matmul", op(matmul::matmul(&f(&[1024, 1024]), &f(&[1024, 1024])))),
        ("matmul_odd", op(matmul::matmul(&f(&[127, 65]), &f(&[65, 131])))),
        ("matmul_batch", op(matmul::matmul(&f(&[12, 128, 64]), &f(&[12, 64, 128])))),
        ("matvec", op(matmul::matmul(&f(&[1, 2048]), &f(&[2048, 1000])))),
        ("conv3x3", conv_of(3, 1, 1, 64, 64, 56)),
        ("conv1x1", conv_of(1, 1, 1, 256, 64, 56)),
        ("conv7x7", conv_of(7, 2, 1, 3, 64, 224)),
        ("conv3x3_7", conv_of(3, 1, 1, 512, 512, 7)),
        ("depthwise", conv_of(3, 1, 96, 96, 96, 56)),
        ("maxpool", op(pool::max_pool(pool, &f(&[1, 64, 112, 112])))),
        ("softmax", op(softmax::softmax(&[1], &f(&[1536, 128])))),
        ("softmax_long", op(softmax::softmax(&[1], &f(&[8, 30_522])))),
        ("mean", op(reduce::reduce(reduce::Reduction::Mean, &[2, 3], true, &f(&[1, 2048, 7, 7])))),
        ("sum", op(reduce::reduce(reduce::Reduction::Sum, &[0, 1], false, &f(&[1024, 1024])))),
        ("columns", op(reduce::reduce(reduce::Reduction::Sum, &[0], false, &f(&[1024, 1024])))),
        ("add", op(map::binary(BinOp::Add, &f(&[64, 56, 56]), &f(&[64, 56, 56])))),
        ("erf", op(map::unary(UnOp::Erf, &f(&[128, 3072])))),
        ("transpose", op(shape::transpose(&f(&[128, 12, 64]), &[1, 0, 2]))),
    ]
}

#[test]
fn default_kernels_are_assembled_without_spills() {
    for (name, compute) in workloads() {
        let gpu = scheduled(name, &compute);
        for sm in SMS {
            let ptx = ptx(&gpu, name, sm);
            assert!(ptx.text.contains(&format!(".target sm_{sm}")), "{}", ptx.text);
            for usage in ptxas::assemble(name, sm, &ptx.text).into_iter().flatten() {
                assert_eq!(usage.spilled, 0, "{name}, sm_{sm}: {usage:?}");
                if sm == 80 {
                    let launch = ptx.launches.iter().find(|l| l.symbol == usage.kernel).unwrap();
                    println!(
                        "{:14} grid {:?} block {:?}: {} registers, {} bytes shared",
                        usage.kernel, launch.grid, launch.block, usage.registers, usage.shared
                    );
                }
            }
        }
    }
}

#[test]
fn tiles_are_in_registers_and_vectors_in_one_access() {
    let text_for = |name: &str, sm| {
        let (_, compute) = workloads().into_iter().find(|(n, _)| *n == name).unwrap();
        ptx(&scheduled(name, &compute), name, sm).text
    };
    let text = |name: &str| text_for(name, 80);
    // Before compute capability 8.0 copies to shared memory go through registers.
    let copies: [(u32, &[&str]); 2] =
        [(70, &["ld.global.nc.v4", "st.shared.v4"]), (80, &["cp.async.cg.shared.global"])];
    for (sm, copies) in copies {
        let matmul = text_for("matmul", sm);
        for part in ["bar.sync", "ld.shared.v4", "fma.rn.f32", ".maxntid"].iter().chain(copies) {
            assert!(matmul.contains(part), "no {part} in\n{matmul}");
        }
        assert!(!matmul.contains(".local"), "a tile in memory:\n{matmul}");
    }
    let add = text("add");
    assert!(add.contains("ld.global.nc.v4") && add.contains("st.global.v4"), "{add}");
}

/// Every operation on every type, all in one text.
#[test]
fn every_operation_is_assembled() {
    let mut texts = vec![];
    let mut add = |body: Expr, types: &[DType], result: DType| {
        let types = types.iter().map(|&t| TensorType::new(t, SHAPE)).collect();
        let stage = Stage::map("e", TensorType::new(result, SHAPE), body);
        let gpu = scheduled("e", &Compute::single(types, stage));
        texts.push(ptx(&gpu, &format!("e{}", texts.len()), 80).text);
    };
    for dtype in DType::ALL {
        for op in UnOp::ALL.into_iter().filter(|&op| unary_defined(op, dtype)) {
            add(Expr::unary(op, element(0)), &[dtype], op.result(dtype));
        }
        for op in BinOp::ALL.into_iter().filter(|&op| binary_defined(op, dtype)) {
            add(Expr::binary(op, element(0), element(1)), &[dtype; 2], op.result(dtype));
        }
        for to in DType::ALL {
            add(Expr::cast(dtype, to, element(0)), &[dtype], to);
        }
    }
    let all: Vec<&str> = texts.iter().map(String::as_str).collect();
    for usage in ptxas::assemble("every operation", 80, &join(&all)).into_iter().flatten() {
        assert_eq!(usage.spilled, 0, "{usage:?}");
    }
}

/// Powers that are whole numbers have no error, since they may become integers. The functions are
/// those of a GPU, run on this CPU.
#[test]
fn whole_powers_are_exact() {
    let cases: Vec<(f64, f64)> = (-60..60)
        .flat_map(|a| (0..40).map(move |b| (f64::from(a), f64::from(b))))
        .filter(|(a, b)| a.powf(*b).abs() < 2f64.powi(53))
        .chain([(81.0, 0.5), (25.0, 1.5), (4.0, -2.0), (2.0, 52.0), (-2.0, 51.0), (1.0, 63.0)])
        .collect();
    let column = |of: fn(&(f64, f64)) -> f64| {
        Tensor::from_slice(&[cases.len()], &cases.iter().map(of).collect::<Vec<f64>>())
    };
    let (a, b) = (column(|c| c.0), column(|c| c.1));
    let ty = TensorType::new(DType::F64, [cases.len()]);
    let compute = (*map::binary(BinOp::Pow, &ty, &ty).unwrap().expr).clone();
    let target = Target { libm: false, ..Target::native().unwrap() };
    let gpu = scheduled("pow", &compute);
    let found = Kernel::for_target(&gpu.cpu_form(), &target).run_in(&[&a, &b], 1).remove(0);
    for ((a, b), found) in cases.iter().zip(found.as_slice::<f64>()) {
        assert_eq!(*found, a.powf(*b), "{a} to the power of {b}");
    }
}

/// Sampled schedules, pipelined ones among them: whatever they decide, the assembler takes it, and
/// they compute the same.
#[test]
fn samples_are_assembled() {
    let small = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let matmul = matmul::matmul(&small(&[37, 32]), &small(&[32, 48])).unwrap();
    let task = Arc::new(Task {
        gpu: Some(GpuLimits::default()),
        ..Task::on_cpu("k", &matmul.expr, &[false; 2], &Machine::new(16, 255))
    });
    let inputs: Vec<Tensor> =
        task.compute.inputs.iter().map(|ty| filled(ty, &mut Random(5), |_, r| r.unit())).collect();
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let expected = interp::eval(&task.compute, &inputs).unwrap();
    let cpu = Target { libm: false, ..Target::native().unwrap() };
    let mut early = [0, 0];
    for sketch in task.sketches() {
        for seed in 0..12 {
            let random = &mut StdRng::seed_from_u64(seed);
            let Ok(sample) = task.sample(&sketch.trace, Unfit::Refuse, random) else { continue };
            let gpu = lower(&sample.scheduled.program, &GpuLimits::default()).unwrap();
            for (sm, early) in [70, 80].into_iter().zip(&mut early) {
                let ptx = ptx(&gpu, "k", sm);
                *early += usize::from(ptx.text.contains("cp.async"));
                ptxas::assemble("a sample", sm, &ptx.text);
            }
            let found = Kernel::for_target(&gpu.cpu_form(), &cpu).run_in(&inputs, 2);
            let close = |f: f64, e: f64| (f - e).abs() <= 1e-4 * e.abs().max(1.0);
            compare(&format!("seed {seed}\n{gpu}"), &found, &expected, &close);
        }
    }
    assert!(early[0] == 0 && early[1] > 0, "asynchronous copies for sm_70 and sm_80: {early:?}");
}

/// The schedules themselves, run.
#[test]
fn gpu_schedules_run_on_a_cpu() {
    for (name, compute) in workloads() {
        // The large ones are too slow for the reference.
        if ansc_graph::cost::flops(&compute) > 20_000_000 {
            continue;
        }
        let random = &mut Random(7);
        let inputs: Vec<Tensor> =
            compute.inputs.iter().map(|ty| filled(ty, random, |_, r| r.unit())).collect();
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let expected = interp::eval(&compute, &inputs).unwrap();
        check(name, &compute, &inputs, &expected, &|f, e| (f - e).abs() <= 1e-4 * e.abs().max(1.0));
    }
}
