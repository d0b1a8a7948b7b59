//! Verifying again and again, while passes change the graph.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Violation, graph, kind, verify_compute};
use crate::compute::Compute;
use crate::graph::Graph;
use crate::op::{ComputeOp, Kind};

/// Checks a graph and all bodies in it, see the [module](super).
pub fn verify(graph: &Graph) -> Result<(), Vec<Violation>> {
    let violations = graph::violations(graph, Bodies::All, &mut Verifier::new());
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

/// Which bodies of branches and loops are checked with the graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bodies {
    /// All bodies, however deep.
    All,
    /// Those of the graph's own nodes, which is as far as a pass may go. What is in them is checked
    /// when passes run over them in turn, so that a deep nest is not checked once for each level.
    Own,
    /// No bodies.
    None,
}

impl Bodies {
    /// The bodies to check inside of a body; `None` if the body itself is not to be checked.
    pub(super) fn inside(self) -> Option<Bodies> {
        match self {
            Bodies::All => Some(Bodies::All),
            Bodies::Own => Some(Bodies::None),
            Bodies::None => None,
        }
    }
}

/// A stage of the compiler left something that does not hold.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error(
    "{stage} left an invalid graph: {}. This is a defect of ansc: please report it with the model",
    told(.violations)
)]
pub struct Defect {
    /// The stage that ran last, as the beginning of a sentence: `the pass fold`.
    pub stage: String,
    /// The rules that do not hold, at least one.
    pub violations: Vec<Violation>,
}

fn told(violations: &[Violation]) -> String {
    let first = violations.first().map(Violation::to_string).unwrap_or_default();
    match violations.len() {
        0 | 1 => first,
        n => format!("{first} (and {} more)", n - 1),
    }
}

impl Defect {
    /// The same, for one that holds the graph in a body of `node`.
    pub(crate) fn inside(mut self, node: &str) -> Defect {
        for violation in &mut self.violations {
            violation.node = match violation.node.as_str() {
                "" => node.to_owned(),
                inner => format!("{node}/{inner}"),
            };
        }
        self
    }
}

/// Verifies what one compilation makes, and remembers which expressions hold.
#[derive(Debug)]
pub struct Verifier {
    on: bool,
    /// By address, which nothing else gets while the expression is kept here.
    held: HashMap<*const Compute, (Arc<Compute>, Kind)>,
    spent: Duration,
}

impl Default for Verifier {
    fn default() -> Verifier {
        Verifier { on: true, held: HashMap::new(), spent: Duration::ZERO }
    }
}

impl Verifier {
    /// A verifier that has seen no graph.
    pub fn new() -> Verifier {
        Verifier::default()
    }

    /// One that checks nothing.
    pub fn off() -> Verifier {
        Verifier { on: false, ..Verifier::default() }
    }

    /// Checks a graph after `stage`, see the [module](super).
    pub fn graph(&mut self, stage: &str, graph: &Graph, bodies: Bodies) -> Result<(), Defect> {
        self.timed(stage, |own| graph::violations(graph, bodies, own))
    }

    /// Checks an expression that is no node's: one that `stage` made of several.
    pub fn compute(&mut self, stage: &str, node: &str, compute: &Compute) -> Result<(), Defect> {
        self.timed(stage, |_| {
            let violations = verify_compute(compute).err().unwrap_or_default();
            violations.into_iter().map(|v| Violation { node: node.into(), ..v }).collect()
        })
    }

    fn timed(
        &mut self,
        stage: &str,
        check: impl FnOnce(&mut Verifier) -> Vec<Violation>,
    ) -> Result<(), Defect> {
        if !self.on {
            return Ok(());
        }
        let start = Instant::now();
        let violations = check(self);
        self.spent += start.elapsed();
        if violations.is_empty() {
            return Ok(());
        }
        Err(Defect { stage: stage.into(), violations })
    }

    /// The time that checks took since this was asked last.
    pub fn take_spent(&mut self) -> Duration {
        std::mem::take(&mut self.spent)
    }

    /// Checks the expression of a node, and that its kind agrees.
    pub(super) fn op(&mut self, op: &ComputeOp) -> Result<(), Vec<Violation>> {
        let address = Arc::as_ptr(&op.expr);
        let known = self.held.get(&address).map(|(_, kind)| kind);
        if known == Some(&op.kind) {
            return Ok(());
        }
        if known.is_none() {
            verify_compute(&op.expr)?;
        }
        if let Some(problem) = kind::disagreement(op) {
            return Err(vec![Violation { node: String::new(), stage: String::new(), problem }]);
        }
        self.held.insert(address, (op.expr.clone(), op.kind.clone()));
        Ok(())
    }
}
