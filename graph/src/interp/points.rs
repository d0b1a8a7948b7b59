//! Single elements of a result, by definition: for subgraphs too large to be computed as a whole.
//!
//! Only what an element depends on is computed, and that once: elements of earlier stages are
//! remembered. The element of a product of matrices takes as many terms as the product has inside.

use std::collections::HashMap;

use ansc_runtime::Tensor;

use super::InterpError;
use super::scalar::{binary, cast, unary};
use crate::compute::{Combiner, Compute, Stage};
use crate::expr::{BinOp, BufId, Expr};
use crate::scalar::Scalar;

/// Elements of one [`Compute`] on fixed inputs.
pub struct Points<'a> {
    compute: &'a Compute,
    inputs: &'a [&'a Tensor],
    known: HashMap<(usize, usize), Scalar>,
    /// Operations that may still be done.
    left: u64,
}

/// Why an element has no value.
#[derive(Debug, thiserror::Error)]
pub enum PointError {
    /// The element takes more operations than the caller allows.
    #[error("it takes too many operations")]
    TooMany,
    /// The element is the position of an extreme.
    #[error("positions of extremes are not computed one by one")]
    ArgReduction,
    /// The interpreter failed.
    #[error(transparent)]
    Interp(#[from] InterpError),
}

impl<'a> Points<'a> {
    /// No more than `most` operations are done, all elements together.
    pub fn new(
        compute: &'a Compute,
        inputs: &'a [&'a Tensor],
        most: u64,
    ) -> Result<Points<'a>, InterpError> {
        super::check_inputs(&compute.inputs, inputs)?;
        Ok(Points { compute, inputs, known: HashMap::new(), left: most })
    }

    /// The element of a stage at a place within its shape.
    pub fn at(&mut self, stage: usize, place: &[usize]) -> Result<Scalar, PointError> {
        let compute = self.compute;
        let stage_of = &compute.stages[stage];
        let key = (stage, flat(&stage_of.ty.shape, place));
        if let Some(&value) = self.known.get(&key) {
            return Ok(value);
        }
        let mut axes: Vec<i64> = place.iter().map(|&i| i as i64).collect();
        let value = self.stage(stage_of, &mut axes)?;
        self.known.insert(key, value);
        Ok(value)
    }

    fn stage(&mut self, stage: &Stage, axes: &mut Vec<i64>) -> Result<Scalar, PointError> {
        let Some(reduce) = &stage.reduce else { return self.expr(stage, &stage.body, axes) };
        let op = match reduce.combiner {
            Combiner::Sum => BinOp::Add,
            Combiner::Prod => BinOp::Mul,
            Combiner::Max => BinOp::Max,
            Combiner::Min => BinOp::Min,
            Combiner::ArgMax { .. } | Combiner::ArgMin { .. } => {
                return Err(PointError::ArgReduction);
            }
        };
        let mut sum = reduce.combiner.identity(stage.ty.dtype).expect("of none but positions");
        let spatial = axes.len();
        for index in 0..reduce.extents.iter().product() {
            axes.truncate(spatial);
            axes.extend(unflat(&reduce.extents, index));
            let term = self.expr(stage, &stage.body, axes)?;
            sum = binary(op, sum, term).ok_or_else(|| malformed(stage, "terms of another type"))?;
        }
        axes.truncate(spatial);
        Ok(sum)
    }

    fn expr(&mut self, stage: &Stage, expr: &Expr, axes: &[i64]) -> Result<Scalar, PointError> {
        self.left = self.left.checked_sub(1).ok_or(PointError::TooMany)?;
        let wrong = || PointError::from(malformed(stage, "an operation on the wrong types"));
        Ok(match expr {
            Expr::Const(value) => *value,
            Expr::Var(var) => match axes.get(var.index()) {
                Some(&value) => Scalar::index(value),
                None => return Err(malformed(stage, "a variable that is no axis").into()),
            },
            Expr::Load(buffer, indices) => self.load(stage, *buffer, indices, axes)?,
            Expr::Unary(op, x) => unary(*op, self.expr(stage, x, axes)?).ok_or_else(wrong)?,
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.expr(stage, a, axes)?, self.expr(stage, b, axes)?);
                binary(*op, a, b).ok_or_else(wrong)?
            }
            Expr::Select(condition, a, b) => {
                let chosen = if self.expr(stage, condition, axes)?.is_zero() { b } else { a };
                self.expr(stage, chosen, axes)?
            }
            Expr::Cast(to, x) => cast(*to, self.expr(stage, x, axes)?),
        })
    }

    fn load(
        &mut self,
        stage: &Stage,
        buffer: BufId,
        indices: &[Expr],
        axes: &[i64],
    ) -> Result<Scalar, PointError> {
        let shape = &self.compute.buffer_type(buffer).shape;
        let mut place = Vec::with_capacity(indices.len());
        for (axis, (index, &extent)) in indices.iter().zip(shape).enumerate() {
            let index = self.expr(stage, index, axes)?.as_i64();
            let inside = usize::try_from(index).ok().filter(|&i| i < extent);
            place.push(inside.ok_or_else(|| InterpError::OutOfBounds {
                stage: stage.name.clone(),
                buffer,
                axis,
                index,
                extent,
                point: axes.to_vec(),
            })?);
        }
        match self.compute.stage_of(buffer) {
            Some(earlier) => self.at(earlier, &place),
            None => Ok(Scalar::at(self.inputs[buffer.index()], flat(shape, &place))),
        }
    }
}

fn malformed(stage: &Stage, reason: &str) -> InterpError {
    InterpError::Malformed { stage: stage.name.clone(), reason: reason.into() }
}

fn flat(shape: &[usize], place: &[usize]) -> usize {
    place.iter().zip(shape).fold(0, |at, (&i, &extent)| at * extent + i)
}

/// Row-major.
fn unflat(extents: &[usize], mut index: usize) -> Vec<i64> {
    let mut place = vec![0; extents.len()];
    for (at, &extent) in place.iter_mut().zip(extents).rev() {
        *at = (index % extent) as i64;
        index /= extent;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::super::eval;
    use super::*;

    /// Every element of every stage is what the evaluator of whole results gives.
    #[test]
    fn elements_are_those_of_the_whole_result() {
        let texts = [
            "compute(in0: f32[5, 7], in1: f32[7, 3], in2: f32[3]) -> y {
               mm: f32[5, 3] = sum{r0: 7} mul(in0[i0, r0], in1[r0, i1])
               y: f32[5, 3] = max(add(mm[i0, i1], in2[i1]), 0.0_f32)
             }",
            "compute(in0: f32[4, 6]) -> y {
               m: f32[4] = max{r0: 6} in0[i0, r0]
               e: f32[4, 6] = exp(sub(in0[i0, i1], m[i0]))
               s: f32[4] = sum{r0: 6} e[i0, r0]
               y: f32[4, 6] = div(e[i0, i1], s[i0])
             }",
            "compute(in0: f32[8]) -> y {
               p: f32[10] = select(and(le(1, i0), lt(i0, 9)), in0[sub(i0, 1)], 0.0_f32)
               y: f32[8] = sum{r0: 3} p[add(i0, r0)]
             }",
        ];
        for text in texts {
            let compute = Compute::parse(text).unwrap();
            let of = |i: usize, shape: &[usize]| {
                let n: usize = shape.iter().product();
                let values = (0..n).map(|j| ((j * 7 + i * 3) % 11) as f32 * 0.5 - 2.0);
                Tensor::from_slice(shape, &values.collect::<Vec<f32>>())
            };
            let inputs: Vec<Tensor> =
                compute.inputs.iter().enumerate().map(|(i, t)| of(i, &t.shape)).collect();
            let inputs: Vec<&Tensor> = inputs.iter().collect();
            let whole = eval(&compute, &inputs).unwrap();
            let mut points = Points::new(&compute, &inputs, 1 << 20).unwrap();
            let stage = compute.outputs[0];
            let shape = &compute.stages[stage].ty.shape;
            for index in 0..whole[0].len() {
                let place: Vec<usize> =
                    unflat(shape, index).into_iter().map(|i| i as usize).collect();
                let found = points.at(stage, &place).unwrap();
                assert_eq!(found, Scalar::at(&whole[0], index), "{text} at {place:?}");
            }
        }
    }

    #[test]
    fn what_takes_too_long_or_cannot_be_is_an_error() {
        let compute = Compute::parse(
            "compute(in0: f32[64]) -> y { y: f32[1] = sum{r0: 64} in0[add(r0, i0)] }",
        )
        .unwrap();
        let input = Tensor::from_slice(&[64], &[1.0f32; 64]);
        let inputs = [&input];
        let at = |most| Points::new(&compute, &inputs, most).unwrap().at(0, &[0]);
        assert!(matches!(at(10), Err(PointError::TooMany)));
        assert_eq!(at(1000).unwrap(), Scalar::from_f64(ansc_runtime::DType::F32, 64.0));
    }
}
