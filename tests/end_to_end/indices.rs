//! Indices out of range, in models: an error that names node, tensor, position, index and what is
//! legal. Never a result of other elements than the model says.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{ansc, str, text};
use ansc_runtime::manifest::Step;
use ansc_runtime::{BadIndex, DType, Model, RunError, Tensor, npy};
use prost::Message;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};

fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[(&str, i64)]) -> NodeProto {
    let int = |&(name, i): &(&str, i64)| AttributeProto {
        name: name.into(),
        r#type: AttributeType::Int as i32,
        i,
        ..Default::default()
    };
    NodeProto {
        name: format!("/the/{op}"),
        op_type: op.into(),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        attribute: attributes.iter().map(int).collect(),
        ..Default::default()
    }
}

fn with_graph(mut node: NodeProto, name: &str, graph: GraphProto) -> NodeProto {
    node.attribute.push(AttributeProto {
        name: name.into(),
        r#type: AttributeType::Graph as i32,
        g: Some(graph),
        ..Default::default()
    });
    node
}

fn value(name: &str, dtype: DataType, shape: &[usize]) -> ValueInfoProto {
    let dim = |&n: &usize| Dimension {
        value: Some(dimension::Value::DimValue(n as i64)),
        ..Default::default()
    };
    let shape = Some(TensorShapeProto { dim: shape.iter().map(dim).collect() });
    let tensor = type_proto::Tensor { elem_type: dtype as i32, shape };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { value, ..Default::default() }),
        ..Default::default()
    }
}

fn constant(name: &str, values: &[i64], dims: &[usize]) -> TensorProto {
    TensorProto {
        name: name.into(),
        data_type: DataType::Int64 as i32,
        dims: dims.iter().map(|&d| d as i64).collect(),
        int64_data: values.to_vec(),
        ..Default::default()
    }
}

/// A table of seven rows of two floats, an input of indices, and nodes that make `y` of them.
struct Case {
    name: &'static str,
    indices: ValueInfoProto,
    nodes: Vec<NodeProto>,
    initializers: Vec<TensorProto>,
    y: &'static [usize],
}

const ROWS: usize = 7;

fn compiled(dir: &Path, case: &Case) -> (PathBuf, Output) {
    let graph = GraphProto {
        name: "g".into(),
        input: vec![value("table", DataType::Float, &[ROWS, 2]), case.indices.clone()],
        node: case.nodes.clone(),
        initializer: case.initializers.clone(),
        output: vec![value("y", DataType::Float, case.y)],
        ..Default::default()
    };
    let model = ModelProto {
        ir_version: 8,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        graph: Some(graph),
        ..Default::default()
    };
    let path = dir.join("model.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    let artifact = dir.join("model.ansc");
    let done = ansc(&["compile", str(&path), "-o", str(&artifact), "--untuned"]);
    (artifact, done)
}

fn table() -> Tensor {
    let values: Vec<f32> = (0..2 * ROWS).map(|i| i as f32).collect();
    Tensor::from_slice(&[ROWS, 2], &values)
}

/// The error of a run of `case`, the same session's result for good indices having been one.
fn error(case: &Case, good: &Tensor, bad: &Tensor) -> RunError {
    let dir = tempfile::tempdir().unwrap();
    let (artifact, done) = compiled(dir.path(), case);
    assert!(done.status.success(), "{}: {}", case.name, text(&done.stderr));
    let mut session = Model::load(&artifact).unwrap().session().unwrap();
    let table = table();
    let mut run = |indices| session.run(&[("table", &table), ("i", indices)]);
    let before = run(good).unwrap();
    let Err(error) = run(bad) else { panic!("{}: a result of indices out of range", case.name) };
    assert_eq!(run(good).unwrap(), before, "{}", case.name);
    error
}

fn expected(op: &str, name: &str, is_input: bool, position: &[usize], index: i64) -> RunError {
    RunError::Index(Box::new(BadIndex {
        node: format!("/the/{op}"),
        tensor: name.into(),
        is_input,
        position: position.to_vec(),
        index,
        legal: -(ROWS as i64)..=ROWS as i64 - 1,
    }))
}

fn ints(shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_slice(shape, values)
}

fn plain(name: &'static str, nodes: Vec<NodeProto>, y: &'static [usize]) -> Case {
    let indices = value("i", DataType::Int64, &[2, 2]);
    Case { name, indices, nodes, initializers: vec![], y }
}

#[test]
fn every_operator_that_takes_indices() {
    let gather =
        plain("gather", vec![node("Gather", &["table", "i"], &["y"], &[("axis", 0)])], &[2, 2, 2]);
    let elements = plain(
        "elements",
        vec![node("GatherElements", &["table", "i"], &["y"], &[("axis", 0)])],
        &[2, 2],
    );
    let (good, bad) = (ints(&[2, 2], &[0, -7, 6, 1]), ints(&[2, 2], &[0, -7, 7, -8]));
    for (case, op) in [(gather, "Gather"), (elements, "GatherElements")] {
        assert_eq!(error(&case, &good, &bad), expected(op, "i", true, &[1, 0], 7));
    }
    let nd = plain("nd", vec![node("GatherND", &["table", "i"], &["y"], &[])], &[2]);
    let (good, bad) = (ints(&[2, 2], &[6, 1, -7, -2]), ints(&[2, 2], &[6, 1, -8, -2]));
    assert_eq!(error(&nd, &good, &bad), expected("GatherND", "i", true, &[1, 0], -8));
    for op in ["ScatterElements", "ScatterND"] {
        let updates = if op == "ScatterND" { &[2usize][..] } else { &[2, 2] };
        let n: usize = updates.iter().product();
        let floats = TensorProto {
            name: "updates".into(),
            data_type: DataType::Float as i32,
            dims: updates.iter().map(|&d| d as i64).collect(),
            float_data: vec![0.5; n],
            ..Default::default()
        };
        let nodes = vec![node(op, &["table", "i", "updates"], &["y"], &[])];
        let case = Case { initializers: vec![floats], ..plain("scatter", nodes, &[ROWS, 2]) };
        assert_eq!(error(&case, &good, &bad), expected(op, "i", true, &[1, 0], -8));
    }
}

/// Casts and reshapes of an input are still the input to its user; what is computed of it is not.
#[test]
fn indices_that_are_made_of_an_input() {
    let shape = constant("shape", &[4], &[1]);
    let nodes = vec![
        node("Cast", &["i"], &["wide"], &[("to", DataType::Int64 as i64)]),
        node("Reshape", &["wide", "shape"], &["flat"], &[]),
        node("Gather", &["table", "flat"], &["y"], &[]),
    ];
    let indices = value("i", DataType::Int32, &[2, 2]);
    let case = Case { indices, initializers: vec![shape], ..plain("views", nodes, &[4, 2]) };
    let narrow = |values: &[i32]| Tensor::from_slice(&[2, 2], values);
    let found = error(&case, &narrow(&[0, 1, 2, 6]), &narrow(&[0, 1, 9, 6]));
    assert_eq!(found, expected("Gather", "i", true, &[1, 0], 9));
    let nodes = vec![
        node("Add", &["i", "i"], &["twice"], &[]),
        node("Gather", &["table", "twice"], &["y"], &[]),
    ];
    let case = plain("computed", nodes, &[2, 2, 2]);
    let found = error(&case, &ints(&[2, 2], &[0, 1, 2, 3]), &ints(&[2, 2], &[0, 1, 2, 4]));
    let RunError::Index(found) = found else { panic!("{found:?}") };
    assert_eq!((found.node.as_str(), found.is_input), ("/the/Gather", false));
    assert_eq!((&found.position[..], found.index, found.legal), (&[1, 1][..], 8, -7..=6));
}

/// In the body of a loop, of which each iteration takes another row of indices; and in a branch.
#[test]
fn bodies_of_loops_and_branches() {
    let inner = vec![node("Gather", &["table", "row"], &["part"], &[])];
    let body = GraphProto {
        name: "body".into(),
        input: vec![value("row", DataType::Int64, &[2])],
        node: inner,
        output: vec![value("part", DataType::Float, &[2, 2])],
        ..Default::default()
    };
    // More iterations than are written out.
    let scan = node("Scan", &["i"], &["y"], &[("num_scan_inputs", 1)]);
    let indices = value("i", DataType::Int64, &[9, 2]);
    let nodes = vec![with_graph(scan, "body", body)];
    let case = Case { indices, ..plain("scan", nodes, &[9, 2, 2]) };
    let mut all = vec![3; 18];
    let good = ints(&[9, 2], &all);
    all[15] = 70;
    let found = error(&case, &good, &ints(&[9, 2], &all));
    let RunError::Index(found) = found else { panic!("{found:?}") };
    assert_eq!(
        (found.node.as_str(), &found.position[..], found.index),
        ("/the/Scan//the/Gather", &[1][..], 70)
    );

    let branch = |op: &str, inputs: &[&str]| GraphProto {
        name: op.into(),
        node: vec![node(op, inputs, &["part"], &[])],
        output: vec![value("part", DataType::Float, &[2, 2])],
        ..Default::default()
    };
    let zero = constant("zero", &[0], &[]);
    let flat = constant("flat", &[2], &[1]);
    let last = constant("last", &[1], &[]);
    let chosen = node("If", &["positive"], &["y"], &[]);
    let chosen = with_graph(chosen, "then_branch", branch("Gather", &["table", "row"]));
    let chosen = with_graph(chosen, "else_branch", branch("Expand", &["some", "square"]));
    let nodes = vec![
        node("Gather", &["i", "zero"], &["row"], &[]),
        node("ReduceMin", &["i"], &["low"], &[("keepdims", 0)]),
        node("Greater", &["low", "zero"], &["positive"], &[]),
        node("Gather", &["table", "last"], &["some"], &[]),
        chosen,
    ];
    let square = constant("square", &[2, 2], &[2]);
    let initializers = vec![zero, flat, last, square];
    let case = Case { initializers, ..plain("branches", nodes, &[2, 2]) };
    // Nothing takes them where the other branch does.
    let (good, bad) = (ints(&[2, 2], &[50, -3, 2, 1]), ints(&[2, 2], &[3, 9, 2, 1]));
    let found = error(&case, &good, &bad);
    let RunError::Index(found) = found else { panic!("{found:?}") };
    assert_eq!(
        (found.node.as_str(), &found.position[..], found.index),
        ("/the/If//the/Gather", &[1][..], 9)
    );
}

/// Indices that the file holds: nothing is compiled, and the node is named.
#[test]
fn known_indices_are_checked_when_compiling() {
    let dir = tempfile::tempdir().unwrap();
    for (op, index) in [("Gather", -8), ("GatherElements", 7), ("GatherND", 7)] {
        let known = constant("known", &[0, index], &[2, 1]);
        let y: &'static [usize] = match op {
            "Gather" => &[2, 1, 2],
            "GatherElements" => &[2, 1],
            _ => &[2, 2],
        };
        let nodes = vec![node(op, &["table", "known"], &["y"], &[])];
        let case = Case { initializers: vec![known], ..plain("known", nodes, y) };
        let (artifact, done) = compiled(dir.path(), &case);
        assert_eq!(done.status.code(), Some(1), "{op}");
        let said = text(&done.stderr);
        let cause = format!("index {index} at [1, 0] of its indices is out of range");
        assert!(said.contains(&format!("/the/{op}")) && said.contains(&cause), "{said}");
        assert!(said.contains("it must be from -7 to 6"), "{said}");
        assert!(!artifact.exists());
    }
}

/// Inputs that are made up are legal indices, of an axis of one element too.
#[test]
fn made_up_inputs_are_in_range() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = vec![
        node("Slice", &["table", "zero", "one"], &["row"], &[]),
        node("Gather", &["row", "i"], &["y"], &[]),
    ];
    let initializers = vec![constant("zero", &[0], &[1]), constant("one", &[1], &[1])];
    let case = Case { initializers, ..plain("row", nodes, &[2, 2, 2]) };
    let (artifact, done) = compiled(dir.path(), &case);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let model = dir.path().join("model.onnx");
    for arguments in
        [&["verify", str(&model), str(&artifact)][..], &["bench", str(&artifact), "--runs", "2"]]
    {
        let done = ansc(arguments);
        assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    }
}

#[test]
fn run_and_verify_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = vec![node("Gather", &["table", "i"], &["y"], &[])];
    let (artifact, done) = compiled(dir.path(), &plain("gather", nodes, &[2, 2, 2]));
    assert!(done.status.success(), "{}", text(&done.stderr));
    let at = |name: &str| dir.path().join(name);
    npy::write(at("table.npy"), &table()).unwrap();
    npy::write(at("i.npy"), &ints(&[2, 2], &[0, 30522, 1, 2])).unwrap();
    let given = ["table", "i"].map(|name| format!("{name}={}", str(&at(&format!("{name}.npy")))));
    let inputs = ["--input", &given[0], "--input", &given[1]];
    let said = "node `/the/Gather`: index 30522 at [0, 1] of input `i` is out of range; \
                it must be from -7 to 6";
    let out = at("out");
    for verb in [
        &["run", str(&artifact), "--output-dir", str(&out)][..],
        &["verify", str(&at("model.onnx")), str(&artifact)],
    ] {
        let done = ansc(&[verb, &inputs[..]].concat());
        assert_eq!(done.status.code(), Some(1), "{verb:?}");
        assert!(text(&done.stderr).contains(said), "{verb:?}: {}", text(&done.stderr));
    }
    assert!(!out.exists());
}

/// The form of a GPU's schedule for this CPU checks as the CPU does.
#[test]
fn gpu_schedules_on_a_cpu() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = vec![node("Gather", &["table", "i"], &["y"], &[])];
    compiled(dir.path(), &plain("gather", nodes, &[2, 2, 2]));
    let (model, form) = (dir.path().join("model.onnx"), dir.path().join("form.ansc"));
    let done = ansc(&["compile", str(&model), "--target", "cuda-on-cpu", "-o", str(&form)]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let mut session = Model::load(&form).unwrap().session().unwrap();
    let (table, bad) = (table(), Tensor::zeros(DType::I64, &[2, 2]));
    assert!(session.run(&[("table", &table), ("i", &bad)]).is_ok());
    let bad = ints(&[2, 2], &[0, 0, 0, 8]);
    let found = session.run(&[("table", &table), ("i", &bad)]).unwrap_err();
    assert_eq!(found, expected("Gather", "i", true, &[1, 1], 8));
}

/// A GPU's run waits for no host: inputs are checked before it, and what is computed on the way is
/// not.
#[test]
fn plans_of_gpus_check_inputs() {
    let twice = vec![
        node("Add", &["i", "i"], &["twice"], &[]),
        node("Gather", &["table", "twice"], &["y"], &[]),
    ];
    let direct = vec![node("Gather", &["table", "i"], &["y"], &[])];
    for (nodes, expected) in [(direct, 1), (twice, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let (artifact, _) = compiled(dir.path(), &plain("gather", nodes, &[2, 2, 2]));
        let model = dir.path().join("model.onnx");
        let done = ansc(&["compile", str(&model), "--target", "cuda", "-o", str(&artifact)]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let manifest = Model::read_manifest(&artifact).unwrap();
        let steps = &manifest.specialisations[0].plan.steps;
        let checks = steps.iter().filter(|step| matches!(step, Step::Host { .. }));
        assert_eq!(checks.count(), expected);
    }
}
