//! Whatever the sketches of many small workloads decide, the program computes the same.
//!
//! Each space of each workload is sampled `ANSC_TRACES` times (a few, unless that is set), round
//! its sketches. A sample may be refused, by a typed error; one that is not is run by the
//! suspicious interpreter, with its constants packed, and compared with the reference. Those for
//! GPUs are lowered to kernels and run in their form for a CPU, where a read or write that no
//! barrier keeps apart from another thread's is found. `--nocapture` shows how many samples of
//! which rules are valid, and what refuses the others.

mod tally;
mod workloads;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ansc_graph::{Compute, TensorType, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::gpu::GpuLimits;
use ansc_sketch::rules::Sketch;
use ansc_sketch::trace::{Instruction, Recorder, Unfit};
use ansc_sketch::verify::report;
use ansc_sketch::{Machine, Scheduled};
use ansc_sketch::{Program, Task, Trace, exec, gpu};
use rand::SeedableRng;
use rand::rngs::StdRng;

use tally::Tally;

#[test]
fn samples_for_cpus_compute_the_same() {
    // Constants are packed, or come as they are.
    samples_compute_the_same(&[false, true], false);
}

#[test]
fn samples_for_gpus_compute_the_same() {
    samples_compute_the_same(&[false], true);
}

fn samples_compute_the_same(constants: &[bool], on_gpu: bool) {
    let wanted = std::env::var("ANSC_TRACES").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let mut problems = vec![];
    let mut tally = Tally::default();
    for (name, compute) in workloads::all() {
        for &constants in constants {
            let task = task(name, &compute, constants, on_gpu);
            let found = samples(&task, &task.sketches(), wanted, &mut tally);
            problems.extend(found.into_iter().map(|p| format!("{name}: {p}")));
        }
    }
    println!("{}\n{tally}", if on_gpu { "gpu" } else { "cpu" });
    let shown: Vec<String> = problems.iter().take(3).cloned().collect();
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), shown.join("\n"));
}

fn task(name: &str, compute: &Compute, constants: bool, on_gpu: bool) -> Arc<Task> {
    let constant: Vec<bool> = (0..compute.inputs.len()).map(|i| constants && i > 0).collect();
    Arc::new(Task {
        cores: 2,
        gpu: on_gpu.then(GpuLimits::default),
        ..Task::on_cpu(name, compute, &constant, &Machine::new(16, 16))
    })
}

/// The problems that were found with `wanted` samples.
fn samples(task: &Arc<Task>, sketches: &[Sketch], wanted: usize, tally: &mut Tally) -> Vec<String> {
    let inputs: Vec<Tensor> =
        task.compute.inputs.iter().enumerate().map(|(i, ty)| operand(ty, i)).collect();
    let refs: Vec<&Tensor> = inputs.iter().collect();
    let expected = interp::eval(&task.compute, &refs).expect("the reference of a workload");
    let mut problems = vec![];
    for i in 0..wanted {
        let sketch = &sketches[i % sketches.len()];
        let random = &mut StdRng::seed_from_u64(i as u64);
        let sampled =
            catch_unwind(AssertUnwindSafe(|| task.sample(&sketch.trace, Unfit::Refuse, random)));
        let Ok(sampled) = sampled else {
            problems.push(format!("{:?} panics, seed {i}", sketch.rules));
            continue;
        };
        tally.count(sketch, sampled.as_ref().err());
        let Ok(sample) = sampled else { continue };
        let verified = report(&sample.scheduled.program);
        verified.iter().for_each(|report| tally.answers.add(report));
        let found = verified.map_err(|fault| format!("{fault}"));
        let found = found.and_then(|_| holds(task, &inputs, &expected, &sample.scheduled));
        if let Err(problem) = found.and_then(|()| steps_hold(task, &sample.trace)) {
            let program = &sample.scheduled.program;
            problems.push(format!("{:?}, seed {i}: {problem}\n{program}", sketch.rules));
        }
    }
    problems
}

/// Whether the program that each instruction leaves is valid.
fn steps_hold(task: &Arc<Task>, trace: &Trace) -> Result<(), String> {
    let mut fault = Ok(());
    let mut after = |instruction: &Instruction, program: &Program| {
        if let (Ok(()), Err(found)) = (&fault, report(program)) {
            fault = Err(format!("after {instruction}: {found}\n{program}\nat last"));
        }
    };
    let recorder = Recorder::of_task(task.clone());
    let random = &mut StdRng::seed_from_u64(0);
    let replayed = trace.replay_watched(recorder, Unfit::Refuse, random, &mut after);
    replayed.map_err(|e| e.to_string())?;
    fault
}

/// Whether the program, given its constants as it wants them, computes what is expected.
fn holds(
    task: &Task,
    inputs: &[Tensor],
    expected: &[Tensor],
    scheduled: &Scheduled,
) -> Result<(), String> {
    let mut given = inputs.to_vec();
    for packing in &scheduled.packings {
        if !task.constant[packing.param] {
            return Err(format!("input {} is packed but not constant", packing.param));
        }
        let packed = interp::eval(&packing.compute, &[&inputs[packing.param]]);
        given[packing.param] = packed.map_err(|e| format!("packing: {e}"))?.remove(0);
    }
    let text = scheduled.program.to_string();
    let parsed = Program::parse(&text).map_err(|e| e.to_string())?;
    if parsed.to_string() != text {
        return Err("another text when parsed".into());
    }
    let runnable = match &task.gpu {
        None => scheduled.program.clone(),
        Some(limits) => gpu::lower(&parsed, limits).map_err(|e| e.to_string())?.checked_form(),
    };
    let found = exec::run(&runnable, &given.iter().collect::<Vec<_>>());
    let found = found.map_err(|e| e.to_string())?;
    expected.iter().zip(&found).try_for_each(|(e, f)| same(e, f))
}

/// Equal up to the rounding that another order of summation gives, or another algorithm, whose
/// errors are relative to the largest result.
fn same(expected: &Tensor, found: &Tensor) -> Result<(), String> {
    let finite = expected.to_f64_vec().into_iter().filter(|x| x.is_finite());
    let scale = finite.fold(1.0, |most: f64, x| most.max(x.abs()));
    let tolerance = |a: f64| match expected.dtype() {
        DType::F32 => 1e-5 * scale,
        DType::F16 => 4e-3 * a.abs().max(1.0),
        _ => 0.0,
    };
    // Rules collapse axes, which moves no element.
    if (expected.dtype(), expected.len()) != (found.dtype(), found.len()) {
        return Err("a result has another type".into());
    }
    let close =
        |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance(a);
    let mut pairs = expected.to_f64_vec().into_iter().zip(found.to_f64_vec()).enumerate();
    match pairs.find(|(_, (a, b))| !close(*a, *b)) {
        Some((at, (a, b))) => Err(format!("element {at} is {b} instead of {a}")),
        None => Ok(()),
    }
}

/// Small whole numbers; no neighbours are equal.
fn operand(ty: &TensorType, seed: usize) -> Tensor {
    let values = (0..ty.len()).map(|i| ((i * 7 + i / 5 + seed * 3) % 11) as i64 - 5);
    fn of<T: ansc_runtime::Element>(ty: &TensorType, values: impl Iterator<Item = T>) -> Tensor {
        Tensor::from_slice(&ty.shape, &values.collect::<Vec<T>>())
    }
    match ty.dtype {
        DType::F32 => of(ty, values.map(|v| v as f32)),
        DType::F16 => of(ty, values.map(|v| half::f16::from_f32(v as f32))),
        DType::I8 => of(ty, values.map(|v| v as i8)),
        DType::U8 => of(ty, values.map(|v| (v + 5) as u8)),
        DType::I32 => of(ty, values.map(|v| v as i32)),
        // Positions in a table of three.
        DType::I64 => of(ty, values.map(|v| v.rem_euclid(3))),
        other => unreachable!("no workload has inputs of {}", other.name()),
    }
}
