//! The work between the matrix products of a recurrent network's step: gates, elementwise over
//! `[batch, hidden]`.
//!
//! ```text
//! x: f32[b, 2 * h], state: f32[b, h];  gate 1 of x times the state
//! ->  out: f32[b, h] = mul(b0[v0, v1 + h], b1[v0, v1])
//! ```
//!
//! The operands hold several gates side by side; stages read them where they stand. Half floats are
//! computed in `f32`.

use ansc_runtime::DType;

use super::OpError;
use super::stages::real;
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::{BufId, Expr};
use crate::op::{ComputeOp, Kind};

/// An expression under construction.
pub struct Cell {
    expr: Compute,
    out: TensorType,
}

impl Cell {
    /// `inputs` are `[batch, gates * hidden]`, or `[gates * hidden]` for parameters.
    pub fn new(inputs: &[TensorType], batch: usize, hidden: usize) -> Result<Cell, OpError> {
        for ty in inputs {
            let fits = match ty.shape[..] {
                [n] => n % hidden.max(1) == 0,
                [b, n] => b == batch && n % hidden.max(1) == 0,
                _ => false,
            };
            if !fits || !ty.dtype.is_float() || ty.dtype != inputs[0].dtype {
                let rule = format!("{ty} does not hold gates of a [{batch}, {hidden}] cell");
                return Err(OpError::Invalid(rule));
            }
        }
        let dtype = inputs.first().map_or(DType::F32, |ty| ty.dtype);
        let expr = Compute { inputs: inputs.to_vec(), stages: vec![], outputs: vec![] };
        Ok(Cell { expr, out: TensorType::new(dtype, [batch, hidden]) })
    }

    /// The type that gates are computed in.
    pub fn real(&self) -> DType {
        self.out.dtype.accumulator()
    }

    /// Gate number `index` of input `slot`.
    pub fn gate(&self, slot: usize, index: usize) -> Result<Expr, OpError> {
        let (ty, hidden) = (&self.expr.inputs[slot], self.out.shape[1]);
        let begin = index.saturating_mul(hidden);
        if begin.saturating_add(hidden) > ty.shape[ty.rank() - 1] {
            return Err(OpError::Invalid(format!("{ty} has no gate {index}")));
        }
        let column = if begin == 0 { Expr::var(1) } else { Expr::var(1) + Expr::index(begin) };
        let indices = if ty.rank() == 1 { vec![column] } else { vec![Expr::var(0), column] };
        Ok(Expr::cast(ty.dtype, self.real(), Expr::load(slot, indices)))
    }

    /// Computes `value` once; gives what reads it.
    pub fn let_be(&mut self, name: &str, value: Expr) -> Expr {
        let ty = TensorType::new(self.real(), self.out.shape.clone());
        let stage = self.expr.push(Stage::map(name, ty, value));
        read(stage)
    }

    /// Makes `value` the next result.
    pub fn give(&mut self, name: &str, value: Expr) {
        let value = Expr::cast(self.real(), self.out.dtype, value);
        self.expr.outputs.push(self.expr.stages.len());
        self.expr.push(Stage::map(name, self.out.clone(), value));
    }

    /// The operator of this name, with all results that were given.
    pub fn finish(self, name: &str) -> ComputeOp {
        ComputeOp::new(Kind::Other(name.into()), self.expr)
    }

    /// `value` kept between `-limit` and `limit`.
    pub fn clipped(&self, value: Expr, limit: Option<f32>) -> Expr {
        let bound = |limit: f32| real(self.real(), limit);
        match limit {
            Some(limit) => value.max(bound(-limit)).min(bound(limit)),
            None => value,
        }
    }
}

fn read(stage: BufId) -> Expr {
    Expr::Load(stage, vec![Expr::var(0), Expr::var(1)])
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;

    #[test]
    fn gates_stand_side_by_side() {
        let x = Tensor::from_slice(&[2, 4], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let p = Tensor::from_slice(&[2], &[10f32, 100.0]);
        let types = [TensorType::of(&x), TensorType::of(&p)];
        let mut cell = Cell::new(&types, 2, 2).unwrap();
        let sum = cell.gate(0, 0).unwrap() + cell.gate(0, 1).unwrap();
        let sum = cell.let_be("sum", cell.clipped(sum, Some(12.5)));
        cell.give("scaled", sum * cell.gate(1, 0).unwrap());
        assert!(cell.gate(0, 2).is_err());
        let y = crate::interp::eval(&cell.finish("cell").expr, &[&x, &p]).unwrap();
        assert_eq!(y[0].as_slice::<f32>(), [40.0, 600.0, 120.0, 1250.0]);
    }

    #[test]
    fn operands_must_fit() {
        let ty = |shape: &[usize]| TensorType::new(DType::F32, shape);
        assert!(Cell::new(&[ty(&[2, 5])], 2, 2).is_err());
        assert!(Cell::new(&[ty(&[3, 4])], 2, 2).is_err());
        assert!(Cell::new(&[TensorType::new(DType::I32, [2, 4])], 2, 2).is_err());
    }
}
