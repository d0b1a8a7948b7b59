//! A small network of each kind of node, quantised: what becomes integers, and what it computes.

mod integers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ansc_frontend::import::{self, ImportOptions};
use ansc_frontend::qdq::{self, Alternative, Survey, Switch, Switches};
use ansc_graph::interp;
use ansc_graph::op::Kind;
use ansc_runtime::{DType, Quantization, Scaling, Tensor};
use prost::Message;
use tempfile::TempDir;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::*;

/// Numbers in -1..1 that look random.
fn noise(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    Tensor::from_slice(shape, &values)
}

fn info(name: &str, shape: Option<&[usize]>) -> ValueInfoProto {
    let dim = |d: &usize| Dimension {
        value: Some(dimension::Value::DimValue(*d as i64)),
        ..Dimension::default()
    };
    let shape = shape.map(|s| TensorShapeProto { dim: s.iter().map(dim).collect() });
    let tensor = type_proto::Tensor { elem_type: DataType::Float as i32, shape };
    let value = Some(type_proto::Value::TensorType(tensor));
    let r#type = Some(TypeProto { value, ..TypeProto::default() });
    ValueInfoProto { name: name.into(), r#type, ..ValueInfoProto::default() }
}

/// A tensor as the file holds it.
fn encode(name: &str, tensor: &Tensor) -> TensorProto {
    let data_type = match tensor.dtype() {
        DType::F32 => DataType::Float,
        DType::U8 => DataType::Uint8,
        DType::I8 => DataType::Int8,
        _ => DataType::Int32,
    };
    TensorProto {
        name: name.into(),
        dims: tensor.shape().iter().map(|&extent| extent as i64).collect(),
        data_type: data_type as i32,
        raw_data: tensor.bytes().to_vec(),
        ..TensorProto::default()
    }
}

fn int(name: &str, i: i64) -> AttributeProto {
    let r#type = AttributeType::Int as i32;
    AttributeProto { name: name.into(), i, r#type, ..AttributeProto::default() }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    let r#type = AttributeType::Ints as i32;
    AttributeProto { name: name.into(), ints: values.to_vec(), r#type, ..Default::default() }
}

fn with(mut node: NodeProto, attributes: Vec<AttributeProto>) -> NodeProto {
    node.attribute = attributes;
    node
}

fn op(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        name: format!("the_{output}"),
        input: inputs.iter().map(|&input| input.into()).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    }
}

fn model(
    x: &[usize],
    nodes: Vec<NodeProto>,
    constants: Vec<(&str, Tensor)>,
    y: &str,
) -> ModelProto {
    let graph = GraphProto {
        input: vec![info("x", Some(x))],
        output: vec![info(y, None)],
        initializer: constants.iter().map(|(name, t)| encode(name, t)).collect(),
        node: nodes,
        ..GraphProto::default()
    };
    ModelProto {
        ir_version: 8,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        graph: Some(graph),
        ..ModelProto::default()
    }
}

/// conv, norm, relu, pool, a residual block, average, flatten, gemm.
fn convolutional() -> ModelProto {
    let pads = || ints("pads", &[1, 1, 1, 1]);
    let positive = |n: usize, seed| {
        let mut t = noise(&[n], seed);
        t.as_mut_slice::<f32>().iter_mut().for_each(|v| *v = v.abs() + 0.5);
        t
    };
    let nodes = vec![
        with(op("Conv", &["x", "w1"], "c1"), vec![pads()]),
        op("BatchNormalization", &["c1", "s", "b", "m", "v"], "n1"),
        op("Relu", &["n1"], "r1"),
        with(op("MaxPool", &["r1"], "p1"), vec![ints("kernel_shape", &[2, 2])]),
        with(op("Conv", &["p1", "w2", "b2"], "c2"), vec![pads()]),
        op("Add", &["c2", "p1"], "a"),
        op("Relu", &["a"], "r2"),
        op("GlobalAveragePool", &["r2"], "g"),
        op("Flatten", &["g"], "f"),
        with(op("Gemm", &["f", "w3", "b3"], "y"), vec![int("transB", 1)]),
    ];
    let constants = vec![
        ("w1", noise(&[8, 4, 3, 3], 1)),
        ("s", noise(&[8], 2)),
        ("b", noise(&[8], 3)),
        ("m", noise(&[8], 4)),
        ("v", positive(8, 5)),
        ("w2", noise(&[8, 8, 3, 3], 6)),
        ("b2", noise(&[8], 7)),
        ("w3", noise(&[5, 8], 8)),
        ("b3", noise(&[5], 9)),
    ];
    model(&[2, 4, 9, 7], nodes, constants, "y")
}

/// A projection with a bias added, a residual sum and a normalisation after it.
fn transformer() -> ModelProto {
    let nodes = vec![
        op("MatMul", &["x", "w1"], "q"),
        op("Add", &["q", "b1"], "qb"),
        with(op("Transpose", &["x"], "t"), vec![ints("perm", &[0, 2, 1])]),
        op("MatMul", &["qb", "t"], "scores"),
        op("Softmax", &["scores"], "shares"),
        op("MatMul", &["shares", "x"], "mixed"),
        op("Add", &["mixed", "x"], "sum"),
        op("LayerNormalization", &["sum", "gain"], "y"),
    ];
    let constants =
        vec![("w1", noise(&[6, 6], 1)), ("b1", noise(&[6], 2)), ("gain", noise(&[6], 3))];
    model(&[2, 5, 6], nodes, constants, "y")
}

/// A model in a file, and a place for another.
struct Files {
    folder: TempDir,
}

impl Files {
    fn of(model: &ModelProto) -> Files {
        let files = Files { folder: tempfile::tempdir().unwrap() };
        std::fs::write(files.model(), model.encode_to_vec()).unwrap();
        files
    }

    fn model(&self) -> PathBuf {
        self.folder.path().join("m.onnx")
    }

    fn other(&self) -> PathBuf {
        self.folder.path().join("other.onnx")
    }
}

fn read(path: &Path) -> ModelProto {
    ModelProto::decode(&std::fs::read(path).unwrap()[..]).unwrap()
}

fn survey_of(model: &ModelProto) -> Survey {
    qdq::survey(&Files::of(model).model()).unwrap()
}

/// The quantised model, or why there is none.
fn quantized(model: &ModelProto, how: &Quantization) -> Result<ModelProto, String> {
    let files = Files::of(model);
    qdq::write(&files.model(), how, &files.other()).map_err(|e| e.to_string())?;
    Ok(read(&files.other()))
}

fn run(model: &ModelProto, options: &ImportOptions, x: &Tensor) -> Vec<Tensor> {
    let graph = import::from_bytes(&model.encode_to_vec(), None, options).unwrap();
    interp::run(&graph, std::slice::from_ref(x)).unwrap()
}

/// Ranges are those of the run on `x`.
fn quantization(model: &ModelProto, x: &Tensor, dtype: DType, per_channel: bool) -> Quantization {
    let survey = survey_of(model);
    let chosen = survey.chosen(&survey.products().map(|c| c.name.clone()).collect());
    let origins: BTreeSet<&String> = chosen.tensors.values().collect();
    let mut scalings = BTreeMap::new();
    for name in origins {
        let options = ImportOptions { outputs: vec![name.clone()], ..ImportOptions::default() };
        let values = if name == "x" { x.clone() } else { run(model, &options, x).remove(0) };
        let of = values.as_slice::<f32>().iter().copied();
        let (low, high) = (of.clone().fold(0.0, f32::min), of.fold(0.0, f32::max));
        scalings.insert(name.clone(), Scaling::over(dtype, low, high));
    }
    let tensors = chosen.tensors.into_iter();
    let tensors = tensors.map(|(name, origin)| (name, scalings[&origin])).collect();
    Quantization { tensors, nodes: chosen.nodes, per_channel }
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| format!("the_{name}")).collect()
}

#[test]
fn bytes_flow_from_product_to_product() {
    let survey = survey_of(&convolutional());
    let all = survey.products().map(|c| c.name.clone()).collect();
    let chosen = survey.chosen(&all);
    // The norm is a part of the convolution, which has its result now.
    let expected = names(&["c1", "r1", "p1", "c2", "a", "r2", "g", "f", "y"]);
    assert_eq!(chosen.nodes, expected);
    let tensors: Vec<(&str, &str)> =
        chosen.tensors.iter().map(|(name, origin)| (&name[..], &origin[..])).collect();
    // Nothing is rounded between a product and its Relu, and movements keep scalings.
    let expected = [
        ("c2", "c2"),
        ("f", "g"),
        ("g", "g"),
        ("p1", "r1"),
        ("r1", "r1"),
        ("r2", "r2"),
        ("x", "x"),
    ];
    assert_eq!(tensors, expected);
}

#[test]
fn what_no_product_reads_stays() {
    let survey = survey_of(&convolutional());
    // Without the last product nobody needs the average, and without the second not the sum.
    let first = survey.chosen(&names(&["c1"]));
    assert_eq!(first.nodes, names(&["c1"]));
    let two = survey.chosen(&names(&["c1", "c2"]));
    assert!(!two.nodes.contains("the_p1") && two.nodes.contains("the_c2"), "{two:?}");
}

#[test]
fn normalisations_and_softmax_read_all_bits() {
    let survey = survey_of(&transformer());
    let all = survey.products().map(|c| c.name.clone()).collect();
    let chosen = survey.chosen(&all);
    assert_eq!(chosen.nodes, names(&["q", "scores", "mixed", "t"]));
    let tensors: Vec<&str> = chosen.tensors.keys().map(String::as_str).collect();
    assert_eq!(tensors, ["qb", "shares", "t", "x"]);
}

#[test]
fn the_quantised_model_computes_nearly_the_same() {
    for (model, shape) in [(convolutional(), &[2, 4, 9, 7][..]), (transformer(), &[2, 5, 6])] {
        let x = noise(shape, 11);
        let plain = run(&model, &ImportOptions::default(), &x).remove(0).to_f64_vec();
        let largest = plain.iter().fold(0.0f64, |a, v| a.max(v.abs()));
        for (dtype, per_channel) in [(DType::U8, true), (DType::I8, true), (DType::U8, false)] {
            let how = quantization(&model, &x, dtype, per_channel);
            let quantised = quantized(&model, &how).unwrap();
            let y = run(&quantised, &ImportOptions::default(), &x).remove(0).to_f64_vec();
            let error = y.iter().zip(&plain).fold(0.0f64, |e, (a, b)| e.max((a - b).abs()));
            assert!(error < 0.05 * largest, "{dtype} {per_channel}: {error} of {largest}");
            // It rounds: nothing would be tested otherwise.
            assert!(error > 1e-5 * largest, "{dtype} {per_channel}: {error}");
            let options =
                ImportOptions { quantization: Some(how.into()), ..ImportOptions::default() };
            assert_eq!(run(&model, &options, &x).remove(0).to_f64_vec(), y);
        }
    }
}

#[test]
fn products_become_products_of_bytes() {
    let (model, x) = (convolutional(), noise(&[2, 4, 9, 7], 11));
    let how = quantization(&model, &x, DType::U8, true);
    let options = ImportOptions { quantization: Some(how.into()), ..ImportOptions::default() };
    let graph = import::from_bytes(&model.encode_to_vec(), None, &options).unwrap();
    let products = graph
        .node_ids()
        .into_iter()
        .filter_map(|id| graph.compute_of(id))
        .filter(|op| matches!(op.kind, Kind::Conv(_) | Kind::MatMul));
    let types: Vec<Vec<DType>> =
        products.map(|op| op.expr.inputs.iter().map(|ty| ty.dtype).collect()).collect();
    assert_eq!(types, vec![vec![DType::U8, DType::I8]; 3]);
}

#[test]
fn a_switch_decides_what_a_product_reads() {
    let (model, x) = (convolutional(), noise(&[2, 4, 9, 7], 11));
    let how = quantization(&model, &x, DType::U8, true);
    let switch = |product: &str, input: &str, to| Switch {
        product: product.into(),
        input: input.into(),
        to,
    };
    let switches = Switches {
        all: vec![
            switch("the_c2", "s0", Alternative::Integers),
            switch("the_y", "s1", Alternative::Halves(DType::BF16)),
        ],
        tensors: how.tensors.clone(),
        per_channel: true,
    };
    let files = Files::of(&model);
    qdq::write_switched(&files.model(), &switches, &files.other()).unwrap();
    let switched = read(&files.other());
    let graph =
        import::from_bytes(&switched.encode_to_vec(), None, &ImportOptions::default()).unwrap();
    let with = |on: [bool; 2]| {
        let on = on.map(Tensor::scalar);
        let y = interp::run(&graph, &[x.clone(), on[0].clone(), on[1].clone()]).unwrap();
        y[0].to_f64_vec()
    };
    let plain = run(&model, &ImportOptions::default(), &x).remove(0).to_f64_vec();
    let far = |y: &[f64]| y.iter().zip(&plain).fold(0.0f64, |e, (a, b)| e.max((a - b).abs()));
    let [off, first, second, both] =
        [[false, false], [true, false], [false, true], [true, true]].map(|on| far(&with(on)));
    assert!(off < 1e-5, "{off}");
    assert!(first > 1e-4 && second > 1e-4 && both > 1e-4, "{first} {second} {both}");
    assert!(first != second && both != first && both != second);
}

#[test]
fn models_that_cannot_be_quantised_are_refused() {
    let refused = |model: &ModelProto, reason: &str| {
        let problem = qdq::survey(&Files::of(model).model()).err().unwrap().to_string();
        assert!(problem.contains(reason), "{problem}");
    };
    let mut old = convolutional();
    old.opset_import[0].version = 12;
    refused(&old, "opset 13");
    let (model, x) = (convolutional(), noise(&[2, 4, 9, 7], 11));
    let how = quantization(&model, &x, DType::U8, true);
    let twice = quantized(&model, &how).unwrap();
    refused(&twice, "quantised already");
    let unknown = Quantization { nodes: names(&["nothing"]), ..how };
    let problem = quantized(&model, &unknown).unwrap_err();
    assert!(problem.contains("no node `the_nothing`"), "{problem}");
}

#[test]
fn names_that_are_taken_stay_what_they_are() {
    let mut model = convolutional();
    let graph = model.graph.as_mut().unwrap();
    // A tensor with the name that the scale of `x` would have.
    graph.node[2].output[0] = "x_scale".into();
    graph.node[3].input[0] = "x_scale".into();
    let x = noise(&[2, 4, 9, 7], 11);
    let how = quantization(&model, &x, DType::U8, true);
    let quantised = quantized(&model, &how).unwrap();
    let y = run(&quantised, &ImportOptions::default(), &x).remove(0);
    let plain = quantization(&convolutional(), &x, DType::U8, true);
    let expected = quantized(&convolutional(), &plain).unwrap();
    assert_eq!(y, run(&expected, &ImportOptions::default(), &x).remove(0));
}
