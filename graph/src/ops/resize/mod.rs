//! `Resize`: interpolation along axes, each on its own.
//!
//! ```text
//! nearest, twice as wide:   resize: f32[8] = b0[floor_div(v0, 2)]
//! linear:                   resize: f32[8] = b0[b1[v0, 0]] * b2[v0, 0] + b0[b1[v0, 1]] * b2[v0, 1]
//! cubic, one axis a stage:  resize: f32[8] = sum[4] b0[b1[v0, v1]] * b2[v0, v1]
//! ```
//!
//! Which elements and weights belong to an output element is known when compiling. Where they
//! follow a simple rule, the index is an expression; otherwise it is read from a table, which
//! becomes an operand.

mod sampling;
mod table;

use ansc_runtime::{DType, Tensor};

use self::sampling::{Sampling, Tables};
use super::index::{check_axis, own};
use super::{OpError, sized};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BufId, Expr, UnOp};
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

/// Up to this number of elements of the input are mixed in one expression; more are summed up axis
/// by axis.
const MAX_POINTS: usize = 8;

/// Attributes of `Resize`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ResizeAttrs {
    /// How elements of the input around a position are mixed.
    pub interpolation: Interpolation,
    /// The position in the input that each element of the result has.
    pub coordinates: Coordinates,
    /// Whether axes that shrink are smoothed, by as many elements as one of the result stands for.
    pub antialias: bool,
    /// Elements beyond the input have no weight, instead of the outermost element's value.
    pub exclude_outside: bool,
    /// The value outside of the region of [`Coordinates::TfCropAndResize`].
    pub extrapolation: f32,
}

/// How elements of the input around a position are mixed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Interpolation {
    /// One element alone.
    Nearest(Rounding),
    /// The two nearest elements of each axis, weighted by their distance.
    Linear,
    /// The four nearest elements of each axis, by a cubic polynomial.
    Cubic {
        /// Keys' constant, mostly -0.75.
        a: f32,
    },
}

/// Which element is the nearest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// The one before the position.
    Floor,
    /// The one after the position.
    Ceil,
    /// Halves are rounded down.
    PreferFloor,
    /// Halves are rounded up.
    PreferCeil,
    /// Up along axes that shrink, down along others: what models of opset 10 and before rely on.
    CeilToShrink,
}

/// ONNX's `coordinate_transformation_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coordinates {
    /// Pixels have their centres at halves.
    HalfPixel,
    /// As `HalfPixel`, with the middles of input and result in the same place.
    HalfPixelSymmetric,
    /// As `HalfPixel`, but an axis of one element is taken from position 0.
    PytorchHalfPixel,
    /// The first and the last elements of input and result are in the same place.
    AlignCorners,
    /// The first elements are in the same place, and positions are divided by the scale.
    Asymmetric,
    /// As `HalfPixel`, without the half that leads back from the centre of an element.
    TfHalfPixelForNn,
    /// A part of the input is shown, whose first and last positions are those of the result.
    TfCropAndResize,
}

/// An axis that is resized.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ResizeAxis {
    /// The axis, counted from 0.
    pub axis: usize,
    /// Elements of the result.
    pub extent: usize,
    /// Size of the result by size of the input; need not be the ratio of the extents exactly.
    pub scale: f64,
    /// The part of the input that [`Coordinates::TfCropAndResize`] shows, in fractions of it.
    pub region: (f64, f64),
}

/// Elements of a table of one axis; images are far smaller, and a malicious size must not take all
/// memory.
const MAX_TABLE: usize = 1 << 23;

/// The operator, and the tables that are its operands after `x`.
pub fn resize(
    x: &TensorType,
    axes: &[ResizeAxis],
    attrs: &ResizeAttrs,
) -> Result<(ComputeOp, Vec<Tensor>), OpError> {
    let out = result_type(x, axes)?;
    check_tables(axes, attrs)?;
    if out.is_empty() {
        let stage = Stage::map("resize", out, Expr::Const(Scalar::zero(x.dtype)));
        return Ok((operator(Compute::single(vec![x.clone()], stage)), vec![]));
    }
    let dtype = working_type(x.dtype, attrs.interpolation);
    let mut tables = Tables::new(dtype);
    let mut samplings: Vec<Sampling> =
        axes.iter().map(|a| tables.sampling(x.shape[a.axis], a, attrs)).collect();
    // The axis that shrinks most goes first, so that the stages after it have less to do.
    samplings.sort_by(|a, b| a.growth().total_cmp(&b.growth()).then(a.axis.cmp(&b.axis)));
    let tables = tables.tensors;
    let inputs = std::iter::once(x.clone()).chain(tables.iter().map(TensorType::of)).collect();
    let mut expr = Compute { inputs, stages: vec![], outputs: vec![] };
    for step in steps(&samplings) {
        push_stage(&mut expr, dtype, &step);
    }
    finish(&mut expr, &samplings, x.dtype, attrs);
    Ok((operator(expr), tables))
}

fn operator(mut expr: Compute) -> ComputeOp {
    expr.outputs = vec![expr.stages.len() - 1];
    ComputeOp::new(Kind::Other("Resize".into()), expr)
}

fn result_type(x: &TensorType, axes: &[ResizeAxis]) -> Result<TensorType, OpError> {
    let mut shape = x.shape.clone();
    for a in axes {
        check_axis(a.axis, x.rank())?;
        if !(a.scale.is_finite() && a.scale > 0.0) {
            return Err(OpError::Invalid(format!("an axis cannot be scaled by {}", a.scale)));
        }
        if x.shape[a.axis] == 0 && a.extent != 0 {
            return Err(OpError::Invalid("an axis without elements cannot grow".into()));
        }
        shape[a.axis] = a.extent;
    }
    sized(TensorType::new(x.dtype, shape))
}

/// Tables grow with the result's extent, and with antialiasing by as much as the image shrinks.
fn check_tables(axes: &[ResizeAxis], attrs: &ResizeAttrs) -> Result<(), OpError> {
    let shrinks = |a: &ResizeAxis| if attrs.antialias { (1.0 / a.scale).max(1.0) } else { 1.0 };
    match axes.iter().find(|a| a.extent as f64 * 4.0 * shrinks(a) > MAX_TABLE as f64) {
        Some(a) => Err(OpError::Invalid(format!(
            "an axis of {} elements, scaled by {}, would need a table of more than {MAX_TABLE} elements",
            a.extent, a.scale
        ))),
        None => Ok(()),
    }
}

/// The type that sums are computed in. Where one element is chosen there is nothing to sum up, and
/// the type stays.
fn working_type(dtype: DType, interpolation: Interpolation) -> DType {
    match dtype {
        _ if matches!(interpolation, Interpolation::Nearest(_)) => dtype,
        DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::U64 => DType::F64,
        _ => DType::F32,
    }
}

/// The axes that one stage resizes: one by a reduction, others by mixing elements in its body.
struct Step<'a> {
    sum: Option<&'a Sampling>,
    mixed: Vec<&'a Sampling>,
}

fn steps(samplings: &[Sampling]) -> Vec<Step<'_>> {
    let points = samplings.iter().try_fold(1usize, |n, s| n.checked_mul(s.taps));
    if points.is_some_and(|n| n <= MAX_POINTS) {
        return vec![Step { sum: None, mixed: samplings.iter().collect() }];
    }
    let (choices, sums): (Vec<&Sampling>, Vec<&Sampling>) =
        samplings.iter().partition(|s| s.taps == 1);
    let step = |(i, s)| Step { sum: Some(s), mixed: if i == 0 { choices.clone() } else { vec![] } };
    sums.into_iter().enumerate().map(step).collect()
}

/// Appends a stage that resizes the latest tensor.
fn push_stage(expr: &mut Compute, dtype: DType, step: &Step<'_>) {
    let from = latest(expr);
    let TensorType { dtype: stored, mut shape } = expr.buffer_type(from).clone();
    for s in step.sum.iter().chain(&step.mixed) {
        shape[s.axis] = s.extent;
    }
    let out = TensorType::new(dtype, shape);
    let mut indices = own(out.rank());
    let tap = Expr::var(out.rank());
    if let Some(sum) = step.sum {
        indices[sum.axis] = sum.index(tap.clone());
    }
    let load = |indices: &[Expr]| Expr::cast(stored, dtype, Expr::Load(from, indices.to_vec()));
    let body = mix(&step.mixed, &mut indices, &load);
    expr.push(match step.sum {
        None => Stage::map("resize", out, body),
        Some(s) => {
            let body = body * s.weight(tap);
            Stage::reduction("resize", out, Combiner::Sum, vec![s.taps], body)
        }
    });
}

fn latest(expr: &Compute) -> BufId {
    match expr.stages.len() {
        0 => BufId::new(0),
        n => expr.stage_buffer(n - 1),
    }
}

/// The weighted sum of the elements along `axes` in the neighbourhood of `indices`.
fn mix(axes: &[&Sampling], indices: &mut Vec<Expr>, load: &impl Fn(&[Expr]) -> Expr) -> Expr {
    let Some((axis, rest)) = axes.split_first() else { return load(indices) };
    let mut term = |tap: usize| {
        indices[axis.axis] = axis.index(Expr::index(tap));
        mix(rest, indices, load)
    };
    if axis.taps == 1 {
        return term(0);
    }
    let first = term(0) * axis.weight(Expr::int(0));
    (1..axis.taps).fold(first, |sum, tap| sum + term(tap) * axis.weight(Expr::index(tap)))
}

/// Puts the extrapolation value where it belongs and converts to the type of the result.
fn finish(expr: &mut Compute, samplings: &[Sampling], to: DType, attrs: &ResizeAttrs) {
    let last = expr.stages.len() - 1;
    let TensorType { dtype, shape } = expr.stages[last].ty.clone();
    let outside = samplings.iter().filter_map(Sampling::outside).reduce(Expr::or);
    if outside.is_none() && dtype == to {
        return;
    }
    let convert = |mut x: Expr| {
        if let Some(outside) = outside {
            x = Expr::select(outside, Expr::float(dtype, attrs.extrapolation.into()), x);
        }
        if dtype != to && to.is_int() {
            x = Expr::unary(UnOp::Round, x);
        }
        Expr::cast(dtype, to, x)
    };
    let ty = TensorType::new(to, shape);
    if expr.stages[last].reduce.is_some() {
        let body = convert(Expr::Load(latest(expr), own(ty.rank())));
        expr.push(Stage::map("convert", ty, body));
    } else {
        let stage = &mut expr.stages[last];
        (stage.body, stage.ty) = (convert(stage.body.clone()), ty);
    }
}
