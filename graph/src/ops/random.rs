//! Random numbers: each element mixes its indices with a key, which is another one in each run.
//!
//! The number at an index is the same for every shape that has the index. So a model for a range of
//! sizes draws what the model for one of them draws.
//!
//! ```text
//! uniform(0, 1) of key k  ->  y: f32[4, 8] = f32(shr(mix(mix(k, v0), v1), 8)) * 2^-24
//! ```

use ansc_runtime::DType;

use super::OpError;
use super::map::map_to;
use super::stages::Stages;
use crate::compute::{Combiner, TensorType};
use crate::expr::{BinOp, Expr, UnOp};
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

/// The first operand of all of them: the key, a number of 32 bits.
fn key() -> TensorType {
    TensorType::new(DType::I64, [])
}

/// How random numbers are spread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Spread {
    /// Evenly from the first number up to the second.
    Uniform(f64, f64),
    /// As Gauss has it, with this mean and this deviation.
    Normal(f64, f64),
}

/// A tensor of random numbers.
pub fn random(out: &TensorType, spread: Spread) -> Result<ComputeOp, OpError> {
    is_float(out.dtype)?;
    let axes: Vec<Expr> = (0..out.rank()).map(Expr::var).collect();
    map_to(&[key()], out.clone(), |v| {
        let bits = bits(v[0].clone(), &axes);
        let (factor, drawn, shift) = match spread {
            Spread::Uniform(low, high) => (high - low, unit(bits), low),
            Spread::Normal(mean, deviation) => (deviation, normal(bits), mean),
        };
        Expr::cast(DType::F32, out.dtype, float(factor) * drawn + float(shift))
    })
}

/// One with the probability that `x` tells, else zero.
pub fn bernoulli(x: &TensorType, to: DType) -> Result<ComputeOp, OpError> {
    is_float(x.dtype)?;
    let axes: Vec<Expr> = (0..x.rank()).map(Expr::var).collect();
    map_to(&[key(), x.clone()], TensorType::new(to, x.shape.clone()), |v| {
        let probability = Expr::cast(x.dtype, DType::F32, v[1].clone());
        let drawn = unit(bits(v[0].clone(), &axes));
        Expr::cast(DType::Bool, to, drawn.lt(probability))
    })
}

/// For each row of `x`, which has the logarithms of how likely each class is, so many classes. The
/// class is that of the largest sum of a logarithm and a number of Gumbel's distribution.
pub fn multinomial(x: &TensorType, samples: usize, to: DType) -> Result<ComputeOp, OpError> {
    is_float(x.dtype)?;
    let [rows, classes] = x.shape[..] else {
        return Err(OpError::Invalid("the logarithms must have two axes: rows and classes".into()));
    };
    if classes == 0 {
        return Err(OpError::Invalid("there is no class to choose".into()));
    }
    let (mut s, [key, x]) = Stages::new([&key(), x]);
    let ty = TensorType::new(DType::I64, [rows, samples]);
    let best = s.reduce("class", Combiner::ArgMax { last: false }, ty, &[classes], |i, r| {
        let axes = [i[0].clone(), i[1].clone(), r[0].clone()];
        let less = |x| Expr::unary(UnOp::Neg, Expr::unary(UnOp::Log, x));
        let gumbel = less(less(inside(bits(key.at(&[]), &axes))));
        x.at_as(DType::F32, &[i[0].clone(), r[0].clone()]) + gumbel
    });
    let y = s.map("y", TensorType::new(to, [rows, samples]), |i| best.at_as(to, i));
    Ok(s.finish(Kind::Other("Multinomial".into()), &[&y]))
}

fn is_float(dtype: DType) -> Result<(), OpError> {
    match dtype.is_float() {
        true => Ok(()),
        false => Err(OpError::DType { what: "x", expected: "a float".into(), found: dtype }),
    }
}

/// The bits of the element at these indices.
fn bits(key: Expr, axes: &[Expr]) -> Expr {
    let word = |x: &Expr| Expr::cast(DType::I64, DType::U32, x.clone());
    axes.iter().fold(word(&key), |bits, axis| Expr::binary(BinOp::Mix, bits, word(axis)))
}

/// Other bits that follow from these.
fn more(bits: Expr) -> Expr {
    Expr::binary(BinOp::Mix, bits, Expr::Const(Scalar::from_i64(DType::U32, 1)))
}

/// 24 of the bits as an integer, which is exact as a float.
fn high(bits: Expr) -> Expr {
    let by = Expr::Const(Scalar::from_i64(DType::U32, 8));
    Expr::cast(
        DType::I32,
        DType::F32,
        Expr::cast(DType::U32, DType::I32, Expr::binary(BinOp::Shr, bits, by)),
    )
}

/// From 0 up to 1, which it never is.
fn unit(bits: Expr) -> Expr {
    high(bits) * float(2f64.powi(-24))
}

/// Between 0 and 1, neither of which it ever is.
fn inside(bits: Expr) -> Expr {
    (high(bits) + float(0.5)) * float(2f64.powi(-24))
}

/// By the method of Box and Muller.
fn normal(bits: Expr) -> Expr {
    let turn = unit(more(bits.clone())) * float(std::f64::consts::TAU);
    let far = float(-2.0) * Expr::unary(UnOp::Log, inside(bits));
    Expr::unary(UnOp::Sqrt, far) * Expr::unary(UnOp::Cos, turn)
}

fn float(value: f64) -> Expr {
    Expr::float(DType::F32, value)
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;

    fn drawn(op: &ComputeOp, key: i64, more: &[&Tensor]) -> Vec<f64> {
        let key = Tensor::scalar(key);
        let inputs: Vec<&Tensor> = [&key].into_iter().chain(more.iter().copied()).collect();
        interp::eval(&op.expr, &inputs).unwrap()[0].to_f64_vec()
    }

    fn mean(all: &[f64]) -> f64 {
        all.iter().sum::<f64>() / all.len() as f64
    }

    /// The moments up to the fourth, as those of the distribution within four deviations of what
    /// so many numbers give.
    #[test]
    fn numbers_are_spread_as_told() {
        let ty = TensorType::new(DType::F32, [16, 16, 256]);
        let of = |spread, key| drawn(&random(&ty, spread).unwrap(), key, &[]);
        let moment = |all: &[f64], n| mean(&all.iter().map(|x| x.powi(n)).collect::<Vec<_>>());
        for key in [0, 1, 0xffff_ffff] {
            let even = of(Spread::Uniform(-3.0, 5.0), key);
            assert!(even.iter().all(|x| (-3.0..5.0).contains(x)));
            let unit: Vec<f64> = even.iter().map(|x| (x + 3.0) / 8.0).collect();
            for n in 1..=4 {
                let [own, twice] = [n, 2 * n].map(|n| 1.0 / f64::from(n + 1));
                let bound = 4.0 * ((twice - own * own) / 65536.0).sqrt();
                assert!((moment(&unit, n) - own).abs() < bound, "{n}: {}", moment(&unit, n));
            }
            let bell = of(Spread::Normal(2.0, 0.5), key);
            let own: Vec<f64> = bell.iter().map(|x| (x - 2.0) / 0.5).collect();
            for (n, expected, deviation) in
                [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)]
            {
                let bound = 4.0 * (deviation / 65536_f64).sqrt();
                assert!((moment(&own, n) - expected).abs() < bound, "{n}: {}", moment(&own, n));
            }
        }
    }

    /// Neighbours along each axis, and the numbers of two keys, have nothing to do with each other.
    #[test]
    fn numbers_do_not_follow_from_others() {
        let ty = TensorType::new(DType::F32, [16, 16, 256]);
        let of = |key| drawn(&random(&ty, Spread::Normal(0.0, 1.0)).unwrap(), key, &[]);
        let (all, other) = (of(7), of(8));
        let product =
            |a: &[f64], b: &[f64]| mean(&a.iter().zip(b).map(|(a, b)| a * b).collect::<Vec<_>>());
        for step in [1, 256, 4096] {
            assert!(product(&all, &all[step..]).abs() < 0.02, "{step}");
        }
        assert!(product(&all, &other).abs() < 0.02);
    }

    #[test]
    fn the_number_at_an_index_does_not_depend_on_extents() {
        let of = |shape: [usize; 2]| {
            let ty = TensorType::new(DType::F32, shape);
            drawn(&random(&ty, Spread::Uniform(0.0, 1.0)).unwrap(), 3, &[])
        };
        assert_eq!(of([2, 5])[5..], of([4, 9])[9..14]);
    }

    #[test]
    fn choices_follow_probabilities() {
        let p = Tensor::from_slice(
            &[4, 4096],
            &[[0_f32; 4096], [0.25; 4096], [0.9; 4096], [1.0; 4096]].concat(),
        );
        let chosen = drawn(&bernoulli(&TensorType::of(&p), DType::I32).unwrap(), 5, &[&p]);
        for (row, expected) in chosen.chunks(4096).zip([0.0, 0.25, 0.9, 1.0]) {
            let own = mean(row);
            assert!((own - expected).abs() <= 0.03 * expected, "{own}");
        }
        let logs = Tensor::from_slice(&[2, 3], &[0.2_f32, 0.3, 0.5, 8.0, 1.0, 1.0].map(f32::ln));
        let op = multinomial(&TensorType::of(&logs), 8192, DType::I32).unwrap();
        let classes = drawn(&op, 9, &[&logs]);
        for (row, expected) in classes.chunks(8192).zip([[0.2, 0.3, 0.5], [0.8, 0.1, 0.1]]) {
            for (class, expected) in expected.into_iter().enumerate() {
                let count = row.iter().filter(|c| **c == class as f64).count();
                assert!((count as f64 / 8192.0 - expected).abs() < 0.02, "{count} of {class}");
            }
        }
    }

    #[test]
    fn nothing_is_drawn_that_cannot_be() {
        let whole = TensorType::new(DType::I32, [2, 3]);
        assert!(random(&whole, Spread::Uniform(0.0, 1.0)).is_err());
        assert!(bernoulli(&whole, DType::Bool).is_err());
        let of = |shape: &[usize]| multinomial(&TensorType::new(DType::F32, shape), 1, DType::I32);
        assert!(of(&[2, 3]).is_ok() && of(&[2, 0]).is_err() && of(&[2]).is_err());
    }
}
