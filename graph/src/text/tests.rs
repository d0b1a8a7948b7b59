use ansc_runtime::host::HostOp;
use ansc_runtime::{DType, Tensor};
use half::f16;
use proptest::prelude::*;

use super::*;
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BinOp, Expr, UnOp};
use crate::graph::{Graph, Value};
use crate::op::{Channels, ConvAttrs, IfOp, Kind, LoopOp, Op, PoolAttrs, PoolMode, ScanAxis};
use crate::ops::{
    activation, arg_extreme, concat, conv, gather, map, matmul, normalize, pool, reduce, shape,
    softmax,
};
use crate::scalar::Scalar;

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

/// Some of every operator family.
fn some_ops() -> Vec<crate::op::ComputeOp> {
    let x = f32s(&[2, 4, 6, 6]);
    let attrs = ConvAttrs {
        channels: Channels::First,
        input: Channels::First,
        kernel: vec![3, 3],
        strides: vec![2, 1],
        dilations: vec![1, 2],
        pads_begin: vec![1, 2],
        pads_end: vec![1, 2],
        groups: 2,
    };
    let window = |mode| PoolAttrs {
        channels: Channels::First,
        mode,
        kernel: vec![2, 2],
        strides: vec![2, 2],
        dilations: vec![1, 1],
        pads_begin: vec![0, 0],
        pads_end: vec![0, 0],
    };
    let arg = arg_extreme::ArgExtreme { axis: 1, keep: true, last: true, largest: false };
    let half = TensorType::new(DType::F16, [4, 6]);
    let ops = [
        matmul::matmul(&f32s(&[3, 5]), &f32s(&[5, 7])),
        matmul::matmul(&half, &TensorType::new(DType::F16, [6, 2])),
        conv::conv(attrs.clone(), &x, &f32s(&[4, 2, 3, 3])),
        conv::conv(ConvAttrs { channels: Channels::Last, ..attrs }, &x, &f32s(&[3, 3, 2, 4])),
        pool::max_pool(window(PoolMode::Max), &x),
        pool::max_pool_with_indices(window(PoolMode::Max), false, &x),
        softmax::softmax(&[1], &f32s(&[3, 5])),
        softmax::log_softmax(&[0], &f32s(&[3, 5])),
        map::binary(BinOp::Pow, &f32s(&[3, 5]), &f32s(&[5])),
        map::unary(UnOp::IsNan, &half),
        map::cast(&x, DType::BF16),
        activation::activation(activation::Activation::Gelu, &f32s(&[3])),
        shape::transpose(&x, &[0, 2, 3, 1]),
        shape::reshape(&x, &[2, 144]),
        concat::concat(&[f32s(&[2, 3]), f32s(&[2, 4])], 1),
        gather::gather(&x, &TensorType::new(DType::I32, [3]), 2),
        reduce::reduce(reduce::Reduction::Mean, &[1], true, &f32s(&[3, 5])),
        arg_extreme::arg_extreme(arg, &f32s(&[3, 5])),
        normalize::rms_norm(1, 1e-5, DType::F32, &f32s(&[3, 5]), &f32s(&[5])),
    ];
    ops.into_iter().map(|op| op.unwrap()).collect()
}

fn round_trips(graph: &Graph) {
    let text = graph.to_string();
    let parsed =
        Graph::parse_with(&text, &Table::of(graph)).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(parsed.to_string(), text);
    assert_eq!(parsed.inputs().len(), graph.inputs().len());
}

#[test]
fn computes_parse_back() {
    for op in some_ops() {
        let text = op.expr.to_string();
        assert_eq!(Compute::parse(&text).as_ref(), Ok(&*op.expr), "{text}");
    }
}

#[test]
fn a_matrix_product_as_text() {
    let op = matmul::matmul(&f32s(&[4, 8]), &f32s(&[8, 6])).unwrap();
    let name = &op.expr.stages[0].name;
    let expected = format!(
        "compute(in0: f32[4, 8], in1: f32[8, 6]) -> {name} {{\n  \
         {name}: f32[4, 6] = sum{{r0: 8}} mul(in0[i0, r0], in1[r0, i1])\n}}"
    );
    assert_eq!(op.expr.to_string(), expected);
}

#[test]
fn names_that_are_no_words_and_names_used_twice() {
    let x = |b| Expr::load(b, vec![Expr::var(0)]);
    let stage = |name: &str, body| Stage::map(name, f32s(&[2]), body);
    let names = ["sum", "a/b", "sum", "in0", "", "sum_1", "q\"\n\\é\u{7}"];
    let stages = names.iter().enumerate().map(|(i, name)| stage(name, x(i))).collect();
    let c = Compute { inputs: vec![f32s(&[2])], stages, outputs: vec![6, 0, 0] };
    let text = c.to_string();
    assert_eq!(Compute::parse(&text), Ok(c), "{text}");
    assert!(text.contains("  sum_1 \"sum\": f32[2] = a_b[i0]"), "{text}");
}

#[test]
fn a_stage_named_like_a_combiner_can_be_loaded() {
    let text = "compute(in0: f32[3]) -> y {\n  sum: f32[] = sum{r0: 3} in0[r0]\n  \
                y: f32[3] = max(sum[], in0[i0])\n}";
    assert_eq!(Compute::parse(text).unwrap().to_string(), text);
}

#[test]
fn graphs_of_every_operator_parse_back() {
    for (i, op) in some_ops().into_iter().enumerate() {
        let mut g = Graph::new("g \"1\"");
        let types = op.expr.inputs.clone();
        // Declared in another order than they are read in.
        let inputs: Vec<_> = types
            .iter()
            .enumerate()
            .rev()
            .map(|(i, ty)| g.add_input(&format!("/x.{i}"), ty.clone(), None))
            .collect();
        let operands: Vec<_> = inputs.into_iter().rev().collect();
        let kind = op.kind.clone();
        let outputs = g.add_compute(&format!("n{i}"), op.kind, (*op.expr).clone(), &operands);
        for value in &outputs {
            g.outputs.push((format!("y{}", value.out), *value));
        }
        g.value_mut(outputs[0]).name = "renamed".into();
        round_trips(&g);
        let parsed = Graph::parse(&g.to_string()).unwrap();
        let node = *parsed.node_ids().last().unwrap();
        assert_eq!(parsed.compute_of(node).unwrap().kind, kind);
    }
}

#[test]
fn kinds_parse_back() {
    let pool = |mode| {
        Kind::Pool(PoolAttrs {
            channels: Channels::Last,
            mode,
            kernel: vec![2],
            strides: vec![3],
            dilations: vec![4],
            pads_begin: vec![5],
            pads_end: vec![6],
        })
    };
    let kinds = [
        pool(PoolMode::Max),
        pool(PoolMode::Average { count_padding: false }),
        pool(PoolMode::Average { count_padding: true }),
        Kind::Reduce { axes: vec![], keep: false },
        Kind::Softmax { axis: 3 },
        Kind::Pad,
        Kind::Slice,
        Kind::Other("map".into()),
    ];
    for expected in kinds {
        let mut text = String::new();
        kind::print(&mut text, &expected).unwrap();
        let mut cursor = Cursor::new(&text).unwrap();
        assert_eq!(kind::read(&mut cursor), Ok(Some(expected)), "{text}");
        assert!(cursor.at_end());
    }
}

#[test]
fn bodies_and_host_operators_parse_back() {
    let mut branch = Graph::new("branch");
    let x = branch.add_input("x", f32s(&[2]), None);
    branch.outputs.push(("y".into(), x));
    let mut body = Graph::new("body");
    let i64s = |shape: &[usize]| TensorType::new(DType::I64, shape);
    let flag = TensorType::new(DType::Bool, []);
    body.add_input("i", i64s(&[]), None);
    let condition = body.add_input("condition", flag.clone(), None);
    let h = body.add_input("h", f32s(&[2]), None);
    body.outputs = vec![("c".into(), condition), ("h".into(), h), ("s".into(), h)];
    let mut g = Graph::new("main");
    let bound = Tensor::from_slice(&[2], &[1.5f32, -0.0]);
    let x = g.add_input("x", f32s(&[2]), Some(bound.into()));
    let c = g.add_const("c", Tensor::scalar(true));
    let branches = IfOp { then_branch: branch.clone(), else_branch: branch };
    let out = vec![Value::new("y", f32s(&[2]))];
    let n = g.add("if", Op::If(Box::new(branches)), &[c, x], out);
    let scan = ScanAxis { axis: 1, reverse: true };
    let op = LoopOp {
        body,
        max_trip: 7,
        has_trip: false,
        has_condition: true,
        carried: 1,
        scan_inputs: vec![],
        scan_outputs: vec![scan],
    };
    let out = vec![Value::new("h", f32s(&[2])), Value::new("hs", f32s(&[2, 7]))];
    let y = crate::ValueId { node: n, out: 0 };
    let l = g.add("loop", Op::Loop(Box::new(op)), &[c, y], out);
    let nms = HostOp::NonMaxSuppression {
        max_per_class: -1,
        iou_threshold: 1e-5,
        score_threshold: None,
        center_point_box: true,
    };
    let last = crate::ValueId { node: l, out: 1 };
    let dynamic = Value { dynamic: true, ..Value::new("kept", i64s(&[9, 3])) };
    g.add("nms", Op::Host(nms.clone()), &[last, last], vec![dynamic]);
    let check = HostOp::CheckIndices { extents: vec![7, 2] };
    g.add("no results", Op::Host(check), &[last], vec![]);
    g.outputs.push(("hs".into(), last));
    round_trips(&g);
    let parsed = Graph::parse(&g.to_string()).unwrap();
    assert!(parsed.node_ids().iter().any(|n| parsed.node(*n).op == Op::Host(nms.clone())));
    assert_eq!(parsed, g, "ids are in topological order already");
}

#[test]
fn constants_keep_their_bits() {
    let odd = [f32::MIN_POSITIVE, 0.1, -0.0, f32::INFINITY, 1e-45, f32::MAX];
    let tensors = [
        Tensor::from_slice(&[6], &odd),
        Tensor::from_slice(&[2], &[f32::NAN, f32::from_bits(0x7fc0_0001)]),
        Tensor::from_slice(&[2], &[f16::from_f32(0.1), f16::NEG_INFINITY]),
        Tensor::from_slice(&[3], &[u64::MAX, 0, 1 << 63]),
        Tensor::from_slice(&[2], &[i64::MIN, i64::MAX]),
        Tensor::from_slice(&[2], &[true, false]),
        Tensor::from_slice(&[1, 0, 2], &[0f64; 0]),
        Tensor::from_slice(&[40], &[-2i8; 40]),
        Tensor::from_slice(&[40], &(0..40).collect::<Vec<i32>>()),
        Tensor::zeros(DType::BF16, &[1]),
        Tensor::scalar(0.1f64),
    ];
    let mut g = Graph::new("g");
    for tensor in &tensors {
        g.add_const("c", tensor.clone());
    }
    let text = g.to_string();
    let parsed = Graph::parse_with(&text, &Table::of(&g)).unwrap_or_else(|e| panic!("{e}\n{text}"));
    for (node, tensor) in parsed.node_ids().into_iter().zip(&tensors) {
        let Op::Const(found) = &parsed.node(node).op else { panic!("a constant") };
        assert_eq!((found.shape(), found.bytes()), (tensor.shape(), tensor.bytes()), "{text}");
    }
    assert!(text.contains("[-2 x 40]"), "{text}");
    assert_eq!(text.matches("@0x").count(), 2, "{text}");
    let error = Graph::parse(&text).unwrap_err();
    assert!(matches!(error.cause, Cause::UnknownConstant { .. }) && error.line == 3, "{error}");
}

#[test]
fn graphs_that_do_not_verify_still_print() {
    let mut g = Graph::new("cycle");
    let value = |n| crate::ValueId { node: n, out: 0 };
    let a = g.add("a", Op::Host(HostOp::NonZero), &[], vec![Value::new("a", f32s(&[1]))]);
    let b = g.add("b", Op::Host(HostOp::NonZero), &[value(a)], vec![Value::new("b", f32s(&[1]))]);
    g.set_operands(a, &[value(b)]);
    assert!(Graph::parse(&g.to_string()).is_err());
    let c = Compute::single(vec![], Stage::map("s", f32s(&[]), Expr::load(7, vec![Expr::var(9)])));
    assert!(Compute::parse(&c.to_string()).is_err());
}

#[test]
fn mistakes_are_located() {
    let compute = |body: &str| format!("compute(in0: f32[2]) -> y {{\n  y: f32[2] = {body}\n}}");
    let cases = [
        (compute("add(in0[i0])"), "2:15: add takes 2 operands, 1 are given"),
        (compute("in0[i1]"), "2:19: there is no variable `i1` here"),
        (compute("in1[i0]"), "2:15: there is no buffer `in1` here"),
        (compute("frob(1)"), "2:15: there is no operation `frob` here"),
        (compute("1.0_f33"), "2:15: there is no constant `1.0_f33` here"),
        (compute("add(1, )"), "2:22: expected an expression, found `)`"),
        (compute("sum{r0: 3} r1"), "2:26: there is no variable `r1` here"),
        (compute("y[i0]\n  y: f32[] = 1"), "3:3: the stage `y` is declared twice"),
        (compute("in0[i0] $"), "2:23: expected the name of a stage, found `$`"),
        ("compute() -> z {}".into(), "1:14: there is no stage `z` here"),
        (compute("\"x"), "2:15: expected a closing quote, found the end"),
        (
            "compute(in0: f32[9999999999, 9999999999]) -> {}".into(),
            "1:14: f32[9999999999, 9999999999] has more elements than this machine can address",
        ),
        ("compute(in0: f99[2]) -> {}".into(), "1:14: expected an element type, found `f99`"),
    ];
    for (text, expected) in cases {
        assert_eq!(Compute::parse(&text).unwrap_err().to_string(), expected, "{text}");
    }
    let deep = compute(&format!("{}0.0_f32{}", "neg(".repeat(5000), ")".repeat(5000)));
    assert_eq!(Compute::parse(&deep).unwrap_err().cause, Cause::TooDeep);
    let graph = |line: &str| format!("graph \"g\" () {{\n  {line}\n}}");
    let cases = [
        (graph("%0: f32[2] = const \"c\" [1.0]"), "2:26: f32[2] has 2 elements, 1 are given"),
        (graph("%0: f32[2] = const \"c\" [1.0 x 3]"), "2:33: f32[2] has 2 elements, 3 are given"),
        (graph("%0: i8[1] = const \"c\" [1.5]"), "2:26: expected an element of i8, found `1.5`"),
        (graph("output \"y\" = %4"), "2:16: there is no value `%4` here"),
        (graph("%0: f32[2] = frob \"c\""), "2:16: there is no operator `frob` here"),
        ("graph \"g\" (%0) {}".into(), "1:12: there is no input `%0` here"),
    ];
    for (text, expected) in cases {
        assert_eq!(Graph::parse(&text).unwrap_err().to_string(), expected, "{text}");
    }
}

fn scalar() -> impl Strategy<Value = Scalar> {
    let dtype = proptest::sample::select(DType::ALL.to_vec());
    let value = prop_oneof![any::<f64>(), any::<i64>().prop_map(|v| v as f64), -4.0..4.0];
    (dtype, value).prop_map(|(dtype, value)| Scalar::from_f64(dtype, value))
}

fn expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        scalar().prop_map(Expr::Const),
        (0usize..2000).prop_map(Expr::var),
        any::<i64>().prop_map(Expr::int),
    ];
    leaf.prop_recursive(6, 64, 3, |inner| {
        let binary = proptest::sample::select(BinOp::ALL.to_vec());
        let unary = proptest::sample::select(UnOp::ALL.to_vec());
        let dtype = proptest::sample::select(DType::ALL.to_vec());
        let x = || inner.clone();
        prop_oneof![
            (binary, x(), x()).prop_map(|(op, a, b)| Expr::binary(op, a, b)),
            (unary, x()).prop_map(|(op, x)| Expr::unary(op, x)),
            (dtype, x()).prop_map(|(to, x)| Expr::Cast(to, Box::new(x))),
            (x(), x(), x()).prop_map(|(c, a, b)| Expr::select(c, a, b)),
            (0usize..9, prop::collection::vec(x(), 0..3)).prop_map(|(b, i)| Expr::load(b, i)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    #[test]
    fn expressions_parse_back(e in expr()) {
        prop_assert_eq!(Expr::parse(&e.to_string()), Ok(e));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-a-z0-9(){}\\[\\]%:=,.\"#@>\\\\ ]{0,40}") {
        let _ = Expr::parse(&text);
        let _ = Compute::parse(&text);
        let _ = Graph::parse(&text);
        let _ = Graph::parse(&format!("graph \"\" () {{ {text}"));
    }

    #[test]
    fn stage_combiners_parse_back(extents in prop::collection::vec(0usize..9, 0..4), which in 0usize..8) {
        let stage = Stage::reduction("s", f32s(&[3]), Combiner::ALL[which], extents, Expr::var(0));
        let c = Compute::single(vec![], stage);
        prop_assert_eq!(Compute::parse(&c.to_string()), Ok(c));
    }
}
