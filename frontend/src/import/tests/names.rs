//! Names that a file gives twice.

use super::control::{attribute, body, with};
use super::*;

fn relu(output: &str) -> NodeProto {
    node("Relu", &["x"], &[output])
}

fn of(nodes: Vec<NodeProto>) -> ModelProto {
    model(vec![info("x", &["4"])], nodes, &["y"])
}

fn with_function(inputs: &[&str], outputs: &[&str], nodes: Vec<NodeProto>) -> ModelProto {
    let list = |names: &[&str]| names.iter().map(|s| s.to_string()).collect();
    let call = NodeProto { domain: "f".into(), ..node("F", &["x", "x"], &["y"]) };
    let mut model = of(vec![call]);
    model.functions.push(FunctionProto {
        name: Some("F".into()),
        domain: Some("f".into()),
        input: list(inputs),
        output: list(outputs),
        node: nodes,
        ..FunctionProto::default()
    });
    model
}

/// A change to a graph.
type Edit = fn(&mut GraphProto);

fn changed(mut model: ModelProto, edit: Edit) -> ModelProto {
    edit(model.graph.as_mut().unwrap());
    model
}

#[test]
fn what_is_defined_twice_is_refused() {
    let alpha = |f| AttributeProto { f, ..attribute("alpha", AttributeType::Float) };
    let leaky = with(node("LeakyRelu", &["x"], &["y"]), vec![alpha(0.1), alpha(0.9)]);
    let neg = |output| node("Neg", &["x"], &[output]);
    let branch = |name| body(name, &[], vec![relu("t"), neg("t")], &["t"]);
    let choice = vec![branch("then_branch"), branch("else_branch")];
    let choice = with(node("If", &["x"], &["y"]), choice);
    let two = |name: &str| [floats(name, &[1], &[1.0]), floats(name, &[1], &[2.0])];
    let mut functions = with_function(&["a", "b"], &["c"], vec![node("Add", &["a", "b"], &["c"])]);
    functions.functions.push(functions.functions[0].clone());
    let cases = [
        (of(vec![relu("y"), neg("y")]), "the name of result `y` is used twice"),
        (of(vec![node("Split", &["x"], &["y", "y"])]), "result `y`"),
        (of(vec![relu("y"), relu("unused"), neg("unused")]), "result `unused`"),
        (of(vec![relu("x"), relu("y")]), "result `x`"),
        (of(vec![leaky]), "attribute `alpha`"),
        (of(vec![choice]), "the body of node `y`"),
        (with_function(&["a", "a"], &["c"], vec![node("Neg", &["a"], &["c"])]), "input `a`"),
        (with_function(&["a", "b"], &["c", "c"], vec![node("Neg", &["a"], &["c"])]), "output `c`"),
        (with_function(&["x", "b"], &["c"], vec![relu("c"), neg("c")]), "the function `F`"),
        (functions, "the function `f.F`"),
        (changed(of(vec![relu("y")]), |g| g.input.push(info("x", &["4"]))), "input `x`"),
        (
            changed(of(vec![relu("w"), relu("y")]), |g| {
                g.initializer.push(floats("w", &[1], &[1.0]))
            }),
            "result `w`",
        ),
        (changed(of(vec![relu("y")]), |g| g.initializer.push(floats("x", &[4], &[1.0; 4]))), ""),
    ];
    for (model, cause) in cases {
        match import(&model, &ImportOptions::default()) {
            // A default of an input is no second definition.
            Ok(_) => assert_eq!(cause, ""),
            Err(problems) => {
                assert!(!cause.is_empty() && problems[0].contains(cause), "{problems:?}")
            }
        }
    }
    let mut twice = of(vec![node("Add", &["x", "w"], &["y"])]);
    twice.graph.as_mut().unwrap().initializer.extend(two("w"));
    let problems = import(&twice, &ImportOptions::default()).unwrap_err();
    assert!(problems[0].contains("initializer `w` is used twice"), "{problems:?}");
}

#[test]
fn an_output_that_is_listed_twice_is_one_output() {
    let model = changed(of(vec![relu("y")]), |g| g.output.push(g.output[0].clone()));
    let graph = import(&model, &ImportOptions::default()).unwrap();
    assert_eq!(graph.outputs.len(), 1);
}

#[test]
fn the_highest_version_of_an_opset_counts() {
    // Up to opset 12 the axes of `Squeeze` are an attribute.
    for versions in [[17, 11], [11, 17]] {
        let mut model = of(vec![node("Squeeze", &["x", "axes"], &["y"])]);
        model.graph.as_mut().unwrap().input[0] = info("x", &["1", "1", "4"]);
        model.graph.as_mut().unwrap().initializer.push(TensorProto {
            name: "axes".into(),
            data_type: DataType::Int64 as i32,
            dims: vec![1],
            int64_data: vec![0],
            ..TensorProto::default()
        });
        let import_of = |version| OperatorSetIdProto { domain: String::new(), version };
        model.opset_import = versions.map(import_of).to_vec();
        let graph = import(&model, &ImportOptions::default()).unwrap();
        assert_eq!(graph.ty(graph.outputs[0].1).shape, [1, 4], "{versions:?}");
    }
}

fn sparse(name: &str) -> SparseTensorProto {
    SparseTensorProto {
        values: Some(floats(name, &[1], &[9.0])),
        indices: Some(TensorProto {
            data_type: DataType::Int64 as i32,
            dims: vec![1],
            int64_data: vec![2],
            ..TensorProto::default()
        }),
        dims: vec![4],
    }
}

#[test]
fn sparse_tensors_are_constants_like_others() {
    let of_node = AttributeProto {
        sparse_tensor: Some(sparse("")),
        ..attribute("sparse_value", AttributeType::SparseTensor)
    };
    let constant = with(node("Constant", &[], &["w"]), vec![of_node]);
    let in_node = of(vec![constant, node("Add", &["x", "w"], &["y"])]);
    let mut in_graph = of(vec![node("Add", &["x", "w"], &["y"])]);
    in_graph.graph.as_mut().unwrap().sparse_initializer.push(sparse("w"));
    for model in [&in_node, &in_graph] {
        let graph = import(model, &ImportOptions::default()).unwrap();
        let x = Tensor::from_slice(&[4], &[1f32, 2.0, 3.0, 4.0]);
        assert_eq!(run(&graph, &[x])[0].to_f64_vec(), [1.0, 2.0, 12.0, 4.0]);
    }
    in_graph.graph.as_mut().unwrap().initializer.push(floats("w", &[4], &[0.0; 4]));
    let problems = import(&in_graph, &ImportOptions::default()).unwrap_err();
    assert!(problems[0].contains("initializer `w` is used twice"), "{problems:?}");
}
