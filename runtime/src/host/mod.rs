//! Operators that no tensor expression describes: their result has a size, or an order, that only
//! the data decides (sorting, searching, scattering). The runtime runs them on the host; the
//! reference interpreter calls the same functions, and ONNX's own tests are their reference.
//!
//! One operator family per file below this one; [`HostOp`] is the serialised form of a call and
//! [`run`] performs it. Inputs may come from anywhere: what does not fit is a [`HostError`].

mod amount;
pub(crate) mod append;
mod bits;
mod compress;
mod det;
pub(crate) mod draw;
pub(crate) mod indices;
mod nms;
mod nonzero;
mod number;
pub(crate) mod rooms;
pub(crate) mod scatter;
mod shared;
pub(crate) mod topk;
mod unique;
mod view;

use std::ops::{Range, RangeInclusive};

pub(crate) use draw::Chance;
use serde::{Deserialize, Serialize};

use crate::dtype::{DType, Element};
use crate::extent::Extent;
use crate::tensor::{Tensor, TensorError};

/// How scattered values meet the ones already there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScatterMode {
    /// The last value that is scattered to a place replaces what was there.
    Assign,
    /// Values are added to what was there.
    Add,
    /// The values are multiplied with what was there.
    Mul,
    /// The largest of the values and what was there stays.
    Max,
    /// The smallest of the values and what was there stays.
    Min,
}

/// A call of a host operator. Inputs and outputs are positional, in ONNX's order. Indices are any
/// integers; negative ones count from the end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum HostOp {
    /// `x -> values, indices` along `axis`; ties keep the lower index, NaN is above all numbers.
    /// The result is sorted in any case.
    TopK {
        /// The axis whose elements are compared.
        axis: usize,
        /// How many elements of the axis are kept.
        k: usize,
        /// If the axis has fewer elements, all are kept; else that is an error.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        at_most: bool,
        /// Whether the largest elements are kept, or else the smallest.
        largest: bool,
        /// Whether the model asks for a sorted result.
        sorted: bool,
    },
    /// `x -> indices[rank, n]`; `n` is known at run time.
    NonZero,
    /// `x -> y, first_indices, inverse, counts`; sizes are known at run time.
    Unique {
        /// The axis whose slices are compared; `None` compares elements of the flattened tensor.
        axis: Option<usize>,
        /// Whether the results ascend; else they come in the order of their first occurrence.
        sorted: bool,
    },
    /// `x, condition -> y`; size known at run time.
    Compress {
        /// The axis that is thinned out; `None` takes the flattened tensor.
        axis: Option<usize>,
    },
    /// `boxes[batch, n, 4], scores[batch, class, n] -> selected[m, 3]`; size known at run time.
    NonMaxSuppression {
        /// Boxes to select at most for each class of each batch; none are selected if it is not
        /// above 0.
        max_per_class: i64,
        /// A box is dropped if its intersection with a selected one is more than this share of
        /// their union.
        iou_threshold: f32,
        /// Only boxes with a higher score are selected; `None` admits all.
        score_threshold: Option<f32>,
        /// Whether a box is given by its centre, width and height, or else by two opposite corners.
        center_point_box: bool,
    },
    /// `data, indices, updates -> y`.
    ScatterElements {
        /// The axis along which an index moves an update; the other coordinates are the update's
        /// own.
        axis: usize,
        /// How an update meets what is there.
        mode: ScatterMode,
    },
    /// `data, indices, updates -> y`.
    ScatterNd {
        /// How an update meets what is there.
        mode: ScatterMode,
    },
    /// `indices -> ()`: fails if one is out of range on an axis of so many elements. Several
    /// extents are those of the axes that the last axis of the tensor holds an index of each for.
    CheckIndices {
        /// Elements of each axis that is indexed.
        extents: Vec<usize>,
    },
    /// `x -> det`, over the last two axes.
    Det,
    /// `x -> y`: the same bits as elements of another type of the same size.
    BitCast {
        /// The element type of the result.
        to: DType,
    },
    /// `past, new, [ends,] sizes.. -> y`: `past` with the first rows of `new` in the place of its
    /// own from some row on. The extents are of the sizes, which are scalars of `i64`.
    Append {
        /// The axis that counts rows.
        axis: usize,
        /// The row of `past` that the first one of `new` takes the place of.
        at: Extent,
        /// How many rows of `new` there are.
        count: Extent,
        /// Each sample, which the first axis counts, has rows up to an end of its own: that in
        /// `ends: i64[samples]`. It is no later than `at` and `count` say.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        each: bool,
    },
    /// `x -> y[, count]`: `x` at the beginning of a tensor of this shape, whose other elements may
    /// be anything.
    Spread {
        /// The shape of the result.
        shape: Vec<usize>,
        /// The axis of `x` whose extent only the data decides, and that the second result counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<Count>,
    },
    /// `x -> n`: the only element of `x`, a whole number, as a size.
    Amount {
        /// Tells the size from the others of its model.
        number: u32,
        /// Less is an error.
        #[serde(default, skip_serializing_if = "is_zero")]
        least: usize,
        /// More is an error.
        most: usize,
    },
    /// `-> key`: another number of 32 bits in each run, as an `i64`. Random numbers begin with it.
    Draw {
        /// Tells it from the others of its model.
        stream: u32,
        /// The bits of the seed that the model gives; else it depends on the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seed: Option<u32>,
    },
    /// `x, sizes.. -> y`: the part of `x` from its beginning that has these extents. They are
    /// functions of the sizes, which are scalars of `i64`.
    Shrink {
        /// One for each axis.
        extents: Vec<Extent>,
    },
}

/// A size that only the data decides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Count {
    /// The axis that has so many elements.
    pub axis: usize,
    /// Tells the size from the others of its model.
    pub number: u32,
    /// Fewer are an error.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub least: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Why a host operator could not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The number of inputs is not the operator's.
    #[error("{op} takes {expected} inputs, but {found} were given")]
    Arity {
        /// The ONNX operator.
        op: &'static str,
        /// How many inputs it takes.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// An input has an element type that the operator does not take.
    #[error("{op} does not take {dtype} as {what}")]
    Type {
        /// The ONNX operator.
        op: &'static str,
        /// Which input.
        what: &'static str,
        /// Its element type.
        dtype: DType,
    },
    /// An input has a shape that the operator does not take.
    #[error("{op} does not take shape {shape:?} as {what}")]
    Shape {
        /// The ONNX operator.
        op: &'static str,
        /// Which input.
        what: &'static str,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// The input has fewer axes than the operator's attribute needs.
    #[error("{op} has no axis {axis}: the input has rank {rank}")]
    Axis {
        /// The ONNX operator.
        op: &'static str,
        /// The attribute, counted from 0.
        axis: usize,
        /// The number of axes of the input.
        rank: usize,
    },
    /// An index points outside of its axis.
    #[error(
        "{op}: index {index} at {position:?} is out of range; {}",
        in_words(&legal(*extent))
    )]
    Index {
        /// The ONNX operator.
        op: &'static str,
        /// The position of the element in the tensor of indices.
        position: Vec<usize>,
        /// The value of that element, negative if it counts from the end.
        index: i64,
        /// Elements of the axis.
        extent: usize,
    },
    /// More elements are to be selected than the axis has.
    #[error("{op} cannot take {wanted} elements of an axis of {extent}")]
    TooMany {
        /// The ONNX operator.
        op: &'static str,
        /// How many are to be selected.
        wanted: usize,
        /// How many there are.
        extent: usize,
    },
    /// The data gives fewer elements than the code was compiled for.
    #[error(
        "the data gives {found} elements, and the code is for {least} or more: the model fails with \
         fewer, or computes something else"
    )]
    TooFew {
        /// The fewest that are known to be right.
        least: usize,
        /// How many there are.
        found: usize,
    },
    /// The data gives a number that the code has no room for.
    #[error(
        "the data makes this number {found}, and the code is for {most} at most: compile the model \
         with a larger one in `--most`"
    )]
    TooLarge {
        /// The largest that there is room for.
        most: usize,
        /// The number that the data gives.
        found: i64,
    },
    /// A tensor could not be made.
    #[error("{op}: {source}")]
    Tensor {
        /// The ONNX operator.
        op: &'static str,
        /// The reason.
        source: TensorError,
    },
    /// There is no memory for the operator's own work.
    #[error("{op}: there is no memory for {elements} elements to work with")]
    Memory {
        /// The ONNX operator.
        op: &'static str,
        /// How many elements it works on.
        elements: usize,
    },
}

impl HostOp {
    /// The name of the ONNX operator.
    pub const fn name(&self) -> &'static str {
        match self {
            HostOp::TopK { .. } => "TopK",
            HostOp::NonZero => "NonZero",
            HostOp::Unique { .. } => "Unique",
            HostOp::Compress { .. } => "Compress",
            HostOp::NonMaxSuppression { .. } => "NonMaxSuppression",
            HostOp::ScatterElements { .. } => "ScatterElements",
            HostOp::ScatterNd { .. } => "ScatterND",
            HostOp::CheckIndices { .. } => "index check",
            HostOp::Det => "Det",
            HostOp::BitCast { .. } => "BitCast",
            HostOp::Append { .. } => "Append",
            HostOp::Spread { .. } => rooms::SPREAD,
            HostOp::Amount { .. } => amount::NAME,
            HostOp::Draw { .. } => "Draw",
            HostOp::Shrink { .. } => rooms::SHRINK,
        }
    }

    /// How many operands it takes, and how many results it has.
    pub fn arity(&self) -> (usize, usize) {
        match self {
            HostOp::CheckIndices { .. } => (1, 0),
            HostOp::Draw { .. } => (0, 1),
            HostOp::TopK { .. } => (1, 2),
            HostOp::NonZero | HostOp::Det | HostOp::BitCast { .. } | HostOp::Amount { .. } => {
                (1, 1)
            }
            HostOp::Unique { .. } => (1, 4),
            HostOp::Compress { .. } | HostOp::NonMaxSuppression { .. } => (2, 1),
            HostOp::ScatterElements { .. } | HostOp::ScatterNd { .. } => (3, 1),
            HostOp::Append { at, count, each, .. } => {
                (2 + usize::from(*each) + Extent::used([at, count]).len(), 1)
            }
            HostOp::Spread { count, .. } => (1, 1 + usize::from(count.is_some())),
            HostOp::Shrink { extents } => (1 + Extent::used(extents).len(), 1),
        }
    }
}

/// Calls its second argument with ranges that together are `0..n` for the first one, on several
/// threads perhaps.
pub(crate) type Share<'a> = dyn Fn(u64, &(dyn Fn(Range<u64>) + Sync)) + 'a;

/// Performs a call. The outputs have their actual shapes. Random numbers are those of the first run
/// of a session without a seed.
pub fn run(op: &HostOp, inputs: &[&Tensor]) -> Result<Vec<Tensor>, HostError> {
    if inputs.len() != op.arity().0 {
        return Err(other_arity(op, inputs.len()));
    }
    match op {
        HostOp::TopK { axis, k, largest, at_most, .. } => {
            let [x] = exactly(op, inputs)?;
            let k = topk::kept(x.shape(), *axis, *k, *at_most);
            topk::run(x, *axis, k, *largest)
        }
        HostOp::NonZero => {
            let [x] = exactly(op, inputs)?;
            nonzero::run(x).map(|y| vec![y])
        }
        HostOp::Unique { axis, sorted } => {
            let [x] = exactly(op, inputs)?;
            unique::run(x, *axis, *sorted)
        }
        HostOp::Compress { axis } => {
            let [x, condition] = exactly(op, inputs)?;
            compress::run(x, condition, *axis).map(|y| vec![y])
        }
        HostOp::NonMaxSuppression {
            max_per_class,
            iou_threshold,
            score_threshold,
            center_point_box,
        } => {
            let [boxes, scores] = exactly(op, inputs)?;
            let limits = nms::Limits {
                max_per_class: *max_per_class,
                iou: *iou_threshold,
                score: *score_threshold,
                center_point_box: *center_point_box,
            };
            nms::run(boxes, scores, &limits).map(|y| vec![y])
        }
        HostOp::ScatterElements { axis, mode } => {
            scatter::elements(exactly(op, inputs)?, *axis, *mode).map(|y| vec![y])
        }
        HostOp::ScatterNd { mode } => scatter::nd(exactly(op, inputs)?, *mode).map(|y| vec![y]),
        HostOp::CheckIndices { extents } => {
            let [x] = exactly(op, inputs)?;
            indices::run(op.name(), x, extents).map(|()| vec![])
        }
        HostOp::Det => {
            let [x] = exactly(op, inputs)?;
            det::run(x).map(|y| vec![y])
        }
        HostOp::BitCast { to } => {
            let [x] = exactly(op, inputs)?;
            bits::run(x, *to).map(|y| vec![y])
        }
        HostOp::Append { axis, at, count, each } => {
            let (first, sizes) = inputs.split_at(2 + usize::from(*each));
            let (first, ends) = first.split_at(2);
            let first = exactly(op, first)?;
            append::run(first, ends.first().copied(), *axis, [at, count], sizes).map(|y| vec![y])
        }
        HostOp::Spread { shape, count } => {
            let [x] = exactly(op, inputs)?;
            rooms::spread(x, shape, *count)
        }
        HostOp::Amount { least, most, .. } => {
            let [x] = exactly(op, inputs)?;
            amount::run(x, *least, *most).map(|n| vec![n])
        }
        HostOp::Draw { stream, seed } => {
            let [] = exactly(op, inputs)?;
            Ok(vec![Tensor::scalar(draw::key(*stream, *seed, Chance::default()))])
        }
        HostOp::Shrink { extents } => {
            let (x, sizes) = inputs.split_at(1);
            let [x] = exactly(op, x)?;
            rooms::shrink(x, extents, sizes).map(|y| vec![y])
        }
    }
}

fn exactly<'a, const N: usize>(
    op: &HostOp,
    inputs: &[&'a Tensor],
) -> Result<[&'a Tensor; N], HostError> {
    inputs.try_into().map_err(|_| other_arity(op, inputs.len()))
}

fn other_arity(op: &HostOp, found: usize) -> HostError {
    HostError::Arity { op: op.name(), expected: op.arity().0, found }
}

fn zeros(op: &'static str, dtype: DType, shape: &[usize]) -> Result<Tensor, HostError> {
    Tensor::try_zeros(dtype, shape).map_err(|source| HostError::Tensor { op, source })
}

fn copy(op: &'static str, tensor: &Tensor) -> Result<Tensor, HostError> {
    tensor.try_clone().map_err(|source| HostError::Tensor { op, source })
}

/// A list as long as the data, which may be too long for the memory at hand.
fn list<T>(op: &'static str, items: impl Iterator<Item = T>) -> Result<Vec<T>, HostError> {
    let mut all = Vec::new();
    let least = items.size_hint().0;
    all.try_reserve_exact(least).map_err(|_| HostError::Memory { op, elements: least })?;
    for item in items {
        if all.len() == all.capacity() {
            let elements = all.len() + 1;
            all.try_reserve(1).map_err(|_| HostError::Memory { op, elements })?;
        }
        all.push(item);
    }
    Ok(all)
}

fn indices_of(op: &'static str, tensor: &Tensor) -> Result<Vec<i64>, HostError> {
    let values = tensor.i64_values();
    let values = values.ok_or(HostError::Type { op, what: "indices", dtype: tensor.dtype() })?;
    list(op, values)
}

/// Bytes as elements; not for `bool`, which are not any bytes.
///
/// # Panics
/// If the bytes are not aligned to elements, or no whole number of them.
fn elements<T: Element>(bytes: &[u8]) -> &[T] {
    assert_ne!(T::DTYPE, DType::Bool);
    // SAFETY: all bit patterns are elements of the other types.
    let (before, elements, after) = unsafe { bytes.align_to::<T>() };
    assert!(before.is_empty() && after.is_empty(), "elements are aligned");
    elements
}

/// The indices that an axis has; negative ones count from its end.
pub fn legal(extent: usize) -> RangeInclusive<i64> {
    let extent = i64::try_from(extent).unwrap_or(i64::MAX);
    -extent..=extent - 1
}

/// The words of an error about the legal indices.
pub fn in_words(legal: &RangeInclusive<i64>) -> String {
    match (legal.start(), legal.end()) {
        (low, high) if low < high => format!("it must be from {low} to {high}"),
        _ => "no index is legal, since the axis has no element".to_owned(),
    }
}

fn check_axis(op: &'static str, rank: usize, axis: usize) -> Result<(), HostError> {
    if axis < rank { Ok(()) } else { Err(HostError::Axis { op, axis, rank }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_calls_are_errors() {
        let x = Tensor::from_slice(&[2], &[1f32, 2.0]);
        let arity = HostError::Arity { op: "NonZero", expected: 1, found: 0 };
        assert_eq!(run(&HostOp::NonZero, &[]), Err(arity));
        let axis = HostError::Axis { op: "TopK", axis: 1, rank: 1 };
        let topk = HostOp::TopK { axis: 1, k: 1, at_most: false, largest: true, sorted: true };
        assert_eq!(run(&topk, &[&x]), Err(axis));
    }

    /// So many operands are taken, and no other number of them.
    #[test]
    fn arities_are_those_of_the_operators() {
        let extents = || vec![Extent::Sum(vec![Extent::Size(0), Extent::Size(2)])];
        let at = || Extent::Size(0);
        let count = || Extent::Size(1);
        let ops = [
            HostOp::TopK { axis: 0, k: 1, at_most: false, largest: true, sorted: true },
            HostOp::NonZero,
            HostOp::Unique { axis: None, sorted: true },
            HostOp::Compress { axis: None },
            HostOp::NonMaxSuppression {
                max_per_class: 1,
                iou_threshold: 0.5,
                score_threshold: None,
                center_point_box: false,
            },
            HostOp::ScatterElements { axis: 0, mode: ScatterMode::Add },
            HostOp::ScatterNd { mode: ScatterMode::Add },
            HostOp::CheckIndices { extents: vec![2] },
            HostOp::Det,
            HostOp::BitCast { to: DType::I32 },
            HostOp::Append { axis: 1, at: at(), count: count(), each: false },
            HostOp::Append { axis: 1, at: at(), count: at(), each: true },
            HostOp::Spread { shape: vec![3], count: None },
            HostOp::Amount { number: 0, least: 0, most: 9 },
            HostOp::Draw { stream: 0, seed: None },
            HostOp::Shrink { extents: extents() },
        ];
        let x = Tensor::from_slice(&[2], &[1i64, 0]);
        for op in ops {
            let (operands, results) = op.arity();
            let called = |n: usize| run(&op, &vec![&x; n]);
            let is_refused = |n| matches!(called(n), Err(HostError::Arity { .. }));
            assert!(!is_refused(operands) && is_refused(operands + 1), "{op:?}");
            assert!(called(operands).map_or(results, |all| all.len()) == results, "{op:?}");
        }
    }

    #[test]
    fn a_list_that_is_too_long_is_an_error() {
        assert_eq!(list("x", 0..3).unwrap(), [0, 1, 2]);
        assert_eq!(list("x", (0..9).filter(|i| i % 2 == 1)).unwrap(), [1, 3, 5, 7]);
        let elements = 1 << 58;
        assert_eq!(list("x", 0..elements), Err(HostError::Memory { op: "x", elements }));
    }
}
