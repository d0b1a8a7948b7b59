//! Building a compute stage by stage, with the element type of every source at hand.
//!
//! ```text
//! let (mut s, [x]) = Stages::new([&f32[4, 8]]);
//! let total = s.reduce("sum", Combiner::Sum, f32[4], [8], |i, r| x.at([i[0], r[0]]));
//! let mean = s.map("mean", f32[4], |i| total.at(i) / 8.0);
//! s.finish(kind, [mean])
//! ```

use std::sync::Arc;

use ansc_runtime::DType;

use super::OpError;
use super::conv::{Window, push_pad};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BufId, Expr};
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

/// Something that an expression may load from: an input or an earlier stage.
#[derive(Clone, Debug)]
pub struct Source {
    buffer: BufId,
    ty: TensorType,
}

impl Source {
    /// The type of the tensor that is loaded from.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// The element at these indices, one for each axis.
    pub fn at(&self, indices: &[Expr]) -> Expr {
        debug_assert_eq!(indices.len(), self.ty.rank(), "indices of {}", self.ty);
        Expr::Load(self.buffer, indices.to_vec())
    }

    /// The element converted to `dtype`.
    pub fn at_as(&self, dtype: DType, indices: &[Expr]) -> Expr {
        Expr::cast(self.ty.dtype, dtype, self.at(indices))
    }

    /// The element that numpy broadcasting (aligned at the last axis) puts at `indices`.
    pub fn broadcast(&self, dtype: DType, indices: &[Expr]) -> Expr {
        self.at_as(dtype, &broadcast(&self.ty.shape, indices))
    }
}

/// Indices into a tensor of `shape` that is broadcast to a space with these `indices`.
pub fn broadcast(shape: &[usize], indices: &[Expr]) -> Vec<Expr> {
    let skip = indices.len() - shape.len();
    shape
        .iter()
        .zip(&indices[skip..])
        .map(|(&extent, index)| if extent == 1 { Expr::int(0) } else { index.clone() })
        .collect()
}

/// A compute in the making.
pub struct Stages(Compute);

impl Stages {
    /// A compute without stages, and its inputs.
    pub fn new<const N: usize>(inputs: [&TensorType; N]) -> (Stages, [Source; N]) {
        let stages = Stages::of(&inputs);
        let sources = std::array::from_fn(|i| stages.source(i));
        (stages, sources)
    }

    /// As [`Stages::new`] for a number of inputs that only the caller knows; see [`Stages::source`].
    pub fn of(inputs: &[&TensorType]) -> Stages {
        let inputs = inputs.iter().map(|&ty| ty.clone()).collect();
        Stages(Compute { inputs, stages: vec![], outputs: vec![] })
    }

    /// The input of this number, counted from 0.
    pub fn source(&self, input: usize) -> Source {
        Source { buffer: BufId::new(input), ty: self.0.inputs[input].clone() }
    }

    /// Adds a stage without reduction. `body` gets the axes of the result.
    pub fn map(
        &mut self,
        name: &str,
        ty: TensorType,
        body: impl FnOnce(&[Expr]) -> Expr,
    ) -> Source {
        let body = body(&vars(0, ty.rank()));
        self.push(Stage::map(name, ty, body))
    }

    /// `body` gets the spatial axes and the reduction axes.
    pub fn reduce(
        &mut self,
        name: &str,
        combiner: Combiner,
        ty: TensorType,
        extents: &[usize],
        body: impl FnOnce(&[Expr], &[Expr]) -> Expr,
    ) -> Source {
        let body = body(&vars(0, ty.rank()), &vars(ty.rank(), extents.len()));
        self.push(Stage::reduction(name, ty, combiner, extents.to_vec(), body))
    }

    /// Adds a stage that sums `body` up; see [`Stages::reduce`].
    pub fn sum(
        &mut self,
        name: &str,
        ty: TensorType,
        extents: &[usize],
        body: impl FnOnce(&[Expr], &[Expr]) -> Expr,
    ) -> Source {
        self.reduce(name, Combiner::Sum, ty, extents, body)
    }

    /// Input 0 surrounded by `fill` as far as `window` reads; see [`push_pad`].
    pub fn pad(
        &mut self,
        window: &Window<'_>,
        first: usize,
        output: &[usize],
        fill: Scalar,
    ) -> Result<Source, OpError> {
        let buffer = push_pad(&mut self.0, window, first, output, fill)?;
        Ok(Source { buffer, ty: self.0.buffer_type(buffer).clone() })
    }

    /// A copy converted to `dtype`; `source` itself where it has that type already.
    pub fn cast(&mut self, source: Source, dtype: DType) -> Source {
        if source.dtype() == dtype {
            return source;
        }
        let ty = TensorType::new(dtype, source.ty.shape.clone());
        self.map("cast", ty, |i| source.at_as(dtype, i))
    }

    /// The operator whose results are these stages.
    pub fn finish(mut self, kind: Kind, outputs: &[&Source]) -> ComputeOp {
        self.0.outputs = outputs
            .iter()
            .map(|s| self.0.stage_of(s.buffer).expect("outputs are stages"))
            .collect();
        ComputeOp { kind, expr: Arc::new(self.0) }
    }

    fn push(&mut self, stage: Stage) -> Source {
        let ty = stage.ty.clone();
        Source { buffer: self.0.push(stage), ty }
    }
}

fn vars(first: usize, count: usize) -> Vec<Expr> {
    (first..first + count).map(Expr::var).collect()
}

/// A constant of the element type of `dtype`.
pub fn real(dtype: DType, value: impl Into<f64>) -> Expr {
    Expr::float(dtype, value.into())
}
