//! Finds what decides a value that must be known when compiling, and says how the user can fix it.
//!
//! In: a value of the graph under construction. Out: the inputs of the model that it is computed
//! from. A few numbers can be fixed with `--value`. What follows from images, texts or other data
//! cannot: it differs from run to run. Of a whole number the user can say what it is at most.

use std::collections::BTreeSet;

use ansc_graph::{Graph, NodeId, Op, TensorType, ValueId};

use super::context::NodeCtx;
use super::scope::Frame;
use crate::problem::Problem;

/// An input with at most so many elements, in one row, may be a setting of the model: a length, a
/// scale, a rate.
const SETTING: usize = 64;

pub(crate) enum Deciding {
    /// These inputs, which a user can fix.
    Settings(Vec<String>),
    /// Among others these inputs, which are data.
    Data(Vec<String>),
    /// The value changes from one iteration of a loop to the next.
    Iterations,
    /// Constants, of which it would take the compiler too long to compute it.
    Constants,
}

impl NodeCtx<'_> {
    /// The problem that `value` is not known, which is wanted for this reason.
    pub(crate) fn unknown(&self, reason: impl std::fmt::Display, value: ValueId) -> Problem {
        match self.deciding(value) {
            Deciding::Settings(inputs) => {
                let fixed: Vec<String> =
                    inputs.iter().map(|name| format!("--value {name}=VALUE")).collect();
                let remedy = format!("fix what it depends on: {}", fixed.join(" "));
                self.problem(reason.to_string()).remedy(remedy)
            }
            Deciding::Data(inputs) => {
                let names: Vec<String> = inputs.iter().map(|name| format!("`{name}`")).collect();
                let reason = format!("{reason}; it depends on the data of {}", names.join(", "));
                match self.data_remedy(value) {
                    Some(remedy) => self.problem(reason).remedy(remedy),
                    None => self.problem(format!("{reason}: not supported")),
                }
            }
            Deciding::Iterations => {
                let why = "it changes while a loop runs: not supported";
                self.problem(format!("{reason}; {why}"))
            }
            Deciding::Constants => {
                let remedy = "compute it before: let the exporter fold constants, or onnxsim";
                self.problem(reason.to_string()).remedy(remedy)
            }
        }
    }

    fn deciding(&self, value: ValueId) -> Deciding {
        let frames = &self.importer.frames;
        let (inputs, iterates) = sources(frames, value.node);
        let graph = &frames[0].graph;
        let names = |all: &mut dyn Iterator<Item = &NodeId>| -> Vec<String> {
            all.map(|&n| graph.node(n).name.clone()).collect()
        };
        let data = names(&mut inputs.iter().filter(|&&n| is_data(type_of(graph, n))));
        match (data.is_empty(), iterates, inputs.is_empty()) {
            (false, ..) => Deciding::Data(data),
            (_, true, _) => Deciding::Iterations,
            (.., false) => Deciding::Settings(names(&mut inputs.iter())),
            _ => Deciding::Constants,
        }
    }
}

/// Whether an input of this type is more than a setting of the model.
pub(super) fn is_data(ty: &TensorType) -> bool {
    ty.rank() > 1 || ty.len() > SETTING
}

fn type_of(graph: &Graph, input: NodeId) -> &TensorType {
    graph.ty(ValueId { node: input, out: 0 })
}

/// The inputs of the model that a node of the uppermost graph depends on, and whether it depends on
/// what goes around in a loop.
fn sources(frames: &[Frame], node: NodeId) -> (BTreeSet<NodeId>, bool) {
    let (mut inputs, mut iterates) = (BTreeSet::new(), false);
    let mut seen = BTreeSet::new();
    let mut pending = vec![(frames.len() - 1, node)];
    while let Some((depth, node)) = pending.pop() {
        if !seen.insert((depth, node)) {
            continue;
        }
        let frame = &frames[depth];
        match frame.graph.node(node).op {
            Op::Input { .. } if depth == 0 => _ = inputs.insert(node),
            Op::Input { .. } => match frame.outer(node) {
                Some(value) => pending.push((depth - 1, value.node)),
                None => iterates = true,
            },
            _ => pending.extend(frame.graph.operands(node).iter().map(|v| (depth, v.node))),
        }
    }
    (inputs, iterates)
}
