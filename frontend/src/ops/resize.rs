//! `Resize` in all its versions, and `Upsample`, which it replaced.

use ansc_graph::ops::resize::{
    Coordinates, Interpolation, ResizeAttrs, ResizeAxis, Rounding, resize as resize_op,
};
use ansc_graph::{TensorType, ValueId};

use super::OpEntry;
use super::args::extents;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] =
    &[OpEntry::onnx("Resize", 10, resize), OpEntry::onnx("Upsample", 7, upsample)];

/// To opset 10 there is one formula for coordinates.
fn upsample(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let scales = match ctx.opset() {
        ..9 => ctx.floats("scales").ok_or_else(|| ctx.problem("it has no scales"))?,
        _ => known_floats(ctx, 1, "scales")?,
    };
    let interpolation = match ctx.string("mode", "nearest").as_str() {
        "nearest" => Interpolation::Nearest(Rounding::CeilToShrink),
        "linear" | "bilinear" => Interpolation::Linear,
        other => return Err(ctx.problem(format!("mode `{other}` is not known"))),
    };
    let attrs = ResizeAttrs {
        interpolation,
        coordinates: Coordinates::Asymmetric,
        antialias: false,
        exclude_outside: false,
        extrapolation: 0.0,
    };
    let ty = ctx.ty(x);
    let axes: Vec<usize> = (0..ty.rank()).collect();
    let axes = scaled(ctx, &ty, &axes, &scales)?;
    Ok(vec![resized(ctx, x, axes, &attrs)?])
}

fn resize(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    if ctx.opset() < 11 {
        return upsample(ctx);
    }
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    let axes = match ctx.ints("axes") {
        None => (0..ty.rank()).collect(),
        Some(axes) => axes
            .iter()
            .map(|&axis| ctx.axis(axis, ty.rank()))
            .collect::<Result<Vec<usize>, Problem>>()?,
    };
    let attrs = attributes(ctx)?;
    let scales = match ctx.optional(2) {
        Some(_) => known_floats(ctx, 2, "scales")?,
        None => vec![],
    };
    let mut resized_axes = if scales.is_empty() {
        let sizes = extents(ctx, &ctx.known_i64s(3, "sizes")?, "sizes")?;
        sized(ctx, &ty, &axes, &sizes)?
    } else {
        scaled(ctx, &ty, &axes, &scales)?
    };
    if attrs.coordinates == Coordinates::TfCropAndResize {
        set_regions(&mut resized_axes, &known_floats(ctx, 1, "roi")?)
            .ok_or_else(|| ctx.problem("its roi does not fit its axes"))?;
    }
    Ok(vec![resized(ctx, x, resized_axes, &attrs)?])
}

/// Resizes `x`, but for axes that stay as they are.
fn resized(
    ctx: &mut NodeCtx<'_>,
    x: ValueId,
    mut axes: Vec<ResizeAxis>,
    attrs: &ResizeAttrs,
) -> Result<ValueId, Problem> {
    let ty = ctx.ty(x);
    axes.retain(|a| a.extent != ty.shape[a.axis] || a.scale != 1.0 || a.region != (0.0, 1.0));
    if ctx.passes_on(x, axes.is_empty()) {
        return Ok(x);
    }
    let (op, tables) = resize_op(&ty, &axes, attrs).map_err(|e| ctx.problem(e.to_string()))?;
    let mut inputs = vec![x];
    for table in tables {
        inputs.push(ctx.add_const(table)?);
    }
    ctx.emit1(Ok(op), &inputs)
}

fn attributes(ctx: &NodeCtx<'_>) -> Result<ResizeAttrs, Problem> {
    let unknown = |name: &str, value: &str| ctx.problem(format!("{name} `{value}` is not known"));
    let interpolation = match ctx.string("mode", "nearest").as_str() {
        "nearest" => Interpolation::Nearest(rounding(ctx)?),
        "linear" => Interpolation::Linear,
        "cubic" => Interpolation::Cubic { a: ctx.float("cubic_coeff_a", -0.75) },
        other => return Err(unknown("mode", other)),
    };
    const NAME: &str = "coordinate_transformation_mode";
    let coordinates = match ctx.string(NAME, "half_pixel").as_str() {
        "half_pixel" => Coordinates::HalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        "tf_half_pixel_for_nn" => Coordinates::TfHalfPixelForNn,
        "tf_crop_and_resize" => Coordinates::TfCropAndResize,
        other => return Err(unknown(NAME, other)),
    };
    Ok(ResizeAttrs {
        interpolation,
        coordinates,
        antialias: ctx.int("antialias", 0) != 0,
        exclude_outside: ctx.int("exclude_outside", 0) != 0,
        extrapolation: ctx.float("extrapolation_value", 0.0),
    })
}

fn rounding(ctx: &NodeCtx<'_>) -> Result<Rounding, Problem> {
    Ok(match ctx.string("nearest_mode", "round_prefer_floor").as_str() {
        "round_prefer_floor" => Rounding::PreferFloor,
        "round_prefer_ceil" => Rounding::PreferCeil,
        "floor" => Rounding::Floor,
        "ceil" => Rounding::Ceil,
        other => return Err(ctx.problem(format!("nearest_mode `{other}` is not known"))),
    })
}

fn known_floats(ctx: &NodeCtx<'_>, i: usize, what: &str) -> Result<Vec<f32>, Problem> {
    let tensor = ctx.known(i, what)?;
    if !tensor.dtype().is_float() {
        return Err(ctx.problem(format!("its {what} must be floats, not {}", tensor.dtype())));
    }
    Ok(tensor.to_f64_vec().into_iter().map(|v| v as f32).collect())
}

const WHOLE: (f64, f64) = (0.0, 1.0);

/// Extents are rounded down, as computed in `f32`: so do the runtimes and shape inference.
fn scaled(
    ctx: &NodeCtx<'_>,
    x: &TensorType,
    axes: &[usize],
    scales: &[f32],
) -> Result<Vec<ResizeAxis>, Problem> {
    if scales.len() != axes.len() {
        return Err(ctx.problem(format!("it has {} scales for {} axes", scales.len(), axes.len())));
    }
    let axis = |(&axis, &scale): (&usize, &f32)| {
        let extent = (x.shape[axis] as f32 * scale).floor();
        if !(0.0..1e15).contains(&extent) {
            return Err(ctx.problem(format!("axis {axis} of {x} cannot be scaled by {scale}")));
        }
        Ok(ResizeAxis { axis, extent: extent as usize, scale: scale.into(), region: WHOLE })
    };
    axes.iter().zip(scales).map(axis).collect()
}

/// Axes of given extents, or, where the aspect ratio is to be kept, the extents nearest to them.
fn sized(
    ctx: &NodeCtx<'_>,
    x: &TensorType,
    axes: &[usize],
    sizes: &[usize],
) -> Result<Vec<ResizeAxis>, Problem> {
    if sizes.len() != axes.len() {
        return Err(ctx.problem(format!("it has {} sizes for {} axes", sizes.len(), axes.len())));
    }
    let grows = |(&axis, &size): (&usize, &usize)| x.shape[axis] == 0 && size > 0;
    if axes.iter().zip(sizes).any(grows) {
        return Err(ctx.problem("an axis without elements cannot be resized"));
    }
    let have = |axis: usize| x.shape[axis] as f64;
    // An axis without elements stays as it is.
    let scale = |(&a, &s): (&usize, &usize)| if x.shape[a] == 0 { 1.0 } else { s as f64 / have(a) };
    let scales: Vec<f64> = axes.iter().zip(sizes).map(scale).collect();
    let shared = match ctx.string("keep_aspect_ratio_policy", "stretch").as_str() {
        "stretch" => None,
        "not_larger" => scales.iter().copied().reduce(f64::min),
        "not_smaller" => scales.iter().copied().reduce(f64::max),
        other => return Err(ctx.problem(format!("policy `{other}` is not known"))),
    };
    let axis = |i: usize| {
        let axis = axes[i];
        let (scale, extent) = match shared {
            None => (scales[i], sizes[i]),
            Some(scale) => (scale, (scale * have(axis) + 0.5).floor() as usize),
        };
        // An extent of zero has no scale, and needs none.
        let scale = if scale > 0.0 { scale } else { 1.0 };
        ResizeAxis { axis, extent, scale, region: WHOLE }
    };
    Ok((0..axes.len()).map(axis).collect())
}

/// `roi` holds the starts of all axes, then their ends.
fn set_regions(axes: &mut [ResizeAxis], roi: &[f32]) -> Option<()> {
    let (starts, ends) = roi.split_at_checked(axes.len())?;
    if ends.len() != axes.len() {
        return None;
    }
    for (axis, (&start, &end)) in axes.iter_mut().zip(starts.iter().zip(ends)) {
        axis.region = (start.into(), end.into());
    }
    Some(())
}
