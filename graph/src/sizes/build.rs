//! The graph for all sizes, from that for the largest ones and what differs at others.
//!
//! In: a [`Look`] at the model. Out: a [`Ranged`]. A number that differs becomes an expression of the
//! sizes. Where a reduction has fewer terms at smaller sizes, a condition leaves out the others;
//! products and convolutions stay what they are, and find zeros there.
//!
//! ```text
//! sum{r0: 8} a[i0, r0] * b[r0, i1]   ->   the same of select(i1 < s, a, 0) and select(i0 < s, b, 0)
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ansc_runtime::host::HostOp;
use ansc_runtime::{DType, Extent};

use super::constants::{Rule, rule};
use super::fit::Fit;
use super::look::{Look, Seen};
use super::numbers::{before_body, constants, replaced};
use super::{Range, Ranged, Unfit, beyond};
use crate::arith;
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BufId, Expr, VarId};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind, Op};
use crate::ops::map::broadcast_indices;
use crate::passes::rewrite;
use crate::scalar::Scalar;

/// A number of an expression, as a function of sizes.
#[derive(Clone)]
enum Formula {
    Whole(Extent),
    /// One by it.
    Reciprocal(Extent),
}

pub(super) fn build(look: Look, samples: &[Vec<usize>], ranges: &[Range]) -> Result<Ranged, Unfit> {
    let Look { mut graph, nodes, .. } = look;
    let inputs = graph.inputs().to_vec();
    let outputs = graph.outputs.clone();
    let scalar = || TensorType::new(DType::I64, []);
    let sizes = ranges.iter().map(|range| graph.add_input(&range.name, scalar(), None)).collect();
    let fit = Fit { samples };
    let mut build = Build { graph, fit, sizes, extents: HashMap::new(), masked: HashMap::new() };
    for seen in &nodes {
        build.node(seen)?;
    }
    let extents = |build: &Build, value: ValueId| {
        let shape = build.graph.ty(value).shape.iter();
        let fixed = || shape.map(|e| Extent::Constant(*e as i64)).collect();
        build.extents.get(&value).cloned().unwrap_or_else(fixed)
    };
    Ok(Ranged {
        inputs: inputs.iter().map(|&node| extents(&build, ValueId { node, out: 0 })).collect(),
        outputs: outputs.iter().map(|(_, value)| extents(&build, *value)).collect(),
        graph: build.graph,
    })
}

struct Build<'a> {
    graph: Graph,
    fit: Fit<'a>,
    /// The inputs that tell the sizes.
    sizes: Vec<ValueId>,
    /// The extents of values that are not the same at all sizes; as the values were at first.
    extents: HashMap<ValueId, Vec<Extent>>,
    /// Values with the same number along axes beyond their extents.
    masked: HashMap<(ValueId, Vec<usize>, Scalar), ValueId>,
}

impl Build<'_> {
    fn node(&mut self, seen: &Seen) -> Result<(), Unfit> {
        let node = seen.node;
        if seen.varying.is_empty() && seen.tensors.is_none() {
            return self.same(node);
        }
        let formulas = seen
            .varying
            .iter()
            .map(|(k, values)| Ok((*k, self.formula(node, values)?)))
            .collect::<Result<BTreeMap<usize, Formula>, Unfit>>()?;
        match self.graph.node(node).op.clone() {
            Op::Input { .. } => {
                self.note(node, 0, &formulas);
                Ok(())
            }
            Op::Const(_) => self.constant(seen, &formulas),
            Op::Compute(op) => self.compute(seen, &op, &formulas),
            Op::Host(_) | Op::If(_) | Op::Loop(_) => Err(self.unfit(
                node,
                "the runtime does it, and it has to know the sizes of its results when compiling",
            )),
        }
    }

    /// A node that is the same at all sizes.
    fn same(&mut self, node: NodeId) -> Result<(), Unfit> {
        let operands = self.graph.operands(node);
        let varies = |v: &ValueId| self.extents.contains_key(v);
        match &self.graph.node(node).op {
            Op::Host(HostOp::CheckIndices { .. }) if varies(&operands[0]) => {
                let indices = self.mask(operands[0], &self.varying_axes(operands[0]), Scalar::zero);
                self.graph.set_operands(node, &[indices]);
                Ok(())
            }
            Op::Host(_) | Op::If(_) | Op::Loop(_) if operands.iter().any(varies) => Err(self.unfit(
                node,
                "the runtime does it, and it has to know the sizes of its operands when compiling",
            )),
            _ => Ok(()),
        }
    }

    fn unfit(&self, node: NodeId, reason: &str) -> Unfit {
        Unfit { node: self.graph.node(node).name.clone(), reason: reason.into() }
    }

    fn formula(&self, node: NodeId, values: &[Scalar]) -> Result<Formula, Unfit> {
        let whole = |values: &mut dyn Iterator<Item = f64>| -> Option<Vec<i64>> {
            values.map(|v| (v == v.trunc() && v.abs() < 1e15).then_some(v as i64)).collect()
        };
        let dtype = values[0].dtype();
        let known = if dtype.is_float() {
            whole(&mut values.iter().map(|v| v.as_f64()))
        } else {
            Some(values.iter().map(|v| v.as_i64()).collect())
        };
        if let Some(extent) = known.and_then(|known| self.fit.of(&known)) {
            return Ok(Formula::Whole(extent));
        }
        let reciprocals: Vec<f64> = values.iter().map(|v| (1.0 / v.as_f64()).round()).collect();
        let exact = |(v, r): (&Scalar, &f64)| *v == Scalar::from_f64(dtype, 1.0 / r);
        if dtype.is_float() && values.iter().zip(&reciprocals).all(exact) {
            let known = whole(&mut reciprocals.iter().copied());
            if let Some(extent) = known.and_then(|known| self.fit.of(&known)) {
                return Ok(Formula::Reciprocal(extent));
            }
        }
        let mut examples: Vec<String> = vec![];
        for (sizes, value) in self.fit.samples.iter().zip(values).take(4) {
            examples.push(format!("{value} at {sizes:?}"));
        }
        let reason = format!(
            "a number of its expression follows the sizes by no rule that is known: {}, ..",
            examples.join(", ")
        );
        Err(self.unfit(node, &reason))
    }

    /// Notes the extents of the only value of a node, whose numbers begin at `from`.
    fn note(&mut self, node: NodeId, from: usize, formulas: &BTreeMap<usize, Formula>) {
        self.note_value(ValueId { node, out: 0 }, from, formulas);
    }

    fn note_value(&mut self, value: ValueId, from: usize, formulas: &BTreeMap<usize, Formula>) {
        let shape = self.graph.ty(value).shape.clone();
        let extents: Vec<Extent> = shape
            .iter()
            .enumerate()
            .map(|(axis, e)| match formulas.get(&(from + axis)) {
                Some(Formula::Whole(extent)) => extent.clone(),
                _ => Extent::Constant(*e as i64),
            })
            .collect();
        if extents.iter().any(|extent| !extent.is_constant()) {
            self.extents.insert(value, extents);
        }
    }

    fn varying_axes(&self, value: ValueId) -> Vec<usize> {
        let extents = self.extents.get(&value).map_or(&[][..], |e| e);
        (0..extents.len()).filter(|&axis| !extents[axis].is_constant()).collect()
    }

    fn constant(&mut self, seen: &Seen, formulas: &BTreeMap<usize, Formula>) -> Result<(), Unfit> {
        let node = seen.node;
        self.note(node, 0, formulas);
        let Some(tensors) = &seen.tensors else { return Ok(()) };
        let old = ValueId { node, out: 0 };
        let ty = self.graph.ty(old).clone();
        let axes: Vec<Expr> = (0..ty.rank()).map(Expr::var).collect();
        let (reads, extents) = match rule(tensors, &self.fit) {
            Some(Rule::Part) => return Ok(()),
            Some(Rule::Shifted(by)) => (true, vec![by]),
            Some(Rule::Each(each)) => (false, each),
            None => return Err(self.unfit(node, "a constant is another one at each size")),
        };
        let own = usize::from(reads);
        let sizes = used(extents.iter());
        let mut numbers = extents
            .iter()
            .map(|e| Expr::cast(DType::I64, ty.dtype, expression(e, &slots(&sizes, own))));
        let body = if reads {
            Expr::load(0, axes) + numbers.next().expect("a shift is one number")
        } else {
            let flat = crate::flat::flattened(&axes, &ty.shape);
            let last = numbers.next_back().unwrap_or_else(|| Expr::Const(Scalar::zero(ty.dtype)));
            numbers.enumerate().fold(last, |rest, (i, number)| {
                Expr::select(flat.clone().eq(Expr::index(i)), number, rest)
            })
        };
        let inputs: Vec<ValueId> =
            reads.then_some(old).into_iter().chain(sizes.iter().map(|&s| self.sizes[s])).collect();
        let types = inputs.iter().map(|v| self.graph.ty(*v).clone()).collect();
        let expr = Compute::single(types, Stage::map("of_sizes", ty, body));
        let op = ComputeOp { kind: Kind::Other("of_sizes".into()), expr: Arc::new(expr) };
        let name = self.graph.node(node).name.clone();
        self.supersede(old, &name, op, &inputs);
        Ok(())
    }

    /// Adds a node that all readers of `old` but itself read in its place.
    fn supersede(&mut self, old: ValueId, name: &str, op: ComputeOp, inputs: &[ValueId]) {
        let users = self.graph.users(old);
        let is_output = self.graph.is_output(old);
        let new = rewrite::add(&mut self.graph, name, op, inputs);
        for (user, slot) in users {
            let mut operands = self.graph.operands(user);
            operands[slot as usize] = new;
            self.graph.set_operands(user, &operands);
        }
        if is_output {
            let outputs = self.graph.outputs.iter_mut().filter(|(_, v)| *v == old);
            outputs.for_each(|(_, v)| *v = new);
        }
        if let Some(extents) = self.extents.get(&old).cloned() {
            self.extents.insert(new, extents);
        }
    }

    fn compute(
        &mut self,
        seen: &Seen,
        op: &ComputeOp,
        formulas: &BTreeMap<usize, Formula>,
    ) -> Result<(), Unfit> {
        let node = seen.node;
        let expr = &op.expr;
        if let Some(fill) = beyond(&op.kind) {
            return self.windows(node, op, fill, formulas);
        }
        for (out, &stage) in expr.outputs.iter().enumerate() {
            let from = before_body(expr, stage) - expr.stages[stage].extents().len();
            self.note_value(ValueId { node, out: out as u32 }, from, formulas);
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

    /// An operator of windows finds beyond the extents of its operand what is beyond its buffer.
    fn windows(
        &mut self,
        node: NodeId,
        op: &ComputeOp,
        fill: fn(DType) -> Scalar,
        formulas: &BTreeMap<usize, Formula>,
    ) -> Result<(), Unfit> {
        let from = op.expr.inputs.iter().map(TensorType::rank).sum::<usize>();
        self.note_value(ValueId { node, out: 0 }, from, formulas);
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

    /// The value with `fill` beyond its extents along these axes.
    fn mask(&mut self, value: ValueId, axes: &[usize], fill: fn(DType) -> Scalar) -> ValueId {
        if axes.is_empty() {
            return value;
        }
        let ty = self.graph.ty(value).clone();
        let fill = fill(ty.dtype);
        let key = (value, axes.to_vec(), fill);
        if let Some(known) = self.masked.get(&key) {
            return *known;
        }
        let extents: Vec<Extent> = axes.iter().map(|a| self.extents[&value][*a].clone()).collect();
        let sizes = used(extents.iter());
        let inside = axes
            .iter()
            .zip(&extents)
            .map(|(axis, extent)| Expr::var(*axis).lt(expression(extent, &slots(&sizes, 1))));
        let inside = inside.reduce(Expr::and).expect("there is an axis");
        let own = Expr::load(0, broadcast_indices(&ty.shape, ty.rank()));
        let body = Expr::select(inside, own, Expr::Const(fill));
        let inputs: Vec<ValueId> =
            std::iter::once(value).chain(sizes.iter().map(|&s| self.sizes[s])).collect();
        let types = inputs.iter().map(|v| self.graph.ty(*v).clone()).collect();
        let expr = Compute::single(types, Stage::map("inside", ty, body));
        let op = ComputeOp { kind: Kind::Map, expr: Arc::new(expr) };
        let name = self.graph.node(value.node).name.clone();
        let new = rewrite::add(&mut self.graph, &name, op, &inputs);
        self.masked.insert(key, new);
        new
    }

    /// Any other expression, with formulas in place of its numbers.
    fn general(
        &mut self,
        node: NodeId,
        op: &ComputeOp,
        formulas: &BTreeMap<usize, Formula>,
    ) -> Result<(), Unfit> {
        let expr = &op.expr;
        let own = expr.inputs.len();
        let needed = formulas.values().map(|(Formula::Whole(e) | Formula::Reciprocal(e))| e);
        let sizes = used(needed);
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

/// The sizes that extents depend on.
fn used<'e>(extents: impl Iterator<Item = &'e Extent>) -> Vec<usize> {
    fn add(extent: &Extent, all: &mut BTreeSet<usize>) {
        match extent {
            Extent::Constant(_) => {}
            Extent::Size(i) => {
                all.insert(*i as usize);
            }
            Extent::Sum(parts) | Extent::Product(parts) => parts.iter().for_each(|p| add(p, all)),
            Extent::Floor(of, _) => add(of, all),
        }
    }
    let mut all = BTreeSet::new();
    extents.for_each(|extent| add(extent, &mut all));
    all.into_iter().collect()
}

/// The buffer that holds each size, where those that are used come after `own` others.
fn slots(used: &[usize], own: usize) -> BTreeMap<usize, BufId> {
    used.iter().enumerate().map(|(i, size)| (*size, BufId::new(own + i))).collect()
}

/// An extent as an `i64` expression.
fn expression(extent: &Extent, slots: &BTreeMap<usize, BufId>) -> Expr {
    let all = |parts: &[Extent], join: fn(Expr, Expr) -> Expr| {
        parts.iter().map(|part| expression(part, slots)).reduce(join)
    };
    match extent {
        Extent::Constant(value) => Expr::int(*value),
        Extent::Size(i) => Expr::Load(slots[&(*i as usize)], vec![]),
        Extent::Sum(parts) => all(parts, |a, b| a + b).unwrap_or_else(|| Expr::int(0)),
        Extent::Product(parts) => all(parts, |a, b| a * b).unwrap_or_else(|| Expr::int(1)),
        Extent::Floor(of, by) => expression(of, slots).floor_div(*by),
    }
}

fn number(formula: &Formula, dtype: DType, slots: &BTreeMap<usize, BufId>) -> Expr {
    let cast = |e: &Extent| Expr::cast(DType::I64, dtype, expression(e, slots));
    match formula {
        Formula::Whole(extent) => cast(extent),
        Formula::Reciprocal(extent) => Expr::Const(Scalar::one(dtype)) / cast(extent),
    }
}
