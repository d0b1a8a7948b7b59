//! Graphs for ranges of sizes against the graphs for each size.

mod control;
mod counts;

use ansc_runtime::host::HostOp;
use ansc_runtime::{DType, Tensor};

use super::{Range, RangeError, Ranged, ranged, read_dense};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::{BinOp, Expr, UnOp};
use crate::graph::{Graph, ValueId};
use crate::interp;
use crate::op::Kind;
use crate::op::Op;
use crate::ops::arg_extreme::{ArgExtreme, arg_extreme};
use crate::ops::{concat, fill, gather, map, pad, reduce, shape, slice};
use crate::passes::testing::{Builder, random};
use crate::passes::{self, Options};
use crate::scalar::Scalar;
use crate::verify::verify;

/// A model as a function of sizes.
type Model = fn(&mut Builder, &[usize]) -> Vec<ValueId>;

fn graph(model: Model, sizes: &[usize]) -> Graph {
    let mut builder = Builder::new(7);
    let outputs = model(&mut builder, sizes);
    builder.finish(&outputs)
}

fn range(model: Model, ranges: &[(usize, usize)]) -> Result<Ranged, String> {
    let names = ranges.iter().enumerate();
    let of =
        |(i, &(low, high)): (usize, &(usize, usize))| Range { name: format!("s{i}"), low, high };
    let ranges: Vec<Range> = names.map(of).collect();
    let made = ranged(&ranges, |sizes| Ok::<Graph, ()>(graph(model, sizes)));
    made.map_err(|e| match e {
        RangeError::Unfit(unfit) => unfit.to_string(),
        RangeError::Import(()) => unreachable!("models can be made for all sizes"),
    })
}

/// Compares the graph for the ranges with that for each tuple of sizes in them, as they are and
/// after all passes.
fn check(model: Model, ranges: &[(usize, usize)]) {
    let made = range(model, ranges).unwrap();
    assert_eq!(verify(&made.graph), Ok(()));
    let mut optimised = made.graph.clone();
    passes::run_all(&mut optimised, &Options::default()).unwrap();
    for sizes in super::samples::samples(
        &ranges
            .iter()
            .map(|&(low, high)| Range { name: String::new(), low, high })
            .collect::<Vec<_>>(),
        &[],
    ) {
        let exact = graph(model, &sizes);
        let wide = sizes.iter().map(|s| *s as i64).collect::<Vec<_>>();
        let (mut dense, mut roomy) = (vec![], vec![]);
        for (i, &node) in exact.inputs().iter().enumerate() {
            let ty = exact.ty(ValueId { node, out: 0 });
            let tensor = values(ty, i as u64);
            let room = ValueId { node: made.graph.inputs()[i], out: 0 };
            roomy.push(spread(&tensor, &made.graph.ty(room).shape));
            let extents = made.inputs[i].iter().map(|e| e.at(&wide).unwrap() as usize);
            assert_eq!(extents.collect::<Vec<_>>(), ty.shape);
            dense.push(tensor);
        }
        roomy.extend(wide.iter().map(|s| Tensor::scalar(*s)));
        let expected = interp::run(&exact, &dense).unwrap();
        for graph in [&made.graph, &optimised] {
            let found = interp::run(graph, &roomy).unwrap();
            for (i, (e, f)) in expected.iter().zip(&found).enumerate() {
                let extents = made.outputs[i].iter().map(|e| e.at(&wide).unwrap() as usize);
                assert_eq!(extents.collect::<Vec<_>>(), e.shape());
                let found = cut(f, e.shape());
                for (e, f) in e.to_f64_vec().into_iter().zip(found) {
                    let close = (e - f).abs() <= 1e-4 * (1.0 + e.abs());
                    assert!(close || e.is_nan() && f.is_nan(), "{e} became {f} at {sizes:?}");
                }
            }
        }
    }
}

fn values(ty: &TensorType, seed: u64) -> Tensor {
    if ty.dtype == DType::F32 {
        return random(&ty.shape, 100 + seed);
    }
    let ints: Vec<i64> = (0..ty.len()).map(|i| (i * 7 % 5) as i64).collect();
    Tensor::from_slice(&ty.shape, &ints)
}

/// The tensor at the beginning of a larger one that is full of what must not be read.
fn spread(tensor: &Tensor, shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    let mut all = match tensor.dtype() {
        DType::F32 => Tensor::from_slice(shape, &vec![f32::NAN; count]),
        _ => Tensor::from_slice(shape, &vec![i64::MIN / 3; count]),
    };
    let places = places(tensor.shape(), shape);
    let size = tensor.dtype().size();
    for (from, to) in places.into_iter().enumerate() {
        all.bytes_mut()[to * size..][..size]
            .copy_from_slice(&tensor.bytes()[from * size..][..size]);
    }
    all
}

fn cut(tensor: &Tensor, shape: &[usize]) -> Vec<f64> {
    let all = tensor.to_f64_vec();
    places(shape, tensor.shape()).into_iter().map(|place| all[place]).collect()
}

fn places(shape: &[usize], of: &[usize]) -> Vec<usize> {
    let mut places = vec![0];
    for (extent, room) in shape.iter().zip(of) {
        places = places.iter().flat_map(|p| (0..*extent).map(move |i| p * room + i)).collect();
    }
    places
}

/// Several rows along the first axis, which nothing joins.
#[test]
fn rows_are_independent() {
    let model: Model = |b, s| {
        let x = b.input(&[s[0], 6]);
        let hidden = b.dense(x, 5);
        let hidden = b.gelu(hidden);
        let normal = b.layer_norm(hidden);
        vec![b.softmax(normal), hidden]
    };
    check(model, &[(1, 9)]);
    let made = range(model, &[(1, 9)]).unwrap();
    // Nothing asks for the size.
    let size = *made.graph.inputs().last().unwrap();
    assert!(made.graph.users(ValueId { node: size, out: 0 }).is_empty());
}

/// One head of attention: products and softmaxes over an axis that varies.
#[test]
fn attention_sees_what_is_there() {
    let model: Model = |b, s| {
        let x = b.input(&[s[0], s[1], 8]);
        let [q, k, v] = [0, 1, 2].map(|_| b.dense(x, 8));
        let k = b.transpose(k, &[0, 2, 1]);
        let scores = b.matmul(q, k);
        let shares = b.softmax(scores);
        let sum = b.matmul(shares, v);
        let flat = b.reshape(sum, &[s[0] * s[1], 8]);
        let flat = b.dense(flat, 3);
        vec![b.reshape(flat, &[s[0], s[1], 3])]
    };
    check(model, &[(2, 3), (2, 7)]);
    check(model, &[(1, 1), (2, 9)]);
    check(model, &[(1, 3), (1, 7)]);
    check(model, &[(1, 1), (1, 16)]);
    check(model, &[(2, 2), (4, 60)]);
}

/// A step of a decoder: what came before, and one element more.
#[test]
fn what_came_before_grows() {
    let model: Model = |b, s| {
        let (past, new) = (b.input(&[2, s[0], 4]), b.input(&[2, s[1], 4]));
        let types = [past, new].map(|v| b.graph.ty(v).clone());
        let all = b.emit(concat::concat(&types, 1).unwrap(), &[past, new]);
        let turned = b.transpose(new, &[0, 2, 1]);
        let scores = b.matmul(all, turned);
        let last = slice::narrow(b.graph.ty(all), 1, s[0], s[1]).unwrap();
        let last = b.emit(last, &[all]);
        vec![all, scores, last]
    };
    check(model, &[(1, 6), (1, 4)]);
    check(model, &[(1, 70), (1, 1)]);
}

/// Images whose height and width vary.
#[test]
fn images_have_any_size() {
    let model: Model = |b, s| {
        let x = b.input(&[1, 3, s[0], s[1]]);
        let x = b.conv(x, 4, 3, 2);
        let x = b.batch_norm(x);
        let x = b.relu(x);
        let x = b.max_pool(x);
        let x = b.conv(x, 4, 1, 1);
        let x = b.grouped(x, 2);
        vec![b.mean_of_pixels(x), x]
    };
    check(model, &[(7, 18), (8, 13)]);
}

/// Reductions of other kinds, positions, constants that depend on sizes.
#[test]
fn reductions_and_constants() {
    let model: Model = |b, s| {
        let x = b.input(&[2, s[0]]);
        let ty = b.graph.ty(x).clone();
        let of = |how| reduce::reduce(how, &[1], true, &ty).unwrap();
        let mean = b.emit(of(reduce::Reduction::Mean), &[x]);
        let least = b.emit(of(reduce::Reduction::Min), &[x]);
        let how = ArgExtreme { axis: 1, keep: false, last: false, largest: true };
        let place = b.emit(arg_extreme(how, &ty).unwrap(), &[x]);
        let counted = fill::range(Scalar::index(s[0] as i64), Scalar::index(2), s[0]).unwrap();
        let counted = b.emit(counted, &[]);
        let ints: Vec<i64> = (0..s[0] as i64).map(|i| 3 * i + s[0] as i64).collect();
        let constant = b.graph.add_const("c", Tensor::from_slice(&[s[0]], &ints));
        let op = map::binary(BinOp::Add, b.graph.ty(counted), b.graph.ty(constant)).unwrap();
        let sum = b.emit(op, &[counted, constant]);
        let few = Tensor::from_slice(&[2], &[5_i64, 2 * s[0] as i64]);
        let few = b.graph.add_const("few", few);
        let few = b.emit(map::cast(b.graph.ty(few), DType::F32).unwrap(), &[few]);
        vec![mean, least, place, sum, few]
    };
    check(model, &[(1, 20)]);
}

/// A number that follows one size, for as many elements as another one.
#[test]
fn numbers_and_extents_of_different_sizes() {
    let model: Model = |b, s| {
        let x = b.input(&[s[0], 2]);
        let number = Expr::float(DType::F32, s[1] as f64 + 3.0);
        let body = Expr::load(0, vec![Expr::var(0), Expr::var(1)]) * number;
        let types = vec![b.graph.ty(x).clone()];
        let expr = Compute::single(types.clone(), Stage::map("y", types[0].clone(), body));
        b.graph.add_compute("y", Kind::Map, expr, &[x])
    };
    check(model, &[(1, 4), (1, 5)]);
}

/// Elements at the other end, elements around, elements at places that data tells.
#[test]
fn moves() {
    let model: Model = |b, s| {
        let x = b.input(&[s[0], 3]);
        let ty = b.graph.ty(x).clone();
        let last = b.emit(slice::select(&ty, 0, s[0] - 1).unwrap(), &[x]);
        let types = std::slice::from_ref(&ty);
        let wide = pad::pad(types, pad::PadMode::Reflect, &[1, 0], &[1, 0]).unwrap();
        let wide = b.emit(wide, &[x]);
        let at = b.graph.add_input("at", TensorType::new(DType::I64, [s[0]]), None);
        let table = b.constant(&[5, 3]);
        let op = gather::gather(b.graph.ty(table), b.graph.ty(at), 0).unwrap();
        let taken = b.emit(op, &[table, at]);
        let sum = b.binary(BinOp::Add, taken, x);
        let square = b.reshape(wide, &[3 * (s[0] + 2)]);
        let negative = b.unary(UnOp::Neg, square);
        vec![last, wide, sum, negative]
    };
    check(model, &[(2, 20)]);
}

#[test]
fn a_model_of_another_form_is_refused() {
    let other: Model = |b, s| {
        let x = b.input(&[s[0], 2]);
        vec![if s[0] > 4 { b.relu(x) } else { b.gelu(x) }]
    };
    assert!(range(other, &[(1, 9)]).unwrap_err().contains("in another way"));
    let single: Model = |b, s| {
        let x = b.input(&[s[0], 2]);
        vec![b.unary(if s[0] == 1 { UnOp::Neg } else { UnOp::Abs }, x)]
    };
    assert!(range(single, &[(1, 9)]).unwrap_err().contains("in another way"));
    let cubes: Model = |b, s| {
        let x = b.input(&[s[0], 2]);
        let by = b.filled(&[], (s[0] * s[0] * s[0]) as f32);
        vec![b.binary(BinOp::Mul, x, by)]
    };
    assert!(range(cubes, &[(1, 9)]).unwrap_err().contains("a constant is another one"));
}

#[test]
fn one_size_is_a_range() {
    let model: Model = |b, s| {
        let x = b.input(&[s[0], 4]);
        let op = shape::transpose(b.graph.ty(x), &[1, 0]).unwrap();
        vec![b.emit(op, &[x])]
    };
    check(model, &[(3, 3)]);
}

/// Indices of an axis that varies are checked against what it has.
#[test]
fn indices_stay_in_an_axis_that_varies() {
    let model: Model = |b, s| {
        let x = b.input(&[s[0], 3]);
        let at = b.graph.add_input("at", TensorType::new(DType::I64, [2]), None);
        let op = map::binary(BinOp::Sub, b.graph.ty(at), b.graph.ty(at)).unwrap();
        let zero = b.emit(op, &[at, at]);
        let op = map::binary(BinOp::Add, b.graph.ty(at), b.graph.ty(zero)).unwrap();
        let at = b.emit(op, &[at, zero]);
        let check = HostOp::CheckIndices { extents: vec![s[0]] };
        b.graph.add("take", Op::Host(check), &[at], vec![]);
        let op = gather::gather(b.graph.ty(x), b.graph.ty(at), 0).unwrap();
        vec![b.emit(op, &[x, at])]
    };
    check(model, &[(3, 9)]);
    let made = range(model, &[(3, 9)]).unwrap();
    for (index, size, fits) in [(4, 5, true), (5, 5, false), (-5, 5, true), (-6, 5, false)] {
        let x = Tensor::from_slice(&[9, 3], &[0.5_f32; 27]);
        let at = Tensor::from_slice(&[2], &[0_i64, index]);
        let found = interp::run(&made.graph, &[x, at, Tensor::scalar(size as i64)]);
        assert_eq!(found.is_ok(), fits, "{index} of {size}");
    }
}

#[test]
fn a_dimension_may_have_the_name_of_an_input() {
    let ranges = [Range { name: "x0".into(), low: 2, high: 5 }];
    let model: Model = |b, s| {
        let x = b.input(&[2, s[0]]);
        vec![b.softmax(x)]
    };
    let made = ranged(&ranges, |sizes| Ok::<Graph, ()>(graph(model, sizes))).unwrap();
    assert_eq!(verify(&made.graph), Ok(()));
}

/// A large input lies where the caller has it, with nothing that may be read behind it. One that a
/// sum goes over, or that is small, does not.
#[test]
fn large_inputs_are_read_densely() {
    let model: Model = |b, s| {
        let (past, new) = (b.input(&[1, 3, s[0], 512]), b.input(&[1, 3, 1, 512]));
        let summed = b.input(&[2, s[0], 512]);
        let ty = b.graph.ty(summed).clone();
        let sum = reduce::reduce(reduce::Reduction::Sum, &[1], false, &ty).unwrap();
        let sum = b.emit(sum, &[summed]);
        let types = [past, new].map(|v| b.graph.ty(v).clone());
        vec![b.emit(concat::concat(&types, 2).unwrap(), &[past, new]), sum]
    };
    let mut made = range(model, &[(1, 90)]).unwrap();
    assert_eq!(read_dense(&mut made), [true, false, false]);
    assert_eq!(verify(&made.graph), Ok(()));
    let mut optimised = made.graph.clone();
    passes::run_all(&mut optimised, &Options::default()).unwrap();
    for size in [1, 2, 89, 90] {
        let exact = graph(model, &[size]);
        let types: Vec<TensorType> =
            exact.inputs().iter().map(|&node| exact.ty(ValueId { node, out: 0 }).clone()).collect();
        let given: Vec<Tensor> = types.iter().zip(0..).map(|(ty, i)| values(ty, i)).collect();
        let expected = interp::run(&exact, &given).unwrap();
        let mut past = given[0].as_slice::<f32>().to_vec();
        past.resize(3 * 90 * 512, f32::NAN);
        let inputs = [
            Tensor::from_slice(&[1, 3, 90, 512], &past),
            given[1].clone(),
            spread(&given[2], &[2, 90, 512]),
            Tensor::scalar(size as i64),
        ];
        for graph in [&made.graph, &optimised] {
            let found = interp::run(graph, &inputs).unwrap();
            assert_eq!(cut(&found[0], expected[0].shape()), expected[0].to_f64_vec(), "{size}");
        }
    }
}
