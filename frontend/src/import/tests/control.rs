//! Branches, loops and recurrent layers, against what they mean written out by hand.

use super::*;

pub(super) fn attribute(name: &str, ty: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: ty as i32, ..AttributeProto::default() }
}

pub(super) fn body(
    name: &str,
    inputs: &[&str],
    nodes: Vec<NodeProto>,
    outputs: &[&str],
) -> AttributeProto {
    let named = |n: &&str| ValueInfoProto { name: n.to_string(), ..Default::default() };
    let graph = GraphProto {
        input: inputs.iter().map(named).collect(),
        node: nodes,
        output: outputs.iter().map(named).collect(),
        ..GraphProto::default()
    };
    AttributeProto { g: Some(graph), ..attribute(name, AttributeType::Graph) }
}

pub(super) fn with(mut node: NodeProto, attributes: Vec<AttributeProto>) -> NodeProto {
    node.attribute = attributes;
    node
}

fn results(model: &ModelProto, inputs: &[&[f32]]) -> Vec<Vec<f64>> {
    let graph = import(model, &ImportOptions::default()).unwrap();
    ansc_graph::verify::verify(&graph).unwrap();
    let shapes = graph.inputs().iter().map(|&n| graph.node(n).outputs[0].ty.shape.clone());
    let inputs: Vec<Tensor> =
        shapes.zip(inputs).map(|(shape, values)| Tensor::from_slice(&shape, values)).collect();
    let outputs = interp::run(&graph, &inputs).unwrap();
    outputs.iter().map(Tensor::to_f64_vec).collect()
}

fn count(graph: &Graph, matches: fn(&Op) -> bool) -> usize {
    graph.node_ids().iter().filter(|&&n| matches(&graph.node(n).op)).count()
}

#[test]
fn branches_take_what_either_of_them_reads() {
    let choice = with(
        node("If", &["c"], &["y"]),
        vec![
            body("then_branch", &[], vec![node("Sub", &["x", "z"], &["t"])], &["t"]),
            body("else_branch", &[], vec![node("Mul", &["w", "x"], &["e"])], &["e"]),
        ],
    );
    let nodes = vec![
        node("Neg", &["x"], &["z"]),
        node("Exp", &["x"], &["w"]),
        node("Less", &["k", "x"], &["c"]),
        choice,
    ];
    let mut model = model(vec![info("x", &["1"])], nodes, &["y"]);
    model.graph.as_mut().unwrap().initializer.push(floats("k", &[1], &[0.5]));
    assert_eq!(results(&model, &[&[2.0]]), [[4.0]]);
    assert_eq!(results(&model, &[&[0.0]]), [[0.0]]);

    // Known to be taken, the branch stands in place of the node.
    model.graph.as_mut().unwrap().node[2] = node("Less", &["k", "k"], &["c"]);
    let graph = import(&model, &ImportOptions::default()).unwrap();
    assert_eq!(count(&graph, |op| matches!(op, Op::If(_))), 0);
    assert_eq!(results(&model, &[&[0.0]]), [[0.0]]);
}

/// A loop of up to `trips` iterations that starts with `x`.
fn looped(trips: i64, body: AttributeProto, outputs: &[&str]) -> ModelProto {
    let constant = AttributeProto { i: trips, ..attribute("value_int", AttributeType::Int) };
    let trip = with(node("Constant", &[], &["m"]), vec![constant]);
    let repetition = with(node("Loop", &["m", "", "x"], outputs), vec![body]);
    model(vec![info("x", &["1"])], vec![trip, repetition], outputs)
}

/// However often it might have run.
#[test]
fn a_loop_that_never_begins_gives_what_it_was_given() {
    let mut never = looped(
        0,
        body(
            "body",
            &["i", "c", "x"],
            vec![node("Identity", &["c"], &["on"]), node("Neg", &["x"], &["z"])],
            &["on", "z"],
        ),
        &["y"],
    );
    let graph = never.graph.as_mut().unwrap();
    graph.input.push(typed(info("trips", &[]), DataType::Int64));
    let condition = AttributeProto {
        t: Some(TensorProto {
            data_type: DataType::Bool as i32,
            int32_data: vec![0],
            ..TensorProto::default()
        }),
        ..attribute("value", AttributeType::Tensor)
    };
    graph.node[0] = with(node("Constant", &[], &["begins"]), vec![condition]);
    graph.node[1].input = ["trips", "begins", "x"].map(String::from).into();
    let graph = import(&never, &ImportOptions::default()).unwrap();
    for trips in [-1i64, 0, 5] {
        let inputs = [Tensor::from_slice(&[1], &[2.5f32]), Tensor::scalar(trips)];
        assert_eq!(interp::run(&graph, &inputs).unwrap()[0].to_f64_vec(), [2.5], "{trips}");
    }
}

#[test]
fn loops_end_by_count_or_by_condition() {
    let nodes = vec![
        node("Add", &["a", "a"], &["b"]),
        node("Less", &["b", "x100"], &["on"]),
        node("Neg", &["b"], &["n"]),
    ];
    let body = body("body", &["i", "c", "a"], nodes, &["on", "b", "n"]);
    for (trips, last) in [(3, 8.0), (20, 128.0)] {
        let mut model = looped(trips, body.clone(), &["y", "all"]);
        model.graph.as_mut().unwrap().initializer.push(floats("x100", &[1], &[100.0]));
        let graph = import(&model, &ImportOptions::default()).unwrap();
        assert!(graph.value(graph.outputs[1].1).dynamic);
        let values = results(&model, &[&[1.0]]);
        assert_eq!(values[0], [last]);
        let all: Vec<f64> = (1..).map(|i| -f64::powi(2.0, i)).take_while(|v| -v <= last).collect();
        assert_eq!(values[1], all);
    }
}

#[test]
fn a_body_may_give_one_value_twice() {
    let body =
        body("body", &["i", "c", "a"], vec![node("Add", &["a", "a"], &["b"])], &["c", "b", "b"]);
    let values = results(&looped(100, body, &["y", "all"]), &[&[0.5]]);
    assert_eq!(values[0], [f64::powi(2.0, 99)]);
    assert_eq!((values[1].len(), values[1][99]), (100, values[0][0]));
}

#[test]
fn a_loop_that_changes_shapes_becomes_copies() {
    let concat = with(
        node("Concat", &["a", "x"], &["b"]),
        vec![AttributeProto { i: 0, ..attribute("axis", AttributeType::Int) }],
    );
    let body = body("body", &["i", "c", "a"], vec![concat], &["c", "b"]);
    let model = looped(3, body, &["y"]);
    let graph = import(&model, &ImportOptions::default()).unwrap();
    assert_eq!(count(&graph, |op| matches!(op, Op::Loop(_))), 0);
    assert_eq!(results(&model, &[&[5.0]]), [[5.0; 4]]);
}

#[test]
fn scans_go_along_any_axis_in_both_directions() {
    let ints = |name: &str, ints: &[i64]| AttributeProto {
        ints: ints.to_vec(),
        ..attribute(name, AttributeType::Ints)
    };
    let nodes = vec![node("Add", &["s", "u"], &["t"]), node("Neg", &["t"], &["n"])];
    let scan = with(
        node("Scan", &["x", "xs"], &["y", "all"]),
        vec![
            body("body", &["s", "u"], nodes, &["t", "n"]),
            AttributeProto { i: 1, ..attribute("num_scan_inputs", AttributeType::Int) },
            ints("scan_input_axes", &[-1]),
            ints("scan_input_directions", &[1]),
            ints("scan_output_axes", &[-1]),
        ],
    );
    let inputs = vec![info("x", &["2"]), info("xs", &["2", "3"])];
    let model = model(inputs, vec![scan], &["y", "all"]);
    let values = results(&model, &[&[1.0, 2.0], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]]);
    assert_eq!(values[0], [7.0, 62.0]);
    assert_eq!(values[1], [-4.0, -6.0, -7.0, -32.0, -52.0, -62.0]);
}

const STEPS: usize = 4;
const BATCH: usize = 2;
const WIDTH: usize = 3;
const HIDDEN: usize = 2;

/// Numbers without pattern, between -1 and 1.
fn noise(seed: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| (((i + seed) as f64 * 12.9898).sin() * 43758.5453).fract() as f32).collect()
}

/// The hidden states `[STEPS, BATCH, HIDDEN]` of an LSTM in one direction, one number at a time.
fn reference(x: &[f32], w: &[f32], r: &[f32], b: &[f32], reverse: bool) -> Vec<f64> {
    let mut hidden = vec![0.0; BATCH * HIDDEN];
    let mut cells = hidden.clone();
    let mut all = vec![0.0; STEPS * BATCH * HIDDEN];
    for step in 0..STEPS {
        let t = if reverse { STEPS - 1 - step } else { step };
        let before = hidden.clone();
        for n in 0..BATCH {
            for j in 0..HIDDEN {
                let gate = |k: usize| {
                    let row = k * HIDDEN + j;
                    let mut sum = f64::from(b[row]) + f64::from(b[4 * HIDDEN + row]);
                    for i in 0..WIDTH {
                        let value = x[(t * BATCH + n) * WIDTH + i];
                        sum += f64::from(value) * f64::from(w[row * WIDTH + i]);
                    }
                    for i in 0..HIDDEN {
                        sum += before[n * HIDDEN + i] * f64::from(r[row * HIDDEN + i]);
                    }
                    sum
                };
                let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
                let at = n * HIDDEN + j;
                cells[at] = sigmoid(gate(2)) * cells[at] + sigmoid(gate(0)) * gate(3).tanh();
                hidden[at] = sigmoid(gate(1)) * cells[at].tanh();
                all[t * BATCH * HIDDEN + at] = hidden[at];
            }
        }
    }
    all
}

#[test]
fn an_lstm_in_both_directions_is_two_loops() {
    let lstm = with(
        node("LSTM", &["x", "w", "r", "b"], &["y"]),
        vec![AttributeProto {
            s: b"bidirectional".to_vec(),
            ..attribute("direction", AttributeType::String)
        }],
    );
    let size = |d: &[usize]| d.iter().product::<usize>();
    let [w, r, b] = [[2, 4 * HIDDEN, WIDTH], [2, 4 * HIDDEN, HIDDEN], [1, 2, 8 * HIDDEN]]
        .map(|shape| noise(shape[2], size(&shape)));
    let [steps, batch, width] = [STEPS, BATCH, WIDTH].map(|n| n.to_string());
    let mut model = model(vec![info("x", &[&steps, &batch, &width])], vec![lstm], &["y"]);
    let (rows, h) = (4 * HIDDEN as i64, HIDDEN as i64);
    model.graph.as_mut().unwrap().initializer = vec![
        floats("w", &[2, rows, WIDTH as i64], &w),
        floats("r", &[2, rows, h], &r),
        floats("b", &[2, 2 * rows], &b),
    ];
    let graph = import(&model, &ImportOptions::default()).unwrap();
    assert_eq!(count(&graph, |op| matches!(op, Op::Loop(_))), 2);

    let x = noise(5, STEPS * BATCH * WIDTH);
    let y = &results(&model, &[&x])[0];
    for d in 0..2 {
        let part = |all: &[f32]| all[d * all.len() / 2..(d + 1) * all.len() / 2].to_vec();
        let expected = reference(&x, &part(&w), &part(&r), &part(&b), d == 1);
        for (i, expected) in expected.into_iter().enumerate() {
            let (t, rest) = (i / (BATCH * HIDDEN), i % (BATCH * HIDDEN));
            let found = y[(t * 2 + d) * BATCH * HIDDEN + rest];
            assert!((found - expected).abs() < 1e-5, "{d} {i}: {found}, not {expected}");
        }
    }
}
