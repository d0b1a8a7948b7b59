//! Einstein summation, any number of operands, as one sum.
//!
//! ```text
//! einsum("ij,jk->ik")  ->  einsum: f32[i, k] = sum[j] mul(b0[v0, v2], b1[v2, v1])
//! ```

use super::stages::Stages;
use super::{OpError, sized};
use crate::compute::TensorType;
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};

/// Which label each axis has. Labels are small numbers; one that occurs twice in an operand takes
/// its diagonal, one that is not in `output` is summed over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Labels {
    /// Labels of the axes of each operand.
    pub operands: Vec<Vec<usize>>,
    /// Labels of the axes of the result.
    pub output: Vec<usize>,
}

impl Labels {
    /// The extent of every label; an axis of extent 1 broadcasts.
    pub fn extents(&self, operands: &[TensorType]) -> Result<Vec<usize>, OpError> {
        let count = self.operands.iter().flatten().chain(&self.output).max().map_or(0, |m| m + 1);
        let mut extents = vec![1; count];
        for (labels, ty) in self.operands.iter().zip(operands) {
            if labels.len() != ty.rank() {
                let (what, expected) = ("an operand of Einsum", labels.len().to_string());
                return Err(OpError::Rank { what, expected, found: ty.shape.clone() });
            }
            for (&label, &extent) in labels.iter().zip(&ty.shape) {
                if extents[label] != extent && extents[label] != 1 && extent != 1 {
                    return Err(OpError::Invalid(format!(
                        "one label of Einsum has the extents {} and {extent}",
                        extents[label]
                    )));
                }
                extents[label] = if extents[label] == 1 { extent } else { extents[label] };
            }
        }
        Ok(extents)
    }

    /// Labels that are summed over, in order of their numbers.
    pub fn summed(&self, count: usize) -> Vec<usize> {
        let used = |l: &usize| self.operands.iter().flatten().any(|o| o == l);
        (0..count).filter(|l| used(l) && !self.output.contains(l)).collect()
    }
}

/// The sum of products that the labels describe.
pub fn einsum(labels: &Labels, operands: &[TensorType]) -> Result<ComputeOp, OpError> {
    let extents = labels.extents(operands)?;
    let first = operands.first().ok_or(OpError::Invalid("Einsum without operands".into()))?;
    if labels.operands.len() != operands.len() || operands.iter().any(|o| o.dtype != first.dtype) {
        return Err(OpError::Invalid("Einsum needs one term per operand, all of one type".into()));
    }
    let acc = first.dtype.accumulator();
    let summed = labels.summed(extents.len());
    let out: Vec<usize> = labels.output.iter().map(|&l| extents[l]).collect();
    let ty = sized(TensorType::new(acc, out))?;
    let inputs: Vec<&TensorType> = operands.iter().collect();
    let mut s = Stages::of(&inputs);
    let sources: Vec<_> = (0..operands.len()).map(|i| s.source(i)).collect();
    let product = |i: &[Expr], r: &[Expr]| {
        let index = |label: usize| match labels.output.iter().position(|&l| l == label) {
            Some(axis) => i[axis].clone(),
            None => r[summed.iter().position(|&l| l == label).expect("else summed")].clone(),
        };
        let factor = |(source, terms): (&super::stages::Source, &Vec<usize>)| {
            let at = terms.iter().zip(&source.ty().shape);
            let at: Vec<Expr> =
                at.map(|(&l, &e)| if e == 1 { Expr::int(0) } else { index(l) }).collect();
            source.at_as(acc, &at)
        };
        let factors = sources.iter().zip(&labels.operands).map(factor);
        factors.reduce(|a, b| a * b).expect("there is an operand")
    };
    let y = match summed.as_slice() {
        [] => s.map("einsum", ty, |i| product(i, &[])),
        _ => {
            let reduced: Vec<usize> = summed.iter().map(|&l| extents[l]).collect();
            s.sum("einsum", ty, &reduced, product)
        }
    };
    let y = s.cast(y, first.dtype);
    Ok(s.finish(Kind::Other("Einsum".into()), &[&y]))
}
