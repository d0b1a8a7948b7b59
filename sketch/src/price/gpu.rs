//! The price of a program on a GPU.
//!
//! Kernels run one after another. The threads of one share multiprocessors: what they issue
//! together takes its time, if there are enough of them; if not, each of them waits for its own
//! instructions one by one.
//!
//! ```text
//! cycles of a kernel = launch
//!     + max(issued by all / (lanes * multiprocessors in use), issued by one * latency)
//! ```
//! For comparing programs of one subgraph.

use crate::budget;
use crate::gpu::GpuLimits;
use crate::program::{ForKind, Program, Stmt, ThreadAxis};
use crate::tree;

/// Instructions on single elements that a multiprocessor issues in a cycle.
const LANES: f64 = 128.0;
/// Cycles between instructions of one thread.
const LATENCY: f64 = 4.0;
/// Cycles from the end of a kernel to the beginning of the next one.
pub(crate) const LAUNCH: f64 = 2500.0;

/// Cycles of a run of a finished program with bound loops.
pub fn cycles(program: &Program, limits: &GpuLimits) -> f64 {
    program.body.iter().map(|root| of_kernel(program, root, limits)).sum()
}

fn of_kernel(program: &Program, root: &Stmt, limits: &GpuLimits) -> f64 {
    let alone = Program { body: vec![root.clone()], ..program.clone() };
    let issued = budget::issued(&alone, &budget::GPU) as f64;
    let axes = [
        [ThreadAxis::BlockX, ThreadAxis::BlockY, ThreadAxis::BlockZ],
        [ThreadAxis::ThreadX, ThreadAxis::ThreadY, ThreadAxis::ThreadZ],
    ];
    let [blocks, threads] = axes.map(|axes| axes.map(|axis| extent(root, axis)).iter().product());
    let (blocks, threads): (f64, f64) = (blocks, threads);
    let processors = limits.processors as f64;
    let together = issued / (LANES * blocks.min(processors));
    let resident = processors * limits.threads_of_processor as f64;
    let rounds = (blocks * threads / resident).max(1.0);
    together.max(issued / (blocks * threads) * LATENCY * rounds) + LAUNCH
}

/// Threads along an axis.
fn extent(root: &Stmt, axis: ThreadAxis) -> f64 {
    let mut most = 1;
    tree::visit_loops(std::slice::from_ref(root), &mut |l| {
        if l.kind == ForKind::Bound(axis) {
            most = most.max(l.extent);
        }
    });
    most as f64
}
