//! Zero points of 4 bits, of which a quantised value has as many, wherever they come from.

use super::control::with;
use super::*;

/// -20, 5 and 100 quantised with a scale of one and a zero point of that type, and back.
const SIGNED: [f64; 3] = [-8.0, 5.0, 7.0];
const UNSIGNED: [f64; 3] = [0.0, 5.0, 15.0];
const BYTES: [f64; 3] = [0.0, 5.0, 100.0];

fn zero(name: &str, ty: DataType) -> TensorProto {
    TensorProto {
        name: name.into(),
        data_type: ty as i32,
        int32_data: vec![0],
        ..TensorProto::default()
    }
}

fn pair(zero: &str, y: &str) -> [NodeProto; 2] {
    let q = format!("q{y}");
    [
        node("QuantizeLinear", &["x", "s", zero], &[&q]),
        node("DequantizeLinear", &[&q, "s", zero], &[y]),
    ]
}

fn rounded(
    nodes: Vec<NodeProto>,
    zeros: Vec<TensorProto>,
    functions: Vec<FunctionProto>,
) -> Vec<f64> {
    let mut model = model(vec![info("x", &["3"])], nodes, &["y"]);
    model.opset_import[0].version = 21;
    model.opset_import.push(OperatorSetIdProto { domain: "mine".into(), version: 1 });
    model.functions = functions;
    let graph = model.graph.as_mut().unwrap();
    graph.initializer = zeros;
    graph.initializer.push(floats("s", &[], &[1.0]));
    let graph = import(&model, &ImportOptions::default()).unwrap();
    run(&graph, &[Tensor::from_slice(&[3], &[-20.0f32, 5.0, 100.0])])[0].to_f64_vec()
}

#[test]
fn zero_points_may_be_moved() {
    for (ty, expected) in
        [(DataType::Int4, SIGNED), (DataType::Uint4, UNSIGNED), (DataType::Uint8, BYTES)]
    {
        let of_graph = |nodes: Vec<NodeProto>| rounded(nodes, vec![zero("z", ty)], vec![]);
        assert_eq!(of_graph(pair("z", "y").into()), expected);
        let attribute = AttributeProto {
            name: "value".into(),
            r#type: AttributeType::Tensor as i32,
            t: Some(zero("", ty)),
            ..AttributeProto::default()
        };
        let constant = with(node("Constant", &[], &["z"]), vec![attribute]);
        let nodes = [vec![constant], pair("z", "y").into()].concat();
        assert_eq!(rounded(nodes, vec![], vec![]), expected);
        for moves in ["Identity", "Squeeze", "Transpose"] {
            let nodes = [vec![node(moves, &["z"], &["m"])], pair("m", "y").into()].concat();
            assert_eq!(of_graph(nodes), expected, "{moves}");
        }
    }
}

/// Names of a function and of the graph around it have nothing to do with each other.
#[test]
fn functions_see_the_elements_that_they_are_given() {
    let function = FunctionProto {
        name: Some("Pair".into()),
        domain: Some("mine".into()),
        input: ["x", "s", "z"].map(String::from).into(),
        output: vec!["y".into()],
        node: pair("z", "y").into(),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 21 }],
        ..FunctionProto::default()
    };
    let zeros = || vec![zero("z", DataType::Uint4), zero("bytes", DataType::Uint8)];
    for (given, expected) in [("z", UNSIGNED), ("bytes", BYTES)] {
        let mut call = node("Pair", &["x", "s", given], &["y"]);
        call.domain = "mine".into();
        assert_eq!(rounded(vec![call], zeros(), vec![function.clone()]), expected, "{given}");
    }
}
