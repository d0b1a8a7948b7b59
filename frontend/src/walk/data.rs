//! Values of the model that depend on its data, so that all nodes that need to know one are told at
//! once, and by which number.
//!
//! In: the nodes of the model, in order. A node behind one that cannot be imported is skipped, and
//! its own problems stay hidden until the first is solved. This one needs no look at the graph: it
//! follows from names alone. Out: the first whole numbers on the way, which a user can bound.
//!
//! ```text
//! ids -> durations -> total -> Range(0, total)     told by its importer: --most total=N
//!                           -> Expand(.., total)   skipped, but told here
//! ```

use std::collections::{BTreeMap, BTreeSet};

use tract_onnx::pb::NodeProto;

use crate::opsets::canonical_domain;

/// Values of the model's own graph, those of bodies and functions left out.
#[derive(Default)]
pub(super) struct Data {
    /// For each name, the whole numbers that are the first to follow from data.
    names: BTreeMap<String, BTreeSet<String>>,
}

/// Inputs that decide the shape of a result, and what they are.
const DECIDING: [(&str, usize, &str); 22] = [
    ("AffineGrid", 1, "size"),
    ("CenterCropPad", 1, "shape"),
    ("Col2Im", 1, "image shape"),
    ("ConstantOfShape", 0, "shape"),
    ("Expand", 1, "shape"),
    ("MaxUnpool", 2, "output shape"),
    ("OneHot", 1, "depth"),
    ("Pad", 1, "pads"),
    ("Range", 0, "start"),
    ("Range", 1, "limit"),
    ("Range", 2, "step"),
    ("Reshape", 1, "shape"),
    ("Resize", 2, "scales"),
    ("Resize", 3, "sizes"),
    ("Slice", 1, "starts"),
    ("Slice", 2, "ends"),
    ("Slice", 4, "steps"),
    ("Split", 1, "split"),
    ("Tile", 1, "repeats"),
    ("TopK", 1, "number of elements"),
    ("Unsqueeze", 1, "axes"),
    ("Upsample", 1, "scales"),
];

impl Data {
    pub(super) fn add(&mut self, name: &str) {
        self.names.insert(name.into(), BTreeSet::new());
    }

    /// Whether any data was added.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The results of a node that reads data depend on it. A shape does not, nor does what
    /// `is_known` tells.
    pub(super) fn follow(
        &mut self,
        node: &NodeProto,
        is_known: impl Fn(&str) -> bool,
        is_number: impl Fn(&str) -> bool,
    ) {
        let only_shape = matches!(node.op_type.as_str(), "Shape" | "Size");
        let mut given = node.input.iter().filter_map(|name| self.names.get(name)).peekable();
        if only_shape || given.peek().is_none() {
            return;
        }
        let numbers: BTreeSet<String> = given.flatten().cloned().collect();
        for name in node.output.iter().filter(|name| !name.is_empty() && !is_known(name)) {
            let is_first = numbers.is_empty() && is_number(name);
            let own = if is_first { [name.clone()].into() } else { numbers.clone() };
            self.names.insert(name.clone(), own);
        }
    }

    /// Tells what a user can do about a tensor that must be known, if it follows from numbers.
    pub(super) fn remedy(&self, name: &str) -> Option<String> {
        let numbers = self.names.get(name).filter(|numbers| !numbers.is_empty())?;
        let options: Vec<String> = numbers.iter().map(|n| format!("--most {n}=N")).collect();
        Some(format!("say what it is at most: {}", options.join(" ")))
    }

    /// The operand that a node must know when compiling, and that depends on data.
    pub(super) fn unknown(&self, node: &NodeProto) -> Option<(usize, &'static str)> {
        let is_onnx = canonical_domain(&node.domain).is_empty();
        let own = DECIDING.iter().filter(|(op, ..)| is_onnx && *op == node.op_type);
        let depends =
            |i: usize| node.input.get(i).is_some_and(|name| self.names.contains_key(name));
        own.map(|&(_, i, what)| (i, what)).find(|(i, _)| depends(*i))
    }
}
