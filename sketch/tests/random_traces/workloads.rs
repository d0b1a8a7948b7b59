//! Small workloads: the operators of the MetaSchedule paper at odd and prime extents, what networks
//! are made of, and shapes that schedules trip over.

use ansc_graph::op::{Channels, ComputeOp, ConvAttrs, PoolAttrs, PoolMode};
use ansc_graph::ops::*;
use ansc_graph::{
    BinOp, Combiner, Compute, Expr, Graph, Scalar, Stage, TensorType, UnOp, ValueId, fuse,
};
use ansc_runtime::DType;

type Workload = (&'static str, Compute);

pub(crate) fn all() -> Vec<Workload> {
    [of_the_paper(), convolutions(), products(), rows(), reductions(), others(), blocks()].concat()
}

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

fn one(name: &'static str, op: Result<ComputeOp, OpError>) -> Workload {
    let op = op.unwrap_or_else(|e| panic!("{name}: {e}"));
    (name, (*op.expr).clone())
}

/// A convolution whose padding keeps extents, but for strides.
fn conv_attrs(kernel: &[usize], stride: usize, groups: usize) -> ConvAttrs {
    let n = kernel.len();
    ConvAttrs {
        channels: Channels::First,
        input: Channels::First,
        kernel: kernel.to_vec(),
        strides: vec![stride; n],
        dilations: vec![1; n],
        pads_begin: kernel.iter().map(|k| k / 2).collect(),
        pads_end: kernel.iter().map(|k| k / 2).collect(),
        groups,
    }
}

fn conv(name: &'static str, attrs: ConvAttrs, x: &[usize], w: &[usize]) -> Workload {
    one(name, conv::conv(attrs, &f32s(x), &f32s(w)))
}

/// The operators of the table, in its order.
fn of_the_paper() -> Vec<Workload> {
    let dilated = ConvAttrs { dilations: vec![2, 2], ..conv_attrs(&[3, 3], 2, 1) };
    let labels = |operands: [[usize; 4]; 2], output: [usize; 4]| einsum::Labels {
        operands: operands.map(|l| l.to_vec()).to_vec(),
        output: output.to_vec(),
    };
    // Batch, sequence, heads, and their dimension: [b, h, s, t].
    let scores = labels([[0, 1, 2, 3], [0, 4, 2, 3]], [0, 2, 1, 4]);
    let mut all = vec![
        conv("C1D", conv_attrs(&[3], 2, 1), &[1, 3, 17], &[7, 3, 3]),
        conv("C2D", conv_attrs(&[5, 5], 2, 1), &[1, 2, 9, 11], &[5, 2, 5, 5]),
        conv("C3D", conv_attrs(&[3, 3, 3], 2, 1), &[1, 2, 3, 5, 7], &[3, 2, 3, 3, 3]),
        conv("DEP", conv_attrs(&[3, 3], 1, 7), &[1, 7, 5, 7], &[7, 1, 3, 3]),
        conv("DIL", dilated, &[1, 2, 9, 11], &[5, 2, 3, 3]),
        one("GMM", matmul::matmul(&f32s(&[13, 17]), &f32s(&[17, 19]))),
        conv("GRP", conv_attrs(&[3, 3], 2, 2), &[1, 6, 7, 5], &[10, 3, 3, 3]),
        one("TBG", einsum::einsum(&scores, &[f32s(&[1, 7, 3, 5]), f32s(&[1, 7, 3, 5])])),
        one("NRM", reduce::reduce(reduce::Reduction::L2, &[0, 1], false, &f32s(&[17, 13]))),
        one("SFM", softmax::softmax(&[1], &f32s(&[13, 17]))),
    ];
    all.extend(transposed_convolutions());
    all.extend(groups("CBR", conv_norm_relu));
    all
}

fn transposed_convolutions() -> Vec<Workload> {
    // The second one leaves gaps between windows, and has channels enough to add up products.
    let all = [(4, 3, [6, 10]), (3, 16, [5, 9])];
    all.into_iter()
        .flat_map(|(kernel, c, output)| transposed_convolution(kernel, c, output))
        .collect()
}

fn transposed_convolution(kernel: usize, channels: usize, output: [usize; 2]) -> Vec<Workload> {
    let attrs = conv_transpose::ConvTransposeAttrs {
        kernel: vec![kernel; 2],
        strides: vec![2, 2],
        dilations: vec![1, 1],
        pads_begin: vec![1, 1],
        output: output.to_vec(),
        groups: 1,
    };
    let (mut x, w) = (f32s(&[1, channels, 3, 5]), f32s(&[channels, 2, kernel, kernel]));
    let phases = conv_transpose::Phases::new(&attrs, [&x, &w], |best| best);
    let phases = phases.expect("a transposed convolution");
    let weight = phases.weight(&w).expect("its weight");
    let rearranged = weight.expr.output_types().remove(0);
    groups("T2D", |g| {
        let mut inputs =
            [g.add_input("x", x.clone(), None), g.add_input("w", rearranged.clone(), None)];
        if let Some(spread) = phases.spread(&x, Scalar::zero(DType::F32)) {
            inputs[0] = add(g, spread, &inputs[..1]);
            x = g.ty(inputs[0]).clone();
        }
        let mut y = add(g, conv::conv(phases.conv.clone(), &x, &rearranged), &inputs);
        if let Some(gather) = phases.gather(&g.ty(y).clone()) {
            y = add(g, gather, &[y]);
        }
        match phases.interleave(&g.ty(y).clone()) {
            Some(op) => add(g, op, &[y]),
            None => y,
        }
    })
}

fn conv_norm_relu(g: &mut Graph) -> ValueId {
    let (x, w, c) = (f32s(&[1, 3, 7, 5]), f32s(&[11, 3, 3, 3]), f32s(&[11, 1, 1]));
    let types = [x.clone(), w.clone(), c.clone(), c.clone()];
    let inputs = types.map(|ty| g.add_input("x", ty, None));
    let y = add(g, conv::conv(conv_attrs(&[3, 3], 1, 1), &x, &w), &inputs[..2]);
    let ty = g.ty(y).clone();
    let y = add(g, map::binary(BinOp::Mul, &ty, &c), &[y, inputs[2]]);
    let y = add(g, map::binary(BinOp::Add, &ty, &c), &[y, inputs[3]]);
    add(g, activation::relu(&ty), &[y])
}

fn add(g: &mut Graph, op: Result<ComputeOp, OpError>, inputs: &[ValueId]) -> ValueId {
    let op = op.expect("an operator of a workload");
    g.add_compute("n", op.kind, (*op.expr).clone(), inputs)[0]
}

/// The kernels that fusion makes of a graph.
fn groups(name: &'static str, build: impl FnOnce(&mut Graph) -> ValueId) -> Vec<Workload> {
    let mut graph = Graph::new(name);
    let result = build(&mut graph);
    graph.outputs.push(("y".into(), result));
    fuse::fuse(&graph).into_iter().map(|group| (name, group.compute)).collect()
}

fn convolutions() -> Vec<Workload> {
    let last =
        |attrs: ConvAttrs| ConvAttrs { channels: Channels::Last, input: Channels::Last, ..attrs };
    let lopsided =
        ConvAttrs { pads_begin: vec![0, 2], pads_end: vec![1, 0], ..conv_attrs(&[3, 2], 1, 1) };
    vec![
        conv("pointwise", conv_attrs(&[1, 1], 1, 1), &[1, 7, 5, 3], &[11, 7, 1, 1]),
        conv("lopsided", lopsided, &[1, 3, 5, 7], &[5, 3, 3, 2]),
        conv("large window", conv_attrs(&[7, 7], 1, 1), &[1, 2, 8, 12], &[3, 2, 7, 7]),
        conv("large strided", conv_attrs(&[7, 7], 2, 1), &[1, 2, 16, 24], &[3, 2, 7, 7]),
        conv("one channel", conv_attrs(&[3, 3], 1, 1), &[1, 1, 7, 7], &[1, 1, 3, 3]),
        conv("batch last", last(conv_attrs(&[3, 3], 1, 1)), &[2, 6, 5, 5], &[3, 3, 5, 8]),
        conv("channels last", last(conv_attrs(&[3, 3], 1, 1)), &[1, 5, 7, 3], &[3, 3, 3, 13]),
        conv("depthwise last", last(conv_attrs(&[3, 3], 1, 13)), &[1, 5, 7, 13], &[3, 3, 1, 13]),
        conv("multiplier", conv_attrs(&[3, 3], 1, 5), &[1, 5, 5, 7], &[10, 1, 3, 3]),
        conv("grouped last", last(conv_attrs(&[3, 1], 1, 2)), &[1, 5, 3, 6], &[3, 1, 3, 10]),
    ]
}

fn conv_of_bytes() -> Workload {
    let (channels, input) = (Channels::Last, Channels::Last);
    let attrs = ConvAttrs { channels, input, ..conv_attrs(&[3, 3], 1, 1) };
    let x = TensorType::new(DType::U8, [1, 5, 4, 8]);
    one("conv of bytes", conv::conv(attrs, &x, &TensorType::new(DType::I8, [3, 3, 8, 11])))
}

fn products() -> Vec<Workload> {
    let typed = |name, dtype, m, n, k| {
        let ty = |shape: &[usize]| TensorType::new(dtype, shape);
        one(name, matmul::matmul(&ty(&[m, k]), &ty(&[k, n])))
    };
    let byte = |dtype, shape: &[usize]| TensorType::new(dtype, shape);
    let mut all = vec![
        typed("int8", DType::I8, 7, 17, 11),
        one("bytes", matmul::matmul(&byte(DType::U8, &[7, 12]), &byte(DType::I8, &[12, 17]))),
        conv_of_bytes(),
        typed("fp16", DType::F16, 5, 13, 19),
        typed("one row", DType::F32, 1, 31, 17),
        typed("one column", DType::F32, 17, 1, 31),
        typed("long and narrow", DType::F32, 2, 3, 197),
        typed("primes", DType::F32, 29, 7, 23),
        one("batch", matmul::matmul(&f32s(&[3, 5, 7]), &f32s(&[3, 7, 11]))),
        one("no rows", matmul::matmul(&f32s(&[0, 3]), &f32s(&[3, 5]))),
        one("no terms", matmul::matmul(&f32s(&[3, 0]), &f32s(&[0, 5]))),
    ];
    all.extend(groups("product, bias, gelu", |g| {
        let (a, b, bias) = (f32s(&[7, 5]), f32s(&[5, 19]), f32s(&[19]));
        let types = [a.clone(), b.clone(), bias.clone()];
        let inputs = types.map(|ty| g.add_input("x", ty, None));
        let y = add(g, matmul::matmul(&a, &b), &inputs[..2]);
        let ty = f32s(&[7, 19]);
        let y = add(g, map::binary(BinOp::Add, &ty, &bias), &[y, inputs[2]]);
        add(g, activation::activation(activation::Activation::Gelu, &ty), &[y])
    }));
    all.extend(groups("attention", |g| {
        let (q, k) = (f32s(&[3, 7, 5]), f32s(&[3, 5, 7]));
        let inputs = [q.clone(), k.clone(), q.clone()].map(|ty| g.add_input("x", ty, None));
        let scores = f32s(&[3, 7, 7]);
        let y = add(g, matmul::matmul(&q, &k), &inputs[..2]);
        let y = add(g, softmax::softmax(&[2], &scores), &[y]);
        add(g, matmul::matmul(&scores, &q), &[y, inputs[2]])
    }));
    all
}

/// Rows that are normalised.
fn rows() -> Vec<Workload> {
    let (x, scale) = (f32s(&[7, 19]), f32s(&[19]));
    let half = TensorType::new(DType::F16, [3, 11]);
    let channels = f32s(&[6]);
    vec![
        one("layer norm", normalize::layer_norm(1, 1e-5, DType::F32, &x, &scale, Some(&scale))),
        one("rms norm", normalize::rms_norm(1, 1e-5, DType::F32, &x, &scale)),
        one(
            "group norm",
            normalize::group_norm(3, 1e-5, &f32s(&[1, 6, 3, 5]), &channels, &channels),
        ),
        one("log softmax", softmax::log_softmax(&[0], &x)),
        one("softmax of halves", softmax::softmax(&[1], &half)),
        one("masked softmax", attention::masked_softmax(&f32s(&[2, 3, 11]))),
    ]
}

fn reductions() -> Vec<Workload> {
    let arg = |axis, last| arg_extreme::ArgExtreme { axis, largest: true, keep: false, last };
    let pool = |mode| PoolAttrs {
        channels: Channels::First,
        mode,
        kernel: vec![3, 2],
        strides: vec![2, 1],
        dilations: vec![1, 2],
        pads_begin: vec![1, 0],
        pads_end: vec![1, 1],
    };
    let average = PoolMode::Average { count_padding: false };
    let x = f32s(&[1, 3, 7, 6]);
    vec![
        one("argmax", arg_extreme::arg_extreme(arg(1, false), &f32s(&[5, 13, 3]))),
        one("last argmax", arg_extreme::arg_extreme(arg(0, true), &f32s(&[17]))),
        one("mean", reduce::reduce(reduce::Reduction::Mean, &[0, 2], true, &f32s(&[3, 7, 11]))),
        one("one sum", reduce::reduce(reduce::Reduction::Sum, &[0, 1], false, &f32s(&[7, 29]))),
        one("max pool", pool::max_pool(pool(PoolMode::Max), &x)),
        one("positions", pool::max_pool_with_indices(pool(PoolMode::Max), false, &x)),
        one("average pool", pool::average_pool(pool(average), &[0, 0], &x)),
        one("global pool", pool::global_pool(pool::GlobalPool::Average, &f32s(&[1, 11, 7, 5]))),
    ]
}

fn others() -> Vec<Workload> {
    let indices = TensorType::new(DType::I64, [5]);
    let sums = cumulative::Cumulative { axis: 1, op: BinOp::Add, exclusive: false, reverse: true };
    vec![
        one("broadcast", map::binary(BinOp::Add, &f32s(&[7, 1, 13]), &f32s(&[5, 1]))),
        one("scalar", map::unary(UnOp::Neg, &f32s(&[]))),
        one("transpose", shape::transpose(&f32s(&[3, 5, 7]), &[2, 0, 1])),
        one("concat", concat::concat(&[f32s(&[3, 2]), f32s(&[3, 11])], 1)),
        one("gather", gather::gather(&f32s(&[3, 19]), &indices, 0)),
        one("cumulative", cumulative::cumulative(sums, &f32s(&[3, 7]))),
        ("several results", several_results()),
    ]
}

/// A sum, what is left without its mean, and a product with that.
fn several_results() -> Compute {
    let (x, ty) = (|| Expr::load(0, vec![Expr::var(0), Expr::var(1)]), f32s(&[5, 13]));
    let mut c = Compute { inputs: vec![ty.clone()], stages: vec![], outputs: vec![0, 1, 2] };
    let sum = c.push(Stage::reduction("sum", f32s(&[5]), Combiner::Sum, vec![13], x()));
    let mean = Expr::Load(sum, vec![Expr::var(0)]) / Expr::float(DType::F32, 13.0);
    let centred = c.push(Stage::map("centred", ty, x() - mean));
    let at = |v: usize| Expr::Load(centred, vec![Expr::var(v), Expr::var(2)]);
    let gram = Stage::reduction("gram", f32s(&[5, 5]), Combiner::Sum, vec![13], at(0) * at(1));
    c.push(gram);
    c
}

/// Blocks of operations that networks repeat.
fn blocks() -> Vec<Workload> {
    groups("before a product", |g| {
        let ty = f32s(&[7, 7]);
        let x = g.add_input("x", ty.clone(), None);
        let t = add(g, shape::transpose(&ty, &[1, 0]), &[x]);
        let t = add(g, map::unary(UnOp::Abs, &ty), &[t]);
        add(g, matmul::matmul(&ty, &ty), &[t, x])
    })
}
