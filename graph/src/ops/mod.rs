//! Operators: constructors of tensor expressions, one file per family.
//!
//! Every constructor takes attributes and the types of its operands and returns a [`ComputeOp`],
//! whose kind and expression agree, or an [`OpError`] that says which rule the operands break.
//! Attributes and types come from model files: nothing here panics on them. Attributes that an
//! importer must resolve beforehand (negative axes, `auto_pad`) are not known here.

pub mod activation;
pub mod adjoint;
pub mod arg_extreme;
pub mod attention;
pub mod cache;
pub mod col2im;
pub mod concat;
pub mod conv;
pub mod conv_transpose;
pub mod cumulative;
pub mod deform_conv;
pub mod einsum;
pub mod elementwise;
pub mod fill;
pub mod frame;
pub mod gather;
pub mod grid;
pub mod index;
pub mod loss;
pub mod map;
pub mod matmul;
pub mod matmul_nbits;
pub mod ngram;
pub mod nibbles;
pub mod normalize;
pub mod pad;
pub mod pool;
pub mod quantize;
pub mod random;
pub mod rearrange;
pub mod recurrent;
pub mod reduce;
pub mod resize;
pub mod roi_align;
pub mod rotary;
pub mod shape;
pub mod slice;
pub mod softmax;
pub mod stages;
pub mod stored;
pub mod top_k;

use std::sync::Arc;

use ansc_runtime::DType;
use ansc_runtime::tensor::byte_len;

use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};

/// The rule that operands or attributes break.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpError {
    /// Shapes do not broadcast as in numpy.
    #[error("shapes {a:?} and {b:?} do not broadcast together")]
    Broadcast {
        /// The first shape.
        a: Vec<usize>,
        /// The second shape.
        b: Vec<usize>,
    },
    /// An operand has another element type.
    #[error("{what} must have element type {expected}, but has {found}")]
    DType {
        /// Which operand.
        what: &'static str,
        /// The types that it may have.
        expected: String,
        /// The type that it has.
        found: DType,
    },
    /// An operand has another number of axes.
    #[error("{what} must have rank {expected}, but has shape {found:?}")]
    Rank {
        /// Which operand.
        what: &'static str,
        /// The ranks that it may have.
        expected: String,
        /// Its shape.
        found: Vec<usize>,
    },
    /// There is no such axis.
    #[error("axis {axis} is outside of rank {rank}")]
    Axis {
        /// The axis, counted from 0.
        axis: usize,
        /// The number of axes.
        rank: usize,
    },
    /// The result has too many elements.
    #[error("a result of type {0} has more elements than this machine can address")]
    TooLarge(TensorType),
    /// Anything else, as a sentence.
    #[error("{0}")]
    Invalid(String),
}

impl ComputeOp {
    /// An operator of a kind that its expression must agree with.
    pub fn new(kind: Kind, expr: Compute) -> ComputeOp {
        ComputeOp { kind, expr: Arc::new(expr) }
    }
}

/// `ty`, if its size in bytes can be addressed.
pub(crate) fn sized(ty: TensorType) -> Result<TensorType, OpError> {
    match byte_len(ty.dtype, &ty.shape) {
        Some(_) => Ok(ty),
        None => Err(OpError::TooLarge(ty)),
    }
}

/// `axes` in ascending order, if all of them are different axes of a tensor of rank `rank`.
pub(crate) fn check_axes(axes: &[usize], rank: usize) -> Result<Vec<usize>, OpError> {
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    if let Some(&axis) = sorted.iter().find(|&&axis| axis >= rank) {
        return Err(OpError::Axis { axis, rank });
    }
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(OpError::Invalid(format!("axis {} is listed twice", pair[0]))),
        None => Ok(sorted),
    }
}

/// The type in which products of `a` and `b` are summed, and the type of the result: half floats
/// are summed in `f32`, 8-bit integers of either sign in `i32`, which is also their result.
pub(crate) fn sum_types(a: DType, b: DType) -> Result<(DType, DType), OpError> {
    let byte = |d| matches!(d, DType::U8 | DType::I8);
    match a {
        _ if byte(a) && byte(b) => Ok((DType::I32, DType::I32)),
        _ if a != b => {
            Err(OpError::DType { what: "the second operand", expected: a.to_string(), found: b })
        }
        DType::Bool => Err(OpError::DType {
            what: "an operand of a sum of products",
            expected: "of a number".into(),
            found: a,
        }),
        _ => Ok((a.accumulator(), a)),
    }
}

/// Ends `expr` (which has one result, its last stage) with a conversion to `to`, if it needs one.
pub(crate) fn cast_result(mut expr: Compute, to: DType) -> Compute {
    let last = expr.stages.len() - 1;
    let TensorType { dtype, shape } = expr.stages[last].ty.clone();
    if dtype != to {
        let indices = (0..shape.len()).map(Expr::var).collect();
        let body = Expr::cast(dtype, to, Expr::Load(expr.stage_buffer(last), indices));
        expr.push(Stage::map("cast", TensorType::new(to, shape), body));
        expr.outputs = vec![last + 1];
    }
    expr
}
