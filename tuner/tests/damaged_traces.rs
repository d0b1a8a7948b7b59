//! Traces may come from anywhere: one that makes no sense is refused. Nothing panics, and nothing
//! takes long.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use ansc_graph::Compute;
use ansc_sketch::Machine;
use ansc_sketch::gpu::GpuLimits;
use ansc_sketch::trace::Unfit;
use ansc_sketch::{Task, Trace};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

const NUMBERS: [i64; 12] = [-1, 0, 1, 2, 3, 7, 64, 1 << 19, 1 << 31, 1 << 32, 1 << 62, i64::MAX];

fn tasks() -> Vec<Arc<Task>> {
    let texts = [
        "compute(in0: f32[12, 10], in1: f32[10, 16], in2: f32[16]) -> relu {
           mm: f32[12, 16] = sum{r0: 10} mul(in0[i0, r0], in1[r0, i1])
           relu: f32[12, 16] = max(add(mm[i0, i1], in2[i1]), 0.0_f32)
         }",
        "compute(in0: f32[8, 13]) -> root {
           total: f32[8] = sum{r0: 13} in0[i0, r0]
           root: f32[8] = sqrt(total[i0])
         }",
        "compute(in0: f32[1, 7, 6, 5], in1: f32[3, 3, 5, 8]) -> conv {
           conv: f32[1, 5, 4, 8] = sum{r0: 3, r1: 3, r2: 5}
             mul(in0[i0, add(i1, r0), add(i2, r1), r2], in1[r0, r1, r2, i3])
         }",
    ];
    let task = |text: &str| {
        let compute = Compute::parse(text).unwrap();
        let constant = vec![false; compute.inputs.len()];
        let machine = Machine::new(32, 16);
        Arc::new(Task { cores: 2, ..Task::on_cpu("k", &compute, &constant, &machine) })
    };
    let mut tasks = texts.map(task).to_vec();
    let mut for_gpu = Task::clone(&tasks[0]);
    for_gpu.gpu = Some(GpuLimits::default());
    tasks.push(Arc::new(for_gpu));
    tasks
}

/// An instruction of any kind, whether or not the sketch has such. In the place of names are those
/// of the tasks.
fn instruction(random: &mut StdRng) -> Value {
    let number = |random: &mut StdRng| NUMBERS[random.random_range(0..NUMBERS.len())];
    let [a, b, c, n, m] = [(); 5].map(|()| number(random));
    let (block, target, out) = (random.random_range(0..12), random.random_range(0..30), 40);
    let buffer = ["mm", "in0", "total", "conv", "relu", "none"][random.random_range(0..6)];
    let scope = ["global", "local", "shared", "input", "output"][random.random_range(0..5)];
    let maps = [
        "(v0, v1) -> (floor_div(v1, 16), v0, floor_mod(v1, 16))",
        "(v0) -> (v0)",
        "(v0, v1) -> (mul(v0, 4611686018427387904), v1)",
        "(v0, v1) -> (floor_div(v0, 0), v1)",
        "() -> ()",
    ];
    let map = maps[random.random_range(0..maps.len())];
    let var = json!({ "var": target });
    let all = [
        json!({ "op": "get_block", "name": buffer, "out": block }),
        json!({ "op": "get_loops", "block": block, "out": [target, 31, 32] }),
        json!({ "op": "sample_perfect_tile", "target": target, "max_innermost": n, "out": vec![out; 4], "decision": null }),
        json!({ "op": "sample_perfect_tile", "target": target, "max_innermost": 64, "out": vec![out; 900], "decision": null }),
        json!({ "op": "sample_tile", "target": target, "max_innermost": n, "out": [out, 41], "decision": [a, b] }),
        json!({ "op": "sample_categorical", "candidates": [a], "weights": [0.5, 0.5], "out": out, "decision": null }),
        json!({ "op": "sample_categorical", "candidates": [], "weights": [], "out": out, "decision": null }),
        json!({ "op": "sample_categorical", "candidates": [a, b], "weights": [1e308, 1e308], "out": out, "decision": n }),
        json!({ "op": "sample_compute_location", "block": block, "out": out, "decision": n }),
        json!({ "op": "split", "target": target, "factors": [a, var], "out": [out, 41] }),
        json!({ "op": "split", "target": target, "factors": [0, n], "out": [out, 41] }),
        json!({ "op": "split", "target": target, "factors": [], "out": [] }),
        json!({ "op": "fuse", "loops": [target, target], "out": out }),
        json!({ "op": "fuse", "loops": [], "out": out }),
        json!({ "op": "reorder", "loops": [target, target] }),
        json!({ "op": "parallel", "target": target }),
        json!({ "op": "vectorize", "target": target }),
        json!({ "op": "unroll", "target": target }),
        json!({ "op": "bind", "target": target, "axis": "thread_x" }),
        json!({ "op": "add_unit_loop", "block": block, "out": out }),
        json!({ "op": "cache_read", "block": block, "buffer": buffer, "scope": scope, "out": out }),
        json!({ "op": "cache_write", "block": block, "scope": scope, "out": out }),
        json!({ "op": "set_scope", "buffer": buffer, "scope": scope }),
        json!({ "op": "compute_at", "block": block, "target": target }),
        json!({ "op": "reverse_compute_at", "block": block, "target": target }),
        json!({ "op": "compute_inline", "block": block }),
        json!({ "op": "reverse_compute_inline", "block": block }),
        json!({ "op": "decompose_reduction", "block": block, "target": target, "out": out }),
        json!({ "op": "rfactor", "block": block, "target": target, "axis": a, "out": out }),
        json!({ "op": "pad", "block": block, "iter": a, "multiple": n }),
        json!({ "op": "loop_partition", "target": target, "points": [a, b], "out": [out, 41, 42] }),
        json!({ "op": "storage_align", "buffer": buffer, "axis": a, "factor": n, "offset": m }),
        json!({ "op": "re_index_read", "block": block, "buffer": buffer, "scope": scope, "out": out }),
        json!({ "op": "re_index_write", "block": block, "scope": scope, "out": out }),
        json!({ "op": "transform_layout", "buffer": buffer, "map": map }),
        json!({ "op": "transform_block_layout", "block": block, "map": map }),
        json!({ "op": "decompose_padding", "block": block, "target": target, "out": out }),
        json!({ "op": "blockize", "target": target, "out": out }),
        json!({ "op": "tensorize", "target": target, "intrinsic": "none" }),
        json!({ "op": "annotate", "block": block, "key": "unroll", "value": n }),
        json!({ "op": "annotate", "block": block, "key": "parallel", "value": [a, b, c] }),
        json!({ "op": "annotate", "block": block, "key": "tile", "value": "text" }),
        json!({ "op": "annotate_loop", "target": target, "key": "unroll", "value": var }),
        json!({ "op": "unannotate", "block": block, "key": "unroll" }),
        json!({ "op": "algorithm", "algorithm": "im2col" }),
        json!({ "op": "loop_cover", "target": target, "length": a, "last": b, "out": [out, 41] }),
        json!({ "op": "slice", "lengths": [n, m], "key": "slices" }),
        json!({ "op": "join_noted", "key": "slices" }),
    ];
    all[random.random_range(0..all.len())].clone()
}

/// Changes one thing: which steps there are, what a step refers to, what it decides, how long a
/// list is.
fn damage(trace: &mut Value, random: &mut StdRng) {
    let steps = trace.as_array_mut().unwrap();
    if steps.is_empty() {
        return steps.push(instruction(random));
    }
    let (a, b) = (random.random_range(0..steps.len()), random.random_range(0..steps.len()));
    match random.random_range(0..12) {
        0 => drop(steps.remove(a)),
        1 => steps.swap(a, b),
        2 => steps.insert(b, steps[a].clone()),
        3 => steps[a]["op"] = steps[b]["op"].clone(),
        4 | 5 => steps.insert(a, instruction(random)),
        6 => decide(&mut steps[a], random),
        7 => resize(&mut steps[a], random),
        // A variable of another kind, or one that comes later.
        8 => set_number(&mut steps[a], random.random_range(0..60).into(), random),
        _ => {
            let number = NUMBERS[random.random_range(0..NUMBERS.len())];
            set_number(&mut steps[a], number.into(), random);
        }
    }
}

fn set_number(step: &mut Value, number: Value, random: &mut StdRng) {
    let mut numbers = vec![];
    collect(step, &mut numbers);
    if !numbers.is_empty() {
        let at = random.random_range(0..numbers.len());
        *numbers[at] = number;
    }
}

/// Another decision, if the step has one: none, one of the other form, or one that is far away.
fn decide(step: &mut Value, random: &mut StdRng) {
    let number = |random: &mut StdRng| NUMBERS[random.random_range(0..NUMBERS.len())];
    if let Some(decision) = step.get_mut("decision") {
        *decision = match random.random_range(0..5) {
            0 => Value::Null,
            1 => json!([number(random), number(random)]),
            2 => json!([0, 0, 0, 0]),
            3 => json!([]),
            _ => json!(number(random)),
        };
    }
}

/// A list of the step loses its last element, or has it again and again.
fn resize(step: &mut Value, random: &mut StdRng) {
    let lists = step.as_object_mut().unwrap().values_mut().filter_map(Value::as_array_mut);
    let mut lists: Vec<_> = lists.collect();
    if lists.is_empty() {
        return;
    }
    let at = random.random_range(0..lists.len());
    match lists[at].last().cloned() {
        Some(last) if random.random_range(0..3) > 0 => {
            let more = [1, 3, 2000][random.random_range(0..3)];
            lists[at].extend(std::iter::repeat_n(last, more));
        }
        _ => drop(lists[at].pop()),
    }
}

fn collect<'a>(value: &'a mut Value, numbers: &mut Vec<&'a mut Value>) {
    match value {
        Value::Number(_) => numbers.push(value),
        Value::Array(all) => all.iter_mut().for_each(|v| collect(v, numbers)),
        Value::Object(all) => all.values_mut().for_each(|v| collect(v, numbers)),
        _ => {}
    }
}

/// Everything that is done with a trace from a file, and whether it replays as it is.
fn use_all(task: &Arc<Task>, trace: &Trace, original: &Trace, seed: u64) -> bool {
    let random = &mut StdRng::seed_from_u64(seed);
    let told = (trace.to_string(), trace.in_words(), trace.subjects(), trace.is_decided());
    drop((told, trace.crossed(original, &|step| step % 2 == 0), trace.drawn(random)));
    for step in trace.choices() {
        drop(trace.mutated(step, random));
    }
    for unfit in [Unfit::Resample, Unfit::Adapt] {
        if let Ok(sample) = task.sample(trace, unfit, random) {
            let again = task.sample(&sample.trace, Unfit::Refuse, random);
            assert!(again.is_ok_and(|again| again == sample), "what was replayed replays");
        }
    }
    task.sample(trace, Unfit::Refuse, random).is_ok()
}

/// Runs `f` on a thread of its own; gives its result, or how it failed.
fn within<T: Send + 'static>(
    limit: Duration,
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<T, &'static str> {
    let (done, result) = channel();
    std::thread::spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(f));
        drop(done.send(outcome));
    });
    match result.recv_timeout(limit) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err("panics"),
        Err(RecvTimeoutError::Timeout) => Err("has no end"),
    }
}

#[test]
fn damaged_traces_are_refused() {
    let mut random = StdRng::seed_from_u64(11);
    let (mut refused, mut replayed, mut failures) = (0, 0, vec![]);
    let rounds = std::env::var("ANSC_TRACES").map_or(10, |n| n.parse().unwrap());
    let print = std::env::var_os("ANSC_TRACES_PRINT").is_some();
    for task in tasks() {
        for sketch in task.sketches() {
            for _ in 0..rounds {
                let Ok(sample) = task.sample(&sketch.trace, Unfit::Refuse, &mut random) else {
                    continue;
                };
                let mut json = serde_json::to_value(&sample.trace).unwrap();
                (0..random.random_range(1..4)).for_each(|_| damage(&mut json, &mut random));
                let Ok(trace) = serde_json::from_value::<Trace>(json.clone()) else {
                    refused += 1;
                    continue;
                };
                if print {
                    // A stack that overflows ends the process: the last line is the trace that did
                    // it.
                    eprintln!("{json}");
                }
                let (task, seed) = (task.clone(), random.random());
                let original = sample.trace;
                let used = move || use_all(&task, &trace, &original, seed);
                match within(Duration::from_secs(60), used) {
                    Ok(true) => replayed += 1,
                    Ok(false) => refused += 1,
                    Err(how) => failures.push(format!("{how}: {json}")),
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} fail\n{}",
        failures.len(),
        failures[..failures.len().min(12)].join("\n")
    );
    assert!(refused > 40 && replayed > 4, "{refused} refused, {replayed} replayed");
}
