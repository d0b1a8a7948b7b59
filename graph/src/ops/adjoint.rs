//! From an operator to its adjoint: what reverse-mode differentiation needs of it.
//!
//! In: an operator `y = f(x0, x1, ..)`. Out: one that takes `x0, x1, ..` and the gradients of the
//! results and gives the gradients of wanted operands. Like everything about an operator it follows
//! from its expression:
//!
//! ```text
//! y: f32[4, 6] = sum{r0: 8} mul(x0[i0, r0], x1[r0, i1])
//! ->  dx1: f32[8, 6] = sum{r0: 4} mul(dy[r0, i1], x0[r0, i0])
//! ```
//! A load's gradient is summed over the axes that its indices do not name. This covers maps,
//! broadcasting, and sums whose operands are read at plain axes; everything else (windows, gathers,
//! maxima) is refused.

use ansc_runtime::DType;

use super::{OpError, sized};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BinOp, BufId, Expr, UnOp, VarId};
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

/// The adjoint of `op`, with the gradients of those operands as results for which `wanted` holds,
/// in order.
pub fn adjoint(op: &Compute, wanted: &[bool]) -> Result<ComputeOp, OpError> {
    let mut builder = Builder::new(op);
    for stage in (0..op.stages.len()).rev() {
        let buffer = op.stage_buffer(stage);
        if let Some(gradient) = builder.total(buffer) {
            builder.stage(op, stage, gradient, wanted)?;
        }
    }
    let inputs = wanted.iter().enumerate().filter(|(_, wanted)| **wanted);
    let results = inputs.map(|(i, _)| builder.result(BufId::new(i))).collect::<Result<_, _>>()?;
    Ok(ComputeOp::new(Kind::Other("adjoint".into()), builder.finish(results)))
}

struct Builder<'a> {
    op: &'a Compute,
    adjoint: Compute,
    /// Gradients of each buffer of `op`, to be added up.
    parts: Vec<Vec<BufId>>,
}

impl<'a> Builder<'a> {
    /// The stages of `op` come first: derivatives read them.
    fn new(op: &'a Compute) -> Builder<'a> {
        let inputs = [op.inputs.clone(), op.output_types()].concat();
        let (first_gradient, gradients) = (op.inputs.len(), op.outputs.len());
        let mut parts = vec![vec![]; op.inputs.len() + op.stages.len()];
        for (i, &stage) in op.outputs.iter().enumerate() {
            parts[op.stage_buffer(stage).index()].push(BufId::new(first_gradient + i));
        }
        let moved = |buffer: BufId| match op.stage_of(buffer) {
            None => buffer,
            Some(_) => BufId::new(buffer.index() + gradients),
        };
        let stages = op.stages.iter().map(|s| Stage { body: rename(&s.body, &moved), ..s.clone() });
        let adjoint = Compute { inputs, stages: stages.collect(), outputs: vec![] };
        Builder { op, adjoint, parts }
    }

    /// The whole gradient of a buffer of `op`; `None` if it has none.
    fn total(&mut self, buffer: BufId) -> Option<BufId> {
        let parts = std::mem::take(&mut self.parts[buffer.index()]);
        let ty = self.op.buffer_type(buffer).clone();
        let at = indices(&ty.shape);
        let total = parts.into_iter().reduce(|a, b| {
            let body = Expr::Load(a, at.clone()) + Expr::Load(b, at.clone());
            self.push(Stage::map("total", ty.clone(), body))
        });
        self.parts[buffer.index()].extend(total);
        total
    }

    /// The gradient of an operand, zeros if nothing depends on it.
    fn result(&mut self, buffer: BufId) -> Result<BufId, OpError> {
        let ty = sized(self.op.buffer_type(buffer).clone())?;
        let total = self.total(buffer);
        // A result must be a stage of its own.
        let body = match total {
            Some(total) if self.adjoint.stage_of(total).is_some() => return Ok(total),
            Some(total) => Expr::Load(total, indices(&ty.shape)),
            None => Expr::Const(Scalar::zero(ty.dtype)),
        };
        Ok(self.push(Stage::map("zero", ty, body)))
    }

    /// Hands the gradient of a stage on to what it reads.
    fn stage(
        &mut self,
        op: &Compute,
        index: usize,
        gradient: BufId,
        wanted: &[bool],
    ) -> Result<(), OpError> {
        let stage = &op.stages[index];
        if stage.reduce.as_ref().is_some_and(|r| r.combiner != Combiner::Sum) {
            let message = "only sums among the reductions can be differentiated";
            return Err(OpError::Invalid(message.into()));
        }
        let mut seen: Vec<(BufId, &[Expr])> = vec![];
        for load in stage.body.loads() {
            let dtype = |b: BufId| op.buffer_type(b).dtype;
            let is_wanted = wanted.get(load.0.index()).is_none_or(|wanted| *wanted);
            if !is_wanted || !dtype(load.0).is_float() || seen.contains(&load) {
                continue;
            }
            seen.push(load);
            if let Some(derivative) = derivative(&stage.body, load, &dtype)? {
                let part = self.contribution(stage, load, &derivative, gradient)?;
                self.parts[load.0.index()].push(part);
            }
        }
        Ok(())
    }

    /// `sum over the axes that the load does not name of gradient * derivative`.
    fn contribution(
        &mut self,
        stage: &Stage,
        (buffer, at): (BufId, &[Expr]),
        derivative: &Expr,
        gradient: BufId,
    ) -> Result<BufId, OpError> {
        let ty = self.op.buffer_type(buffer).clone();
        let extents = stage.extents();
        let mut place: Vec<Option<Expr>> = vec![None; extents.len()];
        for (axis, (index, &extent)) in at.iter().zip(&ty.shape).enumerate() {
            match index {
                Expr::Var(v) if extents[v.index()] == extent && place[v.index()].is_none() => {
                    place[v.index()] = Some(axis_at(axis, extent));
                }
                Expr::Const(_) if extent == 1 => {}
                _ => {
                    let message = "only operators that read at plain axes can be differentiated";
                    return Err(OpError::Invalid(message.into()));
                }
            }
        }
        let mut summed = vec![];
        for (place, &extent) in place.iter_mut().zip(&extents) {
            place.get_or_insert_with(|| {
                summed.push(extent);
                Expr::var(ty.rank() + summed.len() - 1)
            });
        }
        let substitute = |v: VarId| place[v.index()].clone();
        let moved = |b: BufId| self.moved(b);
        let derivative = rename(derivative, &moved).substitute(&substitute);
        let own = indices(&stage.ty.shape);
        let incoming = Expr::Load(gradient, own).substitute(&substitute);
        let body = product(incoming, derivative);
        Ok(self.sum(ty, stage.ty.dtype, summed, body))
    }

    /// The sum of `body`, which is of type `from`, over axes that follow those of `ty`.
    fn sum(&mut self, ty: TensorType, from: DType, axes: Vec<usize>, body: Expr) -> BufId {
        if axes.is_empty() {
            let body = Expr::cast(from, ty.dtype, body);
            return self.push(Stage::map("gradient", ty, body));
        }
        let wide = TensorType::new(ty.dtype.accumulator(), ty.shape.clone());
        let body = Expr::cast(from, wide.dtype, body);
        let total = Stage::reduction("gradient", wide.clone(), Combiner::Sum, axes, body);
        let total = self.push(total);
        if wide == ty {
            return total;
        }
        let body = Expr::cast(wide.dtype, ty.dtype, Expr::Load(total, indices(&ty.shape)));
        self.push(Stage::map("gradient", ty, body))
    }

    /// A buffer of the operator, as the adjoint knows it.
    fn moved(&self, buffer: BufId) -> BufId {
        match self.op.stage_of(buffer) {
            None => buffer,
            Some(_) => BufId::new(buffer.index() + self.op.outputs.len()),
        }
    }

    fn push(&mut self, stage: Stage) -> BufId {
        let name = format!("{}{}", stage.name, self.adjoint.stages.len());
        self.adjoint.push(Stage { name, ..stage })
    }

    /// Without the stages that no result needs.
    fn finish(self, results: Vec<BufId>) -> Compute {
        let all = self.adjoint;
        let mut needed = vec![false; all.stages.len()];
        let mut pending: Vec<usize> = results.iter().filter_map(|b| all.stage_of(*b)).collect();
        while let Some(stage) = pending.pop() {
            if !std::mem::replace(&mut needed[stage], true) {
                let loads = all.stages[stage].body.loads();
                pending.extend(loads.iter().filter_map(|(b, _)| all.stage_of(*b)));
            }
        }
        let number = |stage: usize| needed[..stage].iter().filter(|n| **n).count();
        let renumbered = |buffer: BufId| match all.stage_of(buffer) {
            None => buffer,
            Some(stage) => BufId::new(all.inputs.len() + number(stage)),
        };
        let kept = all.stages.iter().zip(&needed).filter(|(_, needed)| **needed);
        let stages =
            kept.map(|(s, _)| Stage { body: rename(&s.body, &renumbered), ..s.clone() }).collect();
        let outputs = results.iter().filter_map(|b| all.stage_of(*b)).map(number).collect();
        Compute { inputs: all.inputs.clone(), stages, outputs }
    }
}

/// Where a tensor of this shape is read at a point's own indices. An axis of extent 1 is read at 0.
fn indices(shape: &[usize]) -> Vec<Expr> {
    shape.iter().enumerate().map(|(axis, &extent)| axis_at(axis, extent)).collect()
}

fn axis_at(axis: usize, extent: usize) -> Expr {
    if extent == 1 { Expr::int(0) } else { Expr::var(axis) }
}

fn rename(expr: &Expr, to: &impl Fn(BufId) -> BufId) -> Expr {
    expr.rewrite(&mut |e| match e {
        Expr::Load(buffer, at) => Some(Expr::Load(to(*buffer), at.clone())),
        _ => None,
    })
}

fn is_one(x: &Expr) -> bool {
    x.as_const().is_some_and(Scalar::is_one)
}

fn product(a: Expr, b: Expr) -> Expr {
    if is_one(&a) {
        b
    } else if is_one(&b) {
        a
    } else {
        a * b
    }
}

/// The derivative of `expr` by one of its loads; `None` if it is zero everywhere.
fn derivative(
    expr: &Expr,
    by: (BufId, &[Expr]),
    dtype: &impl Fn(BufId) -> DType,
) -> Result<Option<Expr>, OpError> {
    let ty = expr.dtype(dtype);
    let of = |x: &Expr| derivative(x, by, dtype);
    Ok(match expr {
        Expr::Const(_) | Expr::Var(_) => None,
        Expr::Load(buffer, at) => ((*buffer, at.as_slice()) == by).then(|| Expr::float(ty, 1.0)),
        Expr::Unary(op, x) => match of(x)? {
            None => None,
            Some(inner) => unary(*op, x, expr, ty).map(|outer| product(outer, inner)),
        },
        Expr::Binary(op, a, b) => binary(*op, (a, of(a)?), (b, of(b)?), expr, ty)?,
        Expr::Select(c, a, b) => match (of(a)?, of(b)?) {
            (None, None) => None,
            (a, b) => Some(Expr::select((**c).clone(), or_zero(a, ty), or_zero(b, ty))),
        },
        Expr::Cast(to, x) => match of(x)? {
            Some(inner) if to.is_float() => Some(Expr::cast(x.dtype(dtype), *to, inner)),
            _ => None,
        },
    })
}

fn or_zero(x: Option<Expr>, dtype: DType) -> Expr {
    x.unwrap_or_else(|| Expr::Const(Scalar::zero(dtype)))
}

/// The derivative of `whole = op(x)` by `x`.
fn unary(op: UnOp, x: &Expr, whole: &Expr, dtype: DType) -> Option<Expr> {
    let (x, y) = (x.clone(), whole.clone());
    let number = |value: f64| Expr::float(dtype, value);
    let call = |op: UnOp, x: Expr| Expr::unary(op, x);
    let square = |x: Expr| x.clone() * x;
    Some(match op {
        UnOp::Neg => number(-1.0),
        UnOp::Abs => call(UnOp::Sign, x),
        UnOp::Exp => y,
        UnOp::Log => number(1.0) / x,
        UnOp::Sqrt => number(0.5) / y,
        UnOp::Tanh => number(1.0) - square(y),
        UnOp::Sigmoid => y.clone() * (number(1.0) - y),
        UnOp::Erf => {
            number(std::f64::consts::FRAC_2_SQRT_PI) * call(UnOp::Exp, number(0.0) - square(x))
        }
        UnOp::Sin => call(UnOp::Cos, x),
        UnOp::Cos => number(0.0) - call(UnOp::Sin, x),
        UnOp::Tan => number(1.0) + square(y),
        UnOp::Asin => number(1.0) / call(UnOp::Sqrt, number(1.0) - square(x)),
        UnOp::Acos => number(-1.0) / call(UnOp::Sqrt, number(1.0) - square(x)),
        UnOp::Atan => number(1.0) / (number(1.0) + square(x)),
        UnOp::Sinh => call(UnOp::Cosh, x),
        UnOp::Cosh => call(UnOp::Sinh, x),
        UnOp::Asinh => number(1.0) / call(UnOp::Sqrt, square(x) + number(1.0)),
        UnOp::Acosh => number(1.0) / call(UnOp::Sqrt, square(x) - number(1.0)),
        UnOp::Atanh => number(1.0) / (number(1.0) - square(x)),
        // Constant between their steps.
        UnOp::Sign | UnOp::Floor | UnOp::Ceil | UnOp::Round | UnOp::Trunc => return None,
        UnOp::Tf32 => return None,
        UnOp::Not | UnOp::IsNan | UnOp::IsInf => return None,
    })
}

type WithDerivative<'a> = (&'a Expr, Option<Expr>);

/// The derivative of `whole = op(a, b)`.
fn binary(
    op: BinOp,
    (a, da): WithDerivative<'_>,
    (b, db): WithDerivative<'_>,
    whole: &Expr,
    dtype: DType,
) -> Result<Option<Expr>, OpError> {
    if da.is_none() && db.is_none() || op.is_comparison() {
        return Ok(None);
    }
    let zero = || Expr::Const(Scalar::zero(dtype));
    let sum = |a: Option<Expr>, b: Option<Expr>| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    let minus = |x: Expr| zero() - x;
    Ok(match op {
        BinOp::Add => sum(da, db),
        BinOp::Sub => sum(da, db.map(minus)),
        BinOp::Mul => sum(da.map(|d| product(d, b.clone())), db.map(|d| product(a.clone(), d))),
        BinOp::Div => {
            let by_b = |d: Expr| minus(product(whole.clone() / b.clone(), d));
            sum(da.map(|d| d / b.clone()), db.map(by_b))
        }
        BinOp::Pow => {
            let lower = b.clone() - Expr::float(dtype, 1.0);
            let by_a = b.clone() * Expr::binary(BinOp::Pow, a.clone(), lower);
            let by_b = whole.clone() * Expr::unary(UnOp::Log, a.clone());
            sum(da.map(|d| product(by_a, d)), db.map(|d| product(by_b, d)))
        }
        BinOp::Min | BinOp::Max => {
            let (da, db) = (or_zero(da, dtype), or_zero(db, dtype));
            let (first, second) = if op == BinOp::Min { (a, b) } else { (b, a) };
            Some(Expr::select(first.clone().le(second.clone()), da, db))
        }
        other => {
            return Err(OpError::Invalid(format!("`{}` cannot be differentiated", other.name())));
        }
    })
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;
    use crate::ops::map::{binary as binary_map, map, unary as unary_map};
    use crate::ops::matmul;
    use crate::ops::reduce::{Reduction, reduce};

    fn ty(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F64, shape)
    }

    /// Numbers in 0.3..0.9, where every function is smooth.
    fn values(shape: &[usize], seed: usize) -> Tensor {
        let n = shape.iter().product();
        let values: Vec<f64> =
            (0..n).map(|i| 0.3 + 0.6 * (((i * 7 + seed * 13) % 19) as f64 / 19.0)).collect();
        Tensor::from_slice(shape, &values)
    }

    fn bumped(x: &Tensor, at: usize, by: f64) -> Tensor {
        let mut x = x.clone();
        x.as_mut_slice::<f64>()[at] += by;
        x
    }

    /// `sum(y * weights)`, whose gradient the adjoint gives for the gradient `weights`.
    fn weighted(op: &Compute, inputs: &[Tensor], weights: &Tensor) -> f64 {
        let y = interp::eval(op, &inputs.iter().collect::<Vec<_>>()).unwrap();
        y[0].to_f64_vec().iter().zip(weights.to_f64_vec()).map(|(y, w)| y * w).sum()
    }

    fn check(name: &str, op: &Compute) {
        let inputs: Vec<Tensor> =
            op.inputs.iter().enumerate().map(|(i, ty)| values(&ty.shape, i)).collect();
        let weights = values(&op.output_types()[0].shape, 5);
        let made = adjoint(op, &vec![true; inputs.len()]).unwrap();
        crate::verify::verify_compute(&made.expr).unwrap();
        let operands: Vec<&Tensor> = inputs.iter().chain([&weights]).collect();
        let gradients = interp::eval(&made.expr, &operands).unwrap();
        for (input, gradient) in gradients.iter().enumerate() {
            assert_eq!(gradient.shape(), inputs[input].shape(), "{name}");
            for (at, exact) in gradient.to_f64_vec().into_iter().enumerate() {
                let value = |by: f64| {
                    let mut inputs = inputs.clone();
                    inputs[input] = bumped(&inputs[input], at, by);
                    weighted(op, &inputs, &weights)
                };
                let difference = (value(1e-5) - value(-1e-5)) / 2e-5;
                let ok = (exact - difference).abs() <= 1e-6 * exact.abs().max(1.0);
                assert!(ok, "{name}, input {input}[{at}]: {exact}, not {difference}");
            }
        }
    }

    #[test]
    fn agrees_with_differences() {
        let all = [
            UnOp::Neg,
            UnOp::Abs,
            UnOp::Sign,
            UnOp::Exp,
            UnOp::Log,
            UnOp::Sqrt,
            UnOp::Tanh,
            UnOp::Sigmoid,
            UnOp::Erf,
            UnOp::Sin,
            UnOp::Cos,
            UnOp::Tan,
            UnOp::Asin,
            UnOp::Acos,
            UnOp::Atan,
            UnOp::Sinh,
            UnOp::Cosh,
            UnOp::Asinh,
            UnOp::Atanh,
            UnOp::Floor,
        ];
        for op in all {
            check(op.name(), &unary_map(op, &ty(&[3])).unwrap().expr);
        }
        let x = |e: &Expr| e.clone() + Expr::float(DType::F64, 1.0);
        let acosh = map(&[ty(&[3])], DType::F64, |v| Expr::unary(UnOp::Acosh, x(&v[0]))).unwrap();
        check("acosh", &acosh.expr);
        for op in
            [BinOp::Add, BinOp::Sub, BinOp::Mul, BinOp::Div, BinOp::Pow, BinOp::Min, BinOp::Max]
        {
            for shapes in [[&[2, 3][..], &[2, 3]], [&[2, 3], &[3]], [&[2, 1], &[1, 3]], [&[], &[2]]]
            {
                let made = binary_map(op, &ty(shapes[0]), &ty(shapes[1])).unwrap();
                check(&format!("{} {shapes:?}", op.name()), &made.expr);
            }
        }
        check("matmul", &matmul::matmul(&ty(&[2, 3, 4]), &ty(&[4, 5])).unwrap().expr);
        check("mean", &reduce(Reduction::Mean, &[1], false, &ty(&[2, 3, 4])).unwrap().expr);
        let both = map(&[ty(&[2]), ty(&[2])], DType::F64, |v| {
            let condition = v[0].clone().lt(v[1].clone());
            Expr::select(condition, v[0].clone() * v[0].clone(), v[1].clone() * v[0].clone())
        });
        check("select", &both.unwrap().expr);
    }

    #[test]
    fn stages_hand_their_gradients_on() {
        // (x - mean(x)) * mean(x), in one operator.
        let load = |b: usize, at: Vec<Expr>| Expr::load(b, at);
        let mut op = Compute { inputs: vec![ty(&[2, 3])], stages: vec![], outputs: vec![1] };
        let term = load(0, vec![Expr::var(0), Expr::var(1)]) / Expr::float(DType::F64, 3.0);
        op.push(Stage::reduction("mean", ty(&[2]), Combiner::Sum, vec![3], term));
        let mean = || load(1, vec![Expr::var(0)]);
        let body = (load(0, vec![Expr::var(0), Expr::var(1)]) - mean()) * mean();
        op.push(Stage::map("y", ty(&[2, 3]), body));
        check("centred", &op);
    }

    #[test]
    fn what_is_read_elsewhere_is_refused() {
        let max = reduce(Reduction::Max, &[1], false, &ty(&[2, 3])).unwrap();
        assert!(adjoint(&max.expr, &[true]).unwrap_err().to_string().contains("only sums"));
        let slice = crate::ops::slice::select(&ty(&[2, 3]), 0, 1).unwrap();
        assert!(adjoint(&slice.expr, &[true]).unwrap_err().to_string().contains("plain axes"));
    }
}
