//! Sums of products read operands of 16 bits, and sum in 32.
//!
//! ```text
//! y: f32 = relu(conv(x: f32, w: f32))   read by convolutions
//! ->  y: f32 = relu(conv(x: bf16, w: bf16)),  y': bf16 = y   with y' read in place of y
//! ```
//!
//! The expression of a sum becomes `sum f32(x[..]) * f32(w[..])`. Constants are converted here.
//! Other values are rounded once, by a cast after the node that ends the kernel which makes them;
//! fusion makes it a part of that kernel. What is pointwise, pools or normalises computes in `f32`,
//! whatever it reads.
//!
//! Operands of `tf32` are stored as they were: the sum reads `tf32(x[..]) * tf32(w[..])`.
//!
//! # Who reads the rounded value
//! - Sums of products always do.
//! - All others do as well, so that only the rounded value is stored, if the kernel sums products
//!   itself or if all that it reads was rounded before: then a convolutional network has nothing
//!   but 16 bits between kernels. Except:
//! - Nobody else does, if a reader needs all bits: a softmax, a loss, an index, a result of the
//!   graph. Nor if a normalisation reads it, unless it is the result of one product with nothing
//!   added that is as large: what transformers add up from layer to layer stays `f32`.
//!
//! Results round: each operand by a part of
//! [`Precision::unit_roundoff`](ansc_runtime::Precision::unit_roundoff).

mod products;
mod readers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ansc_runtime::{DType, Tensor};
use half::{bf16, f16};

use super::rewrite::{add, built, sweep};
use super::{Options, PassError};
use crate::fuse::Group;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind, Op};
use crate::ops::map;
use crate::ops::stored::{in_tf32, stored};
use readers::{Role, Survey};

pub use products::is_product;

pub(crate) fn run(graph: &mut Graph, options: &Options) -> Result<bool, PassError> {
    if options.precision.is_full() {
        return Ok(false);
    }
    let survey = Survey::of(graph, &options.precision);
    if !survey.reduces() {
        return Ok(false);
    }
    let nodes = graph.topological();
    let mut rewriter = Rewriter { graph, survey, only: BTreeMap::new(), copies: BTreeMap::new() };
    for node in nodes {
        rewriter.node(node)?;
    }
    sweep(graph);
    Ok(true)
}

struct Rewriter<'a> {
    graph: &'a mut Graph,
    survey: Survey,
    /// Values that are stored rounded only, and the rounded ones.
    only: BTreeMap<ValueId, ValueId>,
    /// Values that are stored as they are, rounded to a type.
    copies: BTreeMap<(ValueId, DType), ValueId>,
}

impl Rewriter<'_> {
    /// Lets a node read what its operands have become, and rounds its result if that is what is
    /// stored.
    fn node(&mut self, node: NodeId) -> Result<(), PassError> {
        if self.graph.compute_of(node).is_none() {
            return Ok(());
        }
        let operands = self.graph.operands(node);
        let rounded = self.operand_type(node, &operands);
        let mut read = Vec::with_capacity(operands.len());
        for &operand in &operands {
            read.push(match rounded {
                Some(dtype) if self.is_wide(operand) => self.rounded(operand, dtype)?,
                _ => self.as_stored(operand),
            });
        }
        self.set_operands(node, &read);
        if self.survey.reads_tf32(node)
            && let Op::Compute(op) = &mut self.graph.node_mut(node).op
        {
            *op = in_tf32(op);
        }
        let value = ValueId { node, out: 0 };
        if let Some(dtype) = self.stored_type(node) {
            let rounded = self.rounded(value, dtype)?;
            self.only.insert(value, rounded);
        }
        Ok(())
    }

    fn as_stored(&self, value: ValueId) -> ValueId {
        self.only.get(&value).copied().unwrap_or(value)
    }

    fn dtype(&self, value: ValueId) -> DType {
        self.graph.ty(self.as_stored(value)).dtype
    }

    fn is_constant(&self, value: ValueId) -> bool {
        self.graph.const_of(value).is_some()
    }

    /// Whether the value was `f32` before the pass.
    fn is_wide(&self, value: ValueId) -> bool {
        self.survey.dtype(value) == DType::F32
    }

    /// The type that a node needs its operands rounded to, if it needs that.
    fn operand_type(&self, node: NodeId, operands: &[ValueId]) -> Option<DType> {
        match self.survey.role(node) {
            Role::Product(dtype) => dtype,
            Role::Movement => self.moved_type(node, operands),
            Role::Other => None,
        }
    }

    /// The type that a node moves elements in: that of all of them, or else that of the products
    /// which alone read the result.
    fn moved_type(&self, node: NodeId, operands: &[ValueId]) -> Option<DType> {
        let moved = operands.iter().filter(|v| self.is_wide(**v) && !self.is_constant(**v));
        let types: Vec<DType> = moved.map(|v| self.dtype(*v)).collect();
        let (&first, rest) = types.split_first()?;
        if first != DType::F32 && rest.iter().all(|dtype| *dtype == first) {
            return Some(first);
        }
        self.survey.readers(ValueId { node, out: 0 }).only_products()
    }

    /// The value rounded to a type. It is rounded once for all readers.
    fn rounded(&mut self, value: ValueId, to: DType) -> Result<ValueId, PassError> {
        let from = self.as_stored(value);
        if self.graph.ty(from).dtype == to {
            return Ok(from);
        }
        if let Some(&copy) = self.copies.get(&(value, to)) {
            return Ok(copy);
        }
        let name = self.graph.node(value.node).name.clone();
        let copy = if let Some(tensor) = self.graph.const_of(from) {
            let tensor = rounded_tensor(tensor, to);
            self.graph.add_const(&name, tensor)
        } else if let Some((view, of)) = self.view(from) {
            // A cast goes to the kernel that makes what a view looks at.
            let of = self.rounded(of, to)?;
            add(self.graph, &name, stored(&view, &[to]), &[of])
        } else {
            let op = built(&name, map::cast(self.graph.ty(from), to))?;
            add(self.graph, &name, op, &[from])
        };
        self.copies.insert((value, to), copy);
        Ok(copy)
    }

    /// The reshape that gives a value, and what it reads.
    fn view(&self, value: ValueId) -> Option<(ComputeOp, ValueId)> {
        let op = self.graph.compute_of(value.node).filter(|op| op.kind == Kind::Reshape)?;
        Some((op.clone(), self.graph.operands(value.node)[0]))
    }

    /// Lets the node read these values, and gives its results the types that follow.
    fn set_operands(&mut self, node: NodeId, read: &[ValueId]) {
        let Some(op) = self.graph.compute_of(node) else { return };
        let types: Vec<DType> = read.iter().map(|v| self.graph.ty(*v).dtype).collect();
        let op = match op.expr.inputs.iter().map(|ty| ty.dtype).eq(types.iter().copied()) {
            true => op.clone(),
            false => stored(op, &types),
        };
        for (value, ty) in self.graph.node_mut(node).outputs.iter_mut().zip(op.expr.output_types())
        {
            value.ty = ty;
        }
        self.graph.node_mut(node).op = Op::Compute(op);
        self.graph.set_operands(node, read);
    }

    /// The type to store the result of a node in for all readers, if that is not its own.
    fn stored_type(&self, node: NodeId) -> Option<DType> {
        let [result] = self.graph.node(node).outputs.as_slice() else { return None };
        let value = ValueId { node, out: 0 };
        let group = self.survey.group(node).filter(|_| result.ty.dtype == DType::F32)?;
        let readers = self.survey.readers(value);
        if readers.wide || readers.norm && !self.is_plain_product(group, value) {
            return None;
        }
        let own = self.own_type(group, value);
        match readers.products.iter().collect::<Vec<_>>()[..] {
            [] if readers.any || readers.norm => own,
            [dtype] if own.is_some() => Some(*dtype),
            _ => readers.only_products(),
        }
    }

    /// The type that a kernel stores its result `value` in if it may choose: that of the operands
    /// of its product, or else the one that all it reads is stored in.
    fn own_type(&self, group: &Group, value: ValueId) -> Option<DType> {
        let product = |n: &NodeId| match self.survey.role(*n) {
            Role::Product(dtype) => Some(dtype),
            _ => None,
        };
        if let Some(dtype) = group.nodes.iter().find_map(product) {
            return dtype;
        }
        let read = group.inputs.iter().filter(|v| self.is_wide(**v) && !self.is_constant(**v));
        let len = self.graph.ty(value).len();
        let mut own = None;
        for &input in read {
            match self.dtype(input) {
                DType::F32 if self.graph.ty(input).len() >= len => return None,
                DType::F32 => {}
                dtype => own = own.or(Some(dtype)),
            }
        }
        own
    }

    /// Whether `value` is the result of a convolution, product or pool, with nothing added that is
    /// as large as itself.
    fn is_plain_product(&self, group: &Group, value: ValueId) -> bool {
        let ops = || group.nodes.iter().filter_map(|n| Some((*n, self.graph.compute_of(*n)?)));
        let len = self.graph.ty(value).len();
        let adds = |node: NodeId| {
            let mut operands = self.graph.operands(node).into_iter();
            operands.any(|v| {
                let inside = group.nodes.contains(&v.node);
                !inside && !self.is_constant(v) && self.graph.ty(v).len() >= len
            })
        };
        ops().any(|(_, op)| matches!(op.kind, Kind::Conv(_) | Kind::MatMul | Kind::Pool(_)))
            && !ops().any(|(node, op)| op.kind == Kind::Map && adds(node))
    }
}

/// A tensor of `f32` in another type.
fn rounded_tensor(tensor: &Tensor, to: DType) -> Tensor {
    let values = tensor.as_slice::<f32>();
    match to {
        DType::F16 => {
            let all: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
            Tensor::from_slice(tensor.shape(), &all)
        }
        DType::BF16 => {
            let all: Vec<bf16> = values.iter().map(|v| bf16::from_f32(*v)).collect();
            Tensor::from_slice(tensor.shape(), &all)
        }
        other => unreachable!("no precision has operands of {other}"),
    }
}
