//! Products of half floats find their operands in 32 bits, in which they sum.
//!
//! ```text
//! y: f16 = conv(x: f16, w: f16)
//! ->
//! y: f16 = cast(conv(cast(x): f32, w: f32))
//! ```
//!
//! The values stay the same: each half float is one of 32 bits too, products are summed with 32
//! bits either way, and the result is rounded as before. What changes is where operands are
//! widened: once, by the kernel that makes them, and no more in the innermost loop, each time that
//! one is multiplied. So products of half floats become the kernels that those of `f32` are, by the
//! same algorithms; they take as much memory. Constants are widened here.
//!
//! A convolution that surrounds its input by zeros widens it there, and the input stays as it is:
//!
//! ```text
//! pad: f16 = select(inside, x, 0)    ->    pad: f32 = select(inside, f32(x), 0)
//! ```
//!
//! Other readers of a value that is widened get it from its wide form, `cast(cast(x): f32): f16`,
//! for a kernel writes one result. Products whose operands are read only a few times gain nothing:
//! they are bound by memory, and keep to halves.

use std::collections::HashMap;

use ansc_runtime::DType;

use super::rewrite::{add, built, evaluate, reshaped, supersede, sweep};
use super::{Options, PassError};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind};
use crate::ops::{conv, map, matmul};

/// How often an element is multiplied, at least, for its conversion not to count.
const OFTEN: usize = 8;

pub(crate) fn run(graph: &mut Graph, options: &Options) -> Result<bool, PassError> {
    let mut widening = Widening { graph, wide: HashMap::new() };
    let all: Vec<NodeId> = widening.graph.topological();
    let gain = all.into_iter().filter(|node| widening.gains(*node, options));
    // Convolutions with padding choose last: the operands that others want wide are wide by then.
    let (padded, plain): (Vec<_>, Vec<_>) = gain.partition(|node| widening.pads(*node));
    plain.iter().chain(&padded).try_for_each(|node| widening.product(*node))?;
    if widening.wide.is_empty() {
        return Ok(false);
    }
    widening.other_readers()?;
    sweep(graph);
    Ok(true)
}

struct Widening<'a> {
    graph: &'a mut Graph,
    /// The form in 32 bits of values that have one.
    wide: HashMap<ValueId, ValueId>,
}

impl Widening<'_> {
    /// Whether the node is a product of such a type, with operands that are read often.
    fn gains(&self, node: NodeId, options: &Options) -> bool {
        let Some(op) = self.graph.compute_of(node) else { return false };
        let [a, b] = op.expr.inputs.as_slice() else { return false };
        let in_groups = match &op.kind {
            Kind::Conv(attrs) if attrs.groups > 1 => {
                let ty = &self.graph.node(node).outputs[0].ty;
                let columns = ty.shape[attrs.channels.axis(ty.rank())] / attrs.groups;
                columns <= options.few_columns
            }
            _ => false,
        };
        let is_wanted = |types: &[DType]| types.contains(&a.dtype) && a.dtype == b.dtype;
        let gains = is_wanted(&options.widen) || in_groups && is_wanted(&options.widen_groups);
        if !gains {
            return false;
        }
        let result = &self.graph.node(node).outputs[0].ty;
        let elements: usize = result.shape.iter().product();
        match (&op.kind, b.shape.as_slice()) {
            (Kind::Conv(attrs), _) => {
                elements / result.shape[attrs.channels.axis(result.rank())].max(1) >= OFTEN
            }
            (Kind::MatMul, [batch @ .., k, n]) => {
                let matrices: usize = batch.iter().product();
                *n >= OFTEN && *k > 0 && elements / (matrices * n).max(1) >= OFTEN
            }
            _ => false,
        }
    }

    /// Whether the node is a convolution that copies its input between zeros.
    fn pads(&self, node: NodeId) -> bool {
        let is_copy = |op: &ComputeOp| op.expr.stages[0].reduce.is_none();
        self.graph
            .compute_of(node)
            .is_some_and(|op| matches!(op.kind, Kind::Conv(_)) && is_copy(op))
    }

    /// Puts the same product of wide operands in the node's place, with a cast after it.
    fn product(&mut self, node: NodeId) -> Result<(), PassError> {
        let name = self.graph.node(node).name.clone();
        let old = ValueId { node, out: 0 };
        let [a, b] = self.graph.operands(node)[..] else { return Ok(()) };
        let stays = self.pads(node) && !self.wide.contains_key(&a);
        let (a, b) = (if stays { a } else { self.widened(a)? }, self.widened(b)?);
        let [x, y] = [a, b].map(|v| self.graph.ty(v).clone());
        let op = match self.graph.compute_of(node).map(|op| &op.kind) {
            Some(Kind::Conv(attrs)) => conv::widened_conv(attrs.clone(), &x, &y),
            _ => matmul::matmul(&x, &y),
        };
        let op = built(&name, op)?;
        let product = add(self.graph, &name, op, &[a, b]);
        let result = self.cast(&name, product, self.graph.ty(old).dtype)?;
        supersede(self.graph, old, result);
        // Readers that came first have made it wide.
        if let Some(wide) = self.wide.remove(&old) {
            self.wide.insert(result, wide);
        }
        Ok(())
    }

    /// The value in 32 bits. Reshapes are views, and stay such: what is before them is widened.
    fn widened(&mut self, value: ValueId) -> Result<ValueId, PassError> {
        if let Some(wide) = self.wide.get(&value) {
            return Ok(*wide);
        }
        let name = self.graph.node(value.node).name.clone();
        let op = cast_op(self.graph, &name, value, DType::F32)?;
        let wide = match (self.graph.const_of(value), self.graph.compute_of(value.node)) {
            (Some(tensor), _) => {
                let tensor = tensor.clone();
                evaluate(self.graph, &name, &op, &[tensor])?
            }
            (_, Some(ComputeOp { kind: Kind::Reshape, .. })) => {
                let before = self.graph.operands(value.node)[0];
                let before = self.widened(before)?;
                let shape = self.graph.ty(value).shape.clone();
                reshaped(self.graph, &name, before, &shape)?
            }
            _ => add(self.graph, &name, op, &[value]),
        };
        self.wide.insert(value, wide);
        Ok(wide)
    }

    /// Lets what else reads the values of kernels read their wide forms, each reader by a cast of
    /// its own.
    fn other_readers(&mut self) -> Result<(), PassError> {
        let mut all: Vec<(ValueId, ValueId)> = self.wide.iter().map(|(v, w)| (*v, *w)).collect();
        all.sort();
        for (value, wide) in all {
            let is_made_here = self.graph.compute_of(value.node).is_some();
            if !is_made_here || self.graph.is_output(value) {
                continue;
            }
            for (reader, _) in self.graph.users(value) {
                if reader != wide.node && self.graph.compute_of(reader).is_some() {
                    self.reads_wide(reader, value, wide)?;
                }
            }
        }
        Ok(())
    }

    fn reads_wide(
        &mut self,
        reader: NodeId,
        value: ValueId,
        wide: ValueId,
    ) -> Result<(), PassError> {
        let mut operands = self.graph.operands(reader);
        if !operands.contains(&value) {
            // It reads the value twice, and was seen to already.
            return Ok(());
        }
        let name = self.graph.node(value.node).name.clone();
        let narrow = self.cast(&name, wide, self.graph.ty(value).dtype)?;
        operands.iter_mut().filter(|v| **v == value).for_each(|v| *v = narrow);
        self.graph.set_operands(reader, &operands);
        Ok(())
    }

    fn cast(&mut self, name: &str, value: ValueId, to: DType) -> Result<ValueId, PassError> {
        let op = cast_op(self.graph, name, value, to)?;
        Ok(add(self.graph, name, op, &[value]))
    }
}

fn cast_op(graph: &Graph, name: &str, value: ValueId, to: DType) -> Result<ComputeOp, PassError> {
    built(name, map::cast(graph.ty(value), to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::TensorType;
    use crate::expr::BinOp;
    use crate::op::{Channels, ConvAttrs};
    use crate::passes::testing::{Builder, check_all};

    fn options(types: &[DType]) -> Options {
        Options { widen: types.to_vec(), ..Options::default() }
    }

    /// A target with instructions for products of such numbers has none for few channels at a time.
    #[test]
    fn groups_may_be_widened_alone() {
        for groups in [1, 3] {
            let mut b = Builder::new(6);
            let x = half(&mut b, DType::BF16, &[1, 3, 6, 6]);
            let w = weight(&mut b, DType::BF16, &[3, 3 / groups, 3, 3]);
            let attrs = ConvAttrs { groups, ..padded() };
            let op = conv::conv(attrs, b.graph.ty(x), b.graph.ty(w)).unwrap();
            let y = b.emit(op, &[x, w]);
            let mut graph = b.finish(&[y]);
            let options = Options { widen_groups: vec![DType::BF16], ..Options::default() };
            assert_eq!(run(&mut graph, &options).unwrap(), groups == 3);
        }
    }

    /// An input of the graph as a value in half floats that a kernel makes.
    fn half(b: &mut Builder, dtype: DType, shape: &[usize]) -> ValueId {
        let x = b.input(shape);
        let op = map::cast(b.graph.ty(x), dtype).unwrap();
        b.emit(op, &[x])
    }

    fn weight(b: &mut Builder, dtype: DType, shape: &[usize]) -> ValueId {
        let w = b.constant(shape);
        let (op, tensor) =
            (map::cast(b.graph.ty(w), dtype).unwrap(), b.graph.const_of(w).unwrap().clone());
        evaluate(&mut b.graph, "w", &op, &[tensor]).unwrap()
    }

    /// A window of three by three with one element around the input.
    fn padded() -> ConvAttrs {
        ConvAttrs {
            channels: Channels::First,
            input: Channels::First,
            kernel: vec![3; 2],
            strides: vec![1; 2],
            dilations: vec![1; 2],
            pads_begin: vec![1; 2],
            pads_end: vec![1; 2],
            groups: 1,
        }
    }

    fn operands(graph: &Graph, is: impl Fn(&Kind) -> bool) -> Vec<Vec<TensorType>> {
        let nodes = graph.node_ids().into_iter().filter_map(|node| graph.compute_of(node));
        nodes.filter(|op| is(&op.kind)).map(|op| op.expr.inputs.clone()).collect()
    }

    fn widens(b: Builder, outputs: &[ValueId]) -> Graph {
        let run = |graph: &mut Graph| {
            assert!(run(graph, &options(&[DType::F16, DType::BF16]))?);
            Ok(())
        };
        check_all(b.finish(outputs), run)
    }

    #[test]
    fn chains_of_products_hold_wide_values() {
        for dtype in [DType::F16, DType::BF16] {
            let mut b = Builder::new(1);
            let x = half(&mut b, dtype, &[16, 12]);
            let [v, w] = [12, 8].map(|n| weight(&mut b, dtype, &[12, n]));
            let first = b.matmul(x, v);
            let sum = b.binary(BinOp::Add, first, x);
            let last = b.matmul(sum, w);
            let after = widens(b, &[last]);
            let products = operands(&after, |kind| *kind == Kind::MatMul);
            assert_eq!(products.len(), 2);
            assert!(products.iter().flatten().all(|ty| ty.dtype == DType::F32), "{after}");
            // The sum reads the wide form of what the first product reads.
            assert_eq!(after.ty(after.outputs[0].1).dtype, dtype);
        }
    }

    #[test]
    fn reshapes_stay_views() {
        let mut b = Builder::new(2);
        let x = half(&mut b, DType::F16, &[2, 8, 12]);
        let flat = b.reshape(x, &[16, 12]);
        let w = weight(&mut b, DType::F16, &[12, 8]);
        let y = b.matmul(flat, w);
        let after = widens(b, &[y]);
        let reshapes = operands(&after, |kind| *kind == Kind::Reshape);
        assert_eq!(reshapes, [[TensorType::new(DType::F32, [2, 8, 12])]], "{after}");
    }

    #[test]
    fn convolutions_are_widened_too() {
        let mut b = Builder::new(3);
        let x = half(&mut b, DType::F16, &[1, 3, 6, 6]);
        let w = weight(&mut b, DType::F16, &[4, 3, 3, 3]);
        let op = conv::conv(padded(), b.graph.ty(x), b.graph.ty(w)).unwrap();
        let y = b.emit(op, &[x, w]);
        let after = widens(b, &[y]);
        let convs = operands(&after, |kind| matches!(kind, Kind::Conv(_)));
        let types: Vec<DType> = convs.concat().iter().map(|ty| ty.dtype).collect();
        // The stage that pads widens.
        assert_eq!(types, [DType::F16, DType::F32], "{after}");
        assert!(after.to_string().contains("pad: f32[1, 3, 8, 8]"), "{after}");
    }

    /// The product's operand is wide, and the convolution before it comes later.
    #[test]
    fn a_product_after_a_convolution_with_padding_reads_its_wide_result() {
        let mut b = Builder::new(5);
        let x = half(&mut b, DType::F16, &[1, 3, 6, 6]);
        let w = weight(&mut b, DType::F16, &[4, 3, 3, 3]);
        let op = conv::conv(padded(), b.graph.ty(x), b.graph.ty(w)).unwrap();
        let y = b.emit(op, &[x, w]);
        let v = weight(&mut b, DType::F16, &[6, 8]);
        let z = b.matmul(y, v);
        let sum = b.binary(BinOp::Add, y, y);
        let after = widens(b, &[z, sum]);
        let products = operands(&after, |kind| *kind == Kind::MatMul);
        assert!(products.concat().iter().all(|ty| ty.dtype == DType::F32), "{after}");
    }

    #[test]
    fn rare_reads_and_other_types_stay() {
        for (rows, columns, types) in [
            (1, 64, [DType::F16, DType::BF16]),
            (64, 2, [DType::F16, DType::BF16]),
            (64, 64, [DType::BF16, DType::BF16]),
        ] {
            let mut b = Builder::new(4);
            let x = half(&mut b, DType::F16, &[rows, 16]);
            let w = weight(&mut b, DType::F16, &[16, columns]);
            let y = b.matmul(x, w);
            let mut graph = b.finish(&[y]);
            let before = graph.clone();
            assert!(!run(&mut graph, &options(&types)).unwrap());
            assert_eq!(graph.to_string(), before.to_string());
        }
    }
}
