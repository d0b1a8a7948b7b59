//! Control flow that is known: a conditional with a constant condition becomes the chosen branch, a
//! loop that always runs a small number of iterations becomes that many copies of its body.
//!
//! ```text
//! loop(trip 2, h0, xs) { h = f(h, x) }   ->   %1 = f(h0, xs[0]);  %2 = f(%1, xs[1])
//! ```

use std::collections::BTreeMap;

use super::rewrite::{add, built, reshaped, supersede};
use super::{Options, PassError};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{LoopOp, Op, ScanAxis};
use crate::ops::{concat, slice};

pub(crate) fn run(graph: &mut Graph, options: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    // Inlined bodies may hold control flow of their own.
    while let Some((node, results)) = expand_one(graph, options)? {
        let values: Vec<ValueId> = graph.values(node).collect();
        for (old, new) in values.into_iter().zip(results) {
            supersede(graph, old, new);
        }
        graph.remove(node);
        changed = true;
    }
    Ok(changed)
}

/// Adds what the first known conditional or loop computes, and returns the values it gives.
fn expand_one(
    graph: &mut Graph,
    options: &Options,
) -> Result<Option<(NodeId, Vec<ValueId>)>, PassError> {
    for node in graph.topological() {
        if let Some(branch) = chosen_branch(graph, node) {
            let operands = graph.operands(node);
            return Ok(Some((node, inline(graph, &branch, &operands[1..]))));
        }
        if let Some(op) = short_loop(graph, node, options) {
            return Ok(Some((node, unrolled(graph, node, &op)?)));
        }
    }
    Ok(None)
}

fn chosen_branch(graph: &Graph, node: NodeId) -> Option<Graph> {
    let Op::If(op) = &graph.node(node).op else { return None };
    let condition = graph.const_of(graph.operands(node)[0])?.to_i64_vec()?;
    let taken = if *condition.first()? != 0 { &op.then_branch } else { &op.else_branch };
    Some(taken.clone())
}

/// The loop at `node`, if it always runs `max_trip` iterations and may be unrolled.
fn short_loop(graph: &Graph, node: NodeId, options: &Options) -> Option<LoopOp> {
    let Op::Loop(op) = &graph.node(node).op else { return None };
    let trips = op.max_trip;
    let size = trips.checked_mul(op.body.len() as u64)?;
    let small = (1..=options.unroll_trips).contains(&trips) && size <= options.unroll_nodes as u64;
    let runs_all = op.never_ends_early() && op.makes_all_trips(graph, node);
    (small && !op.has_condition && runs_all).then(|| (**op).clone())
}

/// Adds the nodes of `body` with `args` for its inputs, and returns its outputs.
fn inline(graph: &mut Graph, body: &Graph, args: &[ValueId]) -> Vec<ValueId> {
    let mut placed: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    let position = |node| body.inputs().iter().position(|n| *n == node);
    let place = |value: ValueId, placed: &BTreeMap<NodeId, NodeId>| match position(value.node) {
        Some(index) => args[index],
        None => ValueId { node: placed[&value.node], out: value.out },
    };
    for id in body.topological().into_iter().filter(|n| position(*n).is_none()) {
        let operands: Vec<ValueId> =
            body.operands(id).into_iter().map(|v| place(v, &placed)).collect();
        let node = body.node(id);
        placed.insert(id, graph.add(&node.name, node.op.clone(), &operands, node.outputs.clone()));
    }
    body.outputs.iter().map(|(_, value)| place(*value, &placed)).collect()
}

fn unrolled(graph: &mut Graph, node: NodeId, op: &LoopOp) -> Result<Vec<ValueId>, PassError> {
    let name = graph.node(node).name.clone();
    let operands = graph.operands(node);
    let (carried, rest) = operands[usize::from(op.has_trip)..].split_at(op.carried);
    let (scanned, captures) = rest.split_at(op.scan_inputs.len());
    let mut state = carried.to_vec();
    let mut collected = vec![Vec::new(); op.scan_outputs.len()];
    let on = graph.add_const(&name, ansc_runtime::Tensor::scalar(true));
    for i in 0..op.max_trip {
        let mut args = vec![graph.add_const(&name, ansc_runtime::Tensor::scalar(i as i64)), on];
        args.extend(&state);
        for (value, scan) in scanned.iter().zip(&op.scan_inputs) {
            args.push(element(graph, &name, *value, *scan, i as usize)?);
        }
        args.extend(captures);
        let results = inline(graph, &op.body, &args);
        state = results[1..1 + op.carried].to_vec();
        collected.iter_mut().zip(&results[1 + op.carried..]).for_each(|(all, v)| all.push(*v));
    }
    for (values, scan) in collected.into_iter().zip(&op.scan_outputs) {
        state.push(stacked(graph, &name, values, *scan)?);
    }
    Ok(state)
}

/// The slice of a scan input that iteration `i` sees.
fn element(
    graph: &mut Graph,
    name: &str,
    value: ValueId,
    scan: ScanAxis,
    i: usize,
) -> Result<ValueId, PassError> {
    let ty = graph.ty(value);
    let last = ty.shape.get(scan.axis).map_or(0, |extent| extent.saturating_sub(1));
    let index = if scan.reverse { last.saturating_sub(i) } else { i };
    let op = built(name, slice::select(ty, scan.axis, index))?;
    Ok(add(graph, name, op, &[value]))
}

/// The slices of a scan output along a new axis.
fn stacked(
    graph: &mut Graph,
    name: &str,
    mut values: Vec<ValueId>,
    scan: ScanAxis,
) -> Result<ValueId, PassError> {
    if scan.reverse {
        values.reverse();
    }
    for value in &mut values {
        let mut shape = graph.ty(*value).shape.clone();
        shape.insert(scan.axis, 1);
        *value = reshaped(graph, name, *value, &shape)?;
    }
    if let [one] = values[..] {
        return Ok(one);
    }
    let types: Vec<_> = values.iter().map(|v| graph.ty(*v).clone()).collect();
    let op = built(name, concat::concat(&types, scan.axis))?;
    Ok(add(graph, name, op, &values))
}

#[cfg(test)]
mod tests {
    use ansc_runtime::{DType, Tensor};

    use super::*;
    use crate::compute::TensorType;
    use crate::expr::BinOp;
    use crate::graph::Value;
    use crate::op::IfOp;
    use crate::passes::testing::{Builder, check, f32};

    /// `h = h * x + c`, which is also what a scan output gets.
    fn cell() -> Graph {
        let mut b = Builder::new(8);
        b.graph.add_input("i", TensorType::new(DType::I64, []), None);
        let on = b.graph.add_input("on", TensorType::new(DType::Bool, []), None);
        let [h, x, c] = [(); 3].map(|()| b.input(&[2]));
        let product = b.binary(BinOp::Mul, h, x);
        let next = b.binary(BinOp::Add, product, c);
        b.finish(&[on, next, next])
    }

    fn scan(trips: u64) -> Graph {
        let n = trips as usize;
        let mut b = Builder::new(9);
        let (h, xs, c) = (b.input(&[2]), b.input(&[2, n]), b.input(&[2]));
        let op = LoopOp {
            body: cell(),
            max_trip: trips,
            has_trip: false,
            has_condition: false,
            carried: 1,
            scan_inputs: vec![ScanAxis { axis: 1, reverse: true }],
            scan_outputs: vec![ScanAxis { axis: 0, reverse: false }],
        };
        let outputs = vec![Value::new("h", f32(&[2])), Value::new("hs", f32(&[n, 2]))];
        let node = b.graph.add("scan", Op::Loop(Box::new(op)), &[h, xs, c], outputs);
        let values: Vec<ValueId> = b.graph.values(node).collect();
        b.finish(&values)
    }

    fn loops(graph: &Graph) -> usize {
        graph.node_ids().iter().filter(|n| matches!(graph.node(**n).op, Op::Loop(_))).count()
    }

    #[test]
    fn short_loops_are_unrolled() {
        for trips in 1..=3 {
            assert_eq!(loops(&check(scan(trips), run)), 0);
        }
        assert_eq!(loops(&check(scan(20), run)), 1);
    }

    #[test]
    fn a_known_condition_chooses_the_branch() {
        let branch = |op| {
            let mut b = Builder::new(10);
            let x = b.input(&[2]);
            let y = b.binary(op, x, x);
            b.finish(&[y])
        };
        let mut b = Builder::new(11);
        let condition = b.graph.add_const("condition", Tensor::scalar(false));
        let x = b.input(&[2]);
        let op = IfOp { then_branch: branch(BinOp::Add), else_branch: branch(BinOp::Mul) };
        let outputs = vec![Value::new("y", f32(&[2]))];
        let node = b.graph.add("if", Op::If(Box::new(op)), &[condition, x], outputs);
        let graph = check(b.finish(&[ValueId { node, out: 0 }]), run);
        assert!(graph.node_ids().iter().all(|n| !matches!(graph.node(*n).op, Op::If(_))));
    }
}
