//! Tasks for tests.

use std::sync::Arc;

use ansc_graph::Compute;
use ansc_sketch::Machine;
use ansc_sketch::Task;

pub(crate) fn matmul(m: usize, n: usize, k: usize) -> Compute {
    let text = format!(
        "compute(in0: f32[{m}, {k}], in1: f32[{k}, {n}], in2: f32[{n}]) -> relu {{
           mm: f32[{m}, {n}] = sum{{r0: {k}}} mul(in0[i0, r0], in1[r0, i1])
           relu: f32[{m}, {n}] = max(add(mm[i0, i1], in2[i1]), 0.0_f32)
         }}"
    );
    Compute::parse(&text).unwrap()
}

/// A matrix product and nothing else.
pub(crate) fn product(m: usize, n: usize, k: usize) -> Compute {
    let text = format!(
        "compute(in0: f32[{m}, {k}], in1: f32[{k}, {n}]) -> mm {{
           mm: f32[{m}, {n}] = sum{{r0: {k}}} mul(in0[i0, r0], in1[r0, i1])
         }}"
    );
    Compute::parse(&text).unwrap()
}

pub(crate) fn elementwise(rows: usize, columns: usize) -> Compute {
    let text = format!(
        "compute(in0: f32[{rows}, {columns}], in1: f32[{columns}]) -> y {{
           y: f32[{rows}, {columns}] = max(add(in0[i0, i1], in1[i1]), 0.0_f32)
         }}"
    );
    Compute::parse(&text).unwrap()
}

/// For two cores with vectors of 32 bytes.
pub(crate) fn task(compute: Compute) -> Arc<Task> {
    let constant = vec![false; compute.inputs.len()];
    let machine = Machine::new(32, 16);
    Arc::new(Task { cores: 2, ..Task::on_cpu("k", &compute, &constant, &machine) })
}
