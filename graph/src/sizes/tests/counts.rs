//! Sizes that only the data decides.

use ansc_runtime::host::{Count, HostOp};
use ansc_runtime::{DType, Tensor};

use super::super::{Ranged, ranged};
use crate::compute::TensorType;
use crate::expr::{BinOp, UnOp};
use crate::graph::{Graph, Value, ValueId};
use crate::interp;
use crate::op::Op;
use crate::ops::reduce::{self, Reduction};
use crate::ops::{concat, gather, slice};
use crate::passes::testing::{Builder, random};
use crate::passes::{self, Options};
use crate::verify::verify;

const ROOM: usize = 7;

/// A model as a function of counts; without any it takes the most of each.
type Model = fn(&mut Builder, &[usize]) -> Vec<ValueId>;

fn graph(model: Model, counts: &[usize]) -> Graph {
    let mut builder = Builder::new(3);
    let outputs = model(&mut builder, counts);
    builder.finish(&outputs)
}

fn made(model: Model) -> Ranged {
    let made = ranged(&[], |counts| Ok::<Graph, ()>(graph(model, counts))).unwrap();
    assert_eq!(verify(&made.graph), Ok(()));
    made
}

/// The places of what is not 0 in a list, as an importer takes them.
fn places(b: &mut Builder, list: ValueId, number: usize, counts: &[usize]) -> ValueId {
    let room = b.graph.ty(list).len();
    let count = counts.get(number).copied().unwrap_or(room);
    let ty = |shape: &[usize]| TensorType::new(DType::I64, shape);
    let found = Value { dynamic: true, ..Value::new("found", ty(&[1, room])) };
    let node = b.graph.add("nonzero", Op::Host(HostOp::NonZero), &[list], vec![found]);
    let shape = vec![1, count];
    let number = number as u32;
    let op =
        HostOp::Spread { shape: shape.clone(), count: Some(Count { axis: 1, number, least: 0 }) };
    let outputs = vec![Value::new("room", ty(&shape)), Value::new("count", ty(&[]))];
    let node = b.graph.add("spread", Op::Host(op), &[ValueId { node, out: 0 }], outputs);
    b.reshape(ValueId { node, out: 0 }, &[count])
}

fn rows(b: &mut Builder, x: ValueId, at: ValueId) -> ValueId {
    let op = gather::gather(b.graph.ty(x), b.graph.ty(at), 0).unwrap();
    b.emit(op, &[x, at])
}

fn sum(b: &mut Builder, x: ValueId) -> ValueId {
    let op = reduce::reduce(Reduction::Sum, &[0], false, b.graph.ty(x)).unwrap();
    b.emit(op, &[x])
}

/// The best three of a list, or all of it.
fn best(b: &mut Builder, list: ValueId) -> ValueId {
    let k = b.graph.ty(list).len().min(3);
    let op = HostOp::TopK { axis: 0, k, at_most: false, largest: true, sorted: true };
    let values = Value::new("values", TensorType::new(DType::F32, [k]));
    let indices = Value::new("indices", TensorType::new(DType::I64, [k]));
    let node = b.graph.add("best", Op::Host(op), &[list], vec![values, indices]);
    ValueId { node, out: 1 }
}

/// Numbers of which so many are not 0.
fn list(count: usize) -> Tensor {
    let values = (0..ROOM).map(|i| f32::from(u8::from(i * 3 % ROOM < count)));
    Tensor::from_slice(&[ROOM], &values.collect::<Vec<_>>())
}

/// Compares the graph for all counts with that for these, as it is and after all passes.
fn check(model: Model, counts: &[usize]) {
    let made = made(model);
    let exact = graph(model, counts);
    let mut inputs: Vec<Tensor> = counts.iter().map(|count| list(*count)).collect();
    inputs.push(random(&[ROOM, 4], 5));
    let expected = interp::run(&exact, &inputs).unwrap();
    let mut optimised = made.graph.clone();
    passes::run_all(&mut optimised, &Options::default()).unwrap();
    for graph in [&made.graph, &optimised] {
        let found = interp::run(graph, &inputs).unwrap();
        for (expected, found) in expected.iter().zip(found) {
            assert_eq!(found.shape(), expected.shape(), "{counts:?}");
            for (e, f) in expected.to_f64_vec().into_iter().zip(found.to_f64_vec()) {
                assert!((e - f).abs() <= 1e-5 * (1.0 + e.abs()), "{e} became {f} at {counts:?}");
            }
        }
    }
}

#[test]
fn rows_that_the_data_chooses() {
    let model: Model = |b, counts| {
        let (list, x) = (b.input(&[ROOM]), b.input(&[ROOM, 4]));
        let at = places(b, list, 0, counts);
        let some = rows(b, x, at);
        let dense = b.dense(some, 3);
        let all = sum(b, some);
        let moved = b.binary(BinOp::Sub, some, all);
        vec![b.softmax(dense), all, moved]
    };
    (0..=ROOM).for_each(|count| check(model, &[count]));
}

/// The second count has less room than the first one leaves, and a list of both is sorted.
#[test]
fn counts_add_up() {
    let model: Model = |b, counts| {
        let (first, second, x) = (b.input(&[ROOM]), b.input(&[ROOM]), b.input(&[ROOM, 4]));
        let at = [places(b, first, 0, counts), places(b, second, 1, counts)];
        let parts = at.map(|at| rows(b, x, at));
        let types = parts.map(|v| b.graph.ty(v).clone());
        let both = b.emit(concat::concat(&types, 0).unwrap(), &parts);
        let turned = b.transpose(both, &[1, 0]);
        let ones = b.filled(&[4], 1.0);
        let sums = {
            let ones = b.reshape(ones, &[1, 4]);
            let sums = b.matmul(ones, turned);
            let count = b.graph.ty(sums).len();
            b.reshape(sums, &[count])
        };
        let at = best(b, sums);
        vec![rows(b, both, at), turned]
    };
    for counts in [[0, 0], [1, 0], [0, 2], [1, 1], [2, 3], [7, 5], [7, 7]] {
        check(model, &counts);
    }
}

/// The graph gives the counts behind the results, which have the sizes that the data decides.
#[test]
fn sizes_are_outputs_behind_those_of_the_model() {
    let model: Model = |b, counts| {
        let (list, x) = (b.input(&[ROOM]), b.input(&[ROOM, 4]));
        let at = places(b, list, 0, counts);
        vec![rows(b, x, at)]
    };
    let made = made(model);
    assert_eq!((made.graph.outputs.len(), &made.counts[..]), (2, &[0][..]));
    let found = interp::run(&made.graph, &[list(4), random(&[ROOM, 4], 1)]).unwrap();
    assert_eq!(found[1].as_slice::<i64>(), [4]);
    assert_eq!(found[0].shape(), [4, 4]);
    assert!(made.outputs[0].iter().all(ansc_runtime::Extent::is_constant));
}

/// A model may make something else of no rows; then it is not compiled for none.
#[test]
fn another_model_for_nothing_is_an_error_of_a_run() {
    let other: Model = |b, counts| {
        let (list, x) = (b.input(&[ROOM]), b.input(&[ROOM, 4]));
        let at = places(b, list, 0, counts);
        let some = rows(b, x, at);
        if counts == [0] {
            return vec![b.filled(&[4], 9.0)];
        }
        vec![sum(b, some)]
    };
    let inputs = |count| [list(count), random(&[ROOM, 4], 1)];
    let run = |model, count| interp::run(&made(model).graph, &inputs(count));
    assert!(run(other, 1).is_ok());
    let error = run(other, 0).unwrap_err().to_string();
    assert!(error.contains("gives 0 elements"), "{error}");
    // That of nothing it makes nothing in another way is all the same.
    let empty: Model = |b, counts| {
        let (list, x) = (b.input(&[ROOM]), b.input(&[ROOM, 4]));
        let at = places(b, list, 0, counts);
        let some = rows(b, x, at);
        if counts == [0] {
            return vec![b.filled(&[0, 4], 0.0)];
        }
        vec![b.unary(UnOp::Exp, some)]
    };
    assert_eq!(run(empty, 0).unwrap()[0].shape(), [0, 4]);
    assert_eq!(run(empty, 2).unwrap()[0].shape(), [2, 4]);
}

/// A model that asks for three elements is none where the data gives fewer.
#[test]
fn a_model_may_need_some() {
    let model: Model = |b, counts| {
        let (list, x) = (b.input(&[ROOM]), b.input(&[ROOM, 4]));
        let at = places(b, list, 0, counts);
        let some = rows(b, x, at);
        let shape = [b.graph.ty(some).shape[0] - 2, 4];
        let rest = slice::slice(b.graph.ty(some), &[2, 0], &[1, 1], &shape).unwrap();
        vec![b.emit(rest, &[some])]
    };
    let made = ranged(&[], |counts: &[usize]| match counts {
        [0..3] => Err(()),
        _ => Ok(graph(model, counts)),
    });
    let made = made.unwrap();
    let run = |count| interp::run(&made.graph, &[list(count), random(&[ROOM, 4], 1)]);
    for count in 0..3 {
        let error = run(count).unwrap_err().to_string();
        assert!(error.contains(&format!("gives {count} elements")), "{error}");
    }
    for count in 3..=ROOM {
        assert_eq!(run(count).unwrap()[0].shape(), [count - 2, 4]);
    }
}
