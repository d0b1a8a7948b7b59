//! The constant parts of elementwise expressions are evaluated at compile time.
//!
//! ```text
//! mul(x, sqrt(add(var, 1e-5)))                ->  mul(x, c)
//! (x - mean) / deviation * scale + bias       ->  x * a + b
//! ```
//!
//! The second form is taken for chains of three operations and more; it rounds differently.

use std::sync::Arc;

use ansc_runtime::Tensor;

use super::affine::{Affine, Form};
use super::algebra::size;
use super::rewrite::{close, evaluate, open_map, set_op, sweep};
use super::{Options, PassError};
use crate::compute::TensorType;
use crate::expr::{BufId, Expr};
use crate::graph::{Graph, NodeId, ValueId};
use crate::ops::map::broadcast_shapes;

pub(crate) fn run(graph: &mut Graph, options: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        changed |= hoist(graph, node, options)?;
    }
    changed |= sweep(graph);
    Ok(changed)
}

fn hoist(graph: &mut Graph, node: NodeId, options: &Options) -> Result<bool, PassError> {
    let Some(body) = open_map(graph, node) else { return Ok(false) };
    let mut values = graph.operands(node);
    let ty = graph.node(node).outputs[0].ty.clone();
    let name = graph.node(node).name.clone();
    let short = normalised(graph, &values, &body);
    let mut parts = Constants { graph, name: &name, values: &mut values, options, error: None };
    let new = parts.hoisted(&short);
    if let Some(error) = parts.error {
        return Err(error);
    }
    if new == body {
        return Ok(false);
    }
    let (op, inputs) = close(graph, &values, ty, &new);
    set_op(graph, node, op, &inputs);
    Ok(true)
}

/// Chains of operations with constants, as a product and a sum.
fn normalised(graph: &Graph, values: &[ValueId], body: &Expr) -> Expr {
    let mut result = body.clone();
    for (slot, &value) in values.iter().enumerate() {
        let dtype = graph.ty(value).dtype;
        if graph.const_of(value).is_some() || !dtype.is_float() {
            continue;
        }
        let is_const = |b: BufId| graph.const_of(values[b.index()]).is_some();
        let form = Form { x: BufId::new(slot), dtype, is_const };
        result = form.replace(&result, &mut |part, affine| match affine {
            Affine { scale: Some(scale), offset: Some(offset) } if operations(part) > 2 => {
                Expr::load(slot, vec![]) * scale + offset
            }
            _ => part.clone(),
        });
    }
    result
}

/// Operations on the path from the variable to the top are those that stay; in an affine part
/// each level has one operand that holds the variable.
fn operations(part: &Expr) -> usize {
    match part {
        Expr::Binary(_, a, b) => 1 + operations(a).max(operations(b)),
        Expr::Unary(_, x) => 1 + operations(x),
        _ => 0,
    }
}

/// Evaluates parts of an expression; the results are appended to `values`.
pub(crate) struct Constants<'a> {
    pub(crate) graph: &'a mut Graph,
    pub(crate) name: &'a str,
    pub(crate) values: &'a mut Vec<ValueId>,
    pub(crate) options: &'a Options,
    pub(crate) error: Option<PassError>,
}

impl Constants<'_> {
    /// `e` with loads of new constants for its largest constant parts.
    pub(crate) fn hoisted(&mut self, e: &Expr) -> Expr {
        if size(e) > 1
            && self.is_constant(e)
            && let Some(value) = self.value(e)
        {
            self.values.push(value);
            return Expr::load(self.values.len() - 1, vec![]);
        }
        e.map_children(|child| self.hoisted(child))
    }

    fn is_constant(&self, e: &Expr) -> bool {
        let loads = e.loads();
        let all = loads.iter().all(|(b, _)| self.graph.const_of(self.values[b.index()]).is_some());
        all && !loads.is_empty()
    }

    /// The value of a constant expression, unless broadcasting would make it much larger than what
    /// it comes from, or it cannot be evaluated.
    fn value(&mut self, e: &Expr) -> Option<ValueId> {
        let slots = e.loads().into_iter().map(|(b, _)| self.values[b.index()]);
        let types: Vec<TensorType> = slots.map(|v| self.graph.ty(v).clone()).collect();
        let shape = broadcast_shapes(types.iter().map(|t| t.shape.as_slice())).ok()?;
        let dtype = e.dtype(&|b| self.graph.ty(self.values[b.index()]).dtype);
        let ty = TensorType::new(dtype, shape);
        let read: usize = types.iter().map(TensorType::bytes).sum();
        if ty.bytes() > self.options.fold_bytes.max(2 * read) {
            return None;
        }
        let (op, inputs) = close(self.graph, self.values, ty, e);
        let tensors: Vec<Arc<Tensor>> =
            inputs.iter().filter_map(|v| self.graph.const_of(*v).cloned()).collect();
        match evaluate(self.graph, self.name, &op, &tensors) {
            Ok(value) => Some(value),
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::BinOp;
    use crate::op::Kind;
    use crate::passes::testing::{Builder, check, check_all, count};
    use crate::passes::{fold, merge_maps, simplify};

    #[test]
    fn a_batch_norm_becomes_a_product_and_a_sum() {
        let mut b = Builder::new(13);
        let x = b.input(&[2, 3, 4, 4]);
        let y = b.batch_norm(x);
        let after = check_all(b.finish(&[y]), |graph| {
            for pass in [fold::run, simplify::run, merge_maps::run, run] {
                pass(graph, &Options::default())?;
            }
            Ok(())
        });
        // x, a, b, and x * a + b
        assert_eq!(after.len(), 4);
        let (_, y) = after.outputs[0];
        assert_eq!(size(&open_map(&after, y.node).unwrap()), 5);
    }

    #[test]
    fn constants_are_not_blown_up_by_broadcasting() {
        let mut b = Builder::new(14);
        let x = b.input(&[2, 2]);
        let (row, column) = (b.constant(&[2]), b.constant(&[2, 1]));
        let outer = b.binary(BinOp::Mul, row, column);
        let y = b.binary(BinOp::Add, outer, x);
        let mut graph = check(b.finish(&[y]), merge_maps::run);
        let options = Options { fold_bytes: 0, ..Options::default() };
        assert!(run(&mut graph, &options).unwrap(), "16 bytes from 16 bytes");
        assert_eq!(count(&graph, |k| *k == Kind::Map), 1);
    }
}
