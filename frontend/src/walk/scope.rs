//! Which value a name stands for.
//!
//! A *frame* is a graph under construction: the model's, or the body of a loop or branch. A frame
//! has a stack of *scopes*: its own, and one for each function call or branch that is being inlined
//! into it. A name that a body does not define belongs to the graph around it: constants are copied
//! in, everything else becomes a trailing input of the body, a *capture*.

use std::collections::HashMap;
use std::sync::Arc;

use ansc_graph::{Graph, NodeId, ValueId};

use crate::opsets::Opsets;

/// The value that a name stands for, if it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Binding {
    Value(ValueId),
    /// A tensor of elements of 4 bits, for which those of 8 bits stand.
    Nibbles(ValueId),
    /// The elements of a sequence; how many there are is always known.
    Sequence(Arc<[ValueId]>),
    /// Never given a value, because of a problem that is recorded.
    Poisoned,
    /// An optional input of a function that the call leaves out, or an optional value without an
    /// element.
    Absent,
}

impl Binding {
    /// The value of a tensor.
    pub(crate) fn value(&self) -> Option<ValueId> {
        match self {
            Binding::Value(value) | Binding::Nibbles(value) => Some(*value),
            _ => None,
        }
    }
}

pub(crate) struct Scope {
    pub(crate) names: HashMap<String, Binding>,
    pub(crate) opsets: Opsets,
    /// Put before the names of nodes: the path of the calls that led here.
    pub(crate) prefix: String,
    /// Whether names that are not found here may be found in the scope below. A function sees
    /// nothing.
    pub(crate) sees_outer: bool,
}

pub(crate) struct Frame {
    pub(crate) graph: Graph,
    pub(crate) scopes: Vec<Scope>,
    /// Values of the frame below that the trailing inputs of this graph stand for.
    pub(crate) captures: Vec<ValueId>,
}

impl Scope {
    pub(crate) fn new(opsets: Opsets, prefix: String, sees_outer: bool) -> Scope {
        Scope { names: HashMap::new(), opsets, prefix, sees_outer }
    }
}

impl Frame {
    pub(crate) fn new(graph: Graph, scope: Scope) -> Frame {
        Frame { graph, scopes: vec![scope], captures: Vec::new() }
    }

    /// The binding in this frame; `Err` says whether the frame below may have one.
    pub(super) fn find(&self, name: &str) -> Result<Binding, bool> {
        for scope in self.scopes.iter().rev() {
            if let Some(binding) = scope.names.get(name) {
                return Ok(binding.clone());
            }
            if !scope.sees_outer {
                return Err(false);
            }
        }
        Err(true)
    }

    pub(crate) fn bind(&mut self, name: &str, binding: Binding) {
        let scope = self.scopes.last_mut().expect("a frame has a scope");
        scope.names.insert(name.into(), binding);
    }

    /// The value of the frame below that an input of this graph stands for, if the input is a
    /// capture.
    pub(crate) fn outer(&self, input: NodeId) -> Option<ValueId> {
        let inputs = self.graph.inputs();
        let place = inputs.iter().position(|n| *n == input)?;
        let first = inputs.len() - self.captures.len();
        self.captures.get(place.checked_sub(first)?).copied()
    }

    /// Makes a value of the frame below visible in this one.
    fn capture(&mut self, name: &str, outer: &Graph, value: ValueId) -> ValueId {
        match outer.const_of(value) {
            Some(tensor) => self.graph.add_const(name, Arc::clone(tensor)),
            None => self.captured(name, outer, value),
        }
    }

    /// Makes what a name of the frame below stands for visible in this one.
    fn capture_all(&mut self, name: &str, outer: &Graph, binding: Binding) -> Binding {
        match binding {
            Binding::Value(value) => Binding::Value(self.capture(name, outer, value)),
            Binding::Nibbles(value) => Binding::Nibbles(self.capture(name, outer, value)),
            Binding::Sequence(elements) => {
                let elements = elements.iter().enumerate();
                let inner = elements.map(|(i, &v)| self.capture(&element_name(name, i), outer, v));
                Binding::Sequence(inner.collect())
            }
            other => other,
        }
    }

    /// The trailing input that stands for a value of the frame below, which is `outer`.
    pub(crate) fn captured(&mut self, name: &str, outer: &Graph, value: ValueId) -> ValueId {
        if let Some(index) = self.captures.iter().position(|c| *c == value) {
            let inputs = self.graph.inputs();
            let node = inputs[inputs.len() - self.captures.len() + index];
            return ValueId { node, out: 0 };
        }
        let taken = self.graph.inputs().iter().any(|&n| self.graph.node(n).name == name);
        let other = || format!("{name}#{}", self.captures.len());
        let name = if taken { other() } else { name.to_string() };
        self.captures.push(value);
        self.graph.add_input(&name, outer.ty(value).clone(), None)
    }
}

/// The name of an element of the sequence `name`, where tensors stand for it.
pub(crate) fn element_name(name: &str, index: usize) -> String {
    format!("{name}.{index}")
}

/// Looks `name` up in the uppermost of `frames`; `None` where nothing defines it.
pub(crate) fn lookup(frames: &mut [Frame], name: &str) -> Option<Binding> {
    let (top, below) = frames.split_last_mut()?;
    match top.find(name) {
        Ok(binding) => Some(binding),
        Err(false) => None,
        Err(true) => {
            let binding = lookup(below, name)?;
            let outer = &below.last().expect("the lookup succeeded there").graph;
            let binding = top.capture_all(name, outer, binding);
            top.scopes[0].names.insert(name.into(), binding.clone());
            Some(binding)
        }
    }
}

#[cfg(test)]
mod tests {
    use ansc_graph::TensorType;
    use ansc_runtime::{DType, Tensor};

    use super::*;

    #[test]
    fn bodies_capture_through_all_levels() {
        let frame =
            || Frame::new(Graph::new("g"), Scope::new(Opsets::default(), String::new(), true));
        let mut frames = vec![frame(), frame(), frame()];
        let x = frames[0].graph.add_input("x", TensorType::new(DType::F32, [2]), None);
        let c = frames[0].graph.add_const("c", Tensor::scalar(3i64));
        frames[0].bind("x", Binding::Value(x));
        frames[0].bind("c", Binding::Value(c));

        let Some(Binding::Value(inner)) = lookup(&mut frames, "x") else { panic!("x is visible") };
        assert_eq!(frames[2].graph.ty(inner).shape, [2]);
        assert_eq!((frames[1].captures.len(), frames[2].captures.len()), (1, 1));
        assert_eq!(frames[1].captures[0], x);
        assert_eq!(lookup(&mut frames, "x"), Some(Binding::Value(inner)));
        assert_eq!(frames[2].captures.len(), 1);

        let Some(Binding::Value(inner)) = lookup(&mut frames, "c") else { panic!("c is visible") };
        assert!(frames[2].graph.const_of(inner).is_some() && frames[2].captures.len() == 1);
        assert_eq!(lookup(&mut frames, "y"), None);

        frames[0].bind("s", Binding::Sequence([x, c].into()));
        let Some(Binding::Sequence(s)) = lookup(&mut frames, "s") else { panic!("s is visible") };
        assert!(frames[2].graph.const_of(s[1]).is_some() && frames[2].captures.len() == 1);
        frames[2].scopes.push(Scope::new(Opsets::default(), String::new(), false));
        assert_eq!(lookup(&mut frames, "x"), None);
    }
}
