//! Traces may come from anywhere: one that makes no sense is refused, and nothing panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ansc_graph::Compute;
use ansc_sketch::default::Machine;
use ansc_sketch::trace::Unfit;
use ansc_sketch::{Task, Trace};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

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
        let machine = Machine { vector_bytes: 32, registers: 16 };
        Arc::new(Task { name: "k".into(), compute, constant, machine, cores: 2, gpu: None })
    };
    texts.map(task).to_vec()
}

/// Changes one thing: a number anywhere, or which steps there are.
fn damage(trace: &mut Value, random: &mut StdRng) {
    let steps = trace.as_array_mut().unwrap();
    let (a, b) = (random.random_range(0..steps.len()), random.random_range(0..steps.len()));
    match random.random_range(0..8) {
        0 => drop(steps.remove(a)),
        1 => steps.swap(a, b),
        2 => steps.insert(b, steps[a].clone()),
        _ => {
            let mut numbers = vec![];
            collect(&mut steps[a], &mut numbers);
            if !numbers.is_empty() {
                let at = random.random_range(0..numbers.len());
                *numbers[at] = NUMBERS[random.random_range(0..NUMBERS.len())].into();
            }
        }
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

#[test]
fn damaged_traces_are_refused() {
    let mut random = StdRng::seed_from_u64(11);
    let (mut refused, mut replayed) = (0, 0);
    for task in tasks() {
        for sketch in task.sketches() {
            for _ in 0..25 {
                let Ok(sample) = task.sample(&sketch.trace, Unfit::Refuse, &mut random) else {
                    continue;
                };
                let mut json = serde_json::to_value(&sample.trace).unwrap();
                (0..random.random_range(1..4)).for_each(|_| damage(&mut json, &mut random));
                let Ok(trace) = serde_json::from_value::<Trace>(json.clone()) else {
                    refused += 1;
                    continue;
                };
                let replay = || task.sample(&trace, Unfit::Refuse, &mut random).is_ok();
                match catch_unwind(AssertUnwindSafe(replay)) {
                    Ok(true) => replayed += 1,
                    Ok(false) => refused += 1,
                    Err(_) => panic!("{json}"),
                }
            }
        }
    }
    assert!(refused > 40 && replayed > 4, "{refused} refused, {replayed} replayed");
}
