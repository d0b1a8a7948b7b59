use std::sync::Arc;

use ansc_runtime::host::HostOp;
use ansc_runtime::{DType, Tensor};

use super::{Problem, kind, verify, verify_compute};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BinOp, BufId, Expr, UnOp, VarId};
use crate::graph::{Graph, Value, ValueId};
use crate::op::{
    Channels, ComputeOp, ConvAttrs, IfOp, Kind, LoopOp, Op, PoolAttrs, PoolMode, ScanAxis,
};
use crate::ops::pad::PadMode;
use crate::ops::reduce::{Reduction, reduce};
use crate::ops::{concat, conv, map as maps, matmul, pad, pool, shape, slice, softmax};

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

/// A map `f32[4] -> f32[4]` of this body.
fn map(body: Expr) -> Compute {
    Compute::single(vec![f32s(&[4])], Stage::map("s", f32s(&[4]), body))
}

fn load(index: Expr) -> Expr {
    Expr::load(0, vec![index])
}

fn problems(compute: &Compute) -> Vec<Problem> {
    let violations = verify_compute(compute).err().unwrap_or_default();
    violations.into_iter().map(|v| v.problem).collect()
}

fn outside(low: i64, high: i64) -> Problem {
    Problem::OutOfBounds { buffer: BufId(0), axis: 0, low, high, extent: 4 }
}

#[test]
fn bodies() {
    use Problem::*;
    let v = || Expr::var(0);
    let one = || Expr::float(DType::F32, 1.0);
    let (a, b) = (DType::F32, DType::I64);
    let table = [
        (load(v()), vec![]),
        (load(v()) + one(), vec![]),
        (load(v()) + Expr::int(1), vec![Operands { op: "add", a, b }]),
        (Expr::unary(UnOp::Not, load(v())), vec![Undefined { op: "not", dtype: a }]),
        (Expr::binary(BinOp::Shl, one(), one()), vec![Undefined { op: "shl", dtype: a }]),
        (Expr::binary(BinOp::Dot4, one(), one()), vec![Undefined { op: "dot4", dtype: a }]),
        (Expr::var(1), vec![NoSuchAxis(VarId(1))]),
        (Expr::load(1, vec![v()]), vec![NoSuchBuffer(BufId(1))]),
        (Expr::load(0, vec![]), vec![Rank { buffer: BufId(0), rank: 1, found: 0 }]),
        (load(one()), vec![IndexType { buffer: BufId(0), found: a }]),
        (Expr::select(one(), one(), one()), vec![Condition(a)]),
        (Expr::select(Expr::bool(true), one(), v()), vec![Operands { op: "select", a, b }]),
        (v(), vec![Body { expected: a, found: b }]),
        (load(v() + Expr::int(1)), vec![outside(1, 4)]),
        (load(v() - Expr::int(1)), vec![outside(-1, 2)]),
        (load((v() + Expr::int(1)).min(Expr::int(3))), vec![]),
        (load(v().floor_mod(2) + Expr::int(4)), vec![outside(4, 5)]),
        (Expr::select(v().lt(Expr::int(3)), load(v() + Expr::int(1)), one()), vec![]),
        // Two problems are both told.
        (Expr::var(7).lt(Expr::var(8)), vec![NoSuchAxis(VarId(7)), NoSuchAxis(VarId(8))]),
    ];
    for (body, expected) in table {
        assert_eq!(problems(&map(body.clone())), expected, "{body:?}");
    }
}

#[test]
fn stages_and_results() {
    let arg = |ty: DType, n: usize| {
        let combiner = Combiner::ArgMax { last: false };
        let body = Expr::load(0, vec![Expr::var(0)]);
        let stage = Stage::reduction("a", TensorType::new(ty, []), combiner, vec![n], body);
        Compute::single(vec![f32s(&[n])], stage)
    };
    assert_eq!(problems(&arg(DType::I64, 3)), []);
    let body = Problem::Body { expected: DType::F32, found: DType::I64 };
    assert_eq!(problems(&arg(DType::F32, 3)), [body]);
    assert_eq!(problems(&arg(DType::I64, 0)), [Problem::EmptyArg]);
    let missing = Compute { outputs: vec![1], ..arg(DType::I64, 3) };
    let expected = Problem::NoSuchOutput { what: "result 0".into() };
    assert_eq!(problems(&missing), [expected]);
    // A stage cannot read itself.
    let own = map(Expr::load(1, vec![Expr::var(0)]));
    assert_eq!(problems(&own), [Problem::NoSuchBuffer(BufId(1))]);
    let huge = Stage::map("h", f32s(&[usize::MAX, 2]), Expr::float(DType::F32, 0.0));
    let found = problems(&Compute::single(vec![], huge));
    assert_eq!(found, [Problem::TooLarge(f32s(&[usize::MAX, 2]))]);
}

/// `x -> relu -> y`.
fn graph() -> (Graph, ValueId, ValueId) {
    let mut g = Graph::new("g");
    let x = g.add_input("x", f32s(&[4]), None);
    let body = load(Expr::var(0)).max(Expr::float(DType::F32, 0.0));
    let y = g.add_compute("relu", Kind::Map, map(body), &[x])[0];
    g.outputs = vec![("y".into(), y)];
    (g, x, y)
}

fn told(g: &Graph) -> Vec<String> {
    let violations = verify(g).err().unwrap_or_default();
    violations.iter().map(ToString::to_string).collect()
}

#[test]
fn graphs() {
    assert_eq!(verify(&graph().0), Ok(()));

    let (mut g, _, y) = graph();
    g.set_operands(y.node, &[y]);
    assert_eq!(told(&g), ["the graph has a cycle"]);

    let (mut g, x, y) = graph();
    g.set_operands(y.node, &[ValueId { out: 1, ..x }]);
    assert_eq!(told(&g), ["node relu: operand 0 is read from an output that does not exist"]);

    let (mut g, x, y) = graph();
    g.set_operands(y.node, &[x, x]);
    assert_eq!(told(&g), ["node relu: 2 operands instead of 1"]);

    let (mut g, x, _) = graph();
    g.value_mut(x).ty = f32s(&[5]);
    assert_eq!(told(&g), ["node relu: operand 0 is f32[5] instead of f32[4]"]);

    let (mut g, _, y) = graph();
    g.value_mut(y).ty = TensorType::new(DType::F64, [4]);
    assert_eq!(told(&g), ["node relu: result 0 is f64[4] instead of f32[4]"]);

    let (mut g, _, y) = graph();
    g.outputs.push(("y".into(), ValueId { out: 3, ..y }));
    assert_eq!(
        told(&g),
        [
            "output y is read from an output that does not exist",
            "node y: the name is used by another output"
        ]
    );

    let (mut g, x, _) = graph();
    let bound = Some(Arc::new(Tensor::zeros(DType::F32, &[3])));
    g.node_mut(x.node).op = Op::Input { bound };
    assert_eq!(told(&g), ["node x: its value is f32[3] instead of f32[4]"]);

    let (mut g, ..) = graph();
    g.add("z", Op::Input { bound: None }, &[], vec![Value::new("z", f32s(&[]))]);
    assert_eq!(told(&g), ["node z: it is not listed among the graph's inputs exactly once"]);

    let (mut g, _, y) = graph();
    let bad = map(load(Expr::var(0) + Expr::int(1)));
    g.node_mut(y.node).op = Op::Compute(ComputeOp { kind: Kind::Map, expr: Arc::new(bad) });
    assert_eq!(told(&g), ["node relu: stage s: index 1..=4 on axis 0 of b0 is not within 0..4"]);
}

#[test]
fn dynamic_values_reach_host_operators_only() {
    let (mut g, _, y) = graph();
    let value = Value { dynamic: true, ..Value::new("i", TensorType::new(DType::I64, [1, 4])) };
    let node = g.add("nz", Op::Host(HostOp::NonZero), &[y], vec![value.clone()]);
    let indices = ValueId { node, out: 0 };
    g.outputs.push(("i".into(), indices));
    let again = Value { name: "j".into(), ..value };
    g.add("nz2", Op::Host(HostOp::NonZero), &[indices], vec![again]);
    assert_eq!(verify(&g), Ok(()));
    let ty = TensorType::new(DType::I64, [1, 4]);
    let body = Expr::load(0, vec![Expr::int(0), Expr::var(1)]);
    let copy = Compute::single(vec![ty.clone()], Stage::map("c", ty, body));
    g.add_compute("copy", Kind::Map, copy, &[indices]);
    assert_eq!(told(&g), ["node copy: it reads i, whose size only the data decides"]);
    g.add("det", Op::Host(HostOp::Det), &[], vec![]);
    let more = told(&g);
    assert_eq!(
        more[1..],
        ["node det: 0 operands instead of 1", "node det: 0 results instead of 1"]
    );
}

#[test]
fn branches() {
    let mut g = Graph::new("g");
    let c = g.add_input("c", TensorType::new(DType::Bool, []), None);
    let x = g.add_input("x", f32s(&[4]), None);
    let op = IfOp { then_branch: graph().0, else_branch: graph().0 };
    let y = vec![Value::new("y", f32s(&[4]))];
    let node = g.add("if", Op::If(Box::new(op.clone())), &[c, x], y);
    assert_eq!(verify(&g), Ok(()));
    g.set_operands(node, &[x, c]);
    let mut bad = op;
    bad.else_branch.outputs.clear();
    let relu = bad.then_branch.outputs[0].1;
    bad.then_branch.set_operands(relu.node, &[]);
    g.node_mut(node).op = Op::If(Box::new(bad));
    assert_eq!(
        told(&g),
        [
            "node if: the condition is f32[4] instead of bool[]",
            "node if: then input 0 is f32[4] instead of bool[]",
            "node if/then/relu: 0 operands instead of 1",
            "node if: else input 0 is f32[4] instead of bool[]",
            "node if: 0 else outputs instead of 1",
        ]
    );
}

/// A loop that sums the rows of `x` and gives every partial sum.
fn looped(max_trip: u64) -> Graph {
    let mut body = Graph::new("body");
    let _ = body.add_input("i", TensorType::new(DType::I64, []), None);
    let go = body.add_input("go", TensorType::new(DType::Bool, []), None);
    let sum = body.add_input("sum", f32s(&[4]), None);
    let row = body.add_input("row", f32s(&[4]), None);
    let add = Stage::map("s", f32s(&[4]), load(Expr::var(0)) + Expr::load(1, vec![Expr::var(0)]));
    let add = Compute::single(vec![f32s(&[4]), f32s(&[4])], add);
    let next = body.add_compute("add", Kind::Map, add, &[sum, row])[0];
    body.outputs = vec![("go".into(), go), ("sum".into(), next), ("row".into(), next)];
    let op = LoopOp {
        body,
        max_trip,
        has_trip: false,
        has_condition: true,
        carried: 1,
        scan_inputs: vec![ScanAxis { axis: 0, reverse: false }],
        scan_outputs: vec![ScanAxis { axis: 1, reverse: false }],
    };
    let mut g = Graph::new("g");
    let c = g.add_input("c", TensorType::new(DType::Bool, []), None);
    let zero = g.add_input("zero", f32s(&[4]), None);
    let x = g.add_input("x", f32s(&[3, 4]), None);
    let values = vec![Value::new("sum", f32s(&[4])), Value::new("sums", f32s(&[4, 3]))];
    g.add("loop", Op::Loop(Box::new(op)), &[c, zero, x], values);
    g
}

#[test]
fn loops() {
    assert_eq!(verify(&looped(3)), Ok(()));
    assert_eq!(
        told(&looped(5)),
        [
            "node loop: 3 elements along a scan axis instead of 5",
            "node loop: 3 elements along the scan axis of sums instead of 5",
        ]
    );
    let mut g = looped(3);
    let node = g.node_ids()[3];
    let operands = g.operands(node);
    g.set_operands(node, &operands[..2]);
    assert_eq!(told(&g), ["node loop: 2 operands instead of 3"]);
    g.set_operands(node, &[operands[1], operands[0], operands[2]]);
    assert_eq!(
        told(&g),
        [
            "node loop: trip count or condition is f32[4] instead of bool[]",
            "node loop: body input 2 is f32[4] instead of bool[]",
            "node loop: carried result 0 is f32[4] instead of bool[]",
            "node loop: body output 1 is f32[4] instead of bool[]",
        ]
    );
}

fn conv_attrs(strides: usize) -> ConvAttrs {
    ConvAttrs {
        channels: Channels::First,
        input: Channels::First,
        kernel: vec![3, 3],
        strides: vec![strides; 2],
        dilations: vec![1; 2],
        pads_begin: vec![1; 2],
        pads_end: vec![1; 2],
        groups: 1,
    }
}

fn pool_attrs(mode: PoolMode) -> PoolAttrs {
    let ones = || vec![1; 2];
    let (channels, kernel) = (Channels::First, vec![2; 2]);
    let (strides, dilations, pads_begin, pads_end) = (ones(), ones(), ones(), ones());
    PoolAttrs { channels, mode, kernel, strides, dilations, pads_begin, pads_end }
}

/// An operator of every kind on square tensors, where mistaken axes keep all types, and another
/// kind that it is not.
fn kinds() -> Vec<(ComputeOp, Kind)> {
    let (x, image, weight) = (f32s(&[4, 4]), f32s(&[1, 2, 6, 6]), f32s(&[3, 2, 3, 3]));
    let two = [x.clone(), x.clone()];
    let zero = PadMode::Constant(crate::scalar::Scalar::zero(DType::F32));
    let average = |count_padding| PoolMode::Average { count_padding };
    let reduced = |axis, keep| Kind::Reduce { axes: vec![axis], keep };
    let mean = || reduce(Reduction::Mean, &[1], true, &x).unwrap();
    let turned = || shape::transpose(&x, &[1, 0]).unwrap();
    let product = || matmul::matmul(&x, &x).unwrap();
    let pooled = |mode| pool::average_pool(pool_attrs(mode), &[0, 0], &image).unwrap();
    let added = || maps::binary(BinOp::Add, &x, &x).unwrap();
    let padded = pad::pad(std::slice::from_ref(&x), zero, &[1, 0], &[0, 1]).unwrap();
    let part = slice::slice(&x, &[1, 0], &[1, 2], &[3, 2]).unwrap();
    vec![
        (added(), Kind::MatMul),
        (turned(), Kind::Map),
        (turned(), Kind::Transpose(vec![0, 1])),
        (turned(), Kind::Slice),
        (turned(), Kind::Pad),
        (shape::reshape(&x, &[2, 8]).unwrap(), Kind::Map),
        (turned(), Kind::Reshape),
        (conv::conv(conv_attrs(1), &image, &weight).unwrap(), Kind::Conv(conv_attrs(2))),
        (product(), Kind::Map),
        (product(), Kind::Conv(conv_attrs(1))),
        (product(), reduced(0, false)),
        (
            pool::max_pool(pool_attrs(PoolMode::Max), &image).unwrap(),
            Kind::Pool(pool_attrs(average(false))),
        ),
        (pooled(average(true)), Kind::Pool(pool_attrs(average(false)))),
        (pooled(average(false)), Kind::Pool(pool_attrs(PoolMode::Max))),
        (mean(), reduced(0, true)),
        (mean(), reduced(1, false)),
        (mean(), reduced(7, true)),
        (concat::concat(&two, 0).unwrap(), Kind::Concat { axis: 1 }),
        (concat::concat(&two, 0).unwrap(), Kind::Map),
        (padded.clone(), Kind::Slice),
        (padded, Kind::Softmax { axis: 0 }),
        (part, Kind::Reshape),
        (softmax::softmax(&[1], &x).unwrap(), Kind::Softmax { axis: 0 }),
        (softmax::softmax(&[1], &x).unwrap(), Kind::Reduce { axes: vec![1], keep: true }),
    ]
}

#[test]
fn kinds_agree_with_expressions() {
    for (op, other) in kinds() {
        assert_eq!(kind::disagreement(&op), None, "{op:?}");
        let named = ComputeOp { kind: other, ..op };
        let told = kind::disagreement(&named).unwrap_or_else(|| panic!("{named:?}")).to_string();
        assert!(told.starts_with(&format!("its kind is {}, but ", named.kind)), "{told}");
    }
}
