//! A stage's body as a list of instructions over vector registers.
//!
//! Equal sub-expressions share one instruction. A select computes both sides; loads that bounds
//! cannot prove to be inside their buffer get a [`Inst::Check`] under the conditions of the selects
//! around them, and a load that a false condition guards gives an arbitrary value.

use std::collections::HashMap;

use ansc_runtime::DType;

use super::InterpError;
use super::domain::Affine;
use super::kernels::{accepts_binary, accepts_unary};
use crate::compute::{Combiner, Compute, Stage};
use crate::expr::{BinOp, BufId, Expr, UnOp};
use crate::scalar::Scalar;

/// The index of an instruction, and of the register that it sets.
pub(super) type Reg = usize;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Inst {
    Const(Scalar),
    Index(Affine),
    /// Elements at a flat offset.
    Load(BufId, Offset),
    Unary(UnOp, Reg),
    Binary(BinOp, Reg, Reg),
    Select(Reg, Reg, Reg),
    Cast(Reg),
    /// Fails where `active` and the index of `axis` is not within `buffer`. Sets no register.
    Check {
        buffer: BufId,
        axis: usize,
        index: Reg,
        active: Option<Reg>,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Offset {
    Affine(Affine),
    Computed(Reg),
}

#[derive(Debug)]
pub(super) struct Code {
    pub(super) insts: Vec<Inst>,
    pub(super) dtypes: Vec<DType>,
    /// The variables that an instruction depends on, as bits.
    pub(super) deps: Vec<u64>,
    pub(super) root: Reg,
}

impl Inst {
    /// The registers that are read.
    pub(super) fn operands(&self) -> Vec<Reg> {
        match self {
            Inst::Const(_) | Inst::Index(_) | Inst::Load(_, Offset::Affine(_)) => vec![],
            Inst::Load(_, Offset::Computed(a)) | Inst::Unary(_, a) | Inst::Cast(a) => vec![*a],
            Inst::Binary(_, a, b) => vec![*a, *b],
            Inst::Select(c, a, b) => vec![*c, *a, *b],
            Inst::Check { index, active, .. } => active.iter().copied().chain([*index]).collect(),
        }
    }

    fn own_deps(&self) -> u64 {
        match self {
            Inst::Index(affine) | Inst::Load(_, Offset::Affine(affine)) => {
                affine.terms.iter().fold(0, |deps, (v, _)| deps | 1 << v)
            }
            _ => 0,
        }
    }
}

/// The code of the stage at `index`.
pub(super) fn build(compute: &Compute, index: usize) -> Result<Code, InterpError> {
    let stage = &compute.stages[index];
    let extents = stage.extents();
    if extents.len() > 64 {
        return Err(malformed(stage, "more than 64 axes"));
    }
    let mut builder = Builder {
        compute,
        stage,
        sources: compute.inputs.len() + index,
        extents,
        code: Code { insts: vec![], dtypes: vec![], deps: vec![], root: 0 },
        known: HashMap::new(),
        guards: vec![],
    };
    builder.code.root = builder.expr(&stage.body)?;
    builder.check_result()?;
    Ok(builder.code)
}

fn malformed(stage: &Stage, reason: impl Into<String>) -> InterpError {
    InterpError::Malformed { stage: stage.name.clone(), reason: reason.into() }
}

struct Builder<'a> {
    compute: &'a Compute,
    stage: &'a Stage,
    /// Buffers below this one may be read: inputs and earlier stages.
    sources: usize,
    extents: Vec<usize>,
    code: Code,
    known: HashMap<(Inst, DType), Reg>,
    /// Conditions of the selects around, and which side we are on.
    guards: Vec<(Reg, bool)>,
}

impl Builder<'_> {
    fn emit(&mut self, inst: Inst, dtype: DType) -> Reg {
        if let Some(&reg) = self.known.get(&(inst.clone(), dtype)) {
            return reg;
        }
        let operands = inst.operands().into_iter();
        let deps = operands.fold(inst.own_deps(), |deps, r| deps | self.code.deps[r]);
        self.known.insert((inst.clone(), dtype), self.code.insts.len());
        self.code.insts.push(inst);
        self.code.dtypes.push(dtype);
        self.code.deps.push(deps);
        self.code.insts.len() - 1
    }

    fn error(&self, reason: impl Into<String>) -> InterpError {
        malformed(self.stage, reason)
    }

    fn check_result(&self) -> Result<(), InterpError> {
        let body = self.dtype(self.code.root);
        let arg = matches!(
            self.stage.reduce.as_ref().map(|r| r.combiner),
            Some(Combiner::ArgMax { .. } | Combiner::ArgMin { .. })
        );
        let expected = if arg { DType::I64 } else { body };
        match self.stage.ty.dtype {
            d if d == expected => Ok(()),
            d => Err(self.error(format!("a body of {body} gives {expected}, not {d}"))),
        }
    }

    fn dtype(&self, reg: Reg) -> DType {
        self.code.dtypes[reg]
    }

    fn expr(&mut self, e: &Expr) -> Result<Reg, InterpError> {
        if let Some(affine) = self.affine(e) {
            return Ok(self.emit(Inst::Index(affine), DType::I64));
        }
        match e {
            Expr::Const(s) => Ok(self.emit(Inst::Const(*s), s.dtype())),
            Expr::Var(v) => Err(self.error(format!("{v} is not an axis of the stage"))),
            Expr::Load(buffer, indices) => self.load(*buffer, indices),
            Expr::Unary(op, x) => self.unary(*op, x),
            Expr::Binary(op, a, b) => self.binary(*op, a, b),
            Expr::Select(c, a, b) => self.select(c, a, b),
            Expr::Cast(to, x) => {
                let x = self.expr(x)?;
                Ok(if self.dtype(x) == *to { x } else { self.emit(Inst::Cast(x), *to) })
            }
        }
    }

    fn unary(&mut self, op: UnOp, x: &Expr) -> Result<Reg, InterpError> {
        let x = self.expr(x)?;
        let dtype = self.dtype(x);
        if !accepts_unary(op, dtype) {
            return Err(self.error(format!("{} is not defined for {dtype}", op.name())));
        }
        Ok(self.emit(Inst::Unary(op, x), op.result(dtype)))
    }

    fn binary(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Result<Reg, InterpError> {
        let (a, b) = (self.expr(a)?, self.expr(b)?);
        let dtype = self.dtype(a);
        if dtype != self.dtype(b) {
            let other = self.dtype(b);
            return Err(self.error(format!("{} of {dtype} and {other}", op.name())));
        }
        if !accepts_binary(op, dtype) {
            return Err(self.error(format!("{} is not defined for {dtype}", op.name())));
        }
        Ok(self.emit(Inst::Binary(op, a, b), op.result(dtype)))
    }

    fn select(&mut self, c: &Expr, a: &Expr, b: &Expr) -> Result<Reg, InterpError> {
        let condition = self.expr(c)?;
        if self.dtype(condition) != DType::Bool {
            return Err(self.error("the condition of a select is not a bool"));
        }
        self.guards.push((condition, true));
        let then = self.expr(a);
        self.guards.pop();
        self.guards.push((condition, false));
        let other = self.expr(b);
        self.guards.pop();
        let (then, other) = (then?, other?);
        let dtype = self.dtype(then);
        if dtype != self.dtype(other) {
            return Err(self.error("the sides of a select differ in type"));
        }
        Ok(self.emit(Inst::Select(condition, then, other), dtype))
    }

    fn load(&mut self, buffer: BufId, indices: &[Expr]) -> Result<Reg, InterpError> {
        if buffer.index() >= self.sources {
            return Err(self.error(format!("{buffer} is no input and no earlier stage")));
        }
        let ty = self.compute.buffer_type(buffer).clone();
        if indices.len() != ty.rank() {
            let (found, rank) = (indices.len(), ty.rank());
            return Err(self.error(format!("{found} indices for {buffer} of rank {rank}")));
        }
        let mut offset = Offset::Affine(Affine::default());
        for (axis, index) in indices.iter().enumerate() {
            let stride = ty.shape[axis + 1..].iter().product::<usize>() as i64;
            offset = self.axis(buffer, axis, index, ty.shape[axis], stride, offset)?;
        }
        Ok(self.emit(Inst::Load(buffer, offset), ty.dtype))
    }

    /// Checks the index of one axis and adds it to the offset.
    fn axis(
        &mut self,
        buffer: BufId,
        axis: usize,
        index: &Expr,
        extent: usize,
        stride: i64,
        offset: Offset,
    ) -> Result<Offset, InterpError> {
        let affine = self.affine(index);
        let inside = |(low, high): (i64, i64)| 0 <= low && high < extent as i64;
        let proven = affine.as_ref().and_then(|a| a.range(&self.extents)).is_some_and(inside);
        if !proven {
            let index = self.expr(index)?;
            if self.dtype(index) != DType::I64 {
                return Err(self.error(format!("an index of {buffer} is not an i64")));
            }
            let active = self.active();
            self.emit(Inst::Check { buffer, axis, index, active }, DType::Bool);
        }
        Ok(match (offset, affine) {
            (Offset::Affine(sum), Some(a)) => Offset::Affine(sum.plus(&a.scaled(stride))),
            (sum, _) => {
                let index = self.expr(index)?;
                Offset::Computed(self.add_scaled(sum, index, stride))
            }
        })
    }

    fn add_scaled(&mut self, sum: Offset, index: Reg, stride: i64) -> Reg {
        let stride = self.emit(Inst::Index(Affine::constant(stride)), DType::I64);
        let term = self.emit(Inst::Binary(BinOp::Mul, index, stride), DType::I64);
        let sum = match sum {
            Offset::Affine(a) if a == Affine::default() => return term,
            Offset::Affine(a) => self.emit(Inst::Index(a), DType::I64),
            Offset::Computed(reg) => reg,
        };
        self.emit(Inst::Binary(BinOp::Add, sum, term), DType::I64)
    }

    /// The conjunction of the conditions around.
    fn active(&mut self) -> Option<Reg> {
        let mut active = None;
        for (condition, side) in self.guards.clone() {
            let holds = match side {
                true => condition,
                false => self.emit(Inst::Unary(UnOp::Not, condition), DType::Bool),
            };
            active = Some(match active {
                None => holds,
                Some(outer) => self.emit(Inst::Binary(BinOp::And, outer, holds), DType::Bool),
            });
        }
        active
    }

    /// An `i64` expression that is affine in the axes.
    fn affine(&self, e: &Expr) -> Option<Affine> {
        match e {
            Expr::Const(s) if s.dtype() == DType::I64 => Some(Affine::constant(s.as_i64())),
            Expr::Var(v) if v.index() < self.extents.len() => Some(Affine::var(v.index())),
            Expr::Unary(UnOp::Neg, x) => Some(self.affine(x)?.scaled(-1)),
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.affine(a)?, self.affine(b)?);
                match op {
                    BinOp::Add => Some(a.plus(&b)),
                    BinOp::Sub => Some(a.plus(&b.scaled(-1))),
                    BinOp::Mul if b.terms.is_empty() => Some(a.scaled(b.constant)),
                    BinOp::Mul if a.terms.is_empty() => Some(b.scaled(a.constant)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
