//! Branches and loops.

use ansc_runtime::{DType, Tensor};

use super::{Model, check, range};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::{BinOp, Expr, UnOp};
use crate::graph::{Graph, NodeId, Value, ValueId};
use crate::op::{IfOp, Kind, LoopOp, Op, ScanAxis};
use crate::ops::reduce::{self, Reduction};
use crate::passes::testing::{Builder, f32};
use crate::passes::{self, Options};

const HIDDEN: usize = 3;

/// A layer that goes through `steps` steps of a batch of sequences. `axes` are those that its loop
/// scans and stacks along; `reverse` tells whether it does so from the end.
fn layer(
    b: &mut Builder,
    steps: usize,
    batch: usize,
    axes: [usize; 2],
    reverse: bool,
) -> [ValueId; 2] {
    let whole = |axis: usize| {
        let mut shape = vec![batch, HIDDEN];
        shape.insert(axis, steps);
        shape
    };
    let x = b.input(&whole(axes[0]));
    let (start, own) = (b.input(&[batch, HIDDEN]), b.input(&[batch, 1]));
    let weight = b.constant(&[HIDDEN, HIDDEN]);
    let scan = |axis| vec![ScanAxis { axis, reverse }];
    let op = LoopOp {
        body: step(steps, batch),
        max_trip: steps as u64,
        has_trip: false,
        has_condition: false,
        carried: 1,
        scan_inputs: scan(axes[0]),
        scan_outputs: scan(axes[1]),
    };
    let outputs =
        vec![Value::new("h", f32(&[batch, HIDDEN])), Value::new("y", f32(&whole(axes[1])))];
    let operands = [start, x, weight, own];
    let node = b.graph.add("loop", Op::Loop(Box::new(op)), &operands, outputs);
    [0, 1].map(|out| ValueId { node, out })
}

/// One step, which reads its number from the end too.
fn step(steps: usize, batch: usize) -> Graph {
    let mut b = Builder::new(17);
    let i = b.graph.add_input("i", TensorType::new(DType::I64, []), None);
    b.graph.add_input("on", TensorType::new(DType::Bool, []), None);
    let shapes: [&[usize]; 4] =
        [&[batch, HIDDEN], &[batch, HIDDEN], &[HIDDEN, HIDDEN], &[batch, 1]];
    let [h, x, weight, own] = shapes.map(|shape| b.input(shape));
    let left = Expr::index(steps) - Expr::int(1) - Expr::load(0, vec![]);
    let left = Expr::cast(DType::I64, DType::F32, left) * Expr::float(DType::F32, 0.125);
    let left = Stage::map("left", f32(&[]), left);
    let types = vec![TensorType::new(DType::I64, [])];
    let left = b.graph.add_compute("left", Kind::Map, Compute::single(types, left), &[i])[0];
    let product = b.matmul(h, weight);
    let sum = b.binary(BinOp::Add, product, x);
    let sum = b.binary(BinOp::Mul, sum, own);
    let sum = b.binary(BinOp::Add, sum, left);
    let next = b.unary(UnOp::Tanh, sum);
    let shown = b.binary(BinOp::Add, next, h);
    let on = b.graph.add_const("on", Tensor::scalar(true));
    b.finish(&[on, next, shown])
}

fn sum_of(b: &mut Builder, x: ValueId, axis: usize) -> ValueId {
    let op = reduce::reduce(Reduction::Sum, &[axis], false, b.graph.ty(x)).unwrap();
    b.emit(op, &[x])
}

fn loop_of(graph: &Graph, node: NodeId) -> Option<(NodeId, &LoopOp)> {
    match &graph.node(node).op {
        Op::Loop(op) => Some((node, op)),
        _ => None,
    }
}

#[test]
fn loops_over_any_number_of_sequences() {
    let model: Model = |b, s| {
        let [last, all] = layer(b, 5, s[0], [0, 0], false);
        let sum = sum_of(b, all, 1);
        vec![last, all, sum]
    };
    check(model, &[(1, 6)]);
    let turned: Model = |b, s| layer(b, 5, s[0], [1, 2], true).to_vec();
    check(turned, &[(1, 6)]);
}

#[test]
fn loops_over_sequences_of_any_length() {
    let model: Model = |b, s| {
        let [last, all] = layer(b, s[0], s[1], [0, 0], false);
        let sum = sum_of(b, all, 0);
        let square = b.reshape(all, &[s[0] * s[1], HIDDEN]);
        vec![last, all, sum, square]
    };
    check(model, &[(1, 9), (2, 2)]);
    check(model, &[(1, 9), (1, 3)]);
    check(model, &[(2, 60), (2, 2)]);
    let mut graph = range(model, &[(1, 9), (2, 2)]).unwrap().graph;
    passes::run_all(&mut graph, &Options::default()).unwrap();
    let (node, op) = graph.node_ids().into_iter().find_map(|n| loop_of(&graph, n)).unwrap();
    assert_eq!((op.max_trip, op.has_trip), (9, true));
    // The runtime takes a loop's own result for shorter than it is.
    assert!(!graph.is_output(ValueId { node, out: 1 }));
}

#[test]
fn loops_from_the_end() {
    let model: Model = |b, s| {
        let [last, all] = layer(b, s[0], s[1], [0, 0], true);
        let sum = sum_of(b, all, 0);
        vec![last, all, sum]
    };
    check(model, &[(1, 9), (2, 2)]);
    check(model, &[(1, 9), (1, 3)]);
}

/// Slices along other axes than the first.
#[test]
fn loops_along_other_axes() {
    let model: Model = |b, s| {
        let [last, all] = layer(b, s[0], s[1], [1, 2], false);
        let sum = sum_of(b, all, 2);
        vec![last, all, sum]
    };
    check(model, &[(1, 9), (2, 3)]);
    let turned: Model = |b, s| {
        let [last, all] = layer(b, s[0], s[1], [2, 1], true);
        vec![last, all, sum_of(b, all, 1)]
    };
    check(turned, &[(1, 9), (2, 3)]);
}

/// Layers that go both ways, one after the other.
#[test]
fn layers_of_both_directions() {
    let model: Model = |b, s| {
        let [_, first] = layer(b, s[0], 2, [0, 0], false);
        let [last, second] = layer(b, s[0], 2, [0, 0], true);
        let both = b.binary(BinOp::Add, first, second);
        let shares = b.transpose(both, &[1, 2, 0]);
        vec![b.softmax(shares), last]
    };
    check(model, &[(1, 12)]);
}

/// A loop whose condition asks for all elements.
#[test]
fn a_loop_that_data_ends() {
    let model: Model = |b, s| {
        let x = b.input(&[s[0], 4]);
        let body = {
            let mut b = Builder::new(18);
            b.graph.add_input("i", TensorType::new(DType::I64, []), None);
            b.graph.add_input("on", TensorType::new(DType::Bool, []), None);
            let (x, limit) = (b.input(&[s[0], 4]), b.filled(&[], 40.0));
            let twice = b.binary(BinOp::Add, x, x);
            let square = b.binary(BinOp::Mul, twice, twice);
            let sum = sum_of(&mut b, square, 0);
            let sum = sum_of(&mut b, sum, 0);
            let on = b.binary(BinOp::Lt, sum, limit);
            b.finish(&[on, twice])
        };
        let op = LoopOp {
            body,
            max_trip: 20,
            has_trip: false,
            has_condition: false,
            carried: 1,
            scan_inputs: vec![],
            scan_outputs: vec![],
        };
        let outputs = vec![Value::new("x", f32(&[s[0], 4]))];
        let node = b.graph.add("loop", Op::Loop(Box::new(op)), &[x], outputs);
        vec![ValueId { node, out: 0 }]
    };
    check(model, &[(1, 9)]);
}

/// Branches of which one asks for the size.
fn branches(b: &mut Builder, s: &[usize], turned: bool) -> Vec<ValueId> {
    let branch = |soft: bool| {
        let mut b = Builder::new(19);
        let (x, y) = (b.input(&[3, s[0]]), b.input(&[s[0]]));
        let sum = b.binary(BinOp::Add, x, y);
        let result = if soft { b.softmax(sum) } else { b.unary(UnOp::Neg, sum) };
        b.finish(&[result])
    };
    let (x, y, zero) = (b.input(&[3, s[0]]), b.input(&[s[0]]), b.filled(&[], 0.0));
    let square = b.binary(BinOp::Mul, y, y);
    let square = sum_of(b, square, 0);
    let operands = if turned { [zero, square] } else { [square, zero] };
    let condition = b.binary(BinOp::Lt, operands[0], operands[1]);
    let op = IfOp { then_branch: branch(true), else_branch: branch(false) };
    let outputs = vec![Value::new("r", f32(&[3, s[0]]))];
    let node = b.graph.add("if", Op::If(Box::new(op)), &[condition, x, y], outputs);
    let result = ValueId { node, out: 0 };
    let sum = sum_of(b, result, 1);
    vec![result, sum]
}

#[test]
fn branches_of_any_size() {
    check(|b, s| branches(b, s, false), &[(1, 20)]);
    check(|b, s| branches(b, s, true), &[(1, 20)]);
}

/// Sizes decide how long a stack of slices may be, and data how long it is.
#[test]
fn a_stack_that_data_ends_is_refused() {
    let model: Model = |b, s| {
        let [last, all] = layer(b, s[0], 2, [0, 0], false);
        b.graph.value_mut(all).dynamic = true;
        vec![last, all]
    };
    assert!(range(model, &[(2, 9)]).unwrap_err().contains("both data and sizes"));
}

#[test]
fn results_that_shrink_are_refused() {
    let model: Model = |b, s| {
        let x = b.input(&[s[0], 2]);
        let rest = b.input(&[12 - s[0], 2]);
        vec![b.relu(rest), x]
    };
    assert!(range(model, &[(1, 9)]).unwrap_err().contains("more elements at smaller sizes"));
}
