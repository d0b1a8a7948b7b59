//! Sequences and optional values, which are gone after the import.

use super::control::{attribute, body, with};
use super::*;
use crate::containers::{self, Info, Of, Type};

fn positions(name: &str, value: i64) -> TensorProto {
    TensorProto {
        name: name.into(),
        data_type: DataType::Int64 as i32,
        int64_data: vec![value],
        ..TensorProto::default()
    }
}

pub(super) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: value, ..attribute(name, AttributeType::Int) }
}

fn with_positions(mut model: ModelProto, values: &[(&str, i64)]) -> ModelProto {
    let tensors = values.iter().map(|(name, value)| positions(name, *value));
    model.graph.as_mut().unwrap().initializer.extend(tensors);
    model
}

fn results(model: &ModelProto, inputs: &[Tensor]) -> Vec<(String, Vec<f64>)> {
    let graph = import(model, &ImportOptions::default()).unwrap();
    let outputs = interp::run(&graph, inputs).unwrap();
    let names = graph.outputs.iter().map(|(name, _)| name.clone());
    names.zip(outputs.iter().map(Tensor::to_f64_vec)).collect()
}

fn pairs(list: &[(&str, &[f64])]) -> Vec<(String, Vec<f64>)> {
    list.iter().map(|(name, values)| (name.to_string(), values.to_vec())).collect()
}

#[test]
fn elements_are_the_values_themselves() {
    let nodes = vec![
        node("SequenceConstruct", &["x", "z"], &["s"]),
        node("SequenceInsert", &["s", "z", "first"], &["t"]),
        node("SequenceErase", &["t", "last"], &["u"]),
        node("SequenceAt", &["u", "last"], &["y"]),
        node("SequenceLength", &["t"], &["n"]),
    ];
    let inputs = vec![info("x", &["2"]), info("z", &["3"])];
    let model = model(inputs, nodes, &["y", "n", "u"]);
    let model = with_positions(model, &[("first", 0), ("last", -1)]);
    let graph = import(&model, &ImportOptions::default()).unwrap();
    assert_eq!(graph.outputs[0].1.node, graph.inputs()[0], "nothing is computed");
    let (x, z) =
        (Tensor::from_slice(&[2], &[1.0f32, 2.0]), Tensor::from_slice(&[3], &[3.0f32, 4.0, 5.0]));
    let expected: &[(&str, &[f64])] =
        &[("y", &[1.0, 2.0]), ("n", &[3.0]), ("u.0", &[3.0, 4.0, 5.0]), ("u.1", &[1.0, 2.0])];
    assert_eq!(results(&model, &[x, z]), pairs(expected));
}

#[test]
fn tensors_are_cut_and_joined() {
    let nodes = vec![
        with(node("SplitToSequence", &["x", "two"], &["s"]), vec![int("axis", 0)]),
        with(node("ConcatFromSequence", &["s"], &["y"]), vec![int("axis", -1)]),
        with(node("SplitToSequence", &["x"], &["t"]), vec![int("keepdims", 0)]),
        with(node("ConcatFromSequence", &["t"], &["z"]), vec![int("axis", -1), int("new_axis", 1)]),
    ];
    let model =
        with_positions(model(vec![info("x", &["3"])], nodes, &["s", "y", "z"]), &[("two", 2)]);
    let x = Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]);
    let whole: &[f64] = &[1.0, 2.0, 3.0];
    let expected = pairs(&[("s.0", &[1.0, 2.0]), ("s.1", &[3.0]), ("y", whole), ("z", whole)]);
    assert_eq!(results(&model, &[x]), expected);
}

#[test]
fn no_shape_alone_asks_for_any_number_of_elements() {
    let split = |inputs: &[&str], keep| {
        let node = with(node("SplitToSequence", inputs, &["s"]), vec![int("keepdims", keep)]);
        let nodes = vec![node, self::node("SequenceLength", &["s"], &["y"])];
        let model = model(vec![info("x", &["9000"])], nodes, &["y"]);
        import(&with_positions(model, &[("two", 2)]), &ImportOptions::default())
    };
    for refused in [split(&["x"], 0), split(&["x"], 1), split(&["x", "two"], 1)] {
        let problems = refused.unwrap_err();
        assert!(problems[0].contains("elements, of 4096 at most"), "{problems:#?}");
    }
}

#[test]
fn sequences_grow_in_loops_of_known_length() {
    let grow = vec![
        node("Add", &["v", "v"], &["w"]),
        node("SequenceInsert", &["s", "w"], &["t"]),
        node("Identity", &["c"], &["d"]),
    ];
    let repeat = with(
        node("Loop", &["trips", "", "x", "empty"], &["last", "all"]),
        vec![body("body", &["i", "c", "v", "s"], grow, &["d", "w", "t"])],
    );
    let nodes = vec![node("SequenceEmpty", &[], &["empty"]), repeat];
    let model = with_positions(model(vec![info("x", &["1"])], nodes, &["all"]), &[("trips", 3)]);
    let expected = pairs(&[("all.0", &[2.0]), ("all.1", &[4.0]), ("all.2", &[8.0])]);
    assert_eq!(results(&model, &[Tensor::from_slice(&[1], &[1.0f32])]), expected);
}

#[test]
fn maps_are_copies_of_their_body() {
    let sum = body("body", &["a", "b"], vec![node("Add", &["a", "b"], &["c"])], &["c"]);
    let nodes = vec![
        node("SequenceConstruct", &["x", "z"], &["s"]),
        with(node("SequenceMap", &["s", "x"], &["y"]), vec![sum]),
    ];
    let model = model(vec![info("x", &["1"]), info("z", &["1"])], nodes, &["y"]);
    let inputs = [1.0f32, 5.0].map(|v| Tensor::from_slice(&[1], &[v]));
    assert_eq!(results(&model, &inputs), pairs(&[("y.0", &[2.0]), ("y.1", &[6.0])]));
}

#[test]
fn optional_values_are_there_or_not() {
    let nodes = vec![
        node("Optional", &[], &["none"]),
        node("Optional", &["x"], &["some"]),
        node("OptionalHasElement", &["none"], &["a"]),
        node("OptionalHasElement", &["some"], &["b"]),
        node("OptionalGetElement", &["some"], &["y"]),
    ];
    let model = model(vec![info("x", &["1"])], nodes, &["a", "b", "y"]);
    let expected = pairs(&[("a", &[0.0]), ("b", &[1.0]), ("y", &[7.0])]);
    assert_eq!(results(&model, &[Tensor::from_slice(&[1], &[7.0f32])]), expected);
}

#[test]
fn what_only_the_data_decides_is_refused() {
    let made = || node("SequenceConstruct", &["x", "x"], &["s"]);
    let by_data = node("Cast", &["x"], &["p"]);
    let to_i64 = with(by_data, vec![int("to", DataType::Int64 as i64)]);
    let cases: [(Vec<NodeProto>, &str); 5] = [
        (vec![made(), to_i64, node("SequenceAt", &["s", "p"], &["y"])], "--value x=VALUE"),
        (vec![made(), node("Neg", &["s"], &["y"])], "input 0 is a sequence"),
        (vec![node("SequenceLength", &["x"], &["y"])], "must be a sequence"),
        (vec![made(), node("SequenceAt", &["s", "two"], &["y"])], "outside of a sequence of 2"),
        (vec![node("Optional", &[], &["y"])], "an optional value without an element"),
    ];
    for (nodes, expected) in cases {
        let model = with_positions(model(vec![info("x", &["1"])], nodes, &["y"]), &[("two", 2)]);
        let problems = import(&model, &ImportOptions::default()).unwrap_err();
        assert!(problems[0].contains(expected), "{problems:#?}");
    }
}

/// A tensor of the declared shape, as a type.
fn tensor(dims: &[&str]) -> Type {
    let value = info("", dims).r#type.and_then(|t| t.value);
    let Some(type_proto::Value::TensorType(tensor)) = value else { panic!("a tensor") };
    Type { tensor: Some(tensor), ..Type::default() }
}

fn of(element: Type) -> Option<Box<Of>> {
    Some(Box::new(Of { element: Some(Box::new(element)) }))
}

fn sequence_of(element: Type) -> Type {
    Type { sequence: of(element), ..Type::default() }
}

fn optional_of(element: Type) -> Type {
    Type { optional: of(element), ..Type::default() }
}

/// Imports a model that has further inputs, before its own.
fn import_with(
    inputs: &[(&str, Type)],
    model: &ModelProto,
    options: &ImportOptions,
) -> Result<Graph, Vec<String>> {
    let info = |(name, ty): &(&str, Type)| Info { name: (*name).into(), r#type: Some(ty.clone()) };
    let graph = containers::Graph { input: inputs.iter().map(info).collect() };
    // Messages that follow each other are one message.
    let front = containers::Model { graph: Some(graph) }.encode_to_vec();
    from_bytes(&[front, model.encode_to_vec()].concat(), None, options)
        .map_err(|e| e.problems.iter().map(|p| p.to_string()).collect())
}

type Shapes<'a> = &'a [(&'a str, &'a [usize])];

fn options(shapes: Shapes<'_>) -> ImportOptions {
    let shapes = shapes.iter().map(|(name, shape)| (name.to_string(), shape.to_vec()));
    ImportOptions { shapes: shapes.collect(), ..ImportOptions::default() }
}

/// The names and shapes of a graph's inputs.
fn inputs_of(graph: &Graph) -> Vec<(String, Vec<usize>)> {
    let shape = |node| graph.ty(ansc_graph::ValueId { node, out: 0 }).shape.clone();
    graph.inputs().iter().map(|&n| (graph.node(n).name.clone(), shape(n))).collect()
}

#[test]
fn sequences_are_passed_as_their_elements() {
    let s = [("s", sequence_of(tensor(&["n", "2"])))];
    let nodes =
        vec![node("SequenceInsert", &["s", "x"], &["t"]), node("SequenceLength", &["s"], &["n"])];
    let model = model(vec![info("x", &["1"])], nodes, &["t", "n"]);
    let by_element = options(&[("s.0", &[3, 2]), ("s.1", &[3, 2])]);
    let by_number = ImportOptions {
        dims: [("n".to_string(), 3)].into_iter().collect(),
        ..options(&[("s", &[2])])
    };
    for options in [by_element, by_number] {
        let graph = import_with(&s, &model, &options).unwrap();
        let expected = [("s.0", vec![3, 2]), ("s.1", vec![3, 2]), ("x", vec![1])];
        assert_eq!(inputs_of(&graph), expected.map(|(name, shape)| (name.to_string(), shape)));
        let names: Vec<&str> = graph.outputs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["t.0", "t.1", "t.2", "n"]);
    }
    let unequal = import_with(&s, &model, &options(&[("s.0", &[3, 2]), ("s.1", &[5, 2])])).unwrap();
    assert_eq!(inputs_of(&unequal)[1], ("s.1".to_string(), vec![5, 2]));
    let empty = import_with(&s, &model, &options(&[("s", &[0])])).unwrap();
    assert_eq!(inputs_of(&empty), [("x".to_string(), vec![1])]);
    let cases: [(Shapes<'_>, &str); 5] = [
        (&[], "--shape s.0=2x3"),
        (&[("s", &[1, 2])], "is not a number of elements"),
        (&[("s", &[usize::MAX])], "is not a number of elements"),
        (&[("s.0", &[3, 2]), ("s.2", &[3, 2])], "no input `s.2`"),
        (&[("s", &[1])], "input `s.0` has the dynamic shape"),
    ];
    for (shapes, expected) in cases {
        let problems = import_with(&s, &model, &options(shapes)).unwrap_err();
        assert!(problems.iter().any(|p| p.contains(expected)), "{problems:#?}");
    }
}

#[test]
fn optional_inputs_are_there_if_they_are_named() {
    let two = || tensor(&["2"]);
    let inputs = [("o", optional_of(two())), ("p", optional_of(sequence_of(two())))];
    let nodes = vec![
        node("OptionalHasElement", &["o"], &["a"]),
        node("OptionalHasElement", &["p"], &["b"]),
    ];
    let model = model(vec![], nodes, &["a", "b"]);
    let cases: [(Shapes<'_>, &[&str], [f64; 2]); 4] = [
        (&[], &[], [0.0, 0.0]),
        (&[("o", &[2])], &["o"], [1.0, 0.0]),
        (&[("p.0", &[2])], &["p.0"], [0.0, 1.0]),
        (&[("p", &[0])], &[], [0.0, 1.0]),
    ];
    for (shapes, expected_inputs, expected) in cases {
        let graph = import_with(&inputs, &model, &options(shapes)).unwrap();
        let names: Vec<String> = inputs_of(&graph).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected_inputs);
        let given: Vec<Tensor> =
            names.iter().map(|_| Tensor::from_slice(&[2], &[1f32, 2.0])).collect();
        let outputs = interp::run(&graph, &given).unwrap();
        assert_eq!([&outputs[0], &outputs[1]].map(|t| t.to_f64_vec()[0]), expected);
    }
}

#[test]
fn what_is_no_tensor_and_two_inputs_of_one_name_are_refused() {
    let nested = sequence_of(sequence_of(tensor(&["1"])));
    let cases = [
        (nested, "x", "neither a tensor nor a sequence"),
        (optional_of(Type::default()), "x", "neither a tensor nor a sequence"),
        (sequence_of(tensor(&["1"])), "s.0", "another input's element too"),
    ];
    for (ty, other, expected) in cases {
        let model = model(vec![info(other, &["1"])], vec![node("Neg", &[other], &["y"])], &["y"]);
        let problems = import_with(&[("s", ty)], &model, &options(&[("s.0", &[1])])).unwrap_err();
        assert!(problems.iter().any(|p| p.contains(expected)), "{problems:#?}");
    }
}
