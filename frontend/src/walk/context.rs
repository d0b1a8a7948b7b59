//! The view that an operator importer has: one ONNX node, and the graph to add to.

use std::cell::RefCell;
use std::sync::Arc;

use ansc_graph::ops::{OpError, fill};
use ansc_graph::verify::ill_typed;
use ansc_graph::{ComputeOp, Graph, NodeId, Op, Scalar, TensorType, Value, ValueId};
use ansc_runtime::host::{self, HostOp};
use ansc_runtime::{DType, Tensor};
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::{AttributeProto, GraphProto, NodeProto};

use super::attributes::Attributes;
use super::build::Importer;
use super::scope::{Binding, Frame, lookup};
use crate::memory::NODE;
use crate::problem::Problem;
use crate::tensor_type::checked_bytes;

/// Operators whose first output has the elements of their first input, if these may have 4 bits.
const MOVING: [&str; 5] = ["Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"];

/// Host operators are folded up to this number of input elements.
const MAX_HOST_ELEMENTS: usize = 1 << 16;

pub(crate) struct NodeCtx<'a> {
    pub(super) importer: &'a mut Importer,
    node: &'a NodeProto,
    pub(super) attributes: &'a Attributes<'a>,
    opset: i64,
    inputs: Vec<Binding>,
    gives_nibbles: bool,
    /// The first attribute that was asked for and has not the type that it must have.
    bad_attribute: RefCell<Option<String>>,
}

/// The node.
impl<'a> NodeCtx<'a> {
    pub(super) fn new(
        importer: &'a mut Importer,
        node: &'a NodeProto,
        attributes: &'a Attributes<'a>,
        opset: i64,
        inputs: Vec<Binding>,
    ) -> NodeCtx<'a> {
        let bad_attribute = RefCell::default();
        NodeCtx { importer, node, attributes, opset, inputs, gives_nibbles: false, bad_attribute }
    }

    /// The version of the operator's domain.
    pub(crate) fn opset(&self) -> i64 {
        self.opset
    }

    /// Inputs listed, optional ones that are left out among them.
    pub(crate) fn n_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Outputs listed, unnamed ones among them.
    pub(crate) fn n_outputs(&self) -> usize {
        self.node.output.len()
    }

    /// Whether output `i` has a name.
    pub(crate) fn wants_output(&self, i: usize) -> bool {
        self.node.output.get(i).is_some_and(|name| !name.is_empty())
    }

    /// A required input.
    pub(crate) fn input(&self, i: usize) -> Result<ValueId, Problem> {
        self.optional(i).ok_or_else(|| self.problem(format!("its input {i} is missing")))
    }

    /// An input that may be absent.
    pub(crate) fn optional(&self, i: usize) -> Option<ValueId> {
        self.inputs.get(i)?.value()
    }

    /// Whether an input has elements of 4 bits, for which those of 8 bits stand.
    pub(crate) fn is_of_nibbles(&self, i: usize) -> bool {
        matches!(self.inputs.get(i), Some(Binding::Nibbles(_)))
    }

    /// Lets readers of the first output know that its elements have 4 bits.
    pub(crate) fn marks_nibbles(&mut self) {
        self.gives_nibbles = true;
    }

    /// The bindings of the node's outputs.
    pub(super) fn bound(&self, outputs: Vec<ValueId>) -> Vec<Binding> {
        let moves = MOVING.contains(&self.node.op_type.as_str()) && self.is_of_nibbles(0);
        let of_nibbles = self.gives_nibbles || moves;
        let bound = |(i, value)| match i == 0 && of_nibbles {
            true => Binding::Nibbles(value),
            false => Binding::Value(value),
        };
        outputs.into_iter().enumerate().map(bound).collect()
    }

    /// A constant that an attribute holds.
    pub(crate) fn constant_in(&mut self, attribute: &str) -> Option<Result<Binding, Problem>> {
        let proto = self.attribute(attribute, AttributeType::Tensor)?.t.as_ref()?;
        Some(self.node_name().and_then(|name| {
            let bound = self.importer.constant(&name, proto);
            bound.map_err(|reason| self.problem(format!("attribute `{attribute}`: {reason}")))
        }))
    }

    /// An input of any kind: a tensor, a sequence, or nothing.
    pub(crate) fn binding(&self, i: usize) -> Binding {
        self.inputs.get(i).cloned().unwrap_or(Binding::Absent)
    }

    /// The elements of an input that is a sequence.
    pub(crate) fn sequence(&self, i: usize) -> Result<Arc<[ValueId]>, Problem> {
        match self.binding(i) {
            Binding::Sequence(elements) => Ok(elements),
            _ => Err(self.problem(format!("its input {i} must be a sequence"))),
        }
    }

    /// The tensor that a name stands for where the node is.
    pub(crate) fn named(&mut self, name: &str) -> Option<ValueId> {
        lookup(&mut self.importer.frames, name)?.value()
    }

    /// Tells what the user can do about an input that depends on data, and must be known.
    pub(super) fn data_remedy(&self, value: ValueId) -> Option<String> {
        let place = self.inputs.iter().position(|binding| binding.value() == Some(value))?;
        self.importer.data.remedy(self.node.input.get(place)?)
    }

    /// Reports an input that is a sequence, for operators that read tensors only.
    pub(crate) fn no_sequences(&self) -> Result<(), Problem> {
        match self.inputs.iter().position(|b| matches!(b, Binding::Sequence(_))) {
            Some(i) => Err(self.problem(format!("its input {i} is a sequence, not a tensor"))),
            None => Ok(()),
        }
    }

    /// All inputs of an operator that takes any number of them.
    pub(crate) fn all_inputs(&self) -> Result<Vec<ValueId>, Problem> {
        (0..self.n_inputs()).map(|i| self.input(i)).collect()
    }

    pub(crate) fn ty(&self, v: ValueId) -> TensorType {
        self.graph_here().ty(v).clone()
    }

    /// Whether only the data decides the size of `v`.
    pub(crate) fn is_dynamic(&self, v: ValueId) -> bool {
        self.graph_here().value(v).dynamic
    }

    /// Whether the node, which changes nothing if `nothing` is true, gives `x` itself. It does not
    /// if it changes something at other sizes: graphs for several sizes consist of the same nodes.
    pub(crate) fn passes_on(&mut self, x: ValueId, nothing: bool) -> bool {
        !self.is_dynamic(x) && self.importer.budget.is_left_out(nothing)
    }

    /// Whether to compute the node in the way that is best for the sizes at hand: graphs for
    /// several sizes consist of the same nodes.
    pub(crate) fn settled(&mut self, best: bool) -> bool {
        self.importer.budget.settled(best)
    }

    /// The value, where it is known at compile time.
    pub(crate) fn constant(&self, v: ValueId) -> Option<Arc<Tensor>> {
        self.graph_here().const_of(v).cloned()
    }

    /// The value of input `i`, which the operator needs at compile time as its `what`.
    pub(crate) fn known(&self, i: usize, what: &str) -> Result<Arc<Tensor>, Problem> {
        let value = self.input(i)?;
        self.constant(value).ok_or_else(|| {
            let reason = format!("its {what} (input {i}) must be known at compile time");
            self.unknown(reason, value)
        })
    }

    pub(crate) fn known_i64s(&self, i: usize, what: &str) -> Result<Vec<i64>, Problem> {
        let tensor = self.known(i, what)?;
        tensor.to_i64_vec().ok_or_else(|| {
            self.problem(format!("its {what} must be integers, not {}", tensor.dtype()))
        })
    }

    pub(crate) fn problem(&self, reason: impl Into<String>) -> Problem {
        self.importer.problem(self.node, reason)
    }

    /// An axis counted from the end where negative.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<usize, Problem> {
        let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        from_start
            .and_then(|a| usize::try_from(a).ok())
            .filter(|&a| a < rank)
            .ok_or_else(|| self.problem(format!("axis {axis} is outside of rank {rank}")))
    }

    /// Whether the node is in a body that may run several times.
    pub(crate) fn is_in_loop(&self) -> bool {
        let own_inputs = |frame: &Frame| frame.graph.inputs().len() > frame.captures.len();
        self.importer.frames[1..].iter().any(own_inputs)
    }

    /// The number of a sequence of random numbers.
    pub(crate) fn next_stream(&mut self) -> u32 {
        self.importer.streams += 1;
        self.importer.streams - 1
    }

    pub(crate) fn graph_here(&self) -> &Graph {
        &self.importer.frames.last().expect("there is a frame until the import ends").graph
    }
}

/// Attributes. One of the wrong type counts as absent and becomes a problem once the importer is
/// done.
impl<'a> NodeCtx<'a> {
    fn attribute(&self, name: &str, ty: AttributeType) -> Option<&'a AttributeProto> {
        let found = self.node.attribute.iter().find(|a| a.name == name)?;
        let found = match self.attributes.resolve(found) {
            Ok(found) => found?,
            Err(reason) => {
                self.bad(reason);
                return None;
            }
        };
        // Files of the first IR version leave the type open.
        if found.r#type == ty as i32 || found.r#type == AttributeType::Undefined as i32 {
            return Some(found);
        }
        self.bad(format!("attribute `{name}` is not of type {}", ty.as_str_name()));
        None
    }

    fn bad(&self, reason: String) {
        self.bad_attribute.borrow_mut().get_or_insert(reason);
    }

    pub(super) fn attribute_problem(&self) -> Result<(), Problem> {
        match self.bad_attribute.take() {
            Some(reason) => Err(self.problem(reason)),
            None => Ok(()),
        }
    }

    pub(crate) fn int_opt(&self, name: &str) -> Option<i64> {
        self.attribute(name, AttributeType::Int).map(|a| a.i)
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.int_opt(name).unwrap_or(default)
    }

    /// A yes or no that is off for every number but one, as ONNX's shape inference reads it.
    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, default.into()) == 1
    }

    pub(crate) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attribute(name, AttributeType::Ints).map(|a| a.ints.clone())
    }

    pub(crate) fn float_opt(&self, name: &str) -> Option<f32> {
        self.attribute(name, AttributeType::Float).map(|a| a.f)
    }

    pub(crate) fn float(&self, name: &str, default: f32) -> f32 {
        self.float_opt(name).unwrap_or(default)
    }

    pub(crate) fn floats(&self, name: &str) -> Option<Vec<f32>> {
        self.attribute(name, AttributeType::Floats).map(|a| a.floats.clone())
    }

    pub(crate) fn string(&self, name: &str, default: &str) -> String {
        let text = self.attribute(name, AttributeType::String).and_then(|a| self.text(name, &a.s));
        text.unwrap_or_else(|| default.into())
    }

    pub(crate) fn strings(&self, name: &str) -> Option<Vec<String>> {
        let attribute = self.attribute(name, AttributeType::Strings)?;
        attribute.strings.iter().map(|s| self.text(name, s)).collect()
    }

    fn text(&self, name: &str, bytes: &[u8]) -> Option<String> {
        let text = String::from_utf8(bytes.to_vec());
        text.map_err(|_| self.bad(format!("attribute `{name}` is not text"))).ok()
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<Arc<Tensor>> {
        let proto = self.attribute(name, AttributeType::Tensor)?.t.as_ref()?;
        self.decoded(name, self.importer.constants.dense(proto))
    }

    /// A tensor that is stored as its elements that are not zero.
    pub(crate) fn sparse_tensor(&self, name: &str) -> Option<Arc<Tensor>> {
        let proto = self.attribute(name, AttributeType::SparseTensor)?.sparse_tensor.as_ref()?;
        self.decoded(name, self.importer.constants.sparse(proto))
    }

    fn decoded(&self, name: &str, tensor: Result<Arc<Tensor>, String>) -> Option<Arc<Tensor>> {
        tensor.map_err(|reason| self.bad(format!("attribute `{name}`: {reason}"))).ok()
    }

    pub(crate) fn graph(&self, name: &str) -> Option<&'a GraphProto> {
        self.attribute(name, AttributeType::Graph)?.g.as_ref()
    }
}

/// The graph.
impl NodeCtx<'_> {
    /// Adds a node that computes `op`. Where all inputs are known and the result is small, adds the
    /// result instead.
    pub(crate) fn emit(
        &mut self,
        op: Result<ComputeOp, OpError>,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, Problem> {
        let op = self.checked(op, inputs)?;
        if let Some(results) = self.fold(&op, inputs)? {
            return results.into_iter().map(|t| self.made_const(t)).collect();
        }
        self.emit_checked(op, inputs)
    }

    /// As [`NodeCtx::emit`], but a node in any case: importers of its readers look for it.
    pub(crate) fn emit_unfolded(
        &mut self,
        op: Result<ComputeOp, OpError>,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, Problem> {
        let op = self.checked(op, inputs)?;
        self.emit_checked(op, inputs)
    }

    fn checked(
        &self,
        op: Result<ComputeOp, OpError>,
        inputs: &[ValueId],
    ) -> Result<ComputeOp, Problem> {
        let op = op.map_err(|e| self.problem(e.to_string()))?;
        self.operands_fit(&op, inputs)?;
        self.is_typed(&op)?;
        Ok(op)
    }

    fn emit_checked(&mut self, op: ComputeOp, inputs: &[ValueId]) -> Result<Vec<ValueId>, Problem> {
        let name = self.node_name()?;
        let graph = &mut self.importer.frame().graph;
        let types = op.expr.output_types().into_iter().enumerate();
        let outputs = types.map(|(i, ty)| Value::new(format!("{name}:{i}"), ty)).collect();
        let node = graph.add(&name, Op::Compute(op), inputs, outputs);
        Ok(graph.values(node).collect())
    }

    /// The first output of [`NodeCtx::emit`].
    pub(crate) fn emit1(
        &mut self,
        op: Result<ComputeOp, OpError>,
        inputs: &[ValueId],
    ) -> Result<ValueId, Problem> {
        let values = self.emit(op, inputs)?;
        values.first().copied().ok_or_else(|| self.problem("it gives no output"))
    }

    /// Adds a node that the runtime executes; folds it as [`NodeCtx::emit`] does.
    pub(crate) fn host(
        &mut self,
        op: HostOp,
        inputs: &[ValueId],
        outputs: Vec<Value>,
    ) -> Result<Vec<ValueId>, Problem> {
        for output in &outputs {
            self.sized(&output.ty)?;
        }
        let known: Option<Vec<Arc<Tensor>>> = inputs.iter().map(|&v| self.constant(v)).collect();
        if let Some(known) =
            known.filter(|k| k.iter().map(|t| t.len()).sum::<usize>() <= MAX_HOST_ELEMENTS)
        {
            let operands: Vec<&Tensor> = known.iter().map(Arc::as_ref).collect();
            let results = host::run(&op, &operands).map_err(|e| self.problem(e.to_string()))?;
            return results.into_iter().map(|t| self.add_const(t)).collect();
        }
        let name = self.node_name()?;
        let graph = &mut self.importer.frame().graph;
        // Two values of the same size are to be known as such.
        let is_same = |node: &NodeId| {
            matches!(&graph.node(*node).op, Op::Host(other) if *other == op)
                && graph.operands(*node) == inputs
        };
        let is_dynamic = outputs.iter().any(|output| output.dynamic);
        if let Some(node) = graph.node_ids().into_iter().filter(|_| is_dynamic).find(is_same) {
            return Ok(graph.values(node).collect());
        }
        let node = graph.add(&name, Op::Host(op), inputs, outputs);
        Ok(graph.values(node).collect())
    }

    /// Adds a node of any kind, as it is.
    pub(crate) fn add(&mut self, op: Op, inputs: &[ValueId], outputs: Vec<Value>) -> Vec<ValueId> {
        let name = self.name();
        let graph = &mut self.importer.frame().graph;
        let node = graph.add(&name, op, inputs, outputs);
        graph.values(node).collect()
    }

    /// A constant that the import made.
    pub(crate) fn add_const(&mut self, tensor: Tensor) -> Result<ValueId, Problem> {
        self.made_const(Arc::new(tensor))
    }

    /// A constant that this import made, or an earlier one.
    fn made_const(&mut self, tensor: Arc<Tensor>) -> Result<ValueId, Problem> {
        self.importer.take(self.node, tensor.bytes().len())?;
        self.share_const(tensor)
    }

    /// A constant of the model.
    pub(crate) fn share_const(&mut self, tensor: Arc<Tensor>) -> Result<ValueId, Problem> {
        let name = self.node_name()?;
        Ok(self.importer.frame().graph.add_const(&name, tensor))
    }

    /// Zeros, which take no memory unless they are few.
    pub(crate) fn zeros(&mut self, dtype: DType, shape: &[usize]) -> Result<ValueId, Problem> {
        self.emit1(fill::constant(Scalar::zero(dtype), shape), &[])
    }

    /// The name that nodes made here get.
    pub(crate) fn name(&self) -> String {
        self.importer.node_name(self.node)
    }

    /// The name of a node that is about to be added, which is counted.
    fn node_name(&mut self) -> Result<String, Problem> {
        let name = self.name();
        // The node has it, and so has its first output.
        self.importer.take(self.node, NODE + 2 * name.len())?;
        Ok(name)
    }

    fn sized(&self, ty: &TensorType) -> Result<(), Problem> {
        checked_bytes(ty.dtype, &ty.shape).map(|_| ()).map_err(|e| self.problem(e))
    }

    /// `ty`, if a tensor of its size can exist.
    pub(crate) fn addressable(&self, ty: TensorType) -> Result<TensorType, Problem> {
        self.sized(&ty)?;
        Ok(ty)
    }

    /// Importers build the same expression for whatever element type a model has.
    fn is_typed(&self, op: &ComputeOp) -> Result<(), Problem> {
        let Some(problem) = ill_typed(&op.expr) else { return Ok(()) };
        let remedy = "give it another element type: insert a Cast before it";
        Err(self.problem(problem.to_string()).remedy(remedy))
    }

    fn operands_fit(&self, op: &ComputeOp, inputs: &[ValueId]) -> Result<(), Problem> {
        for (&input, expected) in inputs.iter().zip(&op.expr.inputs) {
            let value = self.graph_here().value(input);
            if value.dynamic {
                let reason = format!(
                    "only the data decides the size of its input `{}`; an operator can read such \
                     a value outside of branches and loops, and not where a model is quantized",
                    value.name
                );
                return Err(self.unknown(reason, input));
            }
            if value.ty != *expected {
                let reason =
                    format!("its importer took `{}`, a {}, for a {expected}", value.name, value.ty);
                return Err(self.problem(reason));
            }
        }
        if inputs.len() != op.expr.inputs.len() {
            return Err(self.problem("its importer gave the wrong number of operands"));
        }
        op.expr.stages.iter().try_for_each(|stage| self.sized(&stage.ty))
    }

    fn fold(
        &mut self,
        op: &ComputeOp,
        inputs: &[ValueId],
    ) -> Result<Option<Vec<Arc<Tensor>>>, Problem> {
        let known: Option<Vec<Arc<Tensor>>> = inputs.iter().map(|&v| self.constant(v)).collect();
        let results = op.expr.output_types().iter().map(TensorType::bytes).sum();
        let room = self.importer.constants.memory.has_room(results);
        let Some(known) = known.filter(|_| room && self.importer.budget.worthwhile(&op.expr))
        else {
            return Ok(None);
        };
        let results = self.importer.constants.evaluated(&op.expr, &known, || {
            let operands: Vec<&Tensor> = known.iter().map(Arc::as_ref).collect();
            ansc_graph::interp::eval(&op.expr, &operands)
        });
        results.map(Some).map_err(|e| self.problem(e.to_string()))
    }
}
