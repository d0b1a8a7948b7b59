use std::collections::HashMap;

use ansc_runtime::{DType, Precision, Precisions, Tensor};

use super::*;
use crate::expr::{BinOp, UnOp};
use crate::fuse;
use crate::interp;
use crate::ops::{concat, grid};
use crate::passes::testing::{Builder, inputs};
use crate::passes::{self, Options};
use crate::verify::verify;

fn options(model: Precision, nodes: &[(&str, Precision)]) -> Options {
    let nodes = nodes.iter().map(|(name, p)| ((*name).to_owned(), *p)).collect();
    Options { precision: Precisions { model, nodes }, ..Options::default() }
}

/// The graph as all passes leave it in `f32`, and with the precisions of `options`.
fn both(graph: &Graph, options: &Options) -> (Graph, Graph) {
    let mut wide = graph.clone();
    passes::run_all(&mut wide, &Options::default()).unwrap();
    let mut rounded = wide.clone();
    run(&mut rounded, options).unwrap();
    assert_eq!(verify(&rounded), Ok(()));
    (wide, rounded)
}

fn bf16(graph: &Graph) -> Graph {
    both(graph, &options(Precision::Bf16, &[])).1
}

/// Values that kernels hand to kernels: the name of each, without its position, and the type of its
/// result. Views are left out.
fn stored(graph: &Graph) -> Vec<(String, DType)> {
    let kernels = fuse::fuse(graph).into_iter().filter(|g| !g.is_view);
    let name = |g: &Group| g.name.rsplit_once('_').unwrap().0.to_owned();
    kernels.map(|g| (name(&g), graph.ty(g.outputs[0]).dtype)).collect()
}

fn kernels(graph: &Graph, dtype: DType) -> Vec<String> {
    let all = stored(graph).into_iter().filter(|(_, own)| *own == dtype);
    all.map(|(name, _)| name).collect()
}

/// Operands stay as they are; sums of products alone read fewer bits of them.
#[test]
fn tensor_cores_read_what_is_stored_whole() {
    let graph = residual_network();
    let (wide, rounded) = both(&graph, &options(Precision::Tf32, &[]));
    assert_eq!(stored(&wide), stored(&rounded));
    let mut products = 0;
    for node in rounded.node_ids() {
        let Some(op) = rounded.compute_of(node) else { continue };
        let reads = op.expr.stages.iter().any(|stage| stage.body.to_string().contains("tf32("));
        assert_eq!(reads, is_product(&wide, node), "{op:?}");
        products += usize::from(reads);
    }
    assert!(products > 3, "{rounded}");
    let values = inputs(&graph);
    let [found, expected] = [&rounded, &wide].map(|g| interp::run(g, &values).unwrap().remove(0));
    let [found, expected] = [found, expected].map(|t| t.to_f64_vec());
    let most = expected.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    let worst = found.iter().zip(&expected).fold(0.0f64, |worst, (a, b)| worst.max((a - b).abs()));
    assert!(worst > 0.0 && worst < 8.0 * Precision::Tf32.unit_roundoff() * most, "{worst} {most}");
}

/// Nodes that round a value that is computed.
fn casts(graph: &Graph) -> usize {
    let text = graph.to_string();
    text.lines().filter(|line| line.contains("= bf16(in0[")).count()
}

/// A residual network with a pool, a depthwise convolution, a gate and a classifier.
fn residual_network() -> Graph {
    let mut b = Builder::new(50);
    let x = b.input(&[1, 4, 12, 12]);
    let stem = b.conv(x, 16, 3, 1);
    let stem = b.batch_norm(stem);
    let stem = b.relu(stem);
    let x = b.max_pool(stem);
    let y = b.conv(x, 16, 3, 1);
    let y = b.batch_norm(y);
    let y = b.relu(y);
    let y = b.grouped(y, 1);
    let y = b.relu(y);
    let y = b.conv(y, 16, 1, 1);
    let y = b.binary(BinOp::Add, y, x);
    let y = b.relu(y);
    let gate = b.mean_of_pixels(y);
    let gate = b.conv(gate, 16, 1, 1);
    let gate = b.unary(UnOp::Sigmoid, gate);
    let y = b.binary(BinOp::Mul, y, gate);
    let types = [y, x].map(|v| b.graph.ty(v).clone());
    let y = b.emit(concat::concat(&types, 1).unwrap(), &[y, x]);
    let y = b.conv(y, 24, 3, 2);
    let y = b.relu(y);
    let y = b.mean_of_pixels(y);
    let y = b.reshape(y, &[1, 24]);
    let y = b.dense(y, 10);
    b.finish(&[y])
}

/// One block with the norm behind the sum, as in BERT, or before the products, as in most others.
fn transformer(norm_first: bool) -> Graph {
    let (s, heads, d) = (9, 2, 8);
    let h = heads * d;
    let mut b = Builder::new(51);
    let x = b.input(&[1, s, h]);
    let x = b.layer_norm(x);
    let read = if norm_first { b.layer_norm(x) } else { x };
    let [q, k, v] = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]].map(|perm| {
        let y = b.dense(read, h);
        let y = b.reshape(y, &[1, s, heads, d]);
        b.transpose(y, &perm)
    });
    let scores = b.matmul(q, k);
    let root = b.filled(&[], 2.0);
    let scores = b.binary(BinOp::Div, scores, root);
    let weights = b.softmax(scores);
    let context = b.matmul(weights, v);
    let context = b.transpose(context, &[0, 2, 1, 3]);
    let context = b.reshape(context, &[1, s, h]);
    let y = b.dense(context, h);
    let y = b.binary(BinOp::Add, y, x);
    let attended = if norm_first { y } else { b.layer_norm(y) };
    let read = if norm_first { b.layer_norm(y) } else { attended };
    let y = b.dense(read, 3 * h);
    let y = b.gelu(y);
    let y = b.dense(y, h);
    let y = b.binary(BinOp::Add, y, attended);
    let y = b.layer_norm(y);
    b.finish(&[y])
}

/// Values of all nodes.
fn observed(graph: &Graph) -> HashMap<ValueId, Tensor> {
    let mut values = HashMap::new();
    let mut observe = |node: NodeId, outputs: &[Tensor]| {
        for (out, tensor) in outputs.iter().enumerate() {
            values.insert(ValueId { node, out: out as u32 }, tensor.clone());
        }
    };
    interp::run_observed(graph, &inputs(graph), &mut observe).unwrap();
    for node in graph.node_ids() {
        let value = ValueId { node, out: 0 };
        if let Some(tensor) = graph.const_of(value) {
            values.insert(value, Tensor::clone(tensor));
        }
    }
    values
}

fn converted(x: &Tensor, to: DType) -> Tensor {
    let op = map::cast(&crate::compute::TensorType::of(x), to).unwrap();
    interp::eval(&op.expr, &[x]).unwrap().remove(0)
}

/// Every node gives bit for bit what it gave before for what it reads now: no rounding but that of
/// the casts.
#[test]
fn nothing_but_casts_rounds() {
    for graph in [residual_network(), transformer(true), transformer(false)] {
        for precision in [Precision::Bf16, Precision::F16] {
            let (wide, rounded) = both(&graph, &options(precision, &[]));
            let values = observed(&rounded);
            let mut compared = 0;
            for node in wide.node_ids().into_iter().filter(|n| rounded.contains(*n)) {
                let Some(op) = wide.compute_of(node) else { continue };
                let read = rounded.operands(node).into_iter().zip(&op.expr.inputs);
                let read: Vec<Tensor> =
                    read.map(|(v, ty)| converted(&values[&v], ty.dtype)).collect();
                let expected = interp::eval(&op.expr, &read.iter().collect::<Vec<_>>()).unwrap();
                for (value, expected) in rounded.values(node).zip(expected) {
                    let found = &values[&value];
                    let expected = converted(&expected, found.dtype());
                    assert_eq!(
                        expected.to_f64_vec(),
                        found.to_f64_vec(),
                        "{}",
                        wide.node(node).name
                    );
                    compared += 1;
                }
            }
            assert!(compared > 15, "{compared}");
        }
    }
}

/// A copy of the graph with the magnitudes of all constants.
fn magnitudes(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    for node in graph.node_ids() {
        if let Op::Const(tensor) = &mut graph.node_mut(node).op {
            let mut all = Tensor::clone(tensor);
            if all.dtype() == DType::F32 {
                all.as_mut_slice::<f32>().iter_mut().for_each(|v| *v = v.abs());
            }
            *tensor = all.into();
        }
    }
    graph
}

/// With convolutions, sums, maxima and means alone, each term of a result is a product of an input
/// (or a bias) and weights along a path. Each layer rounds a weight and a value: the error is at
/// most `(1 + u)^n - 1` times the sum of the terms' magnitudes, where `n` counts the roundings on a
/// path. That sum is the result of the same graph for magnitudes.
#[test]
fn errors_are_within_what_rounding_gives() {
    let mut b = Builder::new(52);
    let x = b.input(&[1, 3, 10, 10]);
    let y = b.conv(x, 16, 3, 1);
    let y = b.relu(y);
    let x = b.max_pool(y);
    let y = b.conv(x, 16, 3, 1);
    let y = b.relu(y);
    let y = b.grouped(y, 1);
    let y = b.relu(y);
    let y = b.conv(y, 16, 1, 1);
    let y = b.binary(BinOp::Add, y, x);
    let y = b.mean_of_pixels(y);
    let y = b.reshape(y, &[1, 16]);
    let y = b.dense(y, 8);
    let graph = b.finish(&[y]);
    // Products: the stem, two in the block, the classifier. Stored values: input, stem, pool, two
    // in the block, sum, mean.
    let roundings = 4 + 7;
    let given = inputs(&graph);
    let absolute = |t: &Tensor| {
        let all: Vec<f32> = t.to_f64_vec().into_iter().map(|v| v.abs() as f32).collect();
        Tensor::from_slice(t.shape(), &all)
    };
    let sizes = interp::run(&magnitudes(&graph), &given.iter().map(absolute).collect::<Vec<_>>());
    let sizes = sizes.unwrap().remove(0).to_f64_vec();
    let mut errors = vec![];
    for precision in [Precision::Bf16, Precision::F16] {
        let (wide, rounded) = both(&graph, &options(precision, &[]));
        let results =
            [&wide, &rounded].map(|g| interp::run(g, &given).unwrap().remove(0).to_f64_vec());
        let part = (1.0 + precision.unit_roundoff()).powi(roundings) - 1.0 + 1e-5;
        let mut largest = 0.0f64;
        for ((a, b), size) in results[0].iter().zip(&results[1]).zip(&sizes) {
            assert!((a - b).abs() <= part * size, "{precision}: {a} became {b}, of {size}");
            largest = largest.max((a - b).abs() / size);
        }
        errors.push(largest);
    }
    assert!(errors[0] > 2.0 * errors[1] && errors[1] > 1e-7, "{errors:?}");
}

#[test]
fn a_convolutional_network_stores_16_bits_between_kernels() {
    let graph = bf16(&residual_network());
    let wide: Vec<String> = kernels(&graph, DType::F32);
    // The classifier's result alone, which is that of the graph.
    assert_eq!(wide, ["matmul_map"], "{:?}", stored(&graph));
    // A cast for each kernel that computes; concatenation only moves.
    let moving = ["concat", "transpose"];
    let computing = kernels(&graph, DType::BF16).into_iter();
    let computing = computing.filter(|name| !moving.contains(&name.as_str())).count();
    assert_eq!(casts(&graph), computing, "{graph}");
}

#[test]
fn casts_add_no_kernels() {
    for graph in [residual_network(), transformer(true)] {
        let (wide, rounded) = both(&graph, &options(Precision::Bf16, &[]));
        let inputs = wide.inputs().len();
        let count = |g: &Graph| stored(g).len();
        assert!(count(&rounded) <= count(&wide) + inputs, "{:?}", stored(&rounded));
    }
}

#[test]
fn what_a_transformer_adds_up_stays_wide() {
    let graph = bf16(&transformer(true));
    let wide = kernels(&graph, DType::F32);
    // Norms that begin and end the graph, two sums of the residual stream, and scores, which a
    // softmax reads.
    let expected =
        ["layernormalization", "matmul_map", "matmul_map", "matmul_map", "layernormalization"];
    assert_eq!(wide, expected, "{:?}", stored(&graph));
    assert!(kernels(&graph, DType::BF16).contains(&"softmax_map".to_owned()));
}

#[test]
fn a_norm_that_is_read_by_a_sum_too_is_stored_both_ways() {
    let (wide, rounded) = both(&transformer(false), &options(Precision::Bf16, &[]));
    let norms =
        |g: &Graph| kernels(g, DType::F32).iter().filter(|n| *n == "layernormalization").count();
    assert_eq!((norms(&wide), norms(&rounded)), (3, 3));
    // One rounding of each norm that products read, though three of them read the first.
    let of_norms = rounded.node_ids().into_iter().filter(|node| {
        let value = ValueId { node: *node, out: 0 };
        let cast = rounded.ty(value).dtype == DType::BF16;
        let source = rounded.operands(*node).first().and_then(|v| rounded.compute_of(v.node));
        let named = |op: &ComputeOp| op.kind == Kind::Other("LayerNormalization".into());
        cast && source.is_some_and(named)
    });
    assert_eq!(of_norms.count(), 2);
}

#[test]
fn a_mean_that_is_subtracted_keeps_its_operand_wide() {
    for subtracts in [true, false] {
        let mut b = Builder::new(54);
        let x = b.input(&[1, 16, 9, 9]);
        let x = b.conv(x, 16, 3, 1);
        let mean = b.mean_of_pixels(x);
        let gate = if subtracts { mean } else { b.conv(mean, 16, 1, 1) };
        let y = b.binary(BinOp::Sub, x, gate);
        let y = b.conv(y, 16, 3, 1);
        let graph = bf16(&b.finish(&[y]));
        let of_conv = stored(&graph).into_iter().find(|(name, _)| name.starts_with("conv"));
        let expected = if subtracts { DType::F32 } else { DType::BF16 };
        assert_eq!(of_conv.unwrap().1, expected, "{:?}", stored(&graph));
    }
}

#[test]
fn positions_keep_all_bits_and_what_lies_there_does_not() {
    let mut b = Builder::new(58);
    let (x, code) = (b.input(&[1, 4, 6, 6]), b.input(&[1, 16]));
    let picture = b.conv(x, 16, 3, 1);
    let grid = b.dense(code, 18);
    let grid = b.reshape(grid, &[1, 3, 3, 2]);
    let attrs = grid::GridAttrs {
        mode: grid::GridMode::Linear,
        padding: grid::GridPadding::Zeros,
        align_corners: false,
    };
    let [a, g] = [picture, grid].map(|v| b.graph.ty(v).clone());
    let sampled = b.emit(grid::grid_sample(&a, &g, attrs).unwrap(), &[picture, grid]);
    let y = b.conv(sampled, 16, 3, 1);
    let graph = bf16(&b.finish(&[y]));
    let of = |kernel: &str| stored(&graph).into_iter().find(|(name, _)| name.starts_with(kernel));
    assert_eq!(of("matmul").unwrap().1, DType::F32, "{:?}", stored(&graph));
    assert_eq!(of("conv").unwrap().1, DType::BF16, "{:?}", stored(&graph));
}

/// Names of nodes that sum products of operands of 16 bits.
fn reduced(graph: &Graph) -> Vec<(String, DType)> {
    let products = graph.topological().into_iter().filter_map(|node| {
        let op = graph.compute_of(node)?;
        let dtype = op.expr.inputs.get(1)?.dtype;
        let sums = matches!(op.kind, Kind::Conv(_) | Kind::MatMul) && dtype != DType::F32;
        sums.then(|| (graph.node(node).name.clone(), dtype))
    });
    products.collect()
}

#[test]
fn nodes_may_have_precisions_of_their_own() {
    let graph = residual_network();
    let all = reduced(&bf16(&graph));
    assert_eq!(all.len(), 6);
    let chosen = &all[2].0;
    let (_, without) = both(&graph, &options(Precision::Bf16, &[(chosen, Precision::F32)]));
    let expected: Vec<_> = all.iter().filter(|(name, _)| name != chosen).cloned().collect();
    assert_eq!(reduced(&without), expected);
    let (_, only) = both(&graph, &options(Precision::F32, &[(chosen, Precision::F16)]));
    assert_eq!(reduced(&only), [(chosen.clone(), DType::F16)]);
    let (_, mixed) = both(&graph, &options(Precision::Bf16, &[(chosen, Precision::F16)]));
    assert_eq!(reduced(&mixed).iter().filter(|(_, dtype)| *dtype == DType::F16).count(), 1);
}

#[test]
fn weights_beyond_the_range_keep_their_bits() {
    for (largest, precision, reads) in [
        (60000.0, Precision::F16, true),
        (70000.0, Precision::F16, false),
        (70000.0, Precision::Bf16, true),
        (f32::INFINITY, Precision::F16, true),
        (f32::MAX, Precision::Bf16, false),
    ] {
        let mut b = Builder::new(57);
        let x = b.input(&[4, 16]);
        let w = b.filled(&[16, 16], largest);
        let y = b.matmul(x, w);
        let (_, rounded) = both(&b.finish(&[y]), &options(precision, &[]));
        assert_eq!(!reduced(&rounded).is_empty(), reads, "{largest} {precision}");
    }
}

#[test]
fn results_and_inputs_of_the_graph_keep_their_types() {
    let mut b = Builder::new(55);
    let x = b.input(&[4, 16]);
    let hidden = b.dense(x, 16);
    let y = b.dense(hidden, 16);
    let moved = b.transpose(hidden, &[1, 0]);
    let graph = bf16(&b.finish(&[hidden, y, moved]));
    for (_, value) in &graph.outputs {
        assert_eq!(graph.ty(*value).dtype, DType::F32);
    }
    assert_eq!(casts(&graph), 2, "the input and the hidden layer: {graph}");
}

#[test]
fn without_a_precision_nothing_changes() {
    let mut graph = residual_network();
    assert!(!run(&mut graph, &Options::default()).unwrap());
    let mut b = Builder::new(56);
    let x = b.input(&[4, 16]);
    let y = b.relu(x);
    let mut graph = b.finish(&[y]);
    assert!(!run(&mut graph, &options(Precision::Bf16, &[])).unwrap());
}
