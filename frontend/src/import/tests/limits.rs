//! Small models that would unfold to large ones: they end soon, with little memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::control::{attribute, body, with};
use super::*;

fn of_domain(domain: &str, node: NodeProto) -> NodeProto {
    NodeProto { domain: domain.into(), ..node }
}

fn function(name: &str, nodes: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: Some(name.into()),
        domain: Some("f".into()),
        input: vec!["x".into()],
        output: vec!["y".into()],
        node: nodes,
        ..FunctionProto::default()
    }
}

/// Functions `f0`, .. of which each calls the one before it twice; `leaf` are the nodes of the
/// first one.
fn binary(levels: usize, leaf: Vec<NodeProto>) -> ModelProto {
    let twice = |level: usize| {
        let callee = format!("f{}", level - 1);
        let call = |from, to| of_domain("f", node(&callee, &[from], &[to]));
        function(&format!("f{level}"), vec![call("x", "t"), call("t", "y")])
    };
    let call = of_domain("f", node(&format!("f{}", levels - 1), &["x"], &["y"]));
    let mut model = model(vec![info("x", &["4"])], vec![call], &["y"]);
    model.opset_import.push(OperatorSetIdProto { domain: "f".into(), version: 1 });
    model.functions = vec![function("f0", leaf)];
    model.functions.extend((1..levels).map(twice));
    model
}

fn problems(model: &ModelProto) -> Vec<String> {
    let start = Instant::now();
    let problems = import(model, &ImportOptions::default()).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    problems
}

#[test]
fn functions_that_call_each_other_twice() {
    let deep = problems(&binary(40, vec![node("Neg", &["x"], &["y"])]));
    assert!(deep.len() == 1 && deep[0].contains("more than 32 deep"), "{deep:?}");
    let wide = problems(&binary(24, vec![node("Neg", &["x"], &["y"])]));
    assert!(wide.len() == 1 && wide[0].contains("unfolds to more than"), "{wide:?}");
    assert!(wide[0].contains("remedy: nest functions less deeply"), "{wide:?}");
    let graph = import(&binary(10, vec![node("Neg", &["x"], &["y"])]), &ImportOptions::default());
    assert_eq!(graph.unwrap().len(), 1 + 512);
}

#[test]
fn names_of_nested_calls_do_not_grow_without_bound() {
    let mut model = binary(8, vec![node("Neg", &["x"], &["y"])]);
    for function in &mut model.functions {
        function.node.iter_mut().for_each(|n| n.name = "n".repeat(1 << 16));
    }
    let graph = import(&model, &ImportOptions::default()).unwrap();
    assert!(graph.node_ids().iter().all(|&n| graph.node(n).name.len() <= 1024));
}

#[test]
fn a_body_of_dead_nodes_counts_too() {
    let mut leaf = vec![node("Neg", &["x"], &["y"])];
    leaf.extend((0..1000).map(|i| node("Neg", &["x"], &[&format!("dead{i}")])));
    let problems = problems(&binary(12, leaf));
    assert!(problems.len() == 1 && problems[0].contains("unfolds to more than"), "{problems:?}");
}

#[test]
fn a_constant_of_a_function_is_in_memory_once() {
    let value = TensorProto { name: String::new(), ..floats("", &[1 << 18], &[1.5; 1 << 18]) };
    let value = AttributeProto { t: Some(value), ..attribute("value", AttributeType::Tensor) };
    let leaf = vec![
        with(node("Constant", &[], &["c"]), vec![value]),
        node("ReduceSum", &["c"], &["s"]),
        node("Add", &["x", "s"], &["y"]),
    ];
    // A megabyte, 4096 times.
    let graph = import(&binary(13, leaf), &ImportOptions::default()).unwrap();
    let constants = graph.node_ids().into_iter().filter_map(|n| match &graph.node(n).op {
        Op::Const(tensor) if tensor.len() > 1 => Some(Arc::as_ptr(tensor)),
        _ => None,
    });
    let constants: Vec<_> = constants.collect();
    assert_eq!(constants.len(), 4096);
    assert!(constants.iter().all(|c| *c == constants[0]));
}

#[test]
fn lists_that_become_constants_anew_at_each_call() {
    // 64 KB a call, which no list shares with another: 1 GB after 16384 calls.
    let list = AttributeProto {
        ints: (0..1 << 13).map(|i| i % 4).collect(),
        ..attribute("value_ints", AttributeType::Ints)
    };
    let leaf =
        vec![with(node("Constant", &[], &["c"]), vec![list]), node("Gather", &["x", "c"], &["y"])];
    let problems = problems(&binary(20, leaf));
    assert!(problems.len() == 1 && problems[0].contains("unfolds to"), "{problems:?}");
}

#[test]
fn copies_of_loops_within_loops() {
    // Sixty-four copies of sixty-four copies, and so on, of a body that must be copied.
    let mut inner = vec![node("Add", &["v", "v"], &["w"])];
    for level in 0..5 {
        let condition = format!("c{level}");
        let (before, after) = (inner, body("body", &["i", &condition, "v"], vec![], &[]));
        let mut graph = after.g.unwrap();
        graph.node = before;
        graph.output = vec![info(&condition, &[]), info("w", &[])];
        let looped = AttributeProto { g: Some(graph), ..attribute("body", AttributeType::Graph) };
        inner = vec![with(node("Loop", &["n", "", "v"], &["w"]), vec![looped])];
    }
    let start = vec![node("Identity", &["k"], &["v"])];
    let mut model = model(vec![], [start, inner].concat(), &["w"]);
    let graph = model.graph.as_mut().unwrap();
    graph.initializer.push(floats("k", &[1], &[0.5]));
    graph.initializer.push(TensorProto {
        name: "n".into(),
        data_type: DataType::Int64 as i32,
        int64_data: vec![64],
        ..TensorProto::default()
    });
    let problems = problems(&model);
    assert!(problems.len() == 1 && problems[0].contains("unfolds to more than"), "{problems:?}");
}
