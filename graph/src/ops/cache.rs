//! `TensorScatter`: new entries written into a cache, each sequence at its own position.
//!
//! ```text
//! y[b, .., s, ..] = update[b, .., s - at[b], ..]   where 0 <= s - at[b] < length of the update
//!                   past[b, .., s, ..]             elsewhere
//! ```

use ansc_runtime::DType;

use super::OpError;
use super::index::{check_axis, check_index_type, own};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};

/// Inputs: past, update and, if given, positions: one for each index of the first axis. Without
/// them all are zero. A `circular` cache continues at its beginning where an update goes beyond its
/// end. Other caches drop that part.
pub fn update(inputs: &[TensorType], axis: usize, circular: bool) -> Result<ComputeOp, OpError> {
    let [past, new, positions @ ..] = inputs else {
        return Err(OpError::Invalid("a cache and its update are needed".into()));
    };
    check_axis(axis, past.rank())?;
    if !fits(past, new, axis) || axis == 0 {
        return Err(OpError::Invalid(format!(
            "an update of {new} does not fit a cache of {past} along axis {axis}"
        )));
    }
    let at = match positions {
        [] => Expr::int(0),
        [at] if at.shape == [past.shape[0]] => {
            check_index_type(at)?;
            Expr::cast(at.dtype, DType::I64, Expr::load(2, vec![Expr::var(0)]))
        }
        _ => return Err(OpError::Invalid("each sequence needs one position".into())),
    };
    let mut offset = Expr::var(axis) - at;
    if circular {
        offset = offset.floor_mod(past.shape[axis].max(1) as i64);
    }
    let length = Expr::index(new.shape[axis]);
    let inside = Expr::int(0).le(offset.clone()).and(offset.clone().lt(length));
    let mut source = own(past.rank());
    source[axis] = offset;
    let kept = Expr::load(0, own(past.rank()));
    let body = Expr::select(inside, Expr::load(1, source), kept);
    let expr = Compute::single(inputs.to_vec(), Stage::map("cache", past.clone(), body));
    Ok(ComputeOp::new(Kind::Other("TensorScatter".into()), expr))
}

fn fits(past: &TensorType, new: &TensorType, axis: usize) -> bool {
    let fits = |(i, (n, p)): (usize, (&usize, &usize))| if i == axis { n <= p } else { n == p };
    past.dtype == new.dtype
        && past.rank() == new.rank()
        && new.shape.iter().zip(&past.shape).enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_must_fit() {
        let f32s = |shape: &[usize]| TensorType::new(DType::F32, shape);
        let at = TensorType::new(DType::I64, [2]);
        let past = f32s(&[2, 8, 4]);
        assert!(update(&[past.clone(), f32s(&[2, 3, 4]), at.clone()], 1, true).is_ok());
        assert!(update(&[past.clone(), f32s(&[2, 9, 4]), at.clone()], 1, true).is_err());
        assert!(update(&[past.clone(), f32s(&[2, 3, 5]), at.clone()], 1, true).is_err());
        assert!(update(&[past.clone(), f32s(&[2, 3, 4]), f32s(&[2])], 1, true).is_err());
        assert!(update(&[past, at.clone(), at], 1, true).is_err());
    }
}
