//! Small models from memory, end to end.

use std::sync::Arc;

use ansc_graph::{Graph, NodeId, Op, interp};
use ansc_runtime::host::HostOp;
use ansc_runtime::{DType, Tensor};
use prost::Message;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::*;

use super::*;

mod control;
mod cut;
mod gradient;
mod limits;
mod names;
mod nibbles;
mod quantised;
mod reductions;
mod sequences;
mod tables;
mod typed;

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        ..NodeProto::default()
    }
}

/// `dims`: sizes, or names of symbolic dimensions.
fn info(name: &str, dims: &[&str]) -> ValueInfoProto {
    let dim = |d: &&str| Dimension {
        value: Some(match d.parse() {
            Ok(n) => dimension::Value::DimValue(n),
            Err(_) => dimension::Value::DimParam(d.to_string()),
        }),
        ..Dimension::default()
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: DataType::Float as i32, shape: Some(shape) };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { value, ..TypeProto::default() }),
        ..ValueInfoProto::default()
    }
}

fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: name.into(),
        data_type: DataType::Float as i32,
        dims: dims.to_vec(),
        float_data: values.to_vec(),
        ..TensorProto::default()
    }
}

fn model(inputs: Vec<ValueInfoProto>, nodes: Vec<NodeProto>, outputs: &[&str]) -> ModelProto {
    let output = |name: &&str| ValueInfoProto { name: name.to_string(), ..Default::default() };
    let graph = GraphProto {
        input: inputs,
        node: nodes,
        output: outputs.iter().map(output).collect(),
        ..GraphProto::default()
    };
    ModelProto {
        ir_version: 8,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        graph: Some(graph),
        ..ModelProto::default()
    }
}

fn import(model: &ModelProto, options: &ImportOptions) -> Result<Graph, Vec<String>> {
    from_bytes(&model.encode_to_vec(), None, options)
        .map_err(|e| e.problems.iter().map(|p| p.to_string()).collect())
}

fn run(graph: &Graph, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut values = std::collections::HashMap::new();
    let mut inputs = inputs.iter();
    for id in graph.topological() {
        let outputs = match &graph.node(id).op {
            Op::Input { bound } => vec![match bound {
                Some(tensor) => (**tensor).clone(),
                None => inputs.next().unwrap().clone(),
            }],
            Op::Const(tensor) => vec![(**tensor).clone()],
            Op::Compute(op) => {
                let operands: Vec<&Tensor> =
                    graph.operands(id).iter().map(|v| &values[v]).collect();
                interp::eval(&op.expr, &operands).unwrap()
            }
            other => panic!("{other:?}"),
        };
        values.extend(graph.values(id).zip(outputs));
    }
    graph.outputs.iter().map(|(_, v)| values[v].clone()).collect()
}

#[test]
fn nodes_become_expressions_in_any_order() {
    let nodes = vec![node("Add", &["e", "w"], &["y"]), node("Exp", &["x"], &["e"])];
    let mut model = model(vec![info("x", &["2"])], nodes, &["y"]);
    model.graph.as_mut().unwrap().initializer.push(floats("w", &[1], &[10.0]));
    let graph = import(&model, &ImportOptions::default()).unwrap();
    let y = run(&graph, &[Tensor::from_slice(&[2], &[0.0f32, 1.0])]);
    let expected = [11.0, 10.0 + std::f64::consts::E];
    assert!(y[0].to_f64_vec().iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{y:?}");
    assert_eq!(graph.value(graph.outputs[0].1).name, "y");
}

#[test]
fn constants_fold_and_may_be_outputs() {
    let mut constant = node("Constant", &[], &["c"]);
    constant.attribute.push(AttributeProto {
        name: "value_floats".into(),
        r#type: AttributeType::Floats as i32,
        floats: vec![1.0, -2.0],
        ..AttributeProto::default()
    });
    let nodes = vec![constant, node("Neg", &["c"], &["y"]), node("Identity", &["x"], &["z"])];
    let model = model(vec![info("x", &["1"])], nodes, &["y", "z", "x"]);
    let graph = import(&model, &ImportOptions::default()).unwrap();
    let y = graph.const_of(graph.outputs[0].1).unwrap();
    assert_eq!(y.to_f64_vec(), [-1.0, 2.0]);
    assert_eq!(graph.outputs[1].1, graph.outputs[2].1);
}

#[test]
fn all_root_causes_are_reported_and_no_consequences() {
    let nodes = vec![
        node("NoSuchOp", &["x"], &["a"]),
        node("Neg", &["a"], &["b"]),
        node("Add", &["x", "z"], &["c"]),
        node("NorThisOne", &["b"], &["d"]),
        node("Neg", &["d"], &["e"]),
    ];
    let inputs = vec![info("x", &["2"]), info("z", &["3"])];
    let problems =
        import(&model(inputs, nodes, &["c", "e"]), &ImportOptions::default()).unwrap_err();
    assert_eq!(problems.len(), 3, "{problems:#?}");
    assert!(problems[0].starts_with("node `a` (NoSuchOp, opset 17): this operator is not"));
    assert!(problems[1].contains("do not broadcast"), "{problems:#?}");
    assert!(problems[2].contains("NorThisOne"));
}

#[test]
fn shapes_come_from_options() {
    let nodes = vec![node("Add", &["x", "z"], &["y"])];
    let model = model(vec![info("x", &["N", "2"]), info("z", &["N", "2"])], nodes, &["y"]);
    let problems = import(&model, &ImportOptions::default()).unwrap_err();
    assert!(problems[0].contains("--dim N=N, or --shape x=Nx2"), "{problems:#?}");
    let with = |dims: &[(&str, usize)], shapes: &[(&str, &[usize])]| ImportOptions {
        dims: dims.iter().map(|(k, v)| (k.to_string(), *v)).collect(),
        shapes: shapes.iter().map(|(k, v)| (k.to_string(), v.to_vec())).collect(),
        ..ImportOptions::default()
    };
    let shape = |options: &ImportOptions| {
        import(&model, options).map(|g| g.ty(g.outputs[0].1).shape.clone())
    };
    assert_eq!(shape(&with(&[("N", 3)], &[])), Ok(vec![3, 2]));
    assert_eq!(shape(&with(&[], &[("x", &[4, 2])])), Ok(vec![4, 2]));
    let wrong = [
        with(&[("M", 3), ("N", 3)], &[]),
        with(&[("N", 3)], &[("x", &[4, 2])]),
        with(&[("N", 3)], &[("x", &[3])]),
        with(&[("N", 3)], &[("y", &[3, 2])]),
        with(&[("N", usize::MAX)], &[]),
    ];
    for options in wrong {
        assert!(shape(&options).is_err(), "{options:?}");
    }
}

#[test]
fn bound_inputs_are_constants_to_their_readers() {
    let nodes = vec![node("Neg", &["x"], &["y"])];
    let model = model(vec![info("x", &["N"])], nodes, &["y"]);
    let mut options = ImportOptions::default();
    options.values.insert("x".into(), Tensor::from_slice(&[2], &[1.0f32, 2.0]));
    let graph = import(&model, &options).unwrap();
    assert_eq!(graph.const_of(graph.outputs[0].1).unwrap().to_f64_vec(), [-1.0, -2.0]);
    assert!(matches!(graph.node(graph.inputs()[0]).op, Op::Input { bound: Some(_) }));
    options.values.insert("x".into(), Tensor::zeros(DType::F64, &[2]));
    assert!(import(&model, &options).is_err());
}

#[test]
fn functions_are_inlined() {
    let mut inner = node("Constant", &[], &["c"]);
    inner.attribute.push(AttributeProto {
        name: "value_float".into(),
        r#type: AttributeType::Float as i32,
        ref_attr_name: "alpha".into(),
        ..AttributeProto::default()
    });
    let function = FunctionProto {
        name: Some("Scale".into()),
        domain: Some("mine".into()),
        input: vec!["x".into()],
        output: vec!["y".into()],
        attribute: vec!["alpha".into()],
        node: vec![inner, node("Mul", &["x", "c"], &["y"])],
        ..FunctionProto::default()
    };
    let mut call = node("Scale", &["c"], &["d"]);
    call.domain = "mine".into();
    call.attribute.push(AttributeProto {
        name: "alpha".into(),
        r#type: AttributeType::Float as i32,
        f: 3.0,
        ..AttributeProto::default()
    });
    let mut model = model(vec![info("c", &["2"])], vec![call], &["d"]);
    model.functions.push(function);
    model.opset_import.push(OperatorSetIdProto { domain: "mine".into(), version: 1 });
    let graph = import(&model, &ImportOptions::default()).unwrap();
    let y = run(&graph, &[Tensor::from_slice(&[2], &[1.0f32, 2.0])]);
    assert_eq!(y[0].to_f64_vec(), [3.0, 6.0]);
}

fn typed(info: ValueInfoProto, element: DataType) -> ValueInfoProto {
    let mut info = info;
    if let Some(type_proto::Value::TensorType(tensor)) =
        info.r#type.as_mut().and_then(|t| t.value.as_mut())
    {
        tensor.elem_type = element as i32;
    }
    info
}

/// Durations are the sums of what a network says of each token; their sum is a length. Fixing the
/// tokens would compile a model that says one sentence.
#[test]
fn lengths_that_depend_on_data_are_told_with_their_number() {
    let nodes = vec![
        node("ReduceSum", &["ids"], &["total"]),
        node("ConstantOfShape", &["total"], &["y"]),
        node("NonZero", &["ids"], &["places"]),
        node("Neg", &["places"], &["z"]),
        node("ConstantOfShape", &["n"], &["w"]),
        // Behind a node that is not imported: the first has a problem of its own, the second
        // follows.
        node("Expand", &["y", "total"], &["v"]),
        node("Shape", &["y"], &["s"]),
        node("Reshape", &["ids", "s"], &["u"]),
    ];
    let ids = typed(info("ids", &["1", "7"]), DataType::Int64);
    let n = typed(info("n", &["2"]), DataType::Int64);
    let model = model(vec![ids, n], nodes, &["y", "z", "w", "v", "u"]);
    let problems = import(&model, &ImportOptions::default()).unwrap_err();
    let of = |node: &str| {
        let own = problems.iter().filter(|p| p.contains(&format!("`{node}` (")));
        own.cloned().collect::<Vec<_>>().concat()
    };
    assert_eq!(problems.len(), 4, "{problems:#?}");
    assert!(of("z").contains("depends on the data of `ids`: not supported"), "{problems:#?}");
    assert!(!of("z").contains("remedy"), "{problems:#?}");
    for node in ["y", "v"] {
        let remedy = "remedy: say what it is at most: --most total=N";
        assert!(of(node).contains("depends on") && of(node).contains(remedy), "{problems:#?}");
    }
    // Nobody has to fix a shape first to learn of it.
    let mut open = model.clone();
    let ids = typed(info("ids", &["1", "length"]), DataType::Int64);
    open.graph.as_mut().unwrap().input[0] = ids;
    let told = import(&open, &ImportOptions::default()).unwrap_err().concat();
    assert!(told.contains("--dim length=N") && told.contains("depends on data"), "{told}");
    // A setting, which can be fixed.
    assert!(of("w").contains("remedy: fix what it depends on: --value n=VALUE"), "{problems:#?}");
}

#[test]
fn a_number_with_a_bound_is_a_size() {
    let nodes = vec![
        node("ReduceSum", &["ids"], &["total"]),
        node("ConstantOfShape", &["total"], &["y"]),
        node("Neg", &["total"], &["less"]),
    ];
    let ids = typed(info("ids", &["65"]), DataType::Int64);
    let proto = model(vec![ids], nodes, &["y", "less"]);
    let read = read::bytes(&proto.encode_to_vec()).map_err(|problem| vec![problem]);
    let source = Source::new("model".into(), read, None, None).unwrap_or_else(|e| panic!("{e}"));
    let with = |name: &str, n| {
        let most = [(name.to_owned(), n)].into();
        ImportOptions { most, ..Default::default() }
    };
    let import = source.alike(Fold::All);
    let y = |graph: &Graph| graph.ty(graph.outputs[0].1).shape.clone();
    assert_eq!(y(&import(&with("total", 9), &[]).unwrap()), [9]);
    let five = import(&with("total", 9), &[5]).unwrap();
    assert_eq!(y(&five), [5]);
    let is_amount = |node: &NodeId| {
        matches!(five.node(*node).op, Op::Host(HostOp::Amount { number: 0, most: 9, .. }))
    };
    assert_eq!(five.node_ids().iter().filter(|node| is_amount(node)).count(), 1);
    let less = five.const_of(five.outputs[1].1).unwrap();
    assert_eq!(less.to_f64_vec(), [-5.0]);
    let refused = |name: &str| import(&with(name, 9), &[]).unwrap_err().to_string();
    assert!(refused("totl").contains("no tensor `totl`") && refused("totl").contains("`total`"));
    assert!(refused("ids").contains("`--most ids=9`: the tensor is i64[65]"), "{}", refused("ids"));
}

#[test]
fn what_a_model_declares_needs_no_options() {
    let mut model = model(
        vec![info("x", &["batch", "3"]), typed(info("ids", &["?", "7"]), DataType::Int64)],
        vec![node("Relu", &["x"], &["y"])],
        &["y"],
    );
    model.producer_name = "test".into();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    let declared = declared(&path).unwrap();
    let inputs: Vec<String> = declared.inputs.iter().map(ToString::to_string).collect();
    assert_eq!(inputs, ["x: f32 [batch, 3]", "ids: i64 [?, 7]"]);
    assert_eq!(declared.outputs[0].to_string(), "y: not declared");
    assert!(declared.inputs[0].is_open() && declared.nodes == 1);
    let json = serde_json::to_value(&declared).unwrap();
    assert_eq!(json["inputs"][0]["shape"], serde_json::json!(["batch", 3]));
}

#[test]
fn what_is_made_of_constants_alone_is_made_once_for_all_sizes() {
    let values: Vec<f32> = (0..2048).map(|i| i as f32).collect();
    let mut proto = model(
        vec![info("x", &["n", "64"])],
        vec![
            node("Neg", &["w"], &["negated"]),
            node("Neg", &["few"], &["short"]),
            node("MatMul", &["x", "negated"], &["made"]),
            node("Add", &["made", "short"], &["y"]),
        ],
        &["y"],
    );
    let graph = proto.graph.as_mut().unwrap();
    graph.initializer = vec![floats("w", &[64, 32], &values), floats("few", &[32], &values[..32])];
    let read = read::bytes(&proto.encode_to_vec()).map_err(|problem| vec![problem]);
    let source = Source::new("model".into(), read, None, None).unwrap_or_else(|e| panic!("{e}"));
    let at = |size| {
        let dims = [("n".to_owned(), size)].into();
        let graph = source.graph(&ImportOptions { dims, ..Default::default() }).unwrap();
        let constants =
            graph.topological().into_iter().filter_map(|node| match &graph.node(node).op {
                Op::Const(tensor) if tensor.len() > 2 => Some(tensor.clone()),
                _ => None,
            });
        constants.collect::<Vec<_>>()
    };
    let long = |all: &[Arc<Tensor>]| {
        let is_made = |t: &&Arc<Tensor>| t.len() == 2048 && t.as_slice::<f32>()[1] == -1.0;
        all.iter().find(is_made).unwrap().clone()
    };
    let (one, two) = (at(3), at(5));
    assert!(Arc::ptr_eq(&long(&one), &long(&two)));
    assert!(one.iter().any(|t| t.len() == 32 && t.as_slice::<f32>()[1] == -1.0));
}
