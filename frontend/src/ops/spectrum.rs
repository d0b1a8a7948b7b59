//! `DFT` and `STFT` as products with a matrix of sines and cosines.
//!
//! ```text
//! DFT(x[b, n, c])  ->  reshape(x, [b, n * c]) @ basis[n * c, k * 2]
//! ```
//!
//! Signals have one component, or two for complex numbers.

use std::f64::consts::PI;

use ansc_graph::ValueId;
use ansc_graph::ops::{frame, slice};

use super::OpEntry;
use super::args::{extent, only_int};
use super::compose::One;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] =
    &[OpEntry::onnx("DFT", 17, dft), OpEntry::onnx("STFT", 17, stft)];

/// Elements of the largest basis.
const MAX_BASIS: usize = 1 << 26;

/// A transform of a fixed length.
struct Transform {
    length: usize,
    inverse: bool,
    /// Only the first half of the spectrum, the rest of which is its mirror image.
    onesided: bool,
    /// Elements of the operand: frequencies of an inverse transform, points in time otherwise.
    given: usize,
    components: usize,
}

fn dft(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let shape = ctx.shape(x);
    let rank = shape.len();
    let axis = match ctx.opset() {
        ..20 => ctx.int("axis", 1),
        _ if ctx.optional(2).is_some() => only_int(ctx, 2, "axis")?,
        _ => -2,
    };
    let axis = ctx.axis(axis, rank)?;
    ctx.check(axis + 1 < rank && matches!(shape[rank - 1], 1 | 2), || {
        format!("it cannot transform axis {axis} of shape {shape:?}")
    })?;
    let inverse = ctx.int("inverse", 0) != 0;
    let onesided = ctx.int("onesided", 0) != 0;
    let length = match ctx.optional(1) {
        Some(_) => extent(ctx, only_int(ctx, 1, "DFT length")?, "DFT length")?,
        None if inverse && onesided => (2 * shape[axis]).saturating_sub(2),
        None => shape[axis],
    };
    let most = if inverse && onesided { length / 2 + 1 } else { length };
    let (given, components) = (shape[axis].min(most), shape[rank - 1]);
    if length == 0 {
        let mut none = shape.clone();
        (none[axis], none[rank - 1]) = (0, if inverse && onesided { 1 } else { 2 });
        return Ok(vec![ctx.zeros(ctx.dtype(x), &none)?]);
    }
    let transform = Transform { length, inverse, onesided, given, components };

    let mut perm: Vec<usize> = (0..rank).filter(|&a| a != axis).collect();
    perm.insert(rank - 2, axis);
    let x = ctx.emit1(slice::narrow(&ctx.ty(x), axis, 0, given), &[x])?;
    let x = ctx.transpose(x, &perm)?;
    let y = transform.apply(ctx, x, None)?;
    let mut back: Vec<usize> = (0..rank - 2).collect();
    back.insert(axis, rank - 2);
    back.push(rank - 1);
    Ok(vec![ctx.transpose(y, &back)?])
}

fn stft(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let signal = ctx.input(0)?;
    let mut shape = ctx.shape(signal);
    if shape.len() == 2 {
        shape.push(1);
    }
    ctx.check(shape.len() == 3 && matches!(shape[2], 1 | 2), || {
        format!("its signal has shape {shape:?}")
    })?;
    let signal = ctx.reshape(signal, &shape)?;
    let step = extent(ctx, only_int(ctx, 1, "frame step")?, "frame step")?;
    let window = ctx.optional(2);
    let length = match (ctx.optional(3), window) {
        (Some(_), _) => extent(ctx, only_int(ctx, 3, "frame length")?, "frame length")?,
        (None, Some(window)) => ctx.ty(window).len(),
        (None, None) => return Err(ctx.problem("it has neither a window nor a frame length")),
    };
    let frames = ctx.emit1(frame::frames(&ctx.ty(signal), step, length), &[signal])?;
    let onesided = ctx.int("onesided", 1) != 0;
    let (given, components) = (length, shape[2]);
    let transform = Transform { length, inverse: false, onesided, given, components };
    Ok(vec![transform.apply(ctx, frames, window)?])
}

impl Transform {
    /// The transform of `x[.., given, components]`, each element of which is first scaled by
    /// `window[given]`.
    fn apply(&self, ctx: &mut NodeCtx<'_>, x: ValueId, window: Option<ValueId>) -> One {
        let (rows, columns) = (self.given * self.components, self.results() * self.parts());
        ctx.check(self.length > 0, || "a length of 0 has no transform".into())?;
        let len = rows.checked_mul(columns).filter(|&n| n <= MAX_BASIS);
        let len =
            len.ok_or_else(|| ctx.problem(format!("a length of {} is too large", self.length)))?;
        let dtype = ctx.dtype(x);
        let basis = self.basis(len);
        let mut basis = ctx.numbers(&[self.given, self.components, columns], &basis, dtype)?;
        if let Some(window) = window {
            let window = ctx.reshape(window, &[self.given, 1, 1])?;
            let window = ctx.cast(window, dtype)?;
            basis = ctx.binary(ansc_graph::BinOp::Mul, basis, window)?;
        }
        let basis = ctx.reshape(basis, &[rows, columns])?;
        let mut shape = ctx.shape(x);
        shape.truncate(shape.len() - 2);
        let count = shape.iter().product();
        let x = ctx.reshape(x, &[count, rows])?;
        let y = ctx.matmul(x, basis)?;
        shape.extend([self.results(), self.parts()]);
        ctx.reshape(y, &shape)
    }

    fn results(&self) -> usize {
        if self.onesided && !self.inverse { self.length / 2 + 1 } else { self.length }
    }

    /// Components of the result: the inverse of half a spectrum is real.
    fn parts(&self) -> usize {
        if self.onesided && self.inverse { 1 } else { 2 }
    }

    /// The factors with which each component of each operand's element adds to each component of
    /// each result.
    fn basis(&self, len: usize) -> Vec<f64> {
        let (sign, scale) =
            if self.inverse { (1.0, 1.0 / self.length as f64) } else { (-1.0, 1.0) };
        let mut values = Vec::with_capacity(len);
        for n in 0..self.given {
            let mirrored = self.parts() == 1 && n > 0 && 2 * n < self.length;
            let scale = if mirrored { 2.0 * scale } else { scale };
            for component in 0..self.components {
                for k in 0..self.results() {
                    let turn = (n as u128 * k as u128 % self.length as u128) as f64;
                    let angle = 2.0 * PI * turn / self.length as f64;
                    let (sin, cos) = (sign * angle.sin() * scale, angle.cos() * scale);
                    let pair = if component == 0 { [cos, sin] } else { [-sin, cos] };
                    values.extend_from_slice(&pair[..self.parts()]);
                }
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_of_four_points() {
        let forward =
            Transform { length: 4, inverse: false, onesided: true, given: 4, components: 1 };
        let basis: Vec<i64> = forward.basis(24).iter().map(|v| v.round() as i64).collect();
        let rows: Vec<&[i64]> = basis.chunks(6).collect();
        assert_eq!(rows[0], [1, 0, 1, 0, 1, 0]);
        assert_eq!(rows[1], [1, 0, 0, -1, -1, 0]);
        assert_eq!(rows[2], [1, 0, -1, 0, 1, 0]);
    }
}
