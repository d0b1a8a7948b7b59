//! Whole graphs: host operators, branches, loops.

use std::sync::Arc;

use ansc_runtime::host::HostOp;
use ansc_runtime::{DType, Tensor};

use super::super::{InterpError, run, run_observed};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::graph::{Graph, Value, ValueId};
use crate::op::{IfOp, Kind, LoopOp, Op, ScanAxis};

fn ty(dtype: DType, shape: &[usize]) -> TensorType {
    TensorType::new(dtype, shape)
}

/// Adds a map over tensors of one shape.
fn map(g: &mut Graph, name: &str, inputs: &[ValueId], dtype: DType, body: Expr) -> ValueId {
    let types: Vec<TensorType> = inputs.iter().map(|v| g.ty(*v).clone()).collect();
    let stage = Stage::map(name, ty(dtype, &types[0].shape), body);
    g.add_compute(name, Kind::Map, Compute::single(types, stage), inputs)[0]
}

fn at(buffer: usize, rank: usize) -> Expr {
    Expr::load(buffer, (0..rank).map(Expr::var).collect())
}

fn only(g: &Graph, inputs: &[Tensor]) -> Result<Tensor, InterpError> {
    run(g, inputs).map(|mut outputs| outputs.remove(0))
}

#[test]
fn host_operators_and_observation() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", ty(DType::F32, &[4]), None);
    let c = g.add_const("c", Tensor::from_slice(&[4], &[0f32, 1.0, 0.0, 2.0]));
    let y = map(&mut g, "mul", &[x, c], DType::F32, at(0, 1) * at(1, 1));
    let dynamic = Value { dynamic: true, ..Value::new("i", ty(DType::I64, &[1, 4])) };
    let node = g.add("nz", Op::Host(HostOp::NonZero), &[y], vec![dynamic]);
    g.outputs = vec![("i".into(), ValueId { node, out: 0 }), ("y".into(), y), ("x".into(), x)];
    let mut seen = Vec::new();
    let inputs = [Tensor::from_slice(&[4], &[5f32, 6.0, 7.0, 8.0])];
    let mut observe = |n, out: &[Tensor]| seen.push((g.node(n).name.clone(), out[0].len()));
    let outputs = run_observed(&g, &inputs, &mut observe).unwrap();
    assert_eq!(outputs[0], Tensor::from_slice(&[1, 2], &[1i64, 3]));
    assert_eq!(outputs[1].as_slice::<f32>(), [0.0, 6.0, 0.0, 16.0]);
    assert_eq!(outputs[2], inputs[0]);
    let names: Vec<&str> = seen.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["x", "c", "mul", "nz"]);
}

#[test]
fn bound_inputs_refuse_other_values() {
    let mut g = Graph::new("g");
    let value = Tensor::from_slice(&[1], &[3i64]);
    let x = g.add_input("x", ty(DType::I64, &[1]), Some(Arc::new(value.clone())));
    g.outputs = vec![("y".into(), x)];
    assert_eq!(only(&g, std::slice::from_ref(&value)).unwrap(), value);
    let error = only(&g, &[Tensor::from_slice(&[1], &[4i64])]).unwrap_err();
    assert_eq!(error, InterpError::Node { node: "x".into(), source: Box::new(InterpError::Bound) });
}

/// A graph of one operation on a captured scalar.
fn branch(name: &str, body: Expr) -> Graph {
    let mut g = Graph::new(name);
    let x = g.add_input("x", ty(DType::F32, &[]), None);
    let y = map(&mut g, "op", &[x], DType::F32, body);
    g.outputs = vec![("y".into(), y)];
    g
}

#[test]
fn branches() {
    let mut g = Graph::new("g");
    let c = g.add_input("c", ty(DType::Bool, &[]), None);
    let x = g.add_input("x", ty(DType::F32, &[]), None);
    let op = IfOp {
        then_branch: branch("then", at(0, 0) + Expr::float(DType::F32, 1.0)),
        else_branch: branch("else", at(0, 0) * Expr::float(DType::F32, 10.0)),
    };
    let y = Value::new("y", ty(DType::F32, &[]));
    let node = g.add("if", Op::If(Box::new(op)), &[c, x], vec![y]);
    g.outputs = vec![("y".into(), ValueId { node, out: 0 })];
    for (condition, expected) in [(true, 8f32), (false, 70.0)] {
        let found = only(&g, &[Tensor::scalar(condition), Tensor::scalar(7f32)]).unwrap();
        assert_eq!(found, Tensor::scalar(expected));
    }
}

/// `sum += x[:, i] * scale`, gives `sum` after each step, and goes on while `sum < limit`.
fn body() -> Graph {
    let mut g = Graph::new("body");
    let i = g.add_input("i", ty(DType::I64, &[]), None);
    g.add_input("go", ty(DType::Bool, &[]), None);
    let sum = g.add_input("sum", ty(DType::F32, &[]), None);
    let x = g.add_input("x", ty(DType::F32, &[2]), None);
    let scale = g.add_input("scale", ty(DType::F32, &[]), None);
    let types = vec![ty(DType::F32, &[]), ty(DType::F32, &[2]), ty(DType::F32, &[])];
    let of = |k: i64| Expr::load(1, vec![Expr::int(k)]);
    let next = at(0, 0) + (of(0) + of(1)) * at(2, 0);
    let stage = Stage::map("next", ty(DType::F32, &[]), next);
    let next = g.add_compute("next", Kind::Map, Compute::single(types, stage), &[sum, x, scale])[0];
    let go = at(0, 0).lt(Expr::float(DType::F32, 100.0));
    let go = map(&mut g, "go", &[next], DType::Bool, go);
    let trip = map(&mut g, "trip", &[i], DType::I64, at(0, 0));
    g.outputs =
        vec![("go".into(), go), ("sum".into(), next), ("s".into(), next), ("i".into(), trip)];
    g
}

fn looped(reverse: bool, has_trip: bool, dynamic: bool) -> Graph {
    let mut g = Graph::new("g");
    let trip = g.add_input("trip", ty(DType::I64, &[]), None);
    let sum = g.add_const("zero", Tensor::scalar(0f32));
    let x = g.add_input("x", ty(DType::F32, &[2, 4]), None);
    let scale = g.add_const("scale", Tensor::scalar(2f32));
    let op = LoopOp {
        body: body(),
        max_trip: 4,
        has_trip,
        has_condition: false,
        carried: 1,
        scan_inputs: vec![ScanAxis { axis: 1, reverse }],
        scan_outputs: vec![
            ScanAxis { axis: 0, reverse: false },
            ScanAxis { axis: 0, reverse: true },
        ],
    };
    let value = |name: &str, t| Value { dynamic, ..Value::new(name, t) };
    let outputs = vec![
        Value::new("sum", ty(DType::F32, &[])),
        value("sums", ty(DType::F32, &[4])),
        value("trips", ty(DType::I64, &[4])),
    ];
    let mut operands = vec![sum, x, scale];
    if has_trip {
        operands.insert(0, trip);
    }
    let node = g.add("loop", Op::Loop(Box::new(op)), &operands, outputs);
    g.outputs = g.values(node).map(|v| (format!("o{}", v.out), v)).collect();
    g
}

#[test]
fn loops_carry_scan_and_stop() {
    let x = |first: f32| {
        let values = [first, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0];
        [Tensor::scalar(3i64), Tensor::from_slice(&[2, 4], &values)]
    };
    type Row<'a> = (bool, bool, bool, f32, &'a [f32], &'a [i64]);
    let table: [Row<'_>; 4] = [
        (false, false, true, 1.0, &[22.0, 66.0, 132.0], &[2, 1, 0]),
        (true, false, true, 1.0, &[88.0, 154.0], &[1, 0]),
        (false, true, true, -50.0, &[-80.0, -36.0, 30.0], &[2, 1, 0]),
        (false, false, false, -50.0, &[-80.0, -36.0, 30.0, 118.0], &[3, 2, 1, 0]),
    ];
    for (reverse, has_trip, dynamic, first, sums, trips) in table {
        let outputs = run(&looped(reverse, has_trip, dynamic), &x(first)).unwrap();
        assert_eq!(outputs[0], Tensor::scalar(*sums.last().unwrap()));
        assert_eq!(outputs[1], Tensor::from_slice(&[sums.len()], sums));
        assert_eq!(outputs[2], Tensor::from_slice(&[trips.len()], trips));
    }
    // The loop ends early, but the scan outputs are declared static.
    let error = run(&looped(false, false, false), &x(1.0)).unwrap_err();
    assert!(error.to_string().starts_with("node loop: output sums must be"), "{error}");
}

#[test]
fn errors_name_the_node() {
    let mut g = Graph::new("g");
    let x = g.add_input("x", ty(DType::F32, &[2]), None);
    let past = Expr::load(0, vec![Expr::var(0) + Expr::int(1)]);
    let y = map(&mut g, "shift", &[x], DType::F32, past);
    g.outputs = vec![("y".into(), y)];
    let error = only(&g, &[Tensor::from_slice(&[2], &[1f32, 2.0])]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node shift: stage shift: index 2 on axis 0 of b0 is outside 0..2, at [1]"
    );
}
