//! Pieces that importers put composite operators together from.
//!
//! Each adds one node, or none where it would change nothing, and gives its value.

use ansc_graph::ops::{concat, map, matmul, pad, shape};
use ansc_graph::{BinOp, Expr, TensorType, ValueId};
use ansc_runtime::DType;

use crate::problem::Problem;
use crate::walk::NodeCtx;

/// Result of an importer's step.
pub(crate) type One = Result<ValueId, Problem>;

impl NodeCtx<'_> {
    pub(crate) fn shape(&self, v: ValueId) -> Vec<usize> {
        self.ty(v).shape
    }

    pub(crate) fn dtype(&self, v: ValueId) -> DType {
        self.ty(v).dtype
    }

    pub(crate) fn reshape(&mut self, x: ValueId, to: &[usize]) -> One {
        let ty = self.ty(x);
        if ty.shape == to {
            return Ok(x);
        }
        self.emit1(shape::reshape(&ty, to), &[x])
    }

    pub(crate) fn transpose(&mut self, x: ValueId, perm: &[usize]) -> One {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Ok(x);
        }
        self.emit1(shape::transpose(&self.ty(x), perm), &[x])
    }

    /// The last two axes exchanged.
    pub(crate) fn transpose_matrix(&mut self, x: ValueId) -> One {
        let rank = self.ty(x).rank();
        if rank < 2 {
            return Ok(x);
        }
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 2, rank - 1);
        self.transpose(x, &perm)
    }

    pub(crate) fn cast(&mut self, x: ValueId, to: DType) -> One {
        let ty = self.ty(x);
        if ty.dtype == to {
            return Ok(x);
        }
        self.emit1(map::cast(&ty, to), &[x])
    }

    pub(crate) fn binary(&mut self, op: BinOp, a: ValueId, b: ValueId) -> One {
        self.emit1(map::binary(op, &self.ty(a), &self.ty(b)), &[a, b])
    }

    pub(crate) fn add_values(&mut self, a: ValueId, b: ValueId) -> One {
        self.binary(BinOp::Add, a, b)
    }

    /// `f` of the elements of `inputs`, as type `out`.
    pub(crate) fn map(
        &mut self,
        inputs: &[ValueId],
        out: DType,
        f: impl FnOnce(Vec<Expr>) -> Expr,
    ) -> One {
        let types: Vec<TensorType> = inputs.iter().map(|&v| self.ty(v)).collect();
        self.emit1(map::map(&types, out, f), inputs)
    }

    pub(crate) fn concat(&mut self, values: &[ValueId], axis: usize) -> One {
        if let [one] = values {
            return Ok(*one);
        }
        let types: Vec<TensorType> = values.iter().map(|&v| self.ty(v)).collect();
        self.emit1(concat::concat(&types, axis), values)
    }

    pub(crate) fn matmul(&mut self, a: ValueId, b: ValueId) -> One {
        self.emit1(matmul::matmul(&self.ty(a), &self.ty(b)), &[a, b])
    }

    /// The product of tensors of any rank: one axis stands for a row on the left, for a column on
    /// the right, and is not in the result. `product` gets matrices.
    pub(crate) fn product_of(
        &mut self,
        a: ValueId,
        b: ValueId,
        product: impl FnOnce(&mut Self, ValueId, ValueId) -> One,
    ) -> One {
        let (shape_a, shape_b) = (self.shape(a), self.shape(b));
        let (row, column) = (shape_a.len() == 1, shape_b.len() == 1);
        let a = if row { self.reshape(a, &[1, shape_a[0]])? } else { a };
        let b = if column { self.reshape(b, &[shape_b[0], 1])? } else { b };
        let y = product(self, a, b)?;
        let mut shape = self.shape(y);
        let rank = shape.len();
        if column {
            shape.remove(rank - 1);
        }
        if row {
            shape.remove(rank - 2);
        }
        self.reshape(y, &shape)
    }

    /// `p[c]` under a shape that lines up with `axis` of a tensor of rank `rank`; one of a single
    /// element lines up with everything.
    pub(crate) fn along(&mut self, p: ValueId, axis: usize, rank: usize) -> One {
        let ty = self.ty(p);
        if ty.len() == 1 {
            return self.reshape(p, &[]);
        }
        if ty.rank() != 1 {
            return Err(self.problem(format!("a parameter must have one axis, not {:?}", ty.shape)));
        }
        let mut shape = vec![1; rank - axis];
        shape[0] = ty.shape[0];
        self.reshape(p, &shape)
    }

    /// Whether `v` is known to be zero everywhere.
    pub(crate) fn is_zero(&self, v: ValueId) -> bool {
        self.constant(v).is_some_and(|t| t.to_f64_vec().iter().all(|&x| x == 0.0))
    }

    /// An optional input, left out also where it is known to be zero.
    pub(crate) fn non_zero(&self, i: usize) -> Option<ValueId> {
        self.optional(i).filter(|&v| !self.is_zero(v))
    }

    /// `x` surrounded by `fill`, a tensor of one element.
    pub(crate) fn pad_by(
        &mut self,
        x: ValueId,
        fill: ValueId,
        before: &[i64],
        after: &[i64],
    ) -> One {
        let types = [self.ty(x), self.ty(fill)];
        self.emit1(pad::pad(&types, pad::PadMode::ConstantInput, before, after), &[x, fill])
    }

    /// A size attribute or operand as an extent.
    pub(crate) fn size(&self, value: i64, what: &str) -> Result<usize, Problem> {
        usize::try_from(value).map_err(|_| self.problem(format!("its {what} is {value}")))
    }

    pub(crate) fn sizes(&self, values: &[i64], what: &str) -> Result<Vec<usize>, Problem> {
        values.iter().map(|&v| self.size(v, what)).collect()
    }

    pub(crate) fn check(
        &self,
        holds: bool,
        reason: impl FnOnce() -> String,
    ) -> Result<(), Problem> {
        if holds { Ok(()) } else { Err(self.problem(reason())) }
    }
}
