//! One case: an expression, operands for it, and the comparison.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ansc_graph::op::ComputeOp;
use ansc_graph::ops::OpError;
use ansc_graph::{Compute, Graph, TensorType, ValueId, fuse, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::gpu::GpuLimits;
use ansc_sketch::rules::Sketch;
use ansc_sketch::trace::Unfit;
use ansc_sketch::verify::verify;
use ansc_sketch::{Machine, Scheduled};
use ansc_sketch::{Program, Task, exec};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// Vector registers of SSE, NEON, AVX2 and AVX-512, and fewer than any machine has.
pub(crate) const MACHINES: [Machine; 5] = [
    Machine::new(16, 16),
    Machine::new(16, 32),
    Machine::new(32, 16),
    Machine::new(64, 32),
    Machine::new(32, 4),
];

pub(crate) fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

/// Small whole numbers, so that sums are exact in any order; no neighbours are equal.
pub(crate) fn operand(ty: &TensorType, seed: usize) -> Tensor {
    let value = |i: usize| ((i * 7 + i / 5 + seed * 3) % 11) as i64 - 5;
    let ints = (0..ty.len()).map(value);
    match ty.dtype {
        DType::F32 => from(ty, ints.map(|v| v as f32)),
        DType::F64 => from(ty, ints.map(|v| v as f64)),
        DType::F16 => from(ty, ints.map(|v| half::f16::from_f32(v as f32))),
        DType::BF16 => from(ty, ints.map(|v| half::bf16::from_f32(v as f32))),
        DType::Bool => from(ty, ints.map(|v| v > 0)),
        DType::I8 => from(ty, ints.map(|v| v as i8)),
        DType::I16 => from(ty, ints.map(|v| v as i16)),
        DType::I32 => from(ty, ints.map(|v| v as i32)),
        DType::I64 => from(ty, ints),
        DType::U8 => from(ty, ints.map(|v| (v + 5) as u8)),
        DType::U16 => from(ty, ints.map(|v| (v + 5) as u16)),
        DType::U32 => from(ty, ints.map(|v| (v + 5) as u32)),
        DType::U64 => from(ty, ints.map(|v| (v + 5) as u64)),
    }
}

fn from<T: ansc_runtime::Element>(ty: &TensorType, values: impl Iterator<Item = T>) -> Tensor {
    Tensor::from_slice(&ty.shape, &values.collect::<Vec<T>>())
}

/// Checks an operator on its own on all machines, without and with constant operands.
pub(crate) fn check(name: &str, op: Result<ComputeOp, OpError>) {
    let op = op.unwrap_or_else(|e| panic!("{name}: {e}"));
    check_compute(name, &op.expr);
}

pub(crate) fn check_compute(name: &str, compute: &Compute) {
    let inputs: Vec<Tensor> =
        compute.inputs.iter().enumerate().map(|(i, ty)| operand(ty, i)).collect();
    check_with(name, compute, &inputs);
}

pub(crate) fn check_with(name: &str, compute: &Compute, inputs: &[Tensor]) {
    if let Err(problem) = run_gpu(compute, inputs) {
        panic!("{name} on a GPU: {problem}\n{compute}");
    }
    for machine in &MACHINES {
        for constants in [false, true] {
            if let Err(problem) = run(compute, inputs, constants, machine) {
                panic!("{name} on {machine:?}, constants {constants}: {problem}\n{compute}");
            }
        }
    }
}

/// Checks every kernel that fusion makes of a graph.
pub(crate) fn check_fused(name: &str, build: impl FnOnce(&mut Graph) -> ValueId) {
    let mut graph = Graph::new(name);
    let result = build(&mut graph);
    graph.outputs.push(("y".into(), result));
    let groups = fuse::fuse(&graph);
    assert!(!groups.is_empty());
    for group in groups {
        check_compute(&format!("{name}: {}", group.name), &group.compute);
    }
}

pub(crate) fn add(
    graph: &mut Graph,
    op: Result<ComputeOp, OpError>,
    inputs: &[ValueId],
) -> ValueId {
    let op = op.unwrap();
    graph.add_compute("n", op.kind, (*op.expr).clone(), inputs)[0]
}

/// Schedules and runs. With `constants`, every input but the first is
/// one.
pub(crate) fn run(
    compute: &Compute,
    inputs: &[Tensor],
    constants: bool,
    machine: &Machine,
) -> Result<(), String> {
    let constant: Vec<bool> = (0..inputs.len()).map(|i| constants && i > 0).collect();
    let all = catch_unwind(AssertUnwindSafe(|| schedules(compute, &constant, machine)))
        .map_err(|_| "the schedule panics")?;
    let expected = interp::eval(compute, &inputs.iter().collect::<Vec<_>>());
    let expected = expected.map_err(|e| format!("reference: {e}"))?;
    all.into_iter().try_for_each(|scheduled| computes(scheduled, inputs, &constant, &expected))
}

/// The program that nobody tuned, and those that rules make: by their first candidates, and by
/// some others.
fn schedules(compute: &Compute, constant: &[bool], machine: &Machine) -> Vec<Scheduled> {
    let task = Arc::new(Task { cores: 2, ..Task::on_cpu("k", compute, constant, machine) });
    let mut all = vec![task.scheduled_as(None)];
    for (seed, Sketch { trace, .. }) in task.rule_sketches().into_iter().enumerate() {
        let random = &mut StdRng::seed_from_u64(seed as u64);
        let first = task.sample(&trace, Unfit::Refuse, random).expect("a decided trace replays");
        all.push(first.scheduled);
        let others = (0..2)
            .filter_map(|_| task.sample(&trace.clone().undecided(), Unfit::Refuse, random).ok());
        all.extend(others.map(|sample| sample.scheduled));
    }
    all
}

/// Whether a program computes what is expected.
fn computes(
    scheduled: Scheduled,
    inputs: &[Tensor],
    constant: &[bool],
    expected: &[Tensor],
) -> Result<(), String> {
    let Scheduled { program, packings } = scheduled;
    parses_back(&program)?;
    verify(&program).map_err(|fault| format!("{fault}\n{program}"))?;
    let mut given = inputs.to_vec();
    for packing in &packings {
        if !constant[packing.param] {
            return Err(format!("input {} is packed but not constant", packing.param));
        }
        let packed = interp::eval(&packing.compute, &[&inputs[packing.param]]);
        given[packing.param] = packed.map_err(|e| format!("packing: {e}"))?.remove(0);
    }
    let found = exec::run(&program, &given.iter().collect::<Vec<_>>())
        .map_err(|e| format!("{e}\n{program}"))?;
    if expected.len() != found.len() {
        return Err(format!("{} results instead of {}", found.len(), expected.len()));
    }
    for (e, f) in expected.iter().zip(&found) {
        same(e, f).map_err(|problem| format!("{problem}\n{program}"))?;
    }
    Ok(())
}

/// Schedules for a GPU and runs what its threads do, with a watch on races.
fn run_gpu(compute: &Compute, inputs: &[Tensor]) -> Result<(), String> {
    let limits = GpuLimits::default();
    let task = Arc::new(Task::on_gpu("k", compute, &limits));
    let (gpu, _) = catch_unwind(AssertUnwindSafe(|| task.untuned_on_gpu(&limits)))
        .map_err(|_| "the schedule panics")?
        .map_err(|e| e.to_string())?;
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let expected = interp::eval(compute, &inputs).map_err(|e| format!("reference: {e}"))?;
    let found = exec::run(&gpu.checked_form(), &inputs).map_err(|e| format!("{e}\n{gpu}"))?;
    for (e, f) in expected.iter().zip(&found) {
        same(e, f).map_err(|problem| format!("{problem}\n{gpu}"))?;
    }
    Ok(())
}

fn parses_back(program: &Program) -> Result<(), String> {
    let text = program.to_string();
    let parsed = Program::parse(&text).map_err(|e| format!("{e}\n{text}"))?;
    if parsed.to_string() == text { Ok(()) } else { Err(format!("another text than\n{text}")) }
}

/// Equal up to the rounding that another order of summation gives: of sums of a thousand terms.
/// Rules collapse axes, which moves no element.
fn same(expected: &Tensor, found: &Tensor) -> Result<(), String> {
    let (e, f) = (TensorType::of(expected), TensorType::of(found));
    if (e.dtype, e.len()) != (f.dtype, f.len()) {
        return Err(format!("a result is {f} instead of {e}"));
    }
    let tolerance = match e.dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-4,
        DType::F16 => 1e-3,
        DType::BF16 => 1e-2,
        _ => 0.0,
    };
    let close = |a: f64, b: f64| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * a.abs().max(1.0)
    };
    let values = expected.to_f64_vec().into_iter().zip(found.to_f64_vec());
    match values.enumerate().find(|(_, (a, b))| !close(*a, *b)) {
        Some((i, (a, b))) => Err(format!("element {i} is {b} instead of {a}")),
        None => Ok(()),
    }
}
