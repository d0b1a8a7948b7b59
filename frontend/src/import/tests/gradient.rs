//! `Gradient`, against values worked out by hand and against differences.

use super::control::{attribute, with};
use super::*;

/// `dy/dx` for each of `xs`, where `zs` is constant.
fn gradient(xs: &[&str], zs: &[&str], y: &str, outputs: &[&str]) -> NodeProto {
    let bytes = |names: &[&str]| names.iter().map(|n| n.as_bytes().to_vec()).collect();
    let strings = |name: &str, names: &[&str]| AttributeProto {
        strings: bytes(names),
        ..attribute(name, AttributeType::Strings)
    };
    let y = AttributeProto { s: y.as_bytes().to_vec(), ..attribute("y", AttributeType::String) };
    let node = node("Gradient", &[xs, zs].concat(), outputs);
    let node = NodeProto { domain: "ai.onnx.preview.training".into(), ..node };
    with(node, vec![strings("xs", xs), strings("zs", zs), y])
}

fn trained(inputs: Vec<ValueInfoProto>, nodes: Vec<NodeProto>, outputs: &[&str]) -> ModelProto {
    let mut model = model(inputs, nodes, outputs);
    let domain = "ai.onnx.preview.training".into();
    model.opset_import.push(OperatorSetIdProto { domain, version: 1 });
    model
}

fn run_on(model: &ModelProto, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let graph = import(model, &ImportOptions::default()).unwrap();
    let outputs = interp::run(&graph, inputs).unwrap();
    outputs.iter().map(Tensor::to_f64_vec).collect()
}

fn tensor(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[values.len()], values)
}

#[test]
fn gradients_of_all_paths_are_added() {
    // d = (a + b) * a, in an order that only the attributes explain.
    let nodes = vec![
        gradient(&["a", "b"], &[], "d", &["da", "db"]),
        node("Add", &["a", "b"], &["c"]),
        node("Mul", &["c", "a"], &["d"]),
    ];
    let model = trained(vec![info("a", &["2"]), info("b", &["1"])], nodes, &["da", "db"]);
    let outputs = run_on(&model, &[tensor(&[2.0, 3.0]), tensor(&[10.0])]);
    assert_eq!(outputs, [vec![14.0, 16.0], vec![5.0]]);
}

#[test]
fn independent_tensors_are_constant() {
    // By c = a * a and a separately: d = c * a has the derivatives a and c.
    let nodes = || vec![node("Mul", &["a", "a"], &["c"]), node("Mul", &["c", "a"], &["d"])];
    let inputs = || vec![info("a", &["1"]), info("e", &["1"])];
    let both = [nodes(), vec![gradient(&["a", "c", "e"], &[], "d", &["da", "dc", "de"])]].concat();
    let given = [tensor(&[3.0]), tensor(&[5.0])];
    let outputs = run_on(&trained(inputs(), both, &["da", "dc", "de"]), &given);
    assert_eq!(outputs, [[9.0], [3.0], [0.0]]);
    let one = [nodes(), vec![gradient(&["a"], &["c"], "d", &["da"])]].concat();
    assert_eq!(run_on(&trained(inputs(), one, &["da", "e"]), &given), [[9.0], [5.0]]);
}

#[test]
fn a_layer_agrees_with_differences() {
    let nodes = vec![
        node("MatMul", &["x", "w"], &["m"]),
        node("Add", &["m", "b"], &["n"]),
        node("Tanh", &["n"], &["y"]),
        gradient(&["x", "w", "b"], &[], "y", &["dx", "dw", "db"]),
    ];
    let shapes: [&[usize]; 3] = [&[2, 3], &[3, 2], &[2]];
    let inputs = vec![info("x", &["2", "3"]), info("w", &["3", "2"]), info("b", &["2"])];
    let model = trained(inputs, nodes, &["y", "dx", "dw", "db"]);
    let values = |shape: &[usize], seed: usize| {
        let n = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|i| ((i * 5 + seed) % 7) as f32 / 7.0 - 0.4).collect();
        Tensor::from_slice(shape, &values)
    };
    let given: Vec<Tensor> = shapes.iter().enumerate().map(|(i, s)| values(s, i)).collect();
    let outputs = run_on(&model, &given);
    for (input, gradients) in outputs[1..].iter().enumerate() {
        for (at, gradient) in gradients.iter().enumerate() {
            let sum = |by: f32| {
                let mut given = given.clone();
                given[input].as_mut_slice::<f32>()[at] += by;
                run_on(&model, &given)[0].iter().sum::<f64>()
            };
            let difference = (sum(1e-2) - sum(-1e-2)) / 2e-2;
            assert!((gradient - difference).abs() < 1e-3, "{input} {at}: {gradient} {difference}");
        }
    }
}

#[test]
fn what_has_no_gradient_is_refused() {
    let cases = [
        (vec![node("ReduceMax", &["x"], &["y"]), gradient(&["x"], &[], "y", &["g"])], "only sums"),
        (
            vec![node("NonZero", &["x"], &["y"]), gradient(&["x"], &[], "y", &["g"])],
            "no gradient of",
        ),
        (vec![gradient(&["x"], &[], "nowhere", &["g"])], "nothing computes the tensor `nowhere`"),
        (
            vec![NodeProto { input: vec!["w".into()], ..gradient(&["x"], &[], "x", &["g"]) }],
            "another tensor than `x`",
        ),
    ];
    for (nodes, expected) in cases {
        let model = trained(vec![info("x", &["2"]), info("w", &["2"])], nodes, &["g"]);
        let problems = import(&model, &ImportOptions::default()).unwrap_err();
        assert!(problems.iter().any(|p| p.contains(expected)), "{expected}: {problems:#?}");
    }
}
