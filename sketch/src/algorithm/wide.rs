//! A convolution of `bf16` as one of `f32`, for algorithms that know those.
//!
//! ```text
//! conv[y, x, k] = sum{r, s, c} f32(in[y + r, x + s, c]) * f32(w[r, s, c, k])      in, w: bf16
//! =>
//! wide[y, x, c] = f32(in[y, x, c])                              w: f32, made when compiling
//! conv[y, x, k] = sum{r, s, c} wide[y + r, x + s, c] * w[r, s, c, k]
//! ```
//!
//! Zeros around an image are put around wide elements.

use ansc_graph::{BinOp, BufId, Compute, Expr, Scalar, Stage, TensorType};
use ansc_runtime::DType;

use super::convolution::Convolution;
use super::{Replacing, Rewritten, without};
use crate::packed::Packing;
use crate::task::Task;
use crate::usage::factors;

/// None where no stage is such a convolution with constant weights.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let conv = Convolution::of_narrow(&task.compute)?;
    let is_half = |b: BufId| task.compute.buffer_type(b).dtype == DType::BF16;
    let stage = &task.compute.stages[conv.stage];
    let are_halves = is_half(conv.input) && is_half(conv.weight) && stage.ty.dtype == DType::F32;
    let param = task.sole_constant(conv.weight).filter(|_| are_halves)?;
    let mut compute = Replacing::new(&task.compute, conv.stage);
    let padded =
        task.compute.stage_of(conv.input).and_then(|s| Some((s, padded(&task.compute, s)?)));
    let wide = match &padded {
        Some((_, wide)) => wide.clone(),
        None => widened("wide", &task.compute, conv.input, conv.input),
    };
    let wide = compute.push(wide);
    let weight = widened("weight", &task.compute, conv.weight, BufId::new(0));
    let given = std::mem::replace(&mut compute.compute.inputs[param], weight.ty.clone());
    let [a, b] = factors(stage)?;
    let read = |e: &Expr| match e {
        Expr::Cast(_, x) => match &**x {
            Expr::Load(b, at) if *b == conv.input => Some(Expr::Load(wide, at.clone())),
            other => Some(other.clone()),
        },
        _ => None,
    };
    let body = Expr::binary(BinOp::Mul, read(a)?, read(b)?);
    compute.push(Stage { body, ..stage.clone() });
    let compute = compute.done();
    let rest = padded.and_then(|(stage, _)| without(&compute, stage));
    let task = Task { compute: rest.unwrap_or(compute), ..task.clone() };
    let prepared = vec![Packing { param, compute: Compute::single(vec![given], weight) }];
    Some(Rewritten { task, prepared })
}

/// The stage with 32 bits, if it puts zeros around something.
fn padded(compute: &Compute, stage: usize) -> Option<Stage> {
    let s = &compute.stages[stage];
    let Expr::Select(inside, x, zero) = &s.body else { return None };
    let is_zero = **zero == Expr::Const(Scalar::zero(DType::BF16));
    let wide = Expr::cast(DType::BF16, DType::F32, Expr::clone(x));
    let body = Expr::select(Expr::clone(inside), wide, Expr::float(DType::F32, 0.0));
    let ty = TensorType::new(DType::F32, &s.ty.shape[..]);
    is_zero.then(|| Stage::map(&s.name, ty, body))
}

/// All of a buffer with 32 bits, read from `from`.
fn widened(name: &str, compute: &Compute, buffer: BufId, from: BufId) -> Stage {
    let TensorType { dtype, shape } = compute.buffer_type(buffer).clone();
    let at = (0..shape.len()).map(Expr::var).collect();
    let body = Expr::cast(dtype, DType::F32, Expr::Load(from, at));
    Stage::map(name, TensorType::new(DType::F32, shape), body)
}
