//! `Pad`: more elements (or, where a pad is negative, fewer) at the ends of axes.
//!
//! ```text
//! pad(f32[4], Constant(0), [1], [2])
//! ->  pad: f32[7] = select(lt(v0, 1), 0, select(lt(v0, 5), b0[v0 - 1], 0))
//! ```
//!
//! With a constant the conditions stay at the top in this form, the first axis outermost: lowering
//! splits the loops at them. The other modes compute an index into the input instead; they repeat
//! what negative pads leave of it, as if those were cut off first.

use super::index::{own, shifted};
use super::{OpError, sized};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

/// The values of elements beyond the tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PadMode {
    /// The same value everywhere.
    Constant(Scalar),
    /// The constant is the second input, a scalar or a tensor of one element.
    ConstantInput,
    /// Mirrored at the outermost elements, which are not repeated.
    Reflect,
    /// The outermost elements again and again.
    Edge,
    /// The tensor again and again.
    Wrap,
}

/// `inputs` are the data and, for [`PadMode::ConstantInput`], the constant.
pub fn pad(
    inputs: &[TensorType],
    mode: PadMode,
    before: &[i64],
    after: &[i64],
) -> Result<ComputeOp, OpError> {
    let x = inputs.first().ok_or_else(|| OpError::Invalid("there is nothing to pad".into()))?;
    let out = padded_type(x, before, after)?;
    let body = match mode {
        PadMode::Constant(value) if value.dtype() == x.dtype => {
            constant(x, before, after, &Expr::Const(value))
        }
        PadMode::Constant(value) => return Err(wrong_constant(x, value.dtype())),
        PadMode::ConstantInput => {
            let value = inputs.get(1).filter(|v| v.len() == 1).ok_or_else(|| {
                OpError::Invalid("the constant to pad with must be one element".into())
            })?;
            if value.dtype != x.dtype {
                return Err(wrong_constant(x, value.dtype));
            }
            constant(x, before, after, &Expr::load(1, vec![Expr::int(0); value.rank()]))
        }
        PadMode::Reflect | PadMode::Edge | PadMode::Wrap => {
            let cut = |axis| Kept::new(x.shape[axis], before[axis], after[axis]);
            let kept: Vec<Kept> = (0..x.rank()).map(cut).collect();
            check_sources(&kept, &out)?;
            Expr::load(0, kept.iter().enumerate().map(|(axis, k)| k.source(mode, axis)).collect())
        }
    };
    let used = if mode == PadMode::ConstantInput { 2 } else { 1 };
    let expr = Compute::single(inputs[..used].to_vec(), Stage::map("pad", out, body));
    Ok(ComputeOp::new(Kind::Pad, expr))
}

fn padded_type(x: &TensorType, before: &[i64], after: &[i64]) -> Result<TensorType, OpError> {
    if before.len() != x.rank() || after.len() != x.rank() {
        return Err(OpError::Invalid(format!(
            "padding shape {:?} needs a pair of pads for each axis",
            x.shape
        )));
    }
    let extent = |(axis, &n): (usize, &usize)| {
        let n = i64::try_from(n).ok()?.checked_add(before[axis])?.checked_add(after[axis])?;
        usize::try_from(n).ok()
    };
    let shape: Option<Vec<usize>> = x.shape.iter().enumerate().map(extent).collect();
    let shape = shape.ok_or_else(|| {
        OpError::Invalid(format!("shape {:?} cannot be padded by {before:?}, {after:?}", x.shape))
    })?;
    sized(TensorType::new(x.dtype, shape))
}

fn constant(x: &TensorType, before: &[i64], after: &[i64], value: &Expr) -> Expr {
    let mut indices = own(x.rank());
    for (index, &pad) in indices.iter_mut().zip(before) {
        *index = shifted(index.clone(), -pad);
    }
    let mut body = Expr::load(0, indices);
    for axis in (0..x.rank()).rev() {
        if after[axis] > 0 {
            let end = Expr::int(x.shape[axis] as i64 + before[axis]);
            body = Expr::select(Expr::var(axis).lt(end), body, value.clone());
        }
        if before[axis] > 0 {
            let begin = Expr::int(before[axis]);
            body = Expr::select(Expr::var(axis).lt(begin), value.clone(), body);
        }
    }
    body
}

/// The part of an axis that negative pads leave. Pads at the other end repeat only that part.
struct Kept {
    begin: i64,
    extent: i64,
    before: i64,
    after: i64,
}

impl Kept {
    fn new(extent: usize, before: i64, after: i64) -> Kept {
        let cut = |pad: i64| pad.min(0).saturating_neg();
        Kept {
            begin: cut(before),
            extent: (extent as i64).saturating_sub(cut(before)).saturating_sub(cut(after)).max(0),
            before: before.max(0),
            after: after.max(0),
        }
    }

    /// The index of the input that element `v{axis}` of the result repeats: one expression for
    /// what is kept and one for each end, unless pads go round it more than once.
    fn source(&self, mode: PadMode, axis: usize) -> Expr {
        let (n, longest) = (self.extent, self.before.max(self.after));
        let at = shifted(Expr::var(axis), -self.before);
        let period = 2 * (n - 1);
        let index = match mode {
            _ if longest == 0 => at,
            _ if n <= 1 => Expr::int(0),
            PadMode::Edge => self.chosen(axis, Expr::int(0), Expr::int(n - 1)),
            PadMode::Wrap if longest <= n => {
                self.chosen(axis, shifted(at.clone(), n), shifted(at, -n))
            }
            PadMode::Wrap => at.floor_mod(n),
            _ if longest < n => {
                let before = Expr::int(self.before) - Expr::var(axis);
                self.chosen(axis, before, Expr::int(period + self.before) - Expr::var(axis))
            }
            _ => {
                let at = at.floor_mod(period);
                let mirrored = Expr::int(period) - at.clone();
                Expr::select(at.clone().lt(Expr::int(n)), at, mirrored)
            }
        };
        shifted(index, self.begin)
    }

    /// The place itself where it is kept, and these before and after that.
    fn chosen(&self, axis: usize, before: Expr, after: Expr) -> Expr {
        let v = || Expr::var(axis);
        let mut index = shifted(v(), -self.before);
        if self.after > 0 {
            index = Expr::select(v().lt(Expr::int(self.before + self.extent)), index, after);
        }
        if self.before > 0 {
            index = Expr::select(v().lt(Expr::int(self.before)), before, index);
        }
        index
    }
}

fn check_sources(kept: &[Kept], out: &TensorType) -> Result<(), OpError> {
    if kept.iter().any(|k| k.extent == 0) && !out.is_empty() {
        return Err(OpError::Invalid("there are no elements to repeat".into()));
    }
    Ok(())
}

fn wrong_constant(x: &TensorType, found: ansc_runtime::DType) -> OpError {
    OpError::DType { what: "the constant to pad with", expected: x.dtype.to_string(), found }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::{DType, Tensor};

    use super::*;

    #[test]
    fn conditions_are_on_plain_variables() {
        let x = TensorType::new(DType::F32, [4]);
        let zero = Scalar::zero(DType::F32);
        let op = pad(std::slice::from_ref(&x), PadMode::Constant(zero), &[1], &[2]).unwrap();
        let v = Expr::var(0);
        let load = Expr::load(0, vec![v.clone() + Expr::int(-1)]);
        let inner = Expr::select(v.clone().lt(Expr::int(5)), load, Expr::Const(zero));
        let body = Expr::select(v.lt(Expr::int(1)), Expr::Const(zero), inner);
        assert_eq!(op.expr.stages[0].body, body);
        assert_eq!(op.expr.output_types()[0].shape, [7]);
    }

    fn padded(mode: PadMode, n: usize, before: i64, after: i64) -> Option<Vec<f32>> {
        let values: Vec<f32> = (1..=n).map(|v| v as f32).collect();
        let x = Tensor::from_slice(&[n], &values);
        let op = pad(&[TensorType::of(&x)], mode, &[before], &[after]).ok()?;
        Some(crate::interp::eval(&op.expr, &[&x]).unwrap()[0].as_slice::<f32>().to_vec())
    }

    /// The result of numpy, element by element: its slicing cuts, and its `pad` pads what is left.
    fn expected(mode: PadMode, n: usize, before: i64, after: i64) -> Option<Vec<f32>> {
        let n = n as i64;
        let (from, to) = ((-before).max(0), n - (-after).max(0));
        let length = n + before + after;
        let kept: Vec<f32> = (from..to).map(|v| v as f32 + 1.0).collect();
        if length < 0 || (kept.is_empty() && length > 0) {
            return None;
        }
        let last = kept.len() as i64 - 1;
        let at = |mut i: i64| {
            while !(0..=last).contains(&i) {
                i = match mode {
                    PadMode::Edge => i.clamp(0, last),
                    PadMode::Wrap if i < 0 => i + last + 1,
                    PadMode::Wrap => i - last - 1,
                    _ if last == 0 => 0,
                    _ if i < 0 => -i,
                    _ => 2 * last - i,
                };
            }
            kept[i as usize]
        };
        Some((0..length).map(|i| at(i - before.max(0))).collect())
    }

    #[test]
    fn negative_pads_cut_before_others_repeat() {
        for mode in [PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
            for n in 0..6 {
                for (before, after) in (-7..12).flat_map(|b| (-7..12).map(move |a| (b, a))) {
                    let found = padded(mode, n, before, after);
                    let case = format!("{mode:?} {n} {before} {after}");
                    assert_eq!(found, expected(mode, n, before, after), "{case}");
                }
            }
        }
        // ONNX Runtime says so too.
        assert_eq!(padded(PadMode::Wrap, 4, 2, -1).unwrap(), [2.0, 3.0, 1.0, 2.0, 3.0]);
        assert_eq!(padded(PadMode::Reflect, 4, -1, 2).unwrap(), [2.0, 3.0, 4.0, 3.0, 2.0]);
        assert_eq!(padded(PadMode::Edge, 4, -3, 2).unwrap(), [4.0, 4.0, 4.0]);
    }

    #[test]
    fn what_cannot_be_padded() {
        let x = [TensorType::new(DType::F32, [4])];
        let zero = PadMode::Constant(Scalar::zero(DType::F32));
        assert!(pad(&x, zero, &[-3], &[-2]).is_err());
        assert!(pad(&x, zero, &[i64::MAX], &[1]).is_err());
        assert!(pad(&x, zero, &[1, 1], &[1, 1]).is_err());
        assert!(pad(&x, PadMode::Constant(Scalar::zero(DType::I32)), &[1], &[1]).is_err());
        assert!(pad(&x, PadMode::ConstantInput, &[1], &[1]).is_err());
        let empty = [TensorType::new(DType::F32, [0])];
        assert!(pad(&empty, PadMode::Edge, &[1], &[1]).is_err());
        assert!(pad(&empty, zero, &[1], &[1]).is_ok());
    }
}
