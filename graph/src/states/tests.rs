//! States against the same model whose inputs and outputs the caller hands on.

use ansc_runtime::{DType, Tensor};

use super::*;
use crate::expr::BinOp;
use crate::interp;
use crate::ops::attention::append_to_cache;
use crate::ops::{concat, reduce};
use crate::passes::testing::{Builder, random};
use crate::passes::{self, Options};
use crate::sizes::{Range, ranged};
use crate::verify::verify;

/// Rows `x0` of keys behind those of `x1`, turned round, times rows of queries: `present`, and
/// attention over it.
fn attention(b: &mut Builder, rows: usize, past: usize) -> Vec<ValueId> {
    let x = b.input(&[2, rows, 4]);
    let past = b.input(&[2, past, 4]);
    let new = b.dense(x, 4);
    let types = [past, new].map(|v| b.graph.ty(v).clone());
    let present = b.emit(concat::concat(&types, 1).unwrap(), &[past, new]);
    let turned = b.transpose(present, &[0, 2, 1]);
    let scores = b.matmul(x, turned);
    let shares = b.softmax(scores);
    vec![present, b.matmul(shares, present)]
}

/// As [`attention`], where the sum of what was there before is a result too, and `present` is twice
/// what it would be: rows are not appended then.
fn doubled(b: &mut Builder, rows: usize, past: usize) -> Vec<ValueId> {
    let [present, y] = attention(b, rows, past)[..] else { unreachable!("two results") };
    let before = ValueId { node: b.graph.inputs()[1], out: 0 };
    let (two, ty) = (b.filled(&[], 2.0), b.graph.ty(before).clone());
    let sum = reduce::sum_as(DType::F32, &[1], &ty).unwrap();
    let sum = b.emit(sum, &[before]);
    vec![b.binary(BinOp::Mul, present, two), y, sum]
}

/// As [`attention`] of one head, with the cache of an operator that knows the length of each
/// sample: all the same here.
fn cached(b: &mut Builder, rows: usize, past: usize) -> Vec<ValueId> {
    let x = b.input(&[2, 1, rows, 4]);
    let before = b.input(&[2, 1, past, 4]);
    let new = b.dense(x, 4);
    let lengths = Tensor::from_slice(&[2], &[(rows + past) as i64; 2]);
    let lengths = b.graph.add_const("lengths", lengths);
    let types = [before, new, lengths].map(|v| b.graph.ty(v).clone());
    let op = append_to_cache(rows + past, &types[0], &types[1], &types[2]).unwrap();
    let present = b.emit(op, &[before, new, lengths]);
    let turned = b.transpose(present, &[0, 1, 3, 2]);
    let scores = b.matmul(x, turned);
    let shares = b.softmax(scores);
    vec![present, b.matmul(shares, present)]
}

type Model = fn(&mut Builder, usize, usize) -> Vec<ValueId>;

fn graph(model: Model, rows: usize, past: usize) -> Graph {
    let mut b = Builder::new(5);
    let outputs = model(&mut b, rows, past);
    b.finish(&outputs)
}

fn pair(graph: &Graph) -> Pair {
    Pair { input: "x1".into(), output: graph.outputs[0].0.clone() }
}

/// The shape with so many rows, which its last axis but one counts.
fn with_rows(shape: &[usize], rows: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    let axis = shape.len() - 2;
    shape[axis] = rows;
    shape
}

/// The rows of a tensor and zeros behind them.
fn padded(tensor: &Tensor, rows: usize) -> Tensor {
    let mut all = Tensor::try_zeros(tensor.dtype(), &with_rows(tensor.shape(), rows)).unwrap();
    let own = with_rows(tensor.shape(), 1);
    let (row, there) = (own[own.len() - 1], tensor.shape()[own.len() - 2]);
    let pieces = all.as_mut_slice::<f32>().chunks_mut(rows * row);
    for (i, piece) in pieces.enumerate() {
        let from = &tensor.as_slice::<f32>()[i * there * row..][..there * row];
        piece[..there * row].copy_from_slice(from);
    }
    all
}

/// The first rows.
fn first(tensor: &Tensor, rows: usize) -> Vec<f32> {
    let [.., room, row] = tensor.shape() else { panic!("rows") };
    let all = tensor.as_slice::<f32>();
    all.chunks(room * row).flat_map(|piece| &piece[..rows * row]).copied().collect()
}

fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs()))
}

/// Compares a graph with room for `room` rows at each size of a range with the model.
fn check(model: Model, room: usize, appends_rows: bool) {
    // A sum or a concatenation of nothing is another expression.
    let low = if appends_rows { 0 } else { 1 };
    let ranges = [("rows", 1, 3), ("past", low, 6)].map(|(name, low, high)| Range {
        name: name.into(),
        low,
        high,
    });
    let at = |sizes: &[usize]| graph(model, sizes[0], sizes[1]);
    let place = places(&at(&[3, 6]), &[pair(&at(&[3, 6]))]).unwrap()[0];
    let present = at(&[3, 6]).ty(place.values(&at(&[3, 6])).1).clone();
    assert_eq!(place.growing(&at(&[3, 6])), [present.rank() - 2]);
    let made = ranged(&ranges, |sizes| -> Result<Graph, ()> {
        let mut one = at(sizes);
        append(&mut one, &[place]);
        Ok(one)
    });
    let mut made = made.unwrap().graph;
    assert_eq!(appends(&made, place).is_some(), appends_rows);
    let rooms = [TensorType::new(DType::F32, with_rows(&present.shape, room))];
    give_room(&mut made, &[place], &rooms).unwrap();
    assert_eq!(verify(&made), Ok(()));
    let mut optimised = made.clone();
    passes::run_all(&mut optimised, &Options::default()).unwrap();
    assert_eq!(verify(&optimised), Ok(()));
    for (rows, past) in (1..=3).flat_map(|rows| (low..=6).map(move |past| (rows, past))) {
        let of = |rows, seed| random(&with_rows(&present.shape, rows), seed);
        let (x, before) = (of(rows, 11), of(past, 12));
        let expected = interp::run(&at(&[rows, past]), &[x.clone(), before.clone()]).unwrap();
        let sizes = [rows, past].map(|size| Tensor::scalar(size as i64));
        let inputs = [padded(&x, 3), padded(&before, room)];
        for graph in [&made, &optimised] {
            let found = interp::run(graph, &[&inputs[..], &sizes].concat()).unwrap();
            assert_eq!(found[0].shape(), rooms[0].shape);
            let present = first(&found[0], rows + past);
            assert!(close(&present, expected[0].as_slice()), "{rows} after {past}");
            assert!(close(&first(&found[1], rows), expected[1].as_slice()), "{rows} after {past}");
            let others = found[2..].iter().zip(&expected[2..]);
            others.for_each(|(f, e)| assert!(close(f.as_slice(), e.as_slice())));
        }
    }
}

#[test]
fn rows_are_appended_where_that_is_all() {
    check(attention, 9, true);
}

#[test]
fn a_room_may_be_larger_than_what_is_left() {
    check(attention, 12, true);
}

#[test]
fn rows_are_appended_to_caches() {
    check(cached, 9, true);
    check(cached, 11, true);
}

#[test]
fn other_results_move_to_their_room() {
    check(doubled, 9, false);
    check(doubled, 10, false);
}

#[test]
fn what_is_no_state_is_an_error() {
    let one = graph(attention, 1, 3);
    let error = |input: &str, output: &str| {
        let pair = Pair { input: input.into(), output: output.into() };
        places(&one, &[pair]).unwrap_err().to_string()
    };
    let (present, y) = (&one.outputs[0].0, &one.outputs[1].0);
    assert_eq!(error("z", present), "the model has no input `z`; it has x0, x1");
    assert!(error("x1", "z").starts_with("the model has no output `z`; it has "));
    let types = format!("a run that finds f32[2, 3, 4] in `x1` leaves f32[2, 1, 4] in `{y}`");
    assert_eq!(error("x1", y), types);
    let fixed = Tensor::from_slice(&[1], &[1.0f32]);
    let mut bound = Graph::new("bound");
    let x = bound.add_input("x", TensorType::of(&fixed), Some(fixed.into()));
    bound.outputs.push(("y".into(), x));
    let pair = Pair { input: "x".into(), output: "y".into() };
    assert_eq!(places(&bound, &[pair]), Err(StateError::Bound("x".into())));
}
