//! `TopK` by counting: the place of an element is the number of those that go before it.
//!
//! ```text
//! positions(largest, k 2, axis 0, f32[5])
//! ->  rank: i32[5] = sum[5] i32(before(b0[v1], b0[v0]))
//!     position: i64[2] = sum[5] select(eq(rank[v1], v0), v1, 0)
//! ```
//!
//! Each element is compared with all others, which are independent of each other: work for a
//! processor with very many threads. Of equal elements the first one goes before; NaN is above all
//! numbers.

use ansc_runtime::DType;

use super::OpError;
use super::index::check_axis;
use super::stages::Stages;
use crate::compute::{Combiner, TensorType};
use crate::expr::{BinOp, Expr, UnOp};
use crate::op::{ComputeOp, Kind};

/// Where the `k` largest or smallest elements along an axis are, the best first, as `i64`.
pub fn positions(
    axis: usize,
    k: usize,
    largest: bool,
    x: &TensorType,
) -> Result<ComputeOp, OpError> {
    check_axis(axis, x.rank())?;
    let extent = x.shape[axis];
    if k > extent || i32::try_from(extent).is_err() {
        return Err(OpError::Invalid(format!(
            "there are no {k} elements along axis {axis} of {x}"
        )));
    }
    let (mut s, [x]) = Stages::new([x]);
    let at = |i: &[Expr], place: &Expr| {
        let mut at = i.to_vec();
        at[axis] = place.clone();
        at
    };
    let ranks = TensorType::new(DType::I32, x.ty().shape.clone());
    let rank = s.reduce("rank", Combiner::Sum, ranks, &[extent], |i, r| {
        let [other, own] = [x.at(&at(i, &r[0])), x.at(i)];
        let before = before(x.dtype(), largest, &other, &own, r[0].clone().lt(i[axis].clone()));
        Expr::cast(DType::Bool, DType::I32, before)
    });
    let mut shape = x.ty().shape.clone();
    shape[axis] = k;
    let places = TensorType::new(DType::I64, shape);
    let position = s.reduce("position", Combiner::Sum, places, &[extent], |i, r| {
        let place = Expr::cast(DType::I64, DType::I32, i[axis].clone());
        let is_it = Expr::binary(BinOp::Eq, rank.at(&at(i, &r[0])), place);
        Expr::select(is_it, r[0].clone(), Expr::int(0))
    });
    Ok(s.finish(Kind::Other("TopK".into()), &[&position]))
}

/// Whether `a` goes before `b`, or is its equal and `first`.
fn before(dtype: DType, largest: bool, a: &Expr, b: &Expr, first: Expr) -> Expr {
    let (better, worse) = if largest { (a, b) } else { (b, a) };
    let is_less = |x: &Expr, y: &Expr| {
        let less = x.clone().lt(y.clone());
        if !dtype.is_float() {
            return less;
        }
        let is_nan = |e: &Expr| Expr::unary(UnOp::IsNan, e.clone());
        let only_other = Expr::binary(BinOp::And, Expr::unary(UnOp::Not, is_nan(x)), is_nan(y));
        Expr::binary(BinOp::Or, less, only_other)
    };
    let not_after = Expr::unary(UnOp::Not, is_less(better, worse));
    Expr::binary(BinOp::Or, is_less(worse, better), Expr::binary(BinOp::And, not_after, first))
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;
    use ansc_runtime::host::HostOp;

    use super::*;
    use crate::interp;

    /// The host's function tells the same places, of ties, zeros and NaN too.
    #[test]
    fn places_are_those_of_the_host() {
        let nan = f32::NAN;
        let inf = f32::INFINITY;
        let values = [
            3.0, 1.0, 3.0, nan, -0.0, 0.0, -inf, nan, inf, 2.0, 1.0, -5.0, 0.0, -0.0, 7.0, 7.0,
            inf, nan, 4.0, -1.0, 0.5, 0.5, 0.5, 9.0,
        ];
        let x = Tensor::from_slice(&[2, 4, 3], &values);
        let bytes: Vec<u8> = values.iter().map(|v| *v as u8 % 5).collect();
        for x in [x, Tensor::from_slice(&[2, 4, 3], &bytes)] {
            for (axis, largest) in (0..3).flat_map(|axis| [(axis, false), (axis, true)]) {
                let k = x.shape()[axis];
                let op = positions(axis, k, largest, &TensorType::of(&x)).unwrap();
                let found = interp::eval(&op.expr, &[&x]).unwrap().remove(0);
                let host = HostOp::TopK { axis, k, at_most: false, largest, sorted: true };
                let expected = ansc_runtime::host::run(&host, &[&x]).unwrap().remove(1);
                assert_eq!(found, expected, "axis {axis} largest {largest} {x:?}");
            }
        }
    }
}
