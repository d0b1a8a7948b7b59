//! How often each of a list of n-grams occurs in rows of integers (`TfIdfVectorizer`).
//!
//! ```text
//! ngrams(i64[rows, n], table: i64[m, l], lengths: i64[m])
//! ->  count: f32[rows, m] = sum[n, skips] of 1 where the m-th n-gram, with this many elements
//!                           skipped between any two, begins at this place
//! ```

use ansc_runtime::DType;

use super::stages::Stages;
use super::{OpError, sized};
use crate::compute::TensorType;
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};

/// `table` holds an n-gram in each row, the first `lengths` elements of which count.
pub fn ngrams(
    x: &TensorType,
    table: &TensorType,
    lengths: &TensorType,
    skips: usize,
) -> Result<ComputeOp, OpError> {
    let (&[rows, n], &[m, longest]) = (&x.shape[..], &table.shape[..]) else {
        return Err(OpError::Invalid(format!("n-grams {table} cannot be counted in {x}")));
    };
    let integers = [x, table, lengths].iter().all(|ty| ty.dtype == DType::I64);
    if !integers || lengths.shape != [m] {
        return Err(OpError::Invalid(format!("n-grams {table} have lengths {lengths}")));
    }
    let (mut s, [x, table, lengths]) = Stages::new([x, table, lengths]);
    let out = sized(TensorType::new(DType::F32, [rows, m]))?;
    let (one, zero) = (Expr::float(DType::F32, 1.0), Expr::float(DType::F32, 0.0));
    let count = s.sum("count", out, &[n, skips], |i, r| {
        let length = || lengths.at(&[i[1].clone()]);
        let stride = || r[1].clone() + Expr::int(1);
        let same = (0..longest).rev().fold(one.clone(), |rest, j| {
            let at = r[0].clone() + stride() * Expr::index(j);
            let token = x.at(&[i[0].clone(), at]);
            let wanted = table.at(&[i[1].clone(), Expr::index(j)]);
            let here = Expr::select(token.eq(wanted), rest, zero.clone());
            Expr::select(length().le(Expr::index(j)), one.clone(), here)
        });
        let last = r[0].clone() + stride() * (length() - Expr::int(1));
        // A single element has nothing to skip.
        let few = r[1].clone().eq(Expr::int(0)).or(Expr::int(1).lt(length()));
        let fits = Expr::int(0).lt(length()).and(last.lt(Expr::index(n))).and(few);
        Expr::select(fits, same, zero.clone())
    });
    Ok(s.finish(Kind::Other("TfIdfVectorizer".into()), &[&count]))
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;

    #[test]
    fn counts_with_and_without_skips() {
        let x = Tensor::from_slice(&[1, 5], &[1i64, 2, 1, 3, 2]);
        let table = Tensor::from_slice(&[3, 2], &[1i64, 2, 1, 0, 2, 3]);
        let lengths = Tensor::from_slice(&[3], &[2i64, 1, 2]);
        let types = [&x, &table, &lengths].map(TensorType::of);
        for (skips, expected) in [(1, [1.0, 2.0, 0.0]), (2, [2.0, 2.0, 1.0])] {
            let op = ngrams(&types[0], &types[1], &types[2], skips).unwrap();
            let y = crate::interp::eval(&op.expr, &[&x, &table, &lengths]).unwrap();
            assert_eq!(y[0].as_slice::<f32>(), expected);
        }
    }
}
