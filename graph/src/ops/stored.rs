//! An operator whose operands are stored with fewer bits than it computes with.
//!
//! ```text
//! stored(matmul(f32[4, 8], f32[8, 6]), [bf16, bf16])
//! ->  matmul: f32[4, 6] = sum[8] mul(f32(b0[v0, v2]), f32(b1[v2, v1]))
//! stored(transpose([1, 0], f32[4, 8]), [bf16])
//! ->  transpose: bf16[8, 4] = b0[v1, v0]
//! ```
//!
//! A stage that only moves elements gives the type that they are stored with, so that a copy with
//! padding around it has as few bits as what it copies. Every other stage widens what it loads, and
//! gives the type that it gave before.
//!
//! Operands of which fewer bits are read may also stay as they are:
//!
//! ```text
//! in_tf32(matmul(f32[4, 8], f32[8, 6]))
//! ->  matmul: f32[4, 6] = sum[8] mul(tf32(b0[v0, v2]), tf32(b1[v2, v1]))
//! ```

use ansc_runtime::DType;

use crate::compute::{Compute, Stage, TensorType};
use crate::expr::{BufId, Expr, UnOp};
use crate::op::ComputeOp;
use crate::scalar::Scalar;

/// The same operator for operands that are stored as these types, one for each input. A type must
/// be the input's own, or one that has no value which the input's own lacks.
pub fn stored(op: &ComputeOp, operands: &[DType]) -> ComputeOp {
    let old = &op.expr;
    let inputs = old.inputs.iter().zip(operands);
    let inputs = inputs.map(|(ty, &dtype)| TensorType { dtype, ..ty.clone() }).collect();
    let mut new = Compute { inputs, stages: vec![], outputs: old.outputs.clone() };
    let whole = only_moves(op);
    for (i, stage) in old.stages.iter().enumerate() {
        // Results of an operator that computes keep their type, also one that happens to be a copy.
        let may_move = whole || !old.outputs.contains(&i);
        let stage = moved(stage, old, &new).filter(|_| may_move);
        new.push(stage.unwrap_or_else(|| widening(&old.stages[i], old, &new)));
    }
    ComputeOp::new(op.kind.clone(), new)
}

/// The same operator, whose sums of products read as many bits of `f32` as tensor cores do.
pub fn in_tf32(op: &ComputeOp) -> ComputeOp {
    let mut expr = (*op.expr).clone();
    for i in 0..expr.stages.len() {
        let Stage { reduce: Some(_), body, .. } = &expr.stages[i] else { continue };
        expr.stages[i].body = body.rewrite(&mut |e| match e {
            Expr::Load(buffer, _) if expr.buffer_type(*buffer).dtype == DType::F32 => {
                Some(Expr::unary(UnOp::Tf32, e.clone()))
            }
            _ => None,
        });
    }
    ComputeOp::new(op.kind.clone(), expr)
}

/// Whether the operator only moves elements, in a way that halves of floats can be moved in too.
pub fn only_moves(op: &ComputeOp) -> bool {
    let stages = &op.expr.stages;
    stages.iter().all(|s| s.ty.dtype == DType::F32 && s.reduce.is_none() && selects(&s.body))
}

/// Whether `e` is an element of a buffer, or a constant that every float type has, or chooses among
/// such.
fn selects(e: &Expr) -> bool {
    match e {
        Expr::Load(..) => true,
        Expr::Const(c) => [DType::F16, DType::BF16].iter().all(|&d| converted(*c, d).is_some()),
        Expr::Select(_, a, b) => selects(a) && selects(b),
        _ => false,
    }
}

/// The constant in another type, if that has it exactly.
fn converted(c: Scalar, dtype: DType) -> Option<Scalar> {
    let new = Scalar::from_f64(dtype, c.as_f64());
    (new.as_f64().to_bits() == c.as_f64().to_bits()).then_some(new)
}

/// The stage in the type of what it moves, if that is all it does.
fn moved(stage: &Stage, old: &Compute, new: &Compute) -> Option<Stage> {
    if stage.reduce.is_some() || !selects(&stage.body) {
        return None;
    }
    let mut values = Vec::new();
    let mut asked = false;
    leaves(&stage.body, &mut values, &mut |condition| {
        asked |= condition.loads().iter().any(|(b, _)| is_narrower(*b, old, new));
    });
    let (&first, rest) = values.split_first()?;
    let dtype = new.buffer_type(first).dtype;
    let alike = rest.iter().all(|b| new.buffer_type(*b).dtype == dtype);
    if asked || !alike || !is_narrower(first, old, new) {
        return None;
    }
    let ty = TensorType { dtype, ..stage.ty.clone() };
    Some(Stage { ty, body: retyped(&stage.body, dtype), ..stage.clone() })
}

/// The buffers whose elements `e` may be, and the conditions that it chooses by.
fn leaves<'a>(e: &'a Expr, values: &mut Vec<BufId>, condition: &mut impl FnMut(&'a Expr)) {
    match e {
        Expr::Load(buffer, _) => values.push(*buffer),
        Expr::Select(c, a, b) => {
            condition(c);
            leaves(a, values, condition);
            leaves(b, values, condition);
        }
        _ => {}
    }
}

/// The same choice with constants of another type.
fn retyped(e: &Expr, dtype: DType) -> Expr {
    match e {
        Expr::Const(c) => Expr::Const(converted(*c, dtype).expect("every float type has it")),
        Expr::Select(c, a, b) => Expr::select((**c).clone(), retyped(a, dtype), retyped(b, dtype)),
        _ => e.clone(),
    }
}

/// The stage with a conversion around each load of what has fewer bits now.
fn widening(stage: &Stage, old: &Compute, new: &Compute) -> Stage {
    let body = stage.body.rewrite(&mut |e| match e {
        Expr::Load(buffer, _) if is_narrower(*buffer, old, new) => {
            Some(Expr::Cast(old.buffer_type(*buffer).dtype, Box::new(e.clone())))
        }
        _ => None,
    });
    Stage { body, ..stage.clone() }
}

fn is_narrower(buffer: BufId, old: &Compute, new: &Compute) -> bool {
    old.buffer_type(buffer).dtype != new.buffer_type(buffer).dtype
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp;
    use crate::op::{Channels, ConvAttrs};
    use crate::ops::{conv, matmul, pool, shape, softmax};
    use crate::passes::testing::{f32, random};
    use crate::verify::verify_compute;
    use ansc_runtime::Tensor;

    /// Random values that `dtype` has, stored as it and as `f32`.
    fn both(shape: &[usize], dtype: DType, seed: u64) -> [Tensor; 2] {
        let ty = f32(shape);
        let to = crate::ops::map::cast(&ty, dtype).unwrap();
        let narrow = interp::eval(&to.expr, &[&random(shape, seed)]).unwrap().remove(0);
        let back = crate::ops::map::cast(&TensorType::new(dtype, shape), DType::F32).unwrap();
        let wide = interp::eval(&back.expr, &[&narrow]).unwrap().remove(0);
        [narrow, wide]
    }

    fn padded_conv() -> ComputeOp {
        let attrs = ConvAttrs {
            channels: Channels::Last,
            input: Channels::Last,
            kernel: vec![3, 3],
            strides: vec![1, 1],
            dilations: vec![1, 1],
            pads_begin: vec![1, 1],
            pads_end: vec![1, 1],
            groups: 1,
        };
        conv::conv(attrs, &f32(&[1, 5, 5, 4]), &f32(&[3, 3, 4, 6])).unwrap()
    }

    /// Values that are exact in few bits give the same results however they are stored.
    #[test]
    fn results_are_those_of_wide_operands() {
        let ops = [
            padded_conv(),
            matmul::matmul(&f32(&[3, 7]), &f32(&[7, 5])).unwrap(),
            shape::transpose(&f32(&[3, 4]), &[1, 0]).unwrap(),
            softmax::softmax(&[1], &f32(&[3, 4])).unwrap(),
            pool::global_pool(pool::GlobalPool::Max, &f32(&[1, 2, 4, 4])).unwrap(),
        ];
        for (op, dtype) in ops.iter().flat_map(|op| [(op, DType::F16), (op, DType::BF16)]) {
            let operands = op.expr.inputs.iter().enumerate();
            let tensors: Vec<[Tensor; 2]> =
                operands.map(|(i, ty)| both(&ty.shape, dtype, 7 + i as u64)).collect();
            let narrow = stored(op, &vec![dtype; tensors.len()]);
            assert_eq!(verify_compute(&narrow.expr), Ok(()), "{:?}", op.kind);
            let results = |expr: &Compute, which: usize| {
                let inputs: Vec<&Tensor> = tensors.iter().map(|t| &t[which]).collect();
                interp::eval(expr, &inputs).unwrap().remove(0).to_f64_vec()
            };
            assert_eq!(results(&narrow.expr, 0), results(&op.expr, 1), "{:?}", op.kind);
        }
    }

    #[test]
    fn a_padded_copy_has_as_few_bits() {
        let op = stored(&padded_conv(), &[DType::BF16, DType::BF16]);
        let types: Vec<DType> = op.expr.stages.iter().map(|s| s.ty.dtype).collect();
        assert_eq!(types, [DType::BF16, DType::F32]);
    }

    #[test]
    fn what_moves_elements_alone() {
        let op = shape::reshape(&f32(&[3, 4]), &[12]).unwrap();
        assert!(only_moves(&op));
        assert_eq!(stored(&op, &[DType::F16]).expr.output_types()[0].dtype, DType::F16);
        assert!(!only_moves(&padded_conv()));
    }
}
