//! Tensors without elements: what ONNX allows compiles and gives the shapes that its rules give,
//! what it does not allow gives an error.

use ansc::pipeline::{self, Options, Silent};
use ansc_codegen::Target;
use ansc_frontend::import::{self, ImportOptions};
use ansc_models::Builder;
use ansc_models::proto::Attribute;
use ansc_runtime::{DType, Model, Tensor};

/// One node.
struct Case {
    op: &'static str,
    /// Shapes of its inputs, which are floats.
    inputs: Vec<Vec<usize>>,
    /// Integers that follow them, known at compile time.
    integers: Vec<Vec<i64>>,
    attributes: Vec<(&'static str, Attribute)>,
    results: usize,
}

fn case(op: &'static str, inputs: &[&[usize]]) -> Case {
    let inputs = inputs.iter().map(|shape| shape.to_vec()).collect();
    Case { op, inputs, integers: vec![], attributes: vec![], results: 1 }
}

impl Case {
    fn ints(mut self, values: &[i64]) -> Case {
        self.integers.push(values.to_vec());
        self
    }

    fn with(mut self, name: &'static str, value: Attribute) -> Case {
        self.attributes.push((name, value));
        self
    }

    fn list(self, name: &'static str, values: &[i64]) -> Case {
        self.with(name, Attribute::Ints(values.to_vec()))
    }

    fn int(self, name: &'static str, value: i64) -> Case {
        self.with(name, Attribute::Int(value))
    }

    fn results(self, results: usize) -> Case {
        Case { results, ..self }
    }

    /// Adds the node; its data are constants, so that passes evaluate what they can, or inputs of
    /// the model.
    fn add(&self, b: &mut Builder, constant: bool) -> (Vec<String>, Vec<Input>) {
        let mut names = Vec::new();
        let mut given = Vec::new();
        for shape in &self.inputs {
            if constant {
                names.push(b.uniform(shape, 0.5, 1.5));
            } else {
                // The name of another constant is a new name.
                let fresh = b.scalar(0.0);
                let name = b.input(&format!("x_{fresh}"), shape);
                given.push((name.clone(), shape.clone()));
                names.push(name);
            }
        }
        names.extend(self.integers.iter().map(|values| b.ints(values)));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        (b.ops(self.op, &names, &self.attributes, self.results), given)
    }
}

/// Name and shape of an input of a model.
type Input = (String, Vec<usize>);

/// A node, the shape of its first result, and its elements, which are all alike.
type Allowed = (Case, &'static [usize], f32);

/// Shapes as onnx's shape inference gives them, values as its reference and ONNX Runtime.
fn allowed() -> Vec<Allowed> {
    let text = Attribute::Text;
    let rnn = |op, gates: usize, steps, batch, inputs| {
        let (w, r) = ([1, 3 * gates, inputs], [1, 3 * gates, 3]);
        case(op, &[&[steps, batch, inputs], &w, &r]).int("hidden_size", 3).results(2)
    };
    let hidden =
        |op| case(op, &[&[3, 2, 3], &[1, 0, 3], &[1, 0, 0]]).int("hidden_size", 0).results(2);
    let pool = |op, x: &[usize]| case(op, &[x]).list("kernel_shape", &[2, 2]);
    vec![
        (case("Conv", &[&[2, 0, 5, 6], &[4, 0, 3, 3]]), &[2, 4, 3, 4], 0.0),
        (case("Conv", &[&[0, 4, 5, 6], &[4, 4, 3, 3]]), &[0, 4, 3, 4], 0.0),
        (case("Conv", &[&[2, 4, 5, 6], &[0, 4, 3, 3]]), &[2, 0, 3, 4], 0.0),
        (case("Conv", &[&[2, 4, 0, 6], &[4, 4, 1, 1]]), &[2, 4, 0, 6], 0.0),
        (case("Conv", &[&[2, 4, 2, 6], &[4, 4, 3, 3]]), &[2, 4, 0, 4], 0.0),
        (case("ConvTranspose", &[&[2, 4, 0, 6], &[4, 4, 3, 3]]), &[2, 4, 2, 8], 0.0),
        (case("ConvTranspose", &[&[0, 4, 5, 6], &[4, 4, 3, 3]]), &[0, 4, 7, 8], 0.0),
        (pool("MaxPool", &[2, 0, 5, 6]), &[2, 0, 4, 5], 0.0),
        (pool("MaxPool", &[2, 3, 1, 6]), &[2, 3, 0, 5], 0.0),
        (pool("AveragePool", &[0, 3, 5, 6]), &[0, 3, 4, 5], 0.0),
        (case("GlobalAveragePool", &[&[2, 0, 5, 6]]), &[2, 0, 1, 1], 0.0),
        (case("InstanceNormalization", &[&[2, 0, 5], &[0], &[0]]), &[2, 0, 5], 0.0),
        (case("InstanceNormalization", &[&[2, 3, 0], &[3], &[3]]), &[2, 3, 0], 0.0),
        (case("LayerNormalization", &[&[2, 0], &[0]]), &[2, 0], 0.0),
        (case("LayerNormalization", &[&[0, 4], &[4]]), &[0, 4], 0.0),
        (case("ReduceSum", &[&[2, 3, 0]]).ints(&[2]), &[2, 3, 1], 0.0),
        (case("ReduceSum", &[&[2, 0, 3]]).ints(&[1]), &[2, 1, 3], 0.0),
        (case("ReduceProd", &[&[2, 3, 0]]).list("axes", &[1, 2]), &[2, 1, 1], 1.0),
        (case("ReduceProd", &[&[2, 3, 0]]).list("axes", &[2]), &[2, 3, 1], 1.0),
        (case("ReduceMax", &[&[2, 3, 0]]).list("axes", &[2]), &[2, 3, 1], f32::NEG_INFINITY),
        (case("ReduceMin", &[&[2, 3, 0]]).list("axes", &[2]), &[2, 3, 1], f32::INFINITY),
        (case("ReduceMin", &[&[0]]), &[1], f32::INFINITY),
        (case("ReduceL2", &[&[2, 0]]).list("axes", &[1]), &[2, 1], 0.0),
        (case("ReduceLogSumExp", &[&[2, 0]]).list("axes", &[1]), &[2, 1], f32::NEG_INFINITY),
        (case("Softmax", &[&[2, 0]]), &[2, 0], 0.0),
        (case("MatMul", &[&[2, 0], &[0, 3]]), &[2, 3], 0.0),
        (case("MatMul", &[&[0, 4], &[4, 3]]), &[0, 3], 0.0),
        (case("MatMul", &[&[0, 2, 4], &[4, 3]]), &[0, 2, 3], 0.0),
        (case("Gemm", &[&[2, 0], &[0, 3]]), &[2, 3], 0.0),
        (case("Gather", &[&[0, 3]]).ints(&[1]).int("axis", 1), &[0, 1], 0.0),
        (case("TopK", &[&[2, 0]]).ints(&[0]).results(2), &[2, 0], 0.0),
        (case("CumSum", &[&[0, 3]]).ints(&[0]), &[0, 3], 0.0),
        (case("Concat", &[&[0, 3], &[0, 3]]).int("axis", 0), &[0, 3], 0.0),
        (case("Slice", &[&[0, 3]]).ints(&[0]).ints(&[2]), &[0, 3], 0.0),
        (case("Transpose", &[&[2, 0, 3]]).list("perm", &[2, 0, 1]), &[3, 2, 0], 0.0),
        (case("Reshape", &[&[0, 3]]).ints(&[-1]), &[0], 0.0),
        (case("Flatten", &[&[2, 0, 3]]), &[2, 0], 0.0),
        (case("Expand", &[&[1, 0]]).ints(&[3, 1]), &[3, 0], 0.0),
        (case("Tile", &[&[2, 3]]).ints(&[0, 2]), &[0, 6], 0.0),
        (case("Pad", &[&[0, 3]]).ints(&[1, 0, 1, 0]), &[2, 3], 0.0),
        (case("Add", &[&[0, 3], &[1, 3]]), &[0, 3], 0.0),
        (case("Einsum", &[&[2, 0], &[0, 3]]).with("equation", text("ij,jk->ik")), &[2, 3], 0.0),
        (case("DepthToSpace", &[&[2, 0, 5, 6]]).int("blocksize", 2), &[2, 0, 10, 12], 0.0),
        (case("GridSample", &[&[2, 3, 4, 5], &[2, 0, 3, 2]]), &[2, 3, 0, 3], 0.0),
        (case("Trilu", &[&[0, 3]]), &[0, 3], 0.0),
        (case("Det", &[&[2, 0, 0]]), &[2], 1.0),
        (rnn("LSTM", 4, 0, 2, 3), &[0, 1, 2, 3], 0.0),
        (rnn("LSTM", 4, 3, 0, 3), &[3, 1, 0, 3], 0.0),
        (rnn("GRU", 3, 3, 2, 0), &[3, 1, 2, 3], 0.0),
        (rnn("RNN", 1, 3, 2, 0), &[3, 1, 2, 3], 0.0),
        (hidden("LSTM"), &[3, 1, 2, 0], 0.0),
        (hidden("GRU"), &[3, 1, 2, 0], 0.0),
        (hidden("RNN"), &[3, 1, 2, 0], 0.0),
    ]
}

/// All cases as one model, and its inputs.
fn network(cases: &[Allowed], constant: bool) -> (Vec<u8>, Vec<Input>) {
    let mut b = Builder::new("empty");
    let mut inputs = Vec::new();
    for (case, shape, _) in cases {
        let (results, given) = case.add(&mut b, constant);
        b.output(&results[0], shape);
        inputs.extend(given);
    }
    (b.finish().to_bytes(), inputs)
}

#[test]
fn what_is_allowed_computes() {
    let cases = allowed();
    let dir = tempfile::tempdir().unwrap();
    for constant in [false, true] {
        let (bytes, inputs) = network(&cases, constant);
        let (path, artifact) = (dir.path().join("m.onnx"), dir.path().join("m.ansc"));
        std::fs::write(&path, bytes).unwrap();
        let options = Options::new(ImportOptions::default(), Target::native().unwrap());
        pipeline::compile(&path, &artifact, &options, &Silent).unwrap();
        let mut session = Model::load(&artifact).unwrap().session().unwrap();
        let inputs: Vec<(String, Tensor)> =
            inputs.into_iter().map(|(name, shape)| (name, ones(&shape))).collect();
        let inputs: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (&**n, t)).collect();
        let outputs = session.run(&inputs).unwrap();
        assert_eq!(outputs.len(), cases.len());
        for ((case, shape, value), (_, found)) in cases.iter().zip(outputs) {
            let what = format!("{} of {:?}, constant: {constant}", case.op, case.inputs);
            assert_eq!((found.dtype(), found.shape()), (DType::F32, *shape), "{what}");
            assert!(found.as_slice::<f32>().iter().all(|v| v == value), "{what}: {found:?}");
        }
    }
}

fn ones(shape: &[usize]) -> Tensor {
    Tensor::from_slice(shape, &vec![1f32; shape.iter().product()])
}

#[test]
fn what_is_not_allowed_is_an_error() {
    let text = Attribute::Text;
    let cases = [
        case("Conv", &[&[2, 4, 0, 6], &[4, 4, 3, 3]]),
        case("Conv", &[&[2, 4, 5, 6], &[4, 4, 0, 0]]),
        case("Conv", &[&[2, 0, 5, 6], &[4, 4, 3, 3]]),
        case("Conv", &[&[2, 4, 5, 6], &[4, 4, 3, 3]]).int("group", 0),
        case("ConvTranspose", &[&[2, 4, 0, 6], &[4, 4, 1, 1]]).list("strides", &[2, 2]),
        case("MaxPool", &[&[2, 3, 0, 6]]).list("kernel_shape", &[2, 2]),
        case("MaxPool", &[&[2, 3, 5, 6]]).list("kernel_shape", &[0, 2]),
        case("MaxPool", &[&[2, 3, 5, 6]]).list("kernel_shape", &[2, 2]).list("strides", &[0, 1]),
        case("ArgMax", &[&[2, 0]]).int("axis", 1),
        case("Gather", &[&[0, 3]]).ints(&[0]),
        case("TopK", &[&[2, 0]]).ints(&[1]).results(2),
        case("Pad", &[&[0, 3]]).ints(&[1, 0, 1, 0]).with("mode", text("edge")),
        case("Reshape", &[&[0, 3]]).ints(&[0, -1]),
        case("Add", &[&[0, 3], &[2, 3]]),
        case("MatMul", &[&[2, 0], &[1, 3]]),
        case("DepthToSpace", &[&[2, 4, 5, 6]]).int("blocksize", 0),
        case("SpaceToDepth", &[&[2, 4, 4, 4]]).int("blocksize", 0),
        case("GroupNormalization", &[&[2, 4, 5], &[4], &[4]]).int("num_groups", 0),
        case("Split", &[&[4]]).int("num_outputs", 0),
    ];
    for case in cases {
        let mut b = Builder::new("empty");
        let (results, _) = case.add(&mut b, false);
        b.output(&results[0], &[0usize]);
        let bytes = b.finish().to_bytes();
        let imported = import::from_bytes(&bytes, None, &ImportOptions::default());
        let what = format!("{} of {:?}", case.op, case.inputs);
        let error = imported.err().unwrap_or_else(|| panic!("{what} was imported")).to_string();
        assert!(error.contains(&format!("({}, opset 17)", case.op)), "{what}: {error}");
    }
}
