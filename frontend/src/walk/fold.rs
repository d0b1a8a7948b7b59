//! Evaluation of what is constant, within limits.
//!
//! Chains that compute shapes (Shape, Gather, Concat, ...) must become constants here, because
//! shapes are static in the graph. Folding of weights is left to a pass: a result is folded only if
//! it is small, or not much larger than what it comes from. A limit on the work of the whole import
//! keeps a small file from taking hours; [`crate::memory`] bounds what results take.

use std::collections::HashMap;

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

/// The work that one import has used up.
#[derive(Default)]
pub(crate) struct Budget {
    work: u64,
    /// The elements that a tensor may have to be folded, where nothing but short ones is.
    most: Option<usize>,
    /// The decisions of another import of the same model, and those of this one: graphs for several
    /// sizes shall consist of the same nodes.
    before: Decisions,
    decided: Decisions,
    /// The node that decisions are about.
    node: String,
}

/// For each node, by name, its decisions in order: whether an operator of constants was evaluated,
/// whether one that may change nothing was left out, and in which of two ways it is computed.
pub(crate) type Decisions = HashMap<String, Vec<bool>>;

impl Budget {
    /// For tensors of so many elements alone.
    pub(crate) fn up_to(most: usize) -> Budget {
        Budget { most: Some(most), ..Budget::default() }
    }

    /// One that decides as another import did, as far as that went.
    pub(crate) fn deciding_as(self, before: Decisions) -> Budget {
        Budget { before, ..self }
    }

    pub(crate) fn into_decisions(self) -> Decisions {
        self.decided
    }

    /// Whether to evaluate `expr`, all of whose inputs are constant.
    pub(crate) fn worthwhile(&mut self, expr: &Compute) -> bool {
        let decision = self.before().unwrap_or_else(|| self.is_little(expr));
        self.decide(decision)
    }

    /// Whether to leave out an operator that may change nothing here.
    pub(crate) fn is_left_out(&mut self, nothing: bool) -> bool {
        let decision = nothing && self.before().unwrap_or(true);
        self.decide(decision)
    }

    /// Whether to do what is best here, or else what another import did.
    pub(crate) fn settled(&mut self, best: bool) -> bool {
        let decision = self.before().unwrap_or(best);
        self.decide(decision)
    }

    /// Begins with a node; at other sizes the model may have others.
    pub(crate) fn begin(&mut self, node: String) {
        self.node = node;
    }

    /// The decision that the other import made at this point, if it came here.
    fn before(&self) -> Option<bool> {
        let done = self.decided.get(&self.node).map_or(0, Vec::len);
        self.before.get(&self.node)?.get(done).copied()
    }

    fn decide(&mut self, decision: bool) -> bool {
        match self.decided.get_mut(&self.node) {
            Some(all) => all.push(decision),
            None => drop(self.decided.insert(self.node.clone(), vec![decision])),
        }
        decision
    }

    fn is_little(&mut self, expr: &Compute) -> bool {
        let given: usize = expr.inputs.iter().map(|t| t.bytes()).sum();
        let largest = expr.stages.iter().map(|s| s.ty.bytes()).max().unwrap_or(0);
        let is_short = |most| expr.output_types().iter().all(|ty| ty.len() <= most);
        largest <= LARGE_BYTES
            && self.most.is_none_or(is_short)
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
