//! Sinks take the values of a stage's body: they store them, or combine them over the reduction.

use ansc_runtime::{DType, Element, Tensor};

use super::domain::Chunk;
use super::lanes::{Lane, Lanes, Stored, lane_of, with_stored};
use crate::compute::{Combiner, Stage};
use crate::scalar::Scalar;

/// Takes the values of a chunk point by point, and writes results of the stage.
pub(super) trait Sink: Send {
    fn begin(&mut self, _chunk: &Chunk) {}
    /// `value` is that of the point at `position` of the point axes.
    fn step(&mut self, value: &Lanes, position: usize, chunk: &Chunk);
    fn end(&mut self, _chunk: &Chunk) {}
    fn finish(&mut self) {}
}

/// Consecutive results of a stage, of which the first one has this position.
struct Part<'a, T> {
    first: usize,
    results: &'a mut [T],
}

impl<T: Copy> Part<'_, T> {
    fn of(&mut self, chunk: &Chunk) -> &mut [T] {
        &mut self.results[chunk.start - self.first..][..chunk.len]
    }
}

/// Parts of `len` results each, in order.
fn parts<T: Element>(out: &mut Tensor, len: usize) -> impl Iterator<Item = Part<'_, T>> {
    let results = out.as_mut_slice::<T>().chunks_mut(len).enumerate();
    results.map(move |(i, results)| Part { first: i * len, results })
}

/// Sinks for `len` consecutive lanes each of a stage whose body is of type `body`; one sink for all
/// where lanes run over the reduction.
pub(super) fn new<'a>(
    stage: &Stage,
    body: DType,
    over_reduction: bool,
    out: &'a mut Tensor,
    len: usize,
) -> Vec<Box<dyn Sink + 'a>> {
    let combiner = stage.reduce.as_ref().map(|r| r.combiner);
    with_stored!(body, S => match (over_reduction, combiner) {
        (true, Some(combiner)) => vec![over_points::<S>(out, combiner)],
        (_, combiner) => over_lanes::<S>(out, combiner, len),
    })
}

fn over_lanes<S: Stored>(
    out: &mut Tensor,
    combiner: Option<Combiner>,
    len: usize,
) -> Vec<Box<dyn Sink + '_>> {
    let Some(combiner) = combiner else {
        return parts(out, len).map(|part| Box::new(Store::<S> { part }) as _).collect();
    };
    match Order::of(combiner) {
        Some(order) => {
            let sink = |part| Box::new(ArgLanes::<S> { part, order, best: vec![] }) as _;
            parts(out, len).map(sink).collect()
        }
        None => {
            let sink = |part| Box::new(FoldLanes::<S>::new(part, combiner)) as _;
            parts(out, len).map(sink).collect()
        }
    }
}

fn over_points<S: Stored>(out: &mut Tensor, combiner: Combiner) -> Box<dyn Sink + '_> {
    match Order::of(combiner) {
        Some(order) => Box::new(ArgPoints::<S>::new(out.as_mut_slice(), order)),
        None => Box::new(FoldPoints::<S>::new(out.as_mut_slice(), combiner)),
    }
}

/// A constant as a lane value.
pub(super) fn constant<S: Stored>(s: Scalar) -> S::Lane {
    match s.dtype() {
        d if d.is_float() => S::Lane::from_f64(s.as_f64()),
        DType::U64 => S::Lane::from_u64(s.as_i64() as u64),
        _ => S::Lane::from_i64(s.as_i64()),
    }
}

fn put<S: Stored>(out: &mut [S], values: &[S::Lane]) {
    match values {
        &[one] => out.fill(S::from_lane(one)),
        all => out.iter_mut().zip(all).for_each(|(o, &v)| *o = S::from_lane(v)),
    }
}

struct Store<'a, S> {
    part: Part<'a, S>,
}

impl<S: Stored> Sink for Store<'_, S> {
    fn step(&mut self, value: &Lanes, _: usize, chunk: &Chunk) {
        put::<S>(self.part.of(chunk), S::Lane::of(value));
    }
}

/// `acc[l] = combine(acc[l], values[l])`, rounded to the stored type.
fn fold_each<S: Stored>(combiner: Combiner, acc: &mut [S::Lane], values: &[S::Lane]) {
    fn each<S: Stored>(
        acc: &mut [S::Lane],
        values: &[S::Lane],
        f: impl Fn(S::Lane, S::Lane) -> S::Lane,
    ) {
        match values {
            &[one] => acc.iter_mut().for_each(|a| *a = S::round(f(*a, one))),
            all => acc.iter_mut().zip(all).for_each(|(a, &v)| *a = S::round(f(*a, v))),
        }
    }
    match combiner {
        Combiner::Sum => each::<S>(acc, values, Lane::add),
        Combiner::Prod => each::<S>(acc, values, Lane::mul),
        Combiner::Max => each::<S>(acc, values, Lane::max_of),
        Combiner::Min => each::<S>(acc, values, Lane::min_of),
        Combiner::ArgMax { .. } | Combiner::ArgMin { .. } => {}
    }
}

fn identity<S: Stored>(combiner: Combiner) -> S::Lane {
    combiner.identity(S::DTYPE).map_or_else(S::Lane::default, constant::<S>)
}

/// Lanes are results.
struct FoldLanes<'a, S: Stored> {
    part: Part<'a, S>,
    combiner: Combiner,
    sums: Vec<S::Lane>,
}

impl<'a, S: Stored> FoldLanes<'a, S> {
    fn new(part: Part<'a, S>, combiner: Combiner) -> FoldLanes<'a, S> {
        part.results.fill(S::from_lane(identity::<S>(combiner)));
        FoldLanes { part, combiner, sums: vec![] }
    }
}

impl<S: Stored> Sink for FoldLanes<'_, S> {
    fn begin(&mut self, chunk: &Chunk) {
        self.sums.clear();
        self.sums.resize(chunk.len, identity::<S>(self.combiner));
    }

    fn step(&mut self, value: &Lanes, _: usize, _: &Chunk) {
        fold_each::<S>(self.combiner, &mut self.sums, S::Lane::of(value));
    }

    fn end(&mut self, chunk: &Chunk) {
        put::<S>(self.part.of(chunk), &self.sums);
    }
}

/// Lanes are terms.
struct FoldPoints<'a, S: Stored> {
    out: &'a mut [S],
    combiner: Combiner,
    sums: Vec<S::Lane>,
}

impl<'a, S: Stored> FoldPoints<'a, S> {
    fn new(out: &'a mut [S], combiner: Combiner) -> FoldPoints<'a, S> {
        let sums = vec![identity::<S>(combiner); out.len()];
        FoldPoints { out, combiner, sums }
    }
}

impl<S: Stored> Sink for FoldPoints<'_, S> {
    fn step(&mut self, value: &Lanes, position: usize, chunk: &Chunk) {
        let sum = &mut self.sums[position..=position];
        match S::Lane::of(value) {
            &[one] => (0..chunk.len).for_each(|_| fold_each::<S>(self.combiner, sum, &[one])),
            all => fold_across::<S>(self.combiner, sum, all),
        }
    }

    fn finish(&mut self) {
        put::<S>(self.out, &self.sums);
    }
}

/// Combines all of `values` with `sum`: wide types in several partial results.
fn fold_across<S: Stored>(combiner: Combiner, sum: &mut [S::Lane], values: &[S::Lane]) {
    const PARTS: usize = 16;
    if matches!(S::DTYPE, DType::F16 | DType::BF16) || values.len() < PARTS {
        values.iter().for_each(|&v| fold_each::<S>(combiner, sum, &[v]));
        return;
    }
    let mut parts = [identity::<S>(combiner); PARTS];
    let whole = values.chunks_exact(PARTS);
    fold_each::<S>(combiner, sum, &[identity::<S>(combiner)]);
    for &v in whole.remainder() {
        fold_each::<S>(combiner, sum, &[v]);
    }
    whole.for_each(|row| fold_each::<S>(combiner, &mut parts, row));
    parts.iter().for_each(|&v| fold_each::<S>(combiner, sum, &[v]));
}

/// The order of an arg-reduction.
#[derive(Clone, Copy)]
struct Order {
    max: bool,
    last: bool,
}

impl Order {
    fn of(combiner: Combiner) -> Option<Order> {
        match combiner {
            Combiner::ArgMax { last } => Some(Order { max: true, last }),
            Combiner::ArgMin { last } => Some(Order { max: false, last }),
            _ => None,
        }
    }

    /// Whether a later `value` replaces `best`.
    fn replaces<L: Lane>(self, value: L, best: L) -> bool {
        if value.is_nan() || best.is_nan() {
            return value.is_nan() && (!best.is_nan() || self.last);
        }
        let better = if self.max { value > best } else { value < best };
        better || (self.last && value == best)
    }
}

struct ArgLanes<'a, S: Stored> {
    part: Part<'a, i64>,
    order: Order,
    best: Vec<S::Lane>,
}

impl<S: Stored> Sink for ArgLanes<'_, S> {
    fn begin(&mut self, _: &Chunk) {
        self.best.clear();
    }

    fn step(&mut self, value: &Lanes, position: usize, chunk: &Chunk) {
        let values = S::Lane::of(value);
        let first = self.best.is_empty();
        self.best.resize(chunk.len, S::Lane::default());
        let positions = self.part.of(chunk);
        for (lane, (best, at)) in self.best.iter_mut().zip(positions).enumerate() {
            let value = lane_of(values, lane);
            if first || self.order.replaces(value, *best) {
                (*best, *at) = (value, position as i64);
            }
        }
    }
}

struct ArgPoints<'a, S: Stored> {
    out: &'a mut [i64],
    order: Order,
    best: Vec<Option<S::Lane>>,
}

impl<'a, S: Stored> ArgPoints<'a, S> {
    fn new(out: &'a mut [i64], order: Order) -> ArgPoints<'a, S> {
        let best = vec![None; out.len()];
        ArgPoints { out, order, best }
    }
}

impl<S: Stored> Sink for ArgPoints<'_, S> {
    fn step(&mut self, value: &Lanes, position: usize, chunk: &Chunk) {
        let values = S::Lane::of(value);
        let best = &mut self.best[position];
        for lane in 0..chunk.len {
            let value = lane_of(values, lane);
            if best.is_none_or(|b| self.order.replaces(value, b)) {
                *best = Some(value);
                self.out[position] = (chunk.start + lane) as i64;
            }
        }
    }
}
