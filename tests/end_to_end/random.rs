//! Random numbers: other ones in each run of a session, and the same ones in every new session and
//! in the reference interpreter.

use std::path::Path;

use crate::common::{ansc, str, text};
use ansc_runtime::{Model, Session, Tensor};
use prost::Message;
use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto,
    TypeProto, ValueInfoProto, type_proto,
};

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: kind as i32, ..Default::default() }
}

fn node(op: &str, inputs: &[&str], output: &str, attributes: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: vec![output.into()],
        attribute: attributes,
        ..Default::default()
    }
}

fn value(name: &str, shape: &[Option<i64>]) -> ValueInfoProto {
    let dim = |n: &Option<i64>| Dimension {
        value: Some(match n {
            Some(n) => dimension::Value::DimValue(*n),
            None => dimension::Value::DimParam("rows".into()),
        }),
        ..Default::default()
    };
    let shape = Some(TensorShapeProto { dim: shape.iter().map(dim).collect() });
    let tensor = type_proto::Tensor { elem_type: DataType::Float as i32, shape };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: name.into(),
        r#type: Some(TypeProto { value, ..Default::default() }),
        ..Default::default()
    }
}

/// `p` is what is likely, and results are one of each operator; `fixed` has a seed of its own.
fn model() -> ModelProto {
    let ints = AttributeProto { ints: vec![40, 8], ..attribute("shape", AttributeType::Ints) };
    let samples = AttributeProto { i: 16, ..attribute("sample_size", AttributeType::Int) };
    let mean = AttributeProto { f: 3.0, ..attribute("mean", AttributeType::Float) };
    let high = AttributeProto { f: 5.0, ..attribute("high", AttributeType::Float) };
    let seed = AttributeProto { f: 7.0, ..attribute("seed", AttributeType::Float) };
    let nodes = vec![
        node("RandomNormal", &[], "normal", vec![ints.clone(), mean.clone()]),
        node("RandomNormalLike", &["p"], "like", vec![mean]),
        node("RandomUniform", &[], "even", vec![ints, high.clone()]),
        node("RandomUniformLike", &["p"], "even_like", vec![high.clone()]),
        node("RandomUniformLike", &["p"], "fixed", vec![high, seed]),
        node("Bernoulli", &["p"], "coin", vec![]),
        node("Log", &["p"], "logs", vec![]),
        node("Multinomial", &["logs"], "class", vec![samples]),
    ];
    let results = ["normal", "like", "even", "even_like", "fixed", "coin", "class"];
    let output = |name: &&str| ValueInfoProto { name: name.to_string(), ..Default::default() };
    ModelProto {
        ir_version: 8,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        graph: Some(GraphProto {
            name: "random".into(),
            node: nodes,
            input: vec![value("p", &[None, Some(9)])],
            output: results.iter().map(output).collect(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn compiled(folder: &Path, options: &[&str]) -> Model {
    let (source, artifact) = (folder.join("m.onnx"), folder.join("m.ansc"));
    std::fs::write(&source, model().encode_to_vec()).unwrap();
    let all = [&["compile", str(&source), "-o", str(&artifact), "--untuned"], options].concat();
    let done = ansc(&all);
    assert!(done.status.success(), "{}", text(&done.stderr));
    // Without sizes, those of the artifact are verified.
    let all = ["verify", str(&source), str(&artifact)];
    let done = ansc(&all);
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    Model::load(&artifact).unwrap()
}

fn likely(rows: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * 9).map(|i| (i % 9 + 1) as f32 / 10.0).collect();
    Tensor::from_slice(&[rows, 9], &values)
}

fn run(session: &mut Session, rows: usize) -> Vec<(String, Tensor)> {
    session.run(&[("p", &likely(rows))]).unwrap()
}

/// The names of results that differ.
fn differing(a: &[(String, Tensor)], b: &[(String, Tensor)]) -> Vec<String> {
    let pairs = a.iter().zip(b).filter(|(a, b)| a != b);
    pairs.map(|((name, _), _)| name.clone()).collect()
}

#[test]
fn runs_differ_and_sessions_repeat_them() {
    let folder = tempfile::tempdir().unwrap();
    let model = compiled(folder.path(), &["--dim", "rows=6"]);
    let mut session = model.session().unwrap();
    let all: Vec<_> = (0..3).map(|_| run(&mut session, 6)).collect();
    assert_eq!(differing(&all[0], &all[1]).len(), 7);
    assert_eq!(differing(&all[1], &all[2]).len(), 7);
    let mut other = model.session().unwrap();
    assert!(all.iter().all(|before| *before == run(&mut other, 6)));
    session.reset();
    assert_eq!(run(&mut session, 6), all[0]);
    session.seed(1);
    let seeded = run(&mut session, 6);
    let expected = ["normal", "like", "even", "even_like", "coin", "class"];
    assert_eq!(differing(&seeded, &all[0]), expected);
    session.seed(0);
    assert_eq!(run(&mut session, 6), all[0]);
    let of = |name: &str| all[0].iter().find(|(n, _)| n == name).unwrap().1.to_f64_vec();
    assert!(of("even_like").iter().all(|x| (0.0..5.0).contains(x)));
    assert!(of("coin").iter().all(|x| [0.0, 1.0].contains(x)));
    assert!(of("class").iter().all(|x| (0.0..9.0).contains(x) && x.fract() == 0.0));
    let mean = of("normal").iter().sum::<f64>() / 320.0;
    assert!((mean - 3.0).abs() < 0.25, "{mean}");
}

/// The number at an index does not depend on how many rows there are.
#[test]
fn a_range_of_sizes_draws_what_each_size_draws() {
    let folder = tempfile::tempdir().unwrap();
    let range = compiled(folder.path(), &["--dim", "rows=1..40"]);
    let single = compiled(folder.path(), &["--dim", "rows=23"]);
    let [a, b] = [range, single].map(|model| run(&mut model.session().unwrap(), 23));
    for ((name, a), (_, b)) in a.iter().zip(&b) {
        let pairs = a.to_f64_vec().into_iter().zip(b.to_f64_vec());
        let differ = pairs.filter(|(a, b)| (a - b).abs() > 1e-5 * a.abs().max(1.0));
        assert_eq!((a.shape(), differ.count()), (b.shape(), 0), "{name}");
    }
}
