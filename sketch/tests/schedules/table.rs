//! One test for each family of operators, with the shapes that schedules trip over: extents of
//! one and zero, primes, fewer elements than lanes, one more than a vector.

use ansc_graph::op::{Channels, ConvAttrs, PoolAttrs, PoolMode};
use ansc_graph::ops::*;
use ansc_graph::{BinOp, Combiner, Compute, Expr, Graph, Scalar, Stage, TensorType, UnOp};
use ansc_runtime::DType;

use crate::support::{add, check, check_compute, check_fused, check_with, f32s, operand};

#[test]
fn matrix_products() {
    let sizes = [
        [1, 1, 1],
        [1, 17, 5],
        [17, 1, 5],
        [5, 17, 1],
        [7, 13, 11],
        [16, 32, 8],
        [6, 33, 9],
        [31, 37, 3],
        [64, 3, 2],
        [2, 100, 4],
    ];
    for [m, n, k] in sizes {
        check(&format!("{m}x{n}x{k}"), matmul::matmul(&f32s(&[m, k]), &f32s(&[k, n])));
    }
    check("matrix by vector", matmul::matmul(&f32s(&[9, 5]), &f32s(&[5, 1])));
    check("batch", matmul::matmul(&f32s(&[3, 5, 7]), &f32s(&[3, 7, 18])));
    check("broadcast batch", matmul::matmul(&f32s(&[2, 3, 5, 7]), &f32s(&[3, 7, 9])));
    check("one matrix for a batch", matmul::matmul(&f32s(&[4, 5, 7]), &f32s(&[7, 20])));
    check("batch of one", matmul::matmul(&f32s(&[1, 5, 7]), &f32s(&[1, 7, 9])));
}

/// Large enough to be worth waking threads for.
#[test]
fn work_that_threads_share() {
    check("product", matmul::matmul(&f32s(&[37, 20]), &f32s(&[20, 70])));
    check("one row", matmul::matmul(&f32s(&[1, 70]), &f32s(&[70, 300])));
    check("batch", matmul::matmul(&f32s(&[5, 13, 20]), &f32s(&[5, 20, 33])));
    check_conv("convolution", &conv_attrs(&[3, 3], Channels::First, 1), &[9, 11], 7, 19);
    check("softmax", softmax::softmax(&[1], &f32s(&[70, 67])));
    check("sums", reduce::reduce(reduce::Reduction::Sum, &[1], false, &f32s(&[50, 350])));
    check("one sum", reduce::reduce(reduce::Reduction::Sum, &[0, 1], false, &f32s(&[50, 350])));
    check("columns", reduce::reduce(reduce::Reduction::Sum, &[0], false, &f32s(&[50, 350])));
    check("elementwise", map::unary(UnOp::Neg, &f32s(&[17_000])));
    check("transpose", shape::transpose(&f32s(&[130, 133]), &[1, 0]));
}

#[test]
fn empty_tensors() {
    check("no rows", matmul::matmul(&f32s(&[0, 4]), &f32s(&[4, 5])));
    check("no columns", matmul::matmul(&f32s(&[3, 4]), &f32s(&[4, 0])));
    check("no terms", matmul::matmul(&f32s(&[3, 0]), &f32s(&[0, 5])));
    check("add", map::binary(BinOp::Add, &f32s(&[0, 3]), &f32s(&[3])));
    check("inner", map::unary(UnOp::Neg, &f32s(&[2, 0, 3])));
    check("sum", reduce::reduce(reduce::Reduction::Sum, &[1], true, &f32s(&[3, 0])));
    check("sum of no rows", reduce::reduce(reduce::Reduction::Sum, &[1], true, &f32s(&[0, 3])));
    check("transpose", shape::transpose(&f32s(&[2, 0, 3]), &[2, 0, 1]));
    check("softmax", softmax::softmax(&[1], &f32s(&[0, 3])));
    check("concat", concat::concat(&[f32s(&[0, 3]), f32s(&[2, 3])], 0));
}

#[test]
fn products_of_other_types() {
    let types = [DType::I8, DType::U8, DType::F16, DType::BF16, DType::F64, DType::I32, DType::I64];
    for dtype in types {
        let ty = |shape: &[usize]| TensorType::new(dtype, shape);
        check(dtype.name(), matmul::matmul(&ty(&[5, 9]), &ty(&[9, 19])));
        check(dtype.name(), matmul::matmul(&ty(&[1, 9]), &ty(&[9, 33])));
    }
    let (u8s, i8s) = (TensorType::new(DType::U8, [5, 9]), TensorType::new(DType::I8, [9, 19]));
    check("mixed bytes", matmul::matmul(&u8s, &i8s));
}

#[test]
fn products_with_transposed_operands() {
    let labels = |a: [usize; 2], b: [usize; 2]| einsum::Labels {
        operands: vec![a.to_vec(), b.to_vec()],
        output: vec![0, 1],
    };
    check("bt", einsum::einsum(&labels([0, 2], [1, 2]), &[f32s(&[7, 9]), f32s(&[18, 9])]));
    check("at", einsum::einsum(&labels([2, 0], [2, 1]), &[f32s(&[9, 7]), f32s(&[9, 18])]));
    check("both", einsum::einsum(&labels([2, 0], [1, 2]), &[f32s(&[9, 7]), f32s(&[18, 9])]));
    let diagonal = einsum::Labels { operands: vec![vec![0, 0]], output: vec![0] };
    check("diagonal", einsum::einsum(&diagonal, &[f32s(&[9, 9])]));
    let three =
        einsum::Labels { operands: vec![vec![0, 1], vec![1, 2], vec![2, 3]], output: vec![0, 3] };
    check("three", einsum::einsum(&three, &[f32s(&[3, 4]), f32s(&[4, 5]), f32s(&[5, 18])]));
}

pub(crate) fn conv_attrs(kernel: &[usize], channels: Channels, groups: usize) -> ConvAttrs {
    let n = kernel.len();
    ConvAttrs {
        channels,
        input: channels,
        kernel: kernel.to_vec(),
        strides: vec![1; n],
        dilations: vec![1; n],
        pads_begin: kernel.iter().map(|k| k / 2).collect(),
        pads_end: kernel.iter().map(|k| k / 2).collect(),
        groups,
    }
}

/// A convolution of `c` to `m` channels in both layouts, and from one to the other.
fn check_conv(name: &str, attrs: &ConvAttrs, spatial: &[usize], c: usize, m: usize) {
    let group = c / attrs.groups;
    let [first, last] = [Channels::First, Channels::Last];
    for (channels, input) in [(first, first), (last, last), (last, first)] {
        let attrs = ConvAttrs { channels, input, ..attrs.clone() };
        let x = match input {
            Channels::First => [&[1, c], spatial].concat(),
            Channels::Last => [&[1], spatial, &[c]].concat(),
        };
        let w = match channels {
            Channels::First => [&[m, group], &attrs.kernel[..]].concat(),
            Channels::Last => [&attrs.kernel[..], &[group, m]].concat(),
        };
        check(
            &format!("{name} {channels:?} of {input:?}"),
            conv::conv(attrs, &f32s(&x), &f32s(&w)),
        );
    }
}

#[test]
fn convolutions() {
    let plain = |kernel: &[usize]| conv_attrs(kernel, Channels::First, 1);
    check_conv("1d", &plain(&[3]), &[13], 3, 5);
    check_conv("2d", &plain(&[3, 3]), &[7, 9], 3, 17);
    check_conv("3d", &plain(&[3, 1, 2]), &[3, 4, 5], 2, 9);
    check_conv("pointwise", &plain(&[1, 1]), &[5, 7], 4, 18);
    check_conv("one channel", &plain(&[3, 3]), &[6, 6], 1, 1);
    check_conv("one row", &plain(&[1, 5]), &[1, 19], 2, 8);
    let strided = ConvAttrs { strides: vec![2, 3], ..plain(&[3, 3]) };
    check_conv("strided", &strided, &[9, 11], 3, 8);
    let dilated = ConvAttrs { dilations: vec![2, 1], ..plain(&[3, 3]) };
    check_conv("dilated", &dilated, &[9, 8], 2, 8);
    let lopsided = ConvAttrs { pads_begin: vec![0, 2], pads_end: vec![1, 0], ..plain(&[3, 3]) };
    check_conv("lopsided", &lopsided, &[6, 7], 2, 8);
}

/// Rows of a tile read what other rows read for other terms; columns that fill no vector begin in
/// the one before.
#[test]
fn windows_that_slide() {
    let wide = |kernel: &[usize], c| conv_attrs(kernel, Channels::First, c);
    check_conv("depthwise", &wide(&[7, 7], 3), &[9, 37], 3, 3);
    check_conv("with a multiplier", &wide(&[5, 5], 2), &[6, 19], 2, 4);
    let strided = ConvAttrs { strides: vec![2, 1], ..wide(&[9, 3], 2) };
    check_conv("strided", &strided, &[17, 21], 2, 2);
    let columns = ConvAttrs { strides: vec![2, 2], ..wide(&[5, 7], 2) };
    check_conv("strided columns", &columns, &[11, 39], 2, 2);
    let dilated = ConvAttrs { dilations: vec![2, 2], ..wide(&[5, 5], 2) };
    check_conv("dilated", &dilated, &[10, 27], 2, 2);
    check_conv("all channels", &wide(&[5, 5], 1), &[8, 27], 2, 2);
}

#[test]
fn grouped_convolutions() {
    let groups = |g| conv_attrs(&[3, 3], Channels::First, g);
    check_conv("two groups", &groups(2), &[5, 6], 4, 6);
    check_conv("groups of a vector", &groups(2), &[4, 5], 4, 32);
    check_conv("groups of three", &groups(3), &[4, 5], 6, 9);
    check_conv("depthwise", &groups(19), &[4, 5], 19, 19);
    check_conv("depthwise with a multiplier", &groups(5), &[4, 5], 5, 10);
    let strided = ConvAttrs { strides: vec![2, 2], ..groups(16) };
    check_conv("strided depthwise", &strided, &[7, 7], 16, 16);
}

#[test]
fn convolutions_with_what_follows() {
    for channels in [Channels::First, Channels::Last] {
        check_fused("conv, norm, relu, residual", |g| {
            let (x, w, c) = match channels {
                Channels::First => (f32s(&[1, 3, 6, 7]), f32s(&[10, 3, 3, 3]), f32s(&[10, 1, 1])),
                Channels::Last => (f32s(&[1, 6, 7, 3]), f32s(&[3, 3, 3, 10]), f32s(&[10])),
            };
            let attrs = conv_attrs(&[3, 3], channels, 1);
            let inputs = [x.clone(), w.clone(), c.clone(), c.clone()];
            let inputs: Vec<_> = inputs
                .into_iter()
                .enumerate()
                .map(|(i, ty)| g.add_input(&format!("x{i}"), ty, None))
                .collect();
            let y = add(g, conv::conv(attrs, &x, &w), &inputs[..2]);
            let ty = g.ty(y).clone();
            let y = add(g, map::binary(BinOp::Mul, &ty, &c), &[y, inputs[2]]);
            let y = add(g, map::binary(BinOp::Add, &ty, &c), &[y, inputs[3]]);
            let y = add(g, activation::relu(&ty), &[y]);
            let residual = g.add_input("residual", ty.clone(), None);
            add(g, map::binary(BinOp::Add, &ty, &ty), &[y, residual])
        });
    }
}

#[test]
fn products_with_what_follows() {
    for (m, n, k) in [(5, 17, 6), (1, 40, 3), (20, 1, 7)] {
        check_fused("product, bias, gelu", |g| {
            let (a, b, bias) = (f32s(&[m, k]), f32s(&[k, n]), f32s(&[n]));
            let x = g.add_input("a", a.clone(), None);
            let w = g.add_input("b", b.clone(), None);
            let c = g.add_input("bias", bias.clone(), None);
            let y = add(g, matmul::matmul(&a, &b), &[x, w]);
            let ty = f32s(&[m, n]);
            let y = add(g, map::binary(BinOp::Add, &ty, &bias), &[y, c]);
            add(g, activation::activation(activation::Activation::Gelu, &ty), &[y])
        });
    }
    check_fused("what comes before a product", |g| {
        let ty = f32s(&[6, 6]);
        let x = g.add_input("x", ty.clone(), None);
        let t = add(g, shape::transpose(&ty, &[1, 0]), &[x]);
        let t = add(g, map::unary(UnOp::Exp, &ty), &[t]);
        add(g, matmul::matmul(&ty, &ty), &[t, x])
    });
}

#[test]
fn rows_that_are_normalised() {
    for shape in [vec![1, 1], vec![3, 5], vec![4, 33], vec![2, 3, 17], vec![7, 64]] {
        let x = f32s(&shape);
        let last = shape.len() - 1;
        check(&format!("softmax {shape:?}"), softmax::softmax(&[last], &x));
        check(&format!("softmax of the first axis {shape:?}"), softmax::softmax(&[0], &x));
        check(&format!("log softmax {shape:?}"), softmax::log_softmax(&[last], &x));
        let scale = f32s(&shape[last..]);
        let norm = normalize::layer_norm(last, 1e-5, DType::F32, &x, &scale, Some(&scale));
        check(&format!("layer norm {shape:?}"), norm);
        let norm = normalize::rms_norm(last, 1e-5, DType::F32, &x, &scale);
        check(&format!("rms norm {shape:?}"), norm);
    }
    let half = TensorType::new(DType::F16, [3, 19]);
    check("softmax of halves", softmax::softmax(&[1], &half));
    let scale = f32s(&[6]);
    check("group norm", normalize::group_norm(3, 1e-5, &f32s(&[2, 6, 3, 5]), &scale, &scale));
    check("lp norm", normalize::lp_norm(1, 2, &f32s(&[3, 9, 5])));
}

#[test]
fn reductions_along_any_axes() {
    use reduce::Reduction::*;
    let x = f32s(&[3, 5, 18]);
    let axes: [&[usize]; 7] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]];
    for axes in axes {
        for keep in [false, true] {
            check(&format!("sum {axes:?}"), reduce::reduce(Sum, axes, keep, &x));
        }
        for kind in [Mean, Max, Min, L1, L2, LogSumExp, SumSquare] {
            check(&format!("{kind:?} {axes:?}"), reduce::reduce(kind, axes, true, &x));
        }
    }
    for dtype in [DType::F16, DType::I32, DType::I8, DType::U8, DType::I64, DType::F64] {
        check(dtype.name(), reduce::reduce(Max, &[1], false, &TensorType::new(dtype, [3, 70])));
        check(dtype.name(), reduce::reduce(Max, &[0], false, &TensorType::new(dtype, [70, 3])));
    }
    for extent in [1, 2, 7, 16, 31, 64, 129] {
        check(&format!("{extent} terms"), reduce::reduce(Sum, &[0], false, &f32s(&[extent])));
        check(&format!("{extent} sums"), reduce::reduce(Sum, &[0], false, &f32s(&[3, extent])));
    }
}

#[test]
fn positions_of_extremes() {
    for axis in 0..3 {
        for (largest, last) in [(true, false), (true, true), (false, false), (false, true)] {
            let attrs = arg_extreme::ArgExtreme { axis, largest, keep: true, last };
            check("arg", arg_extreme::arg_extreme(attrs, &f32s(&[3, 11, 5])));
        }
    }
}

#[test]
fn moving_elements() {
    let x = f32s(&[3, 5, 7, 2]);
    let perms = [[0, 1, 3, 2], [3, 2, 1, 0], [1, 0, 2, 3], [0, 2, 3, 1], [2, 3, 0, 1]];
    for perm in perms {
        check(&format!("{perm:?}"), shape::transpose(&x, &perm));
    }
    check("wide", shape::transpose(&f32s(&[33, 20]), &[1, 0]));
    check("reshape", shape::reshape(&x, &[15, 14]));
    check("to a scalar", shape::reshape(&f32s(&[1, 1]), &[]));
    check("from a scalar", shape::reshape(&f32s(&[]), &[1]));
    check("concat", concat::concat(&[f32s(&[2, 3]), f32s(&[2, 9]), f32s(&[2, 1])], 1));
    check("slice", slice::slice(&f32s(&[9, 30]), &[8, 1], &[-2, 3], &[4, 9]));
    let zero = pad::PadMode::Constant(Scalar::zero(DType::F32));
    check("pad", pad::pad(&[f32s(&[3, 17])], zero, &[1, 2], &[0, 3]));
    check("crop", pad::pad(&[f32s(&[5, 17])], zero, &[-1, -2], &[-1, 3]));
    check("reflect", pad::pad(&[f32s(&[5, 17])], pad::PadMode::Reflect, &[2, 3], &[1, 0]));
    check("tile", rearrange::tile(&f32s(&[3, 5]), &[2, 3]));
    check("expand", map::map_to(&[f32s(&[3, 1])], f32s(&[2, 3, 9]), |mut x| x.remove(0)));
    check("scalar", map::unary(UnOp::Neg, &f32s(&[])));
    let diagonal = rearrange::Diagonal::At(1);
    check("triangle", rearrange::triangle(&[f32s(&[5, 19])], true, diagonal));
    for order in [rearrange::DepthOrder::DepthColumnRow, rearrange::DepthOrder::ColumnRowDepth] {
        check("blocks to depth", rearrange::space_to_depth(&f32s(&[1, 3, 6, 8]), 2, order));
    }
}

/// Parts that are read across the rows of the result go in squares, each in a nest of its own.
#[test]
fn parts_that_are_turned() {
    let turned = |g: &mut Graph, name: &str, extents: &[usize]| {
        let ty = f32s(extents);
        let x = g.add_input(name, ty.clone(), None);
        add(g, shape::transpose(&ty, &[1, 2, 0]), &[x])
    };
    check_fused("along the last axis", |g| {
        let (a, b) = (f32s(&[6, 9, 40]), f32s(&[6, 9, 21]));
        let x = turned(g, "x", &[40, 6, 9]);
        let y = g.add_input("y", b.clone(), None);
        add(g, concat::concat(&[a, b], 2), &[x, y])
    });
    check_fused("in rows of a matrix", |g| {
        let (a, b) = (f32s(&[3, 70, 19]), f32s(&[3, 70, 33]));
        let x = g.add_input("x", a.clone(), None);
        let y = g.add_input("y", f32s(&[3, 33, 70]), None);
        let y = add(g, shape::transpose(&f32s(&[3, 33, 70]), &[0, 2, 1]), &[y]);
        add(g, concat::concat(&[a, b], 2), &[x, y])
    });
    check_fused("what chooses by values", |g| {
        let (a, b) = (f32s(&[6, 9, 40]), f32s(&[6, 9, 21]));
        let x = turned(g, "x", &[40, 6, 9]);
        let y = g.add_input("y", b.clone(), None);
        let both = add(g, concat::concat(&[a, b], 2), &[x, y]);
        let leaky = activation::Activation::LeakyRelu { alpha: 0.25 };
        add(g, activation::activation(leaky, &f32s(&[6, 9, 61])), &[both])
    });
    check_fused("along two axes", |g| {
        let (a, b) = (f32s(&[16, 17, 40]), f32s(&[16, 17, 21]));
        let x = turned(g, "x", &[40, 16, 17]);
        let y = g.add_input("y", b.clone(), None);
        let both = add(g, concat::concat(&[a, b], 2), &[x, y]);
        let z = turned(g, "z", &[61, 16, 35]);
        add(g, concat::concat(&[f32s(&[16, 35, 61]), f32s(&[16, 17, 61])], 1), &[z, both])
    });
}

#[test]
fn lookups() {
    for (rows, shape) in [(vec![4], vec![6, 5, 3]), (vec![2, 3], vec![5, 19]), (vec![], vec![4, 9])]
    {
        let indices = TensorType::new(DType::I64, rows);
        for axis in 0..shape.len() {
            check(&format!("gather {axis}"), gather::gather(&f32s(&shape), &indices, axis));
        }
    }
    let indices = TensorType::new(DType::I32, [3, 18]);
    check("elements", gather::gather_elements(&f32s(&[5, 18]), &indices, 0));
    check("nd", gather::gather_nd(&f32s(&[5, 4, 9]), &TensorType::new(DType::I64, [7, 2]), 0));
}

#[test]
fn elementwise_with_broadcasting() {
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[19], &[19]),
        (&[3, 19], &[19]),
        (&[3, 19], &[3, 1]),
        (&[3, 1, 5], &[4, 1]),
        (&[2, 3, 4, 5], &[3, 1, 5]),
        (&[], &[7]),
        (&[1], &[1]),
        (&[5, 1], &[1, 33]),
        (&[64, 40], &[64, 40]),
    ];
    for (a, b) in shapes {
        check(&format!("{a:?} + {b:?}"), map::binary(BinOp::Add, &f32s(a), &f32s(b)));
    }
    for dtype in DType::ALL.into_iter().filter(|d| *d != DType::Bool) {
        let ty = TensorType::new(dtype, [5, 13]);
        check(dtype.name(), map::binary(BinOp::Mul, &ty, &ty));
        check(dtype.name(), map::cast(&ty, DType::F32));
        check(dtype.name(), map::binary(BinOp::Lt, &ty, &ty));
    }
    check("large", map::unary(UnOp::Tanh, &f32s(&[1, 3000])));
    check("cut into chunks", map::unary(UnOp::Neg, &f32s(&[2, 2051])));
}

fn pool_attrs(mode: PoolMode, channels: Channels) -> PoolAttrs {
    PoolAttrs {
        channels,
        mode,
        kernel: vec![3, 2],
        strides: vec![2, 1],
        dilations: vec![1, 2],
        pads_begin: vec![1, 0],
        pads_end: vec![1, 1],
    }
}

#[test]
fn pools() {
    for channels in [Channels::First, Channels::Last] {
        let x = match channels {
            Channels::First => f32s(&[1, 9, 7, 6]),
            Channels::Last => f32s(&[1, 7, 6, 9]),
        };
        check("max", pool::max_pool(pool_attrs(PoolMode::Max, channels), &x));
        for count_padding in [false, true] {
            let attrs = pool_attrs(PoolMode::Average { count_padding }, channels);
            check("average", pool::average_pool(attrs, &[0, 0], &x));
        }
    }
    let attrs = pool_attrs(PoolMode::Max, Channels::First);
    check("positions", pool::max_pool_with_indices(attrs.clone(), false, &f32s(&[1, 3, 7, 6])));
    // The two elements of the only window lie in the padding, one on each side.
    let far = PoolAttrs {
        kernel: vec![2, 1],
        strides: vec![1, 1],
        dilations: vec![40, 1],
        pads_begin: vec![20, 0],
        pads_end: vec![20, 0],
        ..attrs.clone()
    };
    check("positions of nothing", pool::max_pool_with_indices(far, false, &f32s(&[1, 3, 1, 1])));
    let volume = PoolAttrs {
        kernel: vec![2, 2, 4],
        strides: vec![1, 2, 2],
        dilations: vec![1, 1, 1],
        pads_begin: vec![0, 0, 0],
        pads_end: vec![1, 0, 1],
        ..attrs
    };
    check("a padded volume", pool::max_pool(volume, &f32s(&[1, 6, 3, 4, 3])));
    check("global", pool::global_pool(pool::GlobalPool::Average, &f32s(&[2, 5, 7, 3])));
    check("global max", pool::global_pool(pool::GlobalPool::Max, &f32s(&[2, 5, 7, 3])));
}

#[test]
fn resizes() {
    use resize::*;
    let axis = |axis, extent, scale| ResizeAxis { axis, extent, scale, region: (0.0, 1.0) };
    let modes = [
        Interpolation::Nearest(Rounding::PreferFloor),
        Interpolation::Linear,
        Interpolation::Cubic { a: -0.75 },
    ];
    for interpolation in modes {
        let attrs = ResizeAttrs {
            interpolation,
            coordinates: Coordinates::HalfPixel,
            antialias: false,
            exclude_outside: false,
            extrapolation: 0.0,
        };
        for axes in
            [[axis(2, 10, 2.0), axis(3, 18, 2.0)], [axis(2, 3, 0.6), axis(3, 13, 13.0 / 9.0)]]
        {
            let (op, tables) = resize(&f32s(&[1, 2, 5, 9]), &axes, &attrs).unwrap();
            let mut inputs = vec![operand(&op.expr.inputs[0], 0)];
            inputs.extend(tables);
            check_with(&format!("{interpolation:?}"), &op.expr, &inputs);
        }
    }
}

#[test]
fn sums_along_the_way() {
    for (exclusive, reverse) in [(false, false), (true, false), (false, true)] {
        let attrs = cumulative::Cumulative { axis: 1, op: BinOp::Add, exclusive, reverse };
        check("cumulative", cumulative::cumulative(attrs, &f32s(&[3, 9, 5])));
    }
}

#[test]
fn quantised_operators() {
    let (x, scale) = (f32s(&[3, 19]), f32s(&[]));
    let zero = TensorType::new(DType::U8, []);
    let op = quantize::dynamic_quantize(&x).unwrap();
    check_compute("dynamic", &op.expr);
    let op =
        quantize::dequantize(DType::F32, &TensorType::new(DType::U8, [3, 19]), &scale, Some(&zero));
    check("dequantize", op);
    check("softmax with a mask", attention::masked_softmax(&f32s(&[2, 3, 17])));
}

#[test]
fn several_results() {
    let (x, ty) = (|| Expr::load(0, vec![Expr::var(0), Expr::var(1)]), f32s(&[5, 19]));
    let mut c = Compute { inputs: vec![ty.clone()], stages: vec![], outputs: vec![] };
    let sum = Stage::reduction("sum", f32s(&[5]), Combiner::Sum, vec![19], x());
    let sum = c.push(sum);
    let mean = Expr::Load(sum, vec![Expr::var(0)]) / Expr::float(DType::F32, 19.0);
    c.push(Stage::map("centred", ty.clone(), x() - mean));
    c.push(Stage::map("twice", ty, x() + x()));
    for outputs in [vec![0], vec![1], vec![0, 1, 2], vec![2, 1], vec![1, 1], vec![0, 2, 0]] {
        check_compute(&format!("{outputs:?}"), &Compute { outputs, ..c.clone() });
    }
}

#[test]
fn stages_without_inputs() {
    check("constant", fill::constant(Scalar::one(DType::F32), &[3, 19]));
    check("range", fill::range(Scalar::index(3), Scalar::index(-2), 21));
    check("eye", fill::eye(DType::F32, 5, 9, 1));
}
