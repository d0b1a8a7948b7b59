//! Expressions that depend on sizes.
//!
//! In: an expression for the largest sizes, and the formulas of its numbers. Out: one for all
//! sizes, which leaves out the terms of reductions that smaller sizes have not.
//!
//! ```text
//! m: f32[] = sum{r0: 8} x[r0] * 0.125   ->   m: f32[] = sum{r0: 8} select(r0 < s, x[r0] / s, 0)
//! ```
//!
//! Where the expression has another form at some sizes, as one of an axis with one element may
//! have, these sizes tell nothing about its constants. The formulas that the others give have to
//! make the very expression that is there: `x[i0 % s, i0 / s]` is `x[0, i0]` for `s = 1`.

use std::sync::Arc;

use ansc_runtime::DType;

use super::build::{Build, Formulas};
use super::formula::{number, slots, used};
use super::look::Seen;
use super::numbers::{before_body, constants, of_terms, replaced};
use super::{Unfit, beyond};
use crate::arith::{self, Context};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BufId, Expr, VarId};
use crate::graph::{NodeId, ValueId};
use crate::op::{ComputeOp, Kind};
use crate::passes::rewrite;
use crate::scalar::Scalar;

impl Build {
    pub(super) fn compute(
        &mut self,
        seen: &Seen,
        op: &ComputeOp,
        formulas: &Formulas,
    ) -> Result<(), Unfit> {
        let node = seen.node;
        let expr = &op.expr;
        if let Some(fill) = beyond(&op.kind) {
            return self.windows(node, op, fill, formulas);
        }
        let gives = |(sample, other): &(usize, Arc<Compute>)| {
            self.gives(expr, formulas, &self.samples[*sample], other)
        };
        if !seen.others.iter().all(gives) {
            return Err(self.unfit(node, "it is computed in another way for some of the sizes"));
        }
        for (out, &stage) in expr.outputs.iter().enumerate() {
            let from = before_body(expr, stage) - expr.stages[stage].extents().len();
            self.note_value(ValueId { node, out: out as u32 }, from, formulas)?;
        }
        let part = |stage: usize| before_body(expr, stage);
        let varies =
            |from: usize, count: usize| (from..from + count).any(|k| formulas.contains_key(&k));
        let stages = expr.stages.iter().enumerate();
        let body_varies = stages.clone().any(|(i, stage)| varies(part(i), constants(&stage.body)));
        let terms_vary = stages.clone().any(|(i, stage)| {
            let terms = stage.reduce.as_ref().map_or(0, |r| r.extents.len());
            varies(part(i) - terms, terms)
        });
        if !body_varies && !terms_vary {
            return Ok(());
        }
        let zeros = if body_varies { None } else { self.zeros_for(node, op) };
        let Some(axes) = zeros else { return self.general(node, op, formulas) };
        let operands = self.graph.operands(node).into_iter().zip(&axes);
        let operands: Vec<ValueId> =
            operands.map(|(v, axes)| self.mask(v, axes, Scalar::zero)).collect();
        self.graph.set_operands(node, &operands);
        Ok(())
    }

    /// Whether an expression with these formulas is `other` at these sizes.
    pub(super) fn gives(
        &self,
        expr: &Compute,
        formulas: &Formulas,
        sizes: &[usize],
        other: &Compute,
    ) -> bool {
        expr.stages.iter().zip(&other.stages).enumerate().all(|(index, (stage, other_stage))| {
            let mut k = before_body(expr, index);
            let mut all_known = true;
            let mut with = |scalar: Scalar| {
                k += 1;
                let number = formulas.get(&(k - 1))?.at(sizes, scalar.dtype());
                all_known &= number.is_some();
                number.map(Expr::Const)
            };
            let body = replaced(&stage.body, &mut with, &|_, _, index| index);
            let extents = other_stage.extents();
            let ranges = |v: VarId| extents.get(v.index()).map(|&e| (0, e as i64 - 1));
            let types = |b: BufId| expr.buffer_type(b).dtype;
            let simple = |body: &Expr| {
                let one = |v: VarId| (extents.get(v.index()) == Some(&1)).then(|| Expr::int(0));
                Context::new(&ranges).with_buffers(&types).simplify(&body.substitute(&one))
            };
            let same = || simple(&body) == simple(&other_stage.body);
            all_known && (extents.contains(&0) || same())
        })
    }

    /// An operator of windows finds beyond the extents of its operand what is beyond its buffer.
    fn windows(
        &mut self,
        node: NodeId,
        op: &ComputeOp,
        fill: fn(DType) -> Scalar,
        formulas: &Formulas,
    ) -> Result<(), Unfit> {
        let from = op.expr.inputs.iter().map(TensorType::rank).sum::<usize>();
        self.note_value(ValueId { node, out: 0 }, from, formulas)?;
        let terms = from + op.expr.output_types()[0].rank();
        let terms_vary = formulas.range(terms..).next().is_some();
        let mut operands = self.graph.operands(node);
        let rank = self.graph.ty(operands[0]).rank();
        let mut axes = self.varying_axes(operands[0]);
        let channels = match &op.kind {
            Kind::Conv(attrs) => attrs.input,
            Kind::Pool(attrs) => attrs.channels,
            _ => unreachable!("other kinds have no windows"),
        };
        let weights_vary = operands[1..].iter().any(|v| self.extents.contains_key(v));
        let is_conv = matches!(op.kind, Kind::Conv(_));
        if terms_vary || weights_vary || is_conv && axes.contains(&channels.axis(rank)) {
            return Err(self.unfit(node, "its windows or its channels vary"));
        }
        axes.retain(|axis| *axis != 0 && *axis != channels.axis(rank));
        operands[0] = self.mask(operands[0], &axes, fill);
        self.graph.set_operands(node, &operands);
        Ok(())
    }

    /// For each operand of a product, the axes along which it has to be zero beyond its extent, so
    /// that the expression for the largest sizes gives all results.
    fn zeros_for(&self, node: NodeId, op: &ComputeOp) -> Option<Vec<Vec<usize>>> {
        if !op.expr.is_sum_of_products() {
            return None;
        }
        let operands = self.graph.operands(node);
        let stage = &op.expr.stages[0];
        let axes = |slot: usize| -> Option<Vec<usize>> {
            let loads = stage.body.loads();
            let (_, at) = loads.iter().find(|(b, _)| b.index() == slot)?;
            let mut axes = self.varying_axes(operands[slot]);
            let is_plain = |axis: &usize| matches!(at[*axis], Expr::Var(_) | Expr::Const(_));
            if !axes.iter().all(is_plain) {
                return None;
            }
            axes.retain(|axis| at[*axis].vars().iter().any(|v| v.index() >= stage.ty.rank()));
            Some(axes)
        };
        Some(vec![axes(0)?, axes(1)?])
    }

    /// Any other expression, with formulas in place of its numbers.
    fn general(&mut self, node: NodeId, op: &ComputeOp, formulas: &Formulas) -> Result<(), Unfit> {
        let expr = &op.expr;
        let own = expr.inputs.len();
        // Extents of results are no part of them.
        let parts = (0..expr.stages.len()).flat_map(|index| of_terms(expr, index));
        let sizes = used(parts.filter_map(|k| formulas.get(&k)).map(|formula| formula.extent()));
        let slots = slots(&sizes, own);
        let mut new = Compute { stages: vec![], ..(**expr).clone() };
        new.inputs.extend(sizes.iter().map(|_| TensorType::new(DType::I64, [])));
        for (index, stage) in expr.stages.iter().enumerate() {
            let moved = Moved { expr, stage, added: sizes.len() };
            let from = before_body(expr, index);
            let mut k = from;
            let mut with = |scalar: Scalar| {
                k += 1;
                let formula = formulas.get(&(k - 1))?;
                Some(number(formula, scalar.dtype(), &slots))
            };
            let at = |buffer: BufId, axis: usize, index: Expr| moved.inside(buffer, axis, index);
            let mut body = replaced(&moved.body(), &mut with, &at);
            let terms = stage.reduce.as_ref().map_or(0, |r| r.extents.len());
            let varying: Vec<usize> =
                (0..terms).filter(|t| formulas.contains_key(&(from - terms + t))).collect();
            if !varying.is_empty() {
                let rank = stage.ty.rank();
                let inside = varying.iter().map(|t| {
                    let extent = number(&formulas[&(from - terms + t)], DType::I64, &slots);
                    Expr::var(rank + t).lt(extent)
                });
                let inside = inside.reduce(Expr::and).expect("there is one");
                let neutral = self.neutral(node, stage, &varying, expr)?;
                body = Expr::select(inside, body, Expr::Const(neutral));
            }
            new.stages.push(Stage { body, ..stage.clone() });
        }
        let mut operands = self.graph.operands(node);
        operands.extend(sizes.iter().map(|&s| self.sizes[s]));
        let kind = match &op.kind {
            Kind::Map => Kind::Map,
            Kind::Other(name) => Kind::Other(name.clone()),
            kind => {
                let text = kind.to_string();
                let is_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
                Kind::Other(text.chars().take_while(is_name).collect())
            }
        };
        rewrite::set_op(&mut self.graph, node, ComputeOp { kind, expr: Arc::new(new) }, &operands);
        Ok(())
    }

    /// The term that changes nothing.
    fn neutral(
        &self,
        node: NodeId,
        stage: &Stage,
        varying: &[usize],
        expr: &Compute,
    ) -> Result<Scalar, Unfit> {
        let reduce = stage.reduce.as_ref().expect("terms are of a reduction");
        let dtype = stage.body.dtype(&|b| expr.buffer_type(b).dtype);
        let first = match reduce.combiner {
            Combiner::ArgMax { last: false } => Scalar::lowest(dtype),
            Combiner::ArgMin { last: false } => Scalar::highest(dtype),
            other => match other.identity(dtype) {
                Some(identity) => return Ok(identity),
                None => return Err(self.unfit(node, "it looks for the last of equal elements")),
            },
        };
        match varying {
            // Positions count terms row by row.
            [0] => Ok(first),
            _ => Err(self.unfit(node, "it gives positions in a box whose sizes vary")),
        }
    }
}

/// A stage whose expression gets further inputs.
struct Moved<'a> {
    expr: &'a Compute,
    stage: &'a Stage,
    added: usize,
}

impl Moved<'_> {
    /// The body as it reads stages that come after the inputs that were added.
    fn body(&self) -> Expr {
        let own = self.expr.inputs.len();
        self.stage.body.rewrite(&mut |e| match e {
            Expr::Load(b, at) if b.index() >= own => {
                Some(Expr::Load(BufId::new(b.index() + self.added), at.clone()))
            }
            _ => None,
        })
    }

    /// An index that stays within the buffer at any point of the stage.
    fn inside(&self, buffer: BufId, axis: usize, index: Expr) -> Expr {
        let is_input = buffer.index() < self.expr.inputs.len();
        let before = if is_input { buffer.index() } else { buffer.index() - self.added };
        let last = self.expr.buffer_type(BufId::new(before)).shape[axis] as i64 - 1;
        let extents = self.stage.extents();
        let ranges = |v: VarId| extents.get(v.index()).map(|&e| (0, e as i64 - 1));
        match arith::bounds(&index, &ranges) {
            Some((low, high)) if low >= 0 && high <= last => index,
            _ => index.max(Expr::int(0)).min(Expr::int(last)),
        }
    }
}
