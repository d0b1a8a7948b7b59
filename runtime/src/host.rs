//! Operators that no tensor expression describes: their result has a size, or an order, that only
//! the data decides (sorting, searching, scattering). The runtime runs them on the host; the
//! reference interpreter calls the same functions, and ONNX's own tests are their reference.
//!
//! One operator family per file below this one; [`HostOp`] is the serialised form of a call.

use serde::{Deserialize, Serialize};

/// How scattered values meet the ones already there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScatterMode {
    Assign,
    Add,
    Mul,
    Max,
    Min,
}

/// A call of a host operator. Inputs and outputs are positional, in ONNX's order; optional
/// inputs are listed explicitly by `has_*` fields.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum HostOp {
    /// `x -> values, indices` along `axis`; ties keep the lower index.
    TopK { axis: usize, k: usize, largest: bool, sorted: bool },
    /// `x -> indices[rank, n]`; `n` is known at run time.
    NonZero,
    /// `x -> y, first_indices, inverse, counts`; sizes are known at run time.
    Unique { axis: Option<usize>, sorted: bool },
    /// `x, condition -> y`; size known at run time.
    Compress { axis: Option<usize> },
    /// `boxes, scores[, iou, score] -> selected[n, 3]`; size known at run time.
    NonMaxSuppression {
        max_per_class: i64,
        iou_threshold: f32,
        score_threshold: Option<f32>,
        center_point_box: bool,
    },
    /// `data, indices, updates -> y`.
    ScatterElements { axis: usize, mode: ScatterMode },
    /// `data, indices, updates -> y`.
    ScatterNd { mode: ScatterMode },
    /// `x -> det`, over the last two axes.
    Det,
}
