//! Checks of tensor expressions.

use ansc_runtime::DType;

use super::{Problem, Violation};
use crate::arith::{Context, Linear};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BinOp, BufId, Expr, UnOp, VarId};
use crate::interp::kernels::{accepts_binary, accepts_unary};

/// Checks a tensor expression, see the [module](super).
pub fn verify_compute(compute: &Compute) -> Result<(), Vec<Violation>> {
    let mut violations = Vec::new();
    let mut report = |stage: &str, problem| {
        violations.push(Violation { node: String::new(), stage: stage.into(), problem });
    };
    compute.inputs.iter().filter_map(too_large).for_each(|p| report("", p));
    for (index, stage) in compute.stages.iter().enumerate() {
        check_stage(compute, index).into_iter().for_each(|p| report(&stage.name, p));
    }
    for (position, &stage) in compute.outputs.iter().enumerate() {
        if stage >= compute.stages.len() {
            report("", Problem::NoSuchOutput { what: format!("result {position}") });
        }
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

/// The first operation that its element types do not have, if there is one. This is the part of
/// [`verify_compute`] that costs next to nothing.
pub fn ill_typed(compute: &Compute) -> Option<Problem> {
    (0..compute.stages.len()).find_map(|index| type_problems(compute, index).into_iter().next())
}

fn too_large(ty: &TensorType) -> Option<Problem> {
    let fits = ansc_runtime::tensor::byte_len(ty.dtype, &ty.shape).is_some();
    (!fits).then(|| Problem::TooLarge(ty.clone()))
}

fn check_stage(compute: &Compute, index: usize) -> Vec<Problem> {
    let stage = &compute.stages[index];
    let mut problems: Vec<Problem> = too_large(&stage.ty).into_iter().collect();
    let domain = TensorType::new(DType::Bool, stage.extents());
    problems.extend(too_large(&domain).filter(|_| problems.is_empty()));
    problems.extend(type_problems(compute, index));
    // Only what is typed has bounds to speak of.
    if problems.is_empty() && !stage.extents().contains(&0) {
        problems = out_of_bounds(compute, stage);
    }
    problems
}

fn type_problems(compute: &Compute, index: usize) -> Vec<Problem> {
    let stage = &compute.stages[index];
    let (sources, axes) = (compute.inputs.len() + index, stage.extents().len());
    let is_axis = |v: VarId| v.index() < axes;
    let source = |b: BufId| (b.index() < sources).then(|| compute.buffer_type(b));
    let mut types = Types { is_axis: &is_axis, source: &source, problems: vec![] };
    let body = types.of(&stage.body);
    let mut problems = types.problems;
    check_result(stage, body, &mut problems);
    problems
}

/// The type of an expression over variables for which `is_axis` holds, and over the buffers that
/// `source` knows; or the first thing that does not fit.
pub fn type_of<'a>(
    e: &Expr,
    is_axis: &dyn Fn(VarId) -> bool,
    source: &dyn Fn(BufId) -> Option<&'a TensorType>,
) -> Result<DType, Problem> {
    let mut types = Types { is_axis, source, problems: vec![] };
    let found = types.of(e);
    match types.problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(found.expect("a problem is noted where there is no type")),
    }
}

/// Infers types bottom-up and notes what does not fit.
struct Types<'f, 'a> {
    is_axis: &'f dyn Fn(VarId) -> bool,
    source: &'f dyn Fn(BufId) -> Option<&'a TensorType>,
    problems: Vec<Problem>,
}

impl Types<'_, '_> {
    fn note<T>(&mut self, problem: Problem) -> Option<T> {
        self.problems.push(problem);
        None
    }

    /// `None` where a problem below was noted.
    fn of(&mut self, e: &Expr) -> Option<DType> {
        match e {
            Expr::Const(s) => Some(s.dtype()),
            Expr::Var(v) if (self.is_axis)(*v) => Some(DType::I64),
            Expr::Var(v) => self.note(Problem::NoSuchAxis(*v)),
            Expr::Load(buffer, indices) => self.load(*buffer, indices),
            Expr::Unary(op, x) => {
                let x = self.of(x)?;
                self.unary(*op, x)
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.of(a), self.of(b));
                self.binary(*op, a?, b?)
            }
            Expr::Select(c, a, b) => {
                let (c, a, b) = (self.of(c), self.of(a), self.of(b));
                self.select(c?, a?, b?)
            }
            Expr::Cast(to, x) => self.of(x).map(|_| *to),
        }
    }

    fn unary(&mut self, op: UnOp, dtype: DType) -> Option<DType> {
        match accepts_unary(op, dtype) {
            true => Some(op.result(dtype)),
            false => self.note(Problem::Undefined { op: op.name(), dtype }),
        }
    }

    fn binary(&mut self, op: BinOp, a: DType, b: DType) -> Option<DType> {
        if a != b {
            return self.note(Problem::Operands { op: op.name(), a, b });
        }
        match accepts_binary(op, a) {
            true => Some(op.result(a)),
            false => self.note(Problem::Undefined { op: op.name(), dtype: a }),
        }
    }

    fn select(&mut self, c: DType, a: DType, b: DType) -> Option<DType> {
        if c != DType::Bool {
            return self.note(Problem::Condition(c));
        }
        if a != b {
            return self.note(Problem::Operands { op: "select", a, b });
        }
        Some(a)
    }

    fn load(&mut self, buffer: BufId, indices: &[Expr]) -> Option<DType> {
        let Some(ty) = (self.source)(buffer) else {
            return self.note(Problem::NoSuchBuffer(buffer));
        };
        if indices.len() != ty.rank() {
            return self.note(Problem::Rank { buffer, rank: ty.rank(), found: indices.len() });
        }
        for index in indices {
            match self.of(index)? {
                DType::I64 => {}
                found => return self.note(Problem::IndexType { buffer, found }),
            }
        }
        Some(ty.dtype)
    }
}

/// The body has the type of the stage.
fn check_result(stage: &Stage, body: Option<DType>, problems: &mut Vec<Problem>) {
    let expected = stage.ty.dtype;
    let reduce = stage.reduce.as_ref();
    let arg =
        reduce.filter(|r| matches!(r.combiner, Combiner::ArgMax { .. } | Combiner::ArgMin { .. }));
    let found = if arg.is_some() { body.map(|_| DType::I64) } else { body };
    if let Some(found) = found.filter(|f| *f != expected) {
        problems.push(Problem::Body { expected, found });
    }
    if arg.is_some_and(|r| r.extents.contains(&0)) {
        problems.push(Problem::EmptyArg);
    }
}

/// Indices that are certainly outside of their buffer at some point of the stage.
fn out_of_bounds(compute: &Compute, stage: &Stage) -> Vec<Problem> {
    let extents = stage.extents();
    let ranges = |v: VarId| extents.get(v.index()).map(|&e| (0, e as i64 - 1));
    let context = Context::new(&ranges);
    let mut problems = Vec::new();
    walk(&stage.body, false, &mut |guarded, buffer, indices| {
        let shape = &compute.buffer_type(buffer).shape;
        for (axis, (index, &extent)) in indices.iter().zip(shape).enumerate() {
            if let Some((low, high)) = outside(&context, index, extent, guarded) {
                problems.push(Problem::OutOfBounds { buffer, axis, low, high, extent });
            }
        }
    });
    problems
}

/// Calls `f` on each load, and whether a select guards it.
fn walk<'a>(e: &'a Expr, guarded: bool, f: &mut impl FnMut(bool, BufId, &'a [Expr])) {
    match e {
        Expr::Load(buffer, indices) => {
            f(guarded, *buffer, indices);
            indices.iter().for_each(|i| walk(i, guarded, f));
        }
        Expr::Select(c, a, b) => {
            walk(c, guarded, f);
            walk(a, true, f);
            walk(b, true, f);
        }
        _ => e.children().into_iter().for_each(|child| walk(child, guarded, f)),
    }
}

/// The bounds of an index, if it certainly leaves `0..extent`: one side of the range of an affine
/// index is always reached, and a range that is outside altogether is left by every point.
fn outside(
    context: &Context<'_>,
    index: &Expr,
    extent: usize,
    guarded: bool,
) -> Option<(i64, i64)> {
    let (low, high) = context.bounds(index).filter(|_| !guarded)?;
    let last = i64::try_from(extent).ok()? - 1;
    let affine = Linear::from_expr(index).terms().iter().all(|(t, _)| matches!(t, Expr::Var(_)));
    let leaves = if affine { low < 0 || high > last } else { high < 0 || low > last };
    leaves.then_some((low, high))
}
