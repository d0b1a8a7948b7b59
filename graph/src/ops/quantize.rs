//! Quantisation: between floats and integers that stand for `(q - zero point) * scale`.
//!
//! ```text
//! quantize(u8, f32[2, 3], scale f32[3, 1], zero u8[3, 1])
//! ->  map: u8[2, 3] = cast_u8(add(round(div(b0, b1)), cast_f32(b2)))
//! ```
//!
//! Rounding is to nearest even, conversion saturates. Everything between is in `f32` (`f64` for
//! `f64`). Scales and zero points broadcast as numpy does: the importer has reshaped per-axis ones.
//! Blocked ones hold one element per `block` elements of an axis.

use ansc_runtime::DType;

use super::OpError;
use super::map::map;
use super::stages::{Source, Stages, real};
use crate::compute::{Combiner, TensorType};
use crate::expr::{Expr, UnOp};
use crate::op::{ComputeOp, Kind};

/// `x`, scale and, if not zero, the zero point: `round(x / scale) + zero` as `to`.
pub fn quantize(
    to: DType,
    x: &TensorType,
    scale: &TensorType,
    zero: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    let inputs: Vec<TensorType> = [x, scale].into_iter().chain(zero).cloned().collect();
    let acc = real_type(x.dtype);
    map(&inputs, to, |v| {
        let at = |i: usize| v.get(i).map(|e: &Expr| Expr::cast(inputs[i].dtype, acc, e.clone()));
        let quotient =
            Expr::cast(x.dtype, acc, v[0].clone()) / Expr::cast(scale.dtype, acc, v[1].clone());
        quantized(acc, to, quotient, at(2))
    })
}

/// `quotient` rounded and shifted by `zero`, both of type `acc`.
pub fn quantized(acc: DType, to: DType, quotient: Expr, zero: Option<Expr>) -> Expr {
    let rounded = Expr::unary(UnOp::Round, quotient);
    let shifted = match zero {
        Some(zero) => rounded + zero,
        None => rounded,
    };
    Expr::cast(acc, to, shifted)
}

/// `x`, scale and, if not zero, the zero point: `(x - zero) * scale` as `to`.
pub fn dequantize(
    to: DType,
    x: &TensorType,
    scale: &TensorType,
    zero: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    let inputs: Vec<TensorType> = [x, scale].into_iter().chain(zero).cloned().collect();
    let acc = real_type(scale.dtype);
    map(&inputs, to, |v| {
        let zero = v.get(2).map(|zero| (x.dtype, zero.clone()));
        let value = centred(acc, (x.dtype, v[0].clone()), zero);
        Expr::cast(acc, to, value * Expr::cast(scale.dtype, acc, v[1].clone()))
    })
}

/// `x - zero` as a float of type `acc`; the difference of narrow integers is exact.
pub fn centred(acc: DType, x: (DType, Expr), zero: Option<(DType, Expr)>) -> Expr {
    let wide = DType::I32;
    match zero {
        Some(zero) => {
            let difference = Expr::cast(x.0, wide, x.1) - Expr::cast(zero.0, wide, zero.1);
            Expr::cast(wide, acc, difference)
        }
        None => Expr::cast(x.0, acc, x.1),
    }
}

/// The float type that arithmetic on `dtype` is done in.
pub(crate) fn real_type(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// One scale for `block` consecutive elements of `axis`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The axis that blocks lie along.
    pub axis: usize,
    /// Elements of a block, but for the last one, which may be shorter.
    pub block: usize,
}

impl Blocks {
    fn check(self, x: &TensorType, parameter: &TensorType) -> Result<(), OpError> {
        if self.axis >= x.rank() {
            return Err(OpError::Axis { axis: self.axis, rank: x.rank() });
        }
        let mut expected = x.shape.clone();
        let blocks = expected[self.axis].checked_div(self.block).unwrap_or(0);
        let whole = blocks * self.block == expected[self.axis];
        expected[self.axis] = if whole { blocks } else { blocks + 1 };
        if self.block == 0 || parameter.shape != expected {
            return Err(OpError::Invalid(format!(
                "blocks of {} along axis {} of shape {:?} need parameters of shape {expected:?}, not {:?}",
                self.block, self.axis, x.shape, parameter.shape
            )));
        }
        Ok(())
    }

    fn parameter(self, indices: &[Expr]) -> Vec<Expr> {
        let mut indices = indices.to_vec();
        indices[self.axis] = indices[self.axis].clone().floor_div(self.block as i64);
        indices
    }
}

/// As [`quantize`], with one scale (and zero point) per block.
pub fn quantize_blocked(
    to: DType,
    blocks: Blocks,
    x: &TensorType,
    scale: &TensorType,
    zero: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    let (mut s, [x, scale], zero) = blocked_sources(blocks, x, scale, zero)?;
    let acc = real_type(x.dtype());
    let ty = TensorType::new(to, x.ty().shape.clone());
    let y = s.map("quantize", ty, |i| {
        let b = blocks.parameter(i);
        let zero = zero.as_ref().map(|z| z.at_as(acc, &b));
        quantized(acc, to, x.at_as(acc, i) / scale.at_as(acc, &b), zero)
    });
    Ok(s.finish(Kind::Other("QuantizeLinear".into()), &[&y]))
}

/// As [`dequantize`], with one scale (and zero point) per block.
pub fn dequantize_blocked(
    to: DType,
    blocks: Blocks,
    x: &TensorType,
    scale: &TensorType,
    zero: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    let (mut s, [x, scale], zero) = blocked_sources(blocks, x, scale, zero)?;
    let acc = real_type(scale.dtype());
    let ty = TensorType::new(to, x.ty().shape.clone());
    let y = s.map("dequantize", ty, |i| {
        let b = blocks.parameter(i);
        let zero = zero.as_ref().map(|z| (z.dtype(), z.at(&b)));
        let value = centred(acc, (x.dtype(), x.at(i)), zero);
        Expr::cast(acc, to, value * scale.at_as(acc, &b))
    });
    Ok(s.finish(Kind::Other("DequantizeLinear".into()), &[&y]))
}

fn blocked_sources(
    blocks: Blocks,
    x: &TensorType,
    scale: &TensorType,
    zero: Option<&TensorType>,
) -> Result<(Stages, [Source; 2], Option<Source>), OpError> {
    blocks.check(x, scale)?;
    zero.map_or(Ok(()), |zero| blocks.check(x, zero))?;
    let inputs: Vec<&TensorType> = [x, scale].into_iter().chain(zero).collect();
    let s = Stages::of(&inputs);
    let (sources, zero) = ([s.source(0), s.source(1)], zero.map(|_| s.source(2)));
    Ok((s, sources, zero))
}

/// `x -> y u8, scale, zero point u8`: the range of `x`, widened to hold zero, onto `0..=255`.
pub fn dynamic_quantize(x: &TensorType) -> Result<ComputeOp, OpError> {
    let (mut s, [x]) = Stages::new([x]);
    let extents = x.ty().shape.clone();
    let scalar = |dtype| TensorType::new(dtype, []);
    let acc = DType::F32;
    let mut extreme = |name: &str, combiner| {
        s.reduce(name, combiner, scalar(acc), &extents, |_, r| x.at_as(acc, r))
    };
    let (min, max) = (extreme("min", Combiner::Min), extreme("max", Combiner::Max));
    let zero = || real(acc, 0.0);
    let low = || min.at(&[]).min(zero());
    let scale = s.map("scale", scalar(acc), |_| {
        let range = max.at(&[]).max(zero()) - low();
        Expr::select(range.clone().eq(zero()), real(acc, 1.0), range / real(acc, 255.0))
    });
    let zero_point = s.map("zero_point", scalar(DType::U8), |_| {
        quantized(acc, DType::U8, (zero() - low()) / scale.at(&[]), None)
    });
    let y = s.map("quantize", TensorType::new(DType::U8, extents.clone()), |i| {
        let shift = zero_point.at_as(acc, &[]);
        quantized(acc, DType::U8, x.at_as(acc, i) / scale.at(&[]), Some(shift))
    });
    Ok(s.finish(Kind::Other("DynamicQuantizeLinear".into()), &[&y, &scale, &zero_point]))
}
