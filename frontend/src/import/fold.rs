//! Evaluation of what is constant, within limits.
//!
//! Chains that compute shapes (Shape, Gather, Concat, ...) must become constants here, because shapes are static
//! in the graph. Folding of weights is left to a pass: a result is folded only if it is
//! small, or not much larger than what it comes from. Limits on the whole import keep a small file from
//! taking hours or all memory.

use ansc_graph::Compute;

/// A result up to this size is folded, however small its operands are.
const SMALL_BYTES: usize = 1 << 20;
/// Nothing above this size is folded.
const LARGE_BYTES: usize = 1 << 24;
/// Evaluations of expression nodes for one operator.
const MAX_WORK: u64 = 1 << 26;
/// Evaluations of expression nodes for the whole model, but for tiny operators.
const TOTAL_WORK: u64 = 1 << 31;
const TINY_WORK: u64 = 1 << 12;
/// Nodes of the model after inlining of functions.
const MAX_NODES: usize = 2_000_000;
/// Bytes of all constants.
const MAX_CONSTANT_BYTES: u64 = 1 << 40;

/// What one import has used up.
#[derive(Default)]
pub(crate) struct Budget {
    nodes: usize,
    work: u64,
    constant_bytes: u64,
}

impl Budget {
    pub(crate) fn node(&mut self) -> Result<(), String> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(format!("the model unfolds to more than {MAX_NODES} nodes"));
        }
        Ok(())
    }

    pub(crate) fn constant(&mut self, bytes: usize) -> Result<(), String> {
        self.constant_bytes = self.constant_bytes.saturating_add(bytes as u64);
        if self.constant_bytes > MAX_CONSTANT_BYTES {
            return Err("the constants of the model are larger than any machine's memory".into());
        }
        Ok(())
    }

    /// Whether to evaluate `expr`, all of whose inputs are constant.
    pub(crate) fn worthwhile(&mut self, expr: &Compute) -> bool {
        let given: usize = expr.inputs.iter().map(|t| t.bytes()).sum();
        let largest = expr.stages.iter().map(|s| s.ty.bytes()).max().unwrap_or(0);
        largest <= LARGE_BYTES
            && (largest <= SMALL_BYTES || largest <= given)
            && self.spend(work(expr))
    }

    pub(crate) fn spend(&mut self, work: u64) -> bool {
        let admitted = work <= TINY_WORK || (work <= MAX_WORK && self.work + work <= TOTAL_WORK);
        if admitted {
            self.work = self.work.saturating_add(work);
        }
        admitted
    }
}

fn work(expr: &Compute) -> u64 {
    let stage = |s: &ansc_graph::Stage| {
        let mut nodes = 0u64;
        s.body.visit(&mut |_| nodes += 1);
        s.extents().iter().fold(nodes, |n, &extent| n.saturating_mul(extent as u64))
    };
    expr.stages.iter().map(stage).fold(0, u64::saturating_add)
}
