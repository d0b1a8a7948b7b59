//! Operators as tensor expressions.
//!
//! A [`Compute`] is a list of stages in order of dependence. Each stage fills one tensor: at every
//! point of its spatial axes it evaluates `body`, or combines `body` over its reduction axes.
//!
//! ```text
//! compute(in0: f32[4, 8], in1: f32[8, 6]) -> mm {
//!   mm: f32[4, 6] = sum{r0: 8} mul(in0[i0, r0], in1[r0, i1])
//! }
//! ```

use ansc_runtime::{DType, Tensor};

use crate::expr::{BinOp, BufId, Expr};
use crate::scalar::Scalar;

/// Element type and static shape of a tensor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorType {
    /// The type of each element.
    pub dtype: DType,
    /// Extents, the outermost axis first; empty for a scalar.
    pub shape: Vec<usize>,
}

impl TensorType {
    /// A type of these extents, which are not checked.
    pub fn new(dtype: DType, shape: impl Into<Vec<usize>>) -> TensorType {
        TensorType { dtype, shape: shape.into() }
    }

    /// The type of a tensor that exists.
    pub fn of(tensor: &Tensor) -> TensorType {
        TensorType::new(tensor.dtype(), tensor.shape())
    }

    /// The number of axes; 0 for a scalar.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements. Importers admit only shapes whose size in bytes fits `isize`.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether an extent is 0, so that there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all elements, packed densely.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.size()
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// Stages over inputs; loads name inputs first (`b0..`), then stages (`b{inputs.len()}..`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Compute {
    /// Types of what the expression reads; loads call them `b0`, `b1` and so on.
    pub inputs: Vec<TensorType>,
    /// In order of dependence: a stage loads inputs and earlier stages only.
    pub stages: Vec<Stage>,
    /// Indices of the stages that are results, in order.
    pub outputs: Vec<usize>,
}

/// One tensor, element by element. Variables `v0..` are the spatial axes, then the reduction axes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stage {
    /// A short name that texts and programs show; it need not be unique.
    pub name: String,
    /// Type and shape of the tensor that the stage fills.
    pub ty: TensorType,
    /// The axes that are summed over or the like; `None` if each element is `body` alone.
    pub reduce: Option<Reduce>,
    /// The element, or the term of a reduction, at one point of all axes.
    pub body: Expr,
}

/// The part of a stage that makes one element of many terms.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    /// How two terms become one.
    pub combiner: Combiner,
    /// Extents of the reduction axes; their variables follow the spatial ones.
    pub extents: Vec<usize>,
}

/// How a reduction combines its terms, in row-major order of the reduction axes.
///
/// `ArgMax`/`ArgMin` reduce a pair (value, position): the stage's result is the `i64` row-major
/// position of the extreme term in the reduction domain; the body is the value. Ties go to the
/// first position, or to the last where `last` is set. NaN terms win over all others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Combiner {
    /// Adds the terms.
    Sum,
    /// Multiplies the terms.
    Prod,
    /// Keeps the largest term.
    Max,
    /// Keeps the smallest term.
    Min,
    /// Keeps the position of the largest term.
    ArgMax {
        /// Whether the last of equal terms wins, or else the first.
        last: bool,
    },
    /// Keeps the position of the smallest term.
    ArgMin {
        /// Whether the last of equal terms wins, or else the first.
        last: bool,
    },
}

impl Combiner {
    /// The result of combining nothing; `None` for `ArgMax` and `ArgMin`.
    pub fn identity(self, dtype: DType) -> Option<Scalar> {
        match self {
            Combiner::Sum => Some(Scalar::zero(dtype)),
            Combiner::Prod => Some(Scalar::one(dtype)),
            Combiner::Max => Some(Scalar::lowest(dtype)),
            Combiner::Min => Some(Scalar::highest(dtype)),
            Combiner::ArgMax { .. } | Combiner::ArgMin { .. } => None,
        }
    }
}

impl Stage {
    /// A stage without reduction: each element is `body`.
    pub fn map(name: &str, ty: TensorType, body: Expr) -> Stage {
        Stage { name: name.into(), ty, reduce: None, body }
    }

    /// A stage whose elements combine `body` over axes of these `extents`.
    pub fn reduction(
        name: &str,
        ty: TensorType,
        combiner: Combiner,
        extents: Vec<usize>,
        body: Expr,
    ) -> Stage {
        Stage { name: name.into(), ty, reduce: Some(Reduce { combiner, extents }), body }
    }

    /// Extents of all axes, spatial then reduction: the range of each variable of the body.
    pub fn extents(&self) -> Vec<usize> {
        let mut extents = self.ty.shape.clone();
        extents.extend(self.reduce.iter().flat_map(|r| r.extents.iter().copied()));
        extents
    }
}

impl Compute {
    /// The usual case: one stage, one result.
    pub fn single(inputs: Vec<TensorType>, stage: Stage) -> Compute {
        Compute { inputs, stages: vec![stage], outputs: vec![0] }
    }

    /// The id by which later stages load the stage at `index`.
    pub fn stage_buffer(&self, index: usize) -> BufId {
        BufId::new(self.inputs.len() + index)
    }

    /// The stage that `buffer` names, or `None` if it is an input.
    pub fn stage_of(&self, buffer: BufId) -> Option<usize> {
        buffer.index().checked_sub(self.inputs.len())
    }

    /// The type of an input or stage as loads name it.
    pub fn buffer_type(&self, buffer: BufId) -> &TensorType {
        match self.stage_of(buffer) {
            None => &self.inputs[buffer.index()],
            Some(stage) => &self.stages[stage].ty,
        }
    }

    /// Whether it is one sum of products of its two inputs, as they are or widened.
    pub(crate) fn is_sum_of_products(&self) -> bool {
        let [Stage { reduce: Some(reduce), body: Expr::Binary(BinOp::Mul, a, b), .. }] =
            self.stages.as_slice()
        else {
            return false;
        };
        let is_of = |e: &Expr, input: usize| match e {
            Expr::Cast(DType::F32, x) => matches!(**x, Expr::Load(b, _) if b.index() == input),
            _ => matches!(e, Expr::Load(b, _) if b.index() == input),
        };
        reduce.combiner == Combiner::Sum
            && (is_of(a, 0) && is_of(b, 1) || is_of(a, 1) && is_of(b, 0))
    }

    /// Types of the results, in order.
    pub fn output_types(&self) -> Vec<TensorType> {
        self.outputs.iter().map(|&s| self.stages[s].ty.clone()).collect()
    }

    /// The same stages in another order, in which each comes after those that it reads.
    pub fn in_order(&self, order: &[usize]) -> Compute {
        let place = |stage: usize| order.iter().position(|s| *s == stage).expect("every stage");
        let mut moved = |e: &Expr| match e {
            Expr::Load(b, at) => {
                Some(Expr::Load(self.stage_buffer(place(self.stage_of(*b)?)), at.clone()))
            }
            _ => None,
        };
        let mut stage = |s: &usize| {
            let stage = &self.stages[*s];
            Stage { body: stage.body.rewrite(&mut moved), ..stage.clone() }
        };
        Compute {
            inputs: self.inputs.clone(),
            stages: order.iter().map(&mut stage).collect(),
            outputs: self.outputs.iter().map(|s| place(*s)).collect(),
        }
    }

    /// Appends a stage and returns the id that loads it.
    pub fn push(&mut self, stage: Stage) -> BufId {
        self.stages.push(stage);
        self.stage_buffer(self.stages.len() - 1)
    }
}
