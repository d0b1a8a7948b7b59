//! `Det`: determinants of square matrices in the last two axes, by elimination with row pivots.
//!
//! `[[1, 2], [3, 4]]` -> `-2`. Computed in `f64` whatever the element type.

use super::{HostError, list, zeros};
use crate::dtype::DType;
use crate::tensor::Tensor;

const OP: &str = "Det";

pub(super) fn run(x: &Tensor) -> Result<Tensor, HostError> {
    if !x.dtype().is_float() {
        return Err(HostError::Type { op: OP, what: "x", dtype: x.dtype() });
    }
    let batch = match x.shape() {
        [batch @ .., n, m] if n == m => batch,
        shape => return Err(HostError::Shape { op: OP, what: "x", shape: shape.to_vec() }),
    };
    let n = x.shape()[x.rank() - 1];
    let mut values = x.to_f64_vec();
    let mut y = zeros(OP, x.dtype(), batch)?;
    let dets = (0..y.len()).map(|i| determinant(&mut values[i * n * n..][..n * n], n));
    let dets = list(OP, dets)?;
    store(&mut y, &dets);
    Ok(y)
}

fn store(y: &mut Tensor, values: &[f64]) {
    match y.dtype() {
        DType::F16 => fill(y.as_mut_slice(), values, half::f16::from_f64),
        DType::BF16 => fill(y.as_mut_slice(), values, half::bf16::from_f64),
        DType::F32 => fill(y.as_mut_slice(), values, |v| v as f32),
        _ => fill(y.as_mut_slice(), values, |v| v),
    }
}

fn fill<T>(out: &mut [T], values: &[f64], convert: impl Fn(f64) -> T) {
    for (to, &from) in out.iter_mut().zip(values) {
        *to = convert(from);
    }
}

/// Destroys `a`, an `n` by `n` matrix.
fn determinant(a: &mut [f64], n: usize) -> f64 {
    let mut det = 1.0;
    for step in 0..n {
        let pivot = (step..n)
            .max_by(|&i, &j| a[i * n + step].abs().total_cmp(&a[j * n + step].abs()))
            .unwrap_or(step);
        if pivot != step {
            for column in 0..n {
                a.swap(pivot * n + column, step * n + column);
            }
            det = -det;
        }
        let head = a[step * n + step];
        det *= head;
        if head == 0.0 {
            return det;
        }
        for row in step + 1..n {
            let factor = a[row * n + step] / head;
            for column in step..n {
                a[row * n + column] -= factor * a[step * n + column];
            }
        }
    }
    det
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn batches_and_the_empty_matrix() {
        let x = Tensor::from_slice(&[2, 2, 2], &[1f32, 2.0, 3.0, 4.0, 0.0, 1.0, 1.0, 0.0]);
        assert_eq!(run(&x).unwrap(), Tensor::from_slice(&[2], &[-2f32, -1.0]));
        let empty = Tensor::zeros(DType::F64, &[0, 0]);
        assert_eq!(run(&empty).unwrap(), Tensor::scalar(1f64));
        assert!(run(&Tensor::zeros(DType::F32, &[2, 3])).is_err());
    }

    /// Leibniz's formula by expansion along the first row.
    fn expand(a: &[f64], n: usize) -> f64 {
        if n == 0 {
            return 1.0;
        }
        let minor = |skip: usize| -> Vec<f64> {
            (n..n * n).filter(|i| i % n != skip).map(|i| a[i]).collect()
        };
        (0..n).map(|j| (1.0 - 2.0 * (j % 2) as f64) * a[j] * expand(&minor(j), n - 1)).sum()
    }

    proptest! {
        #[test]
        fn equals_the_expansion(n in 0usize..5, values in prop::collection::vec(-5i32..5, 16)) {
            let a: Vec<f64> = values[..n * n].iter().map(|&v| f64::from(v)).collect();
            let expected = expand(&a, n);
            let got = determinant(&mut a.clone(), n);
            prop_assert!((got - expected).abs() < 1e-9 * (1.0 + expected.abs()), "{got} {expected}");
        }
    }
}
