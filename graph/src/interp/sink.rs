//! What becomes of the values of a stage's body: stored, or combined over the reduction.

use ansc_runtime::{DType, Tensor};

use super::InterpError;
use super::domain::Chunk;
use super::lanes::{Lane, Lanes, Stored, lane_of, with_stored};
use crate::compute::{Combiner, Stage};
use crate::scalar::Scalar;

/// Takes the values of a chunk point by point, and gives the stage's tensor in the end.
pub(super) trait Sink {
    fn begin(&mut self, _chunk: &Chunk) {}
    /// `value` is that of the point at `position` of the point axes.
    fn step(&mut self, value: &Lanes, position: usize, chunk: &Chunk);
    fn end(&mut self, _chunk: &Chunk) {}
    fn finish(self: Box<Self>) -> Tensor;
}

/// The sink of a stage whose body is of type `body`.
pub(super) fn new(
    stage: &Stage,
    body: DType,
    over_reduction: bool,
) -> Result<Box<dyn Sink>, InterpError> {
    let out = Tensor::try_zeros(stage.ty.dtype, &stage.ty.shape)
        .map_err(|e| InterpError::Malformed { stage: stage.name.clone(), reason: e.to_string() })?;
    let combiner = stage.reduce.as_ref().map(|r| r.combiner);
    Ok(with_stored!(body, S => make::<S>(out, combiner, over_reduction)))
}

fn make<S: Stored>(out: Tensor, combiner: Option<Combiner>, over_reduction: bool) -> Box<dyn Sink> {
    match (combiner, over_reduction) {
        (None, _) => Box::new(Store::<S> { out, of: std::marker::PhantomData }),
        (Some(combiner), over) => match (Order::of(combiner), over) {
            (Some(order), false) => Box::new(ArgLanes::<S> { out, order, best: vec![] }),
            (Some(order), true) => Box::new(ArgPoints::<S>::new(out, order)),
            (None, false) => Box::new(FoldLanes::<S>::new(out, combiner)),
            (None, true) => Box::new(FoldPoints::<S>::new(out, combiner)),
        },
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

fn put<S: Stored>(out: &mut Tensor, start: usize, len: usize, values: &[S::Lane]) {
    let out = &mut out.as_mut_slice::<S>()[start..start + len];
    match values {
        &[one] => out.fill(S::from_lane(one)),
        all => out.iter_mut().zip(all).for_each(|(o, &v)| *o = S::from_lane(v)),
    }
}

struct Store<S> {
    out: Tensor,
    of: std::marker::PhantomData<S>,
}

impl<S: Stored> Sink for Store<S> {
    fn step(&mut self, value: &Lanes, _: usize, chunk: &Chunk) {
        put::<S>(&mut self.out, chunk.start, chunk.len, S::Lane::of(value));
    }

    fn finish(self: Box<Self>) -> Tensor {
        self.out
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
struct FoldLanes<S: Stored> {
    out: Tensor,
    combiner: Combiner,
    sums: Vec<S::Lane>,
}

impl<S: Stored> FoldLanes<S> {
    fn new(mut out: Tensor, combiner: Combiner) -> FoldLanes<S> {
        out.as_mut_slice::<S>().fill(S::from_lane(identity::<S>(combiner)));
        FoldLanes { out, combiner, sums: vec![] }
    }
}

impl<S: Stored> Sink for FoldLanes<S> {
    fn begin(&mut self, chunk: &Chunk) {
        self.sums.clear();
        self.sums.resize(chunk.len, identity::<S>(self.combiner));
    }

    fn step(&mut self, value: &Lanes, _: usize, _: &Chunk) {
        fold_each::<S>(self.combiner, &mut self.sums, S::Lane::of(value));
    }

    fn end(&mut self, chunk: &Chunk) {
        put::<S>(&mut self.out, chunk.start, chunk.len, &self.sums);
    }

    fn finish(self: Box<Self>) -> Tensor {
        self.out
    }
}

/// Lanes are terms.
struct FoldPoints<S: Stored> {
    out: Tensor,
    combiner: Combiner,
    sums: Vec<S::Lane>,
}

impl<S: Stored> FoldPoints<S> {
    fn new(out: Tensor, combiner: Combiner) -> FoldPoints<S> {
        let sums = vec![identity::<S>(combiner); out.len()];
        FoldPoints { out, combiner, sums }
    }
}

impl<S: Stored> Sink for FoldPoints<S> {
    fn step(&mut self, value: &Lanes, position: usize, chunk: &Chunk) {
        let sum = &mut self.sums[position..=position];
        match S::Lane::of(value) {
            &[one] => (0..chunk.len).for_each(|_| fold_each::<S>(self.combiner, sum, &[one])),
            all => fold_across::<S>(self.combiner, sum, all),
        }
    }

    fn finish(mut self: Box<Self>) -> Tensor {
        let len = self.out.len();
        put::<S>(&mut self.out, 0, len, &self.sums);
        self.out
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

struct ArgLanes<S: Stored> {
    out: Tensor,
    order: Order,
    best: Vec<S::Lane>,
}

impl<S: Stored> Sink for ArgLanes<S> {
    fn begin(&mut self, _: &Chunk) {
        self.best.clear();
    }

    fn step(&mut self, value: &Lanes, position: usize, chunk: &Chunk) {
        let values = S::Lane::of(value);
        let first = self.best.is_empty();
        self.best.resize(chunk.len, S::Lane::default());
        let positions = &mut self.out.as_mut_slice::<i64>()[chunk.start..][..chunk.len];
        for (lane, (best, at)) in self.best.iter_mut().zip(positions).enumerate() {
            let value = lane_of(values, lane);
            if first || self.order.replaces(value, *best) {
                (*best, *at) = (value, position as i64);
            }
        }
    }

    fn finish(self: Box<Self>) -> Tensor {
        self.out
    }
}

struct ArgPoints<S: Stored> {
    out: Tensor,
    order: Order,
    best: Vec<Option<S::Lane>>,
}

impl<S: Stored> ArgPoints<S> {
    fn new(out: Tensor, order: Order) -> ArgPoints<S> {
        let best = vec![None; out.len()];
        ArgPoints { out, order, best }
    }
}

impl<S: Stored> Sink for ArgPoints<S> {
    fn step(&mut self, value: &Lanes, position: usize, chunk: &Chunk) {
        let values = S::Lane::of(value);
        let best = &mut self.best[position];
        for lane in 0..chunk.len {
            let value = lane_of(values, lane);
            if best.is_none_or(|b| self.order.replaces(value, b)) {
                *best = Some(value);
                self.out.as_mut_slice::<i64>()[position] = (chunk.start + lane) as i64;
            }
        }
    }

    fn finish(self: Box<Self>) -> Tensor {
        self.out
    }
}
