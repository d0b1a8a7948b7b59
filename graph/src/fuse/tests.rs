use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_runtime::{DType, Tensor};

use super::*;
use crate::compute::TensorType;
use crate::expr::{BinOp, UnOp};
use crate::interp;
use crate::op::{ComputeOp, Kind, Op};
use crate::ops::stages::Stages;
use crate::ops::{concat, map, matmul, pool, shape};
use crate::passes;
use crate::passes::testing::{Builder, assert_same, inputs, random};

/// The groups' names without their positions; views in brackets.
fn shape_of(graph: &Graph) -> Vec<String> {
    let name = |group: Group| {
        let (name, _) = group.name.rsplit_once('_').unwrap();
        if group.is_view { format!("[{name}]") } else { name.to_string() }
    };
    fuse(graph).into_iter().map(name).collect()
}

/// Runs the groups in the order of the schedule, and compares with the graph's own results.
fn check_schedule(graph: &Graph) {
    let given = inputs(graph);
    let mut values: BTreeMap<ValueId, Tensor> = BTreeMap::new();
    for item in schedule(graph) {
        match item {
            Item::Group(group) => {
                let inputs: Vec<&Tensor> = group.inputs.iter().map(|v| &values[v]).collect();
                let results = interp::eval(&group.compute, &inputs).unwrap();
                values.extend(group.outputs.into_iter().zip(results));
            }
            Item::Node(node) => {
                let value = match &graph.node(node).op {
                    Op::Const(tensor) => Tensor::clone(tensor),
                    _ => given[graph.inputs().iter().position(|n| *n == node).unwrap()].clone(),
                };
                values.insert(ValueId { node, out: 0 }, value);
            }
        }
    }
    for ((_, value), expected) in graph.outputs.iter().zip(interp::run(graph, &given).unwrap()) {
        assert_eq!(values[value], expected);
    }
}

fn optimised(mut graph: Graph) -> Graph {
    let before = graph.clone();
    passes::run_all(&mut graph, &passes::Options::default()).unwrap();
    assert_same(&before, &graph);
    graph
}

fn resnet_block(downsample: bool) -> Graph {
    let mut b = Builder::new(40);
    let x = b.input(&[1, 8, 6, 6]);
    let stride = if downsample { 2 } else { 1 };
    let y = b.conv(x, 4, 1, 1);
    let y = b.batch_norm(y);
    let y = b.relu(y);
    let y = b.conv(y, 4, 3, stride);
    let y = b.batch_norm(y);
    let y = b.relu(y);
    let y = b.conv(y, 8, 1, 1);
    let y = b.batch_norm(y);
    let shortcut = if downsample {
        let s = b.conv(x, 8, 1, 2);
        b.batch_norm(s)
    } else {
        x
    };
    let y = b.binary(BinOp::Add, y, shortcut);
    let y = b.relu(y);
    let op = pool::global_pool(pool::GlobalPool::Average, b.graph.ty(y)).unwrap();
    let y = b.emit(op, &[y]);
    let y = b.reshape(y, &[1, 8]);
    let y = b.dense(y, 5);
    b.finish(&[y])
}

#[test]
fn a_residual_block() {
    let graph = optimised(resnet_block(false));
    check_schedule(&graph);
    let expected = [
        "transpose",
        "[reshape]",
        "matmul_map",
        "[reshape]",
        "conv_map",
        "[reshape]",
        "matmul_map",
        "[reshape]",
        "reduce",
        "[reshape]",
        "matmul_map",
    ];
    assert_eq!(shape_of(&graph), expected);
}

#[test]
fn a_residual_block_with_a_convolution_in_the_shortcut() {
    let graph = optimised(resnet_block(true));
    check_schedule(&graph);
    let groups = shape_of(&graph);
    let kernels: Vec<&String> = groups.iter().filter(|name| !name.starts_with('[')).collect();
    assert_eq!(
        kernels,
        ["transpose", "conv", "matmul_map", "conv_map", "matmul_map", "reduce", "matmul_map"]
    );
}

fn bert_layer() -> Graph {
    let (s, heads, d) = (6, 2, 4);
    let h = heads * d;
    let mut b = Builder::new(41);
    let (x, mask) = (b.input(&[1, s, h]), b.input(&[1, 1, 1, s]));
    let [q, k, v] = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]].map(|perm| {
        let y = b.dense(x, h);
        let y = b.reshape(y, &[1, s, heads, d]);
        b.transpose(y, &perm)
    });
    let scores = b.matmul(q, k);
    let root = b.filled(&[], 2.0);
    let scores = b.binary(BinOp::Div, scores, root);
    let scores = b.binary(BinOp::Add, scores, mask);
    let weights = b.softmax(scores);
    let context = b.matmul(weights, v);
    let context = b.transpose(context, &[0, 2, 1, 3]);
    let context = b.reshape(context, &[1, s, h]);
    let y = b.dense(context, h);
    let y = b.binary(BinOp::Add, y, x);
    let attended = b.layer_norm(y);
    let y = b.dense(attended, 3 * h);
    let y = b.gelu(y);
    let y = b.dense(y, h);
    let y = b.binary(BinOp::Add, y, attended);
    let y = b.layer_norm(y);
    b.finish(&[y])
}

#[test]
fn a_bert_layer() {
    let graph = optimised(bert_layer());
    check_schedule(&graph);
    let groups = shape_of(&graph);
    let kernels: Vec<&String> = groups.iter().filter(|name| !name.starts_with('[')).collect();
    let head = ["matmul_map", "transpose"];
    let expected: Vec<&str> = [head; 3]
        .concat()
        .into_iter()
        .chain(["matmul_map", "softmax", "matmul_transpose", "matmul_map"])
        .chain(["layernormalization", "matmul_map", "matmul_map", "layernormalization"])
        .collect();
    let mut sorted = (kernels.clone(), expected.clone());
    sorted.0.sort();
    sorted.1.sort();
    assert_eq!(sorted.0, sorted.1, "{groups:?}");
}

#[test]
fn a_product_is_stored_in_the_order_of_its_only_reader() {
    for (also_read, expected) in
        [(false, vec!["conv_map_transpose"]), (true, vec!["conv_map", "transpose"])]
    {
        let mut b = Builder::new(45);
        let x = b.input(&[1, 3, 6, 6]);
        let y = b.conv(x, 4, 3, 1);
        let y = b.relu(y);
        let t = b.emit(shape::transpose(&b.graph.ty(y).clone(), &[0, 2, 3, 1]).unwrap(), &[y]);
        let outputs = if also_read { vec![t, y] } else { vec![t] };
        let graph = b.finish(&outputs);
        check_schedule(&graph);
        assert_eq!(shape_of(&graph), expected);
    }
}

/// Whatever a product that no kind describes is called; a sum that uses elements once is none.
#[test]
fn other_products_are_stored_so_too() {
    for (rows, kernels) in [(6, 1), (1, 2)] {
        let mut b = Builder::new(46);
        let (x, w) = (b.input(&[rows, 8]), b.input(&[8, 5]));
        let op = matmul::matmul(b.graph.ty(x), b.graph.ty(w)).unwrap();
        let y = b
            .emit(ComputeOp::new(Kind::Other("product".into()), Compute::clone(&op.expr)), &[x, w]);
        let t = b.emit(shape::transpose(&b.graph.ty(y).clone(), &[1, 0]).unwrap(), &[y]);
        let graph = b.finish(&[t]);
        check_schedule(&graph);
        assert_eq!(fuse(&graph).len(), kernels, "{rows}");
    }
}

#[test]
fn scalars_become_part_of_the_expression() {
    let mut b = Builder::new(42);
    let (x, c, big) = (b.input(&[3]), b.filled(&[1], 2.0), b.constant(&[3]));
    let y = b.binary(BinOp::Mul, x, c);
    let y = b.binary(BinOp::Add, y, big);
    let graph = b.finish(&[y]);
    check_schedule(&graph);
    let groups = fuse(&graph);
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].inputs, [x, big]);
    let names: Vec<&str> = groups[0].compute.stages.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["map", "map_1"]);
}

#[test]
fn an_expensive_gate_is_not_evaluated_for_each_pixel() {
    let mut b = Builder::new(43);
    let (x, gate) = (b.input(&[1, 8, 8, 4]), b.input(&[1, 1, 1, 4]));
    let cheap = b.binary(BinOp::Add, gate, gate);
    let dear = b.unary(UnOp::Sigmoid, gate);
    for (gate, groups) in [(cheap, 1), (dear, 2)] {
        let mut b = Builder { graph: b.graph.clone(), ..Builder::new(44) };
        let y = b.binary(BinOp::Mul, x, gate);
        let mut graph = b.finish(&[y]);
        passes::dce::run(&mut graph, &passes::Options::default()).unwrap();
        check_schedule(&graph);
        assert_eq!(fuse(&graph).len(), groups);
    }
}

#[test]
fn a_channel_shuffle_is_one_kernel() {
    let mut b = Builder::new(45);
    let x = b.input(&[2, 6, 5]);
    let y = b.transpose(x, &[2, 0, 1]);
    let y = b.reshape(y, &[5, 2, 2, 3]);
    let y = b.transpose(y, &[1, 3, 0, 2]);
    let y = b.reshape(y, &[6, 10]);
    let graph = b.finish(&[y]);
    check_schedule(&graph);
    assert_eq!(shape_of(&graph), ["transpose_reshape_transpose", "[reshape]"]);
}

#[test]
fn values_that_are_results_are_not_hidden() {
    let mut b = Builder::new(46);
    let x = b.input(&[2, 3]);
    let y = b.unary(UnOp::Exp, x);
    let z = b.relu(y);
    let graph = b.finish(&[y, z]);
    check_schedule(&graph);
    assert_eq!(fuse(&graph).len(), 2);
}

#[test]
fn a_value_is_stored_both_ways_by_one_kernel() {
    let mut b = Builder::new(48);
    let (x, z) = (b.input(&[3, 8]), b.input(&[3, 8]));
    let y = b.softmax(x);
    let sum = b.binary(BinOp::Add, y, z);
    let rounded = map::cast(b.graph.ty(y), DType::BF16).unwrap();
    let rounded = b.emit(rounded, &[y]);
    let graph = b.finish(&[sum, rounded]);
    check_schedule(&graph);
    assert_eq!(shape_of(&graph), ["softmax", "map"]);
    let groups = fuse(&graph);
    assert_eq!(groups[0].outputs, [y, rounded]);
    assert_eq!(groups[1].inputs, [y, z]);
}

#[test]
fn a_product_keeps_a_single_result() {
    let mut b = Builder::new(49);
    let x = b.input(&[3, 8]);
    let y = b.dense(x, 8);
    let rounded = map::cast(b.graph.ty(y), DType::BF16).unwrap();
    let rounded = b.emit(rounded, &[y]);
    let graph = b.finish(&[y, rounded]);
    check_schedule(&graph);
    assert_eq!(shape_of(&graph), ["matmul_map", "map"]);
}

#[test]
fn groups_are_bounded() {
    let mut b = Builder::new(47);
    let mut y = b.input(&[4]);
    for _ in 0..10 {
        y = b.unary(UnOp::Tanh, y);
    }
    let graph = b.finish(&[y]);
    check_schedule(&graph);
    assert_eq!(fuse(&graph).len(), 1);
    let items = schedule_with(&graph, Options { max_nodes: 4, ..Options::default() });
    let sizes: Vec<usize> = items
        .iter()
        .filter_map(|item| match item {
            Item::Group(group) => Some(group.nodes.len()),
            Item::Node(_) => None,
        })
        .collect();
    assert!(sizes.iter().all(|&n| n <= 4) && sizes.iter().sum::<usize>() == 10, "{sizes:?}");
}

/// The kernels of attention with `rows` queries: shares may be a result, and scores read again.
fn attention(rows: usize, is_result: bool, is_read: bool) -> Vec<String> {
    let mut b = Builder::new(50);
    let (q, k, v) = (b.input(&[8, rows, 2]), b.input(&[8, 2, 256]), b.input(&[8, 256, 3]));
    let mask = b.input(&[1, 256]);
    let scores = b.matmul(q, k);
    let masked = b.binary(BinOp::Add, scores, mask);
    let shares = b.softmax(masked);
    let y = b.matmul(shares, v);
    let y = b.relu(y);
    let mut outputs = vec![y];
    outputs.extend(is_result.then_some(shares));
    if is_read {
        outputs.push(b.relu(masked));
    }
    let graph = b.finish(&outputs);
    check_schedule(&graph);
    shape_of(&graph)
}

#[test]
fn rows_of_large_products_are_a_chain() {
    let apart = ["matmul_map", "softmax", "matmul_map"];
    assert_eq!(attention(256, false, false), ["matmul_map_softmax_matmul"]);
    assert_eq!(attention(64, false, false), apart);
    assert_eq!(attention(256, true, false), apart);
    assert_eq!(attention(256, false, true)[0], "matmul_map");
    assert_eq!(attention(256, false, true).len(), 4);
}

/// Products of `bf16` are joined where they are among the types that may be.
#[test]
fn rows_of_products_of_halves_are_a_chain() {
    let mut b = Builder::new(52);
    let half = |b: &mut Builder, x: ValueId| {
        let op = map::cast(b.graph.ty(x), DType::BF16).unwrap();
        b.emit(op, &[x])
    };
    let product = |b: &mut Builder, x: ValueId, y: ValueId| {
        let [m, k, n] = [(x, 1), (x, 2), (y, 2)].map(|(v, axis)| b.graph.ty(v).shape[axis]);
        let expr = Compute::parse(&format!(
            "compute(in0: bf16[8, {m}, {k}], in1: bf16[8, {k}, {n}]) -> y {{
               y: f32[8, {m}, {n}] = sum{{r0: {k}}} mul(f32(in0[i0, i1, r0]), f32(in1[i0, r0, i2]))
             }}"
        ));
        b.emit(ComputeOp { kind: Kind::MatMul, expr: Arc::new(expr.unwrap()) }, &[x, y])
    };
    let all = [b.input(&[8, 256, 2]), b.input(&[8, 2, 256]), b.input(&[8, 256, 3])];
    let [q, k, v] = all.map(|x| half(&mut b, x));
    let scores = product(&mut b, q, k);
    let shares = b.softmax(scores);
    let shares = half(&mut b, shares);
    let y = product(&mut b, shares, v);
    let graph = b.finish(&[y]);
    check_schedule(&graph);
    let kernels = |chains| {
        let items = schedule_with(&graph, Options { chains, ..Options::default() });
        items.iter().filter(|item| matches!(item, Item::Group(_))).count()
    };
    assert_eq!(kernels(&[DType::F32, DType::BF16]), 4);
    assert_eq!(kernels(&[DType::F32]), 6);
}

/// A softmax of columns needs all rows.
#[test]
fn columns_of_products_are_no_chain() {
    let mut b = Builder::new(51);
    let (q, k, v) = (b.input(&[8, 256, 2]), b.input(&[8, 2, 256]), b.input(&[8, 256, 3]));
    let scores = b.matmul(q, k);
    let op = crate::ops::softmax::softmax(&[1], b.graph.ty(scores)).unwrap();
    let shares = b.emit(op, &[scores]);
    let y = b.matmul(shares, v);
    let graph = b.finish(&[y]);
    check_schedule(&graph);
    assert_eq!(shape_of(&graph), ["matmul", "softmax", "matmul"]);
}

/// Random DAGs of operators of all patterns: groups cover each node once, and compute the same.
#[test]
fn random_graphs_keep_their_results() {
    for seed in 0..60 {
        let graph = random_graph(seed);
        check_schedule(&graph);
        let mut nodes: Vec<NodeId> = fuse(&graph).into_iter().flat_map(|g| g.nodes).collect();
        let mut all = graph.node_ids();
        all.retain(|n| graph.compute_of(*n).is_some());
        nodes.sort_unstable();
        assert_eq!(nodes, all);
        check_schedule(&optimised(graph));
    }
}

fn random_graph(seed: u64) -> Graph {
    let mut b = Builder::new(1000 * seed);
    let choices: Vec<usize> = random(&[64], seed + 7)
        .to_f64_vec()
        .into_iter()
        .map(|v| ((v + 1.0) * 5000.0) as usize)
        .collect();
    let mut pool = vec![b.input(&[2, 4, 4]), b.input(&[2, 4, 4])];
    for step in choices.chunks_exact(3).take(12) {
        let (x, y) = (pool[step[1] % pool.len()], pool[step[2] % pool.len()]);
        let value = match step[0] % 8 {
            0 => b.binary(BinOp::Add, x, y),
            1 => b.unary(UnOp::Tanh, x),
            2 => b.transpose(x, &[0, 2, 1]),
            3 => b.matmul(x, y),
            4 => {
                let flat = b.reshape(x, &[8, 4]);
                let flat = b.relu(flat);
                b.reshape(flat, &[2, 4, 4])
            }
            5 => {
                let types = [x, y].map(|v| b.graph.ty(v).clone());
                let joined = b.emit(concat::concat(&types, 1).unwrap(), &[x, y]);
                let op = crate::ops::slice::narrow(b.graph.ty(joined), 1, 2, 4).unwrap();
                b.emit(op, &[joined])
            }
            6 => b.softmax(x),
            _ => {
                let c = b.constant(&[4, 1]);
                b.binary(BinOp::Mul, x, c)
            }
        };
        pool.push(value);
    }
    let last = *pool.last().unwrap();
    let ty = TensorType::new(DType::F32, [2, 4, 4]);
    assert_eq!(*b.graph.ty(last), ty);
    b.finish(&[last, pool[pool.len() / 2]])
}

/// A weight that is much smaller before it is a float is one where it is multiplied, and nowhere
/// else.
#[test]
fn narrow_weights_are_unpacked_by_their_product() {
    let build = |readers: usize| {
        let mut b = Builder::new(5);
        let x = b.input(&[3, 640]);
        let codes = Tensor::from_slice(&[512, 640], &vec![7i8; 512 * 640]);
        let codes = b.graph.add_const("codes", codes);
        let scale = b.constant(&[512, 1]);
        let types = [codes, scale].map(|v| b.graph.ty(v).clone());
        let op = crate::ops::quantize::dequantize(DType::F32, &types[0], &types[1], None).unwrap();
        let weight = b.emit(op, &[codes, scale]);
        let turned = b.transpose(weight, &[1, 0]);
        let products: Vec<ValueId> = (0..readers).map(|_| b.matmul(x, turned)).collect();
        b.finish(&products)
    };
    let one = build(1);
    assert_eq!(shape_of(&one), ["map_transpose_matmul"]);
    check_schedule(&one);
    let two = shape_of(&build(2));
    assert_eq!(two.iter().filter(|name| *name == "matmul").count(), 2, "{two:?}");
}

/// Elements that are picked and transposed in one kernel would be moved one by one.
#[test]
fn what_picks_elements_and_a_large_transpose_are_kernels_of_their_own() {
    let build = |rows: usize| {
        let mut b = Builder::new(6);
        let x = b.input(&[rows, 64]);
        let (mut s, [source]) = Stages::new([b.graph.ty(x)]);
        let doubled = TensorType::new(DType::F32, [2 * rows, 64]);
        let picked =
            s.map("picked", doubled, |i| source.at(&[i[0].clone().floor_div(2), i[1].clone()]));
        let op = s.finish(Kind::Other("Picked".into()), &[&picked]);
        let y = b.emit(op, &[x]);
        let y = b.unary(UnOp::Abs, y);
        let turned = b.transpose(y, &[1, 0]);
        b.finish(&[turned])
    };
    assert_eq!(shape_of(&build(8)), ["picked_map_transpose"]);
    let large = build(256);
    assert_eq!(shape_of(&large), ["picked", "map_transpose"]);
    check_schedule(&large);
}

/// A product reads it in two orders, a sum of squares in one.
#[test]
fn a_tensor_that_is_both_factors_is_two_inputs() {
    let mut b = Builder::new(63);
    let x = b.input(&[2, 7, 5]);
    let turned = b.transpose(x, &[0, 2, 1]);
    let y = b.matmul(x, turned);
    let square = map::map(&[TensorType::new(DType::F32, [2, 7, 5])], DType::F32, |v| {
        v[0].clone() * v[0].clone()
    });
    let square = b.emit(square.unwrap(), &[x]);
    let options = passes::Options { turned_uses: 5, ..passes::Options::default() };
    let mut graph = b.finish(&[y, square]);
    passes::run_all(&mut graph, &options).unwrap();
    check_schedule(&graph);
    let mut inputs: Vec<Vec<ValueId>> = fuse(&graph).into_iter().map(|g| g.inputs).collect();
    inputs.sort_by_key(Vec::len);
    assert_eq!(inputs, [vec![x], vec![x, x]]);
}
