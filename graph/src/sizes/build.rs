//! The graph for all sizes, from that for the largest ones and what differs at others.
//!
//! In: a [`Look`] at the model. Out: a [`Ranged`]. A number that differs becomes an expression of
//! the sizes. Where a reduction has fewer terms at smaller sizes, a condition leaves out the
//! others; products and convolutions stay what they are, and find zeros there.
//!
//! ```text
//! sum{r0: 8} a[i0, r0] * b[r0, i1]
//! ->  the same of select(i1 < s, a, 0) and select(i0 < s, b, 0)
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ansc_runtime::host::HostOp;
use ansc_runtime::{DType, Extent};

use super::constants::{Rule, rule};
use super::fit::Fit;
use super::formula::{Formula, expression, renumbered, slots, used, wide};
use super::look::{Look, Seen};
use super::sums::Known;
use super::zero::Import;
use super::{Range, Ranged, Unfit, counts};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{ComputeOp, Kind, Op};
use crate::ops::map::broadcast_indices;
use crate::passes::rewrite;
use crate::passes::shared::source;
use crate::scalar::Scalar;
use crate::text::first_unused;

pub(super) fn build(
    look: Look,
    samples: &[Vec<usize>],
    [ranges, counted]: [&[Range]; 2],
    zero: Import<'_>,
) -> Result<Ranged, Unfit> {
    let graph = look.graph.clone();
    let inputs = graph.inputs().to_vec();
    let mut outputs = graph.outputs.clone();
    let counts = outputs.split_off(look.outputs());
    let names = ranges.iter().map(|range| (range.name.clone(), range.low as i64));
    let counts = counts.into_iter().map(|(_, value)| value).collect();
    let mut build = Build::new(graph, samples.to_vec(), names, counts);
    build.nodes(&look.nodes)?;
    if !counted.is_empty() {
        let lows: Vec<usize> = counted.iter().map(|range| range.low).collect();
        build.allow_zeros(&look, &lows, zero);
    }
    let extents = |build: &Build, value: ValueId| {
        let shape = build.graph.ty(value).shape.iter();
        let fixed = || shape.map(|e| Extent::Constant(*e as i64)).collect();
        build.extents.get(&value).cloned().unwrap_or_else(fixed)
    };
    let inputs = inputs.iter().map(|&node| extents(&build, ValueId { node, out: 0 })).collect();
    let ends = outputs.iter().map(|(_, value)| extents(&build, *value)).collect();
    let ends = build.results(ranges.len(), ends);
    let counts = build.sizes.split_off(ranges.len());
    let lows = build.lows.split_off(ranges.len());
    let mut graph = build.graph;
    graph.outputs.truncate(outputs.len());
    counts.iter().for_each(|&count| counts::expose_one(&mut graph, count));
    Ok(Ranged { graph, inputs, outputs: ends, counts: lows })
}

/// A graph under construction: that of the model, or a body in it.
pub(super) struct Build {
    pub(super) graph: Graph,
    /// The sizes of each place where the model was looked at.
    pub(super) samples: Vec<Vec<usize>>,
    /// The values of the sizes: inputs, then counts, then sums of others.
    pub(super) sizes: Vec<ValueId>,
    /// The smallest of each.
    pub(super) lows: Vec<i64>,
    /// The numbers that were found so far.
    pub(super) known: Known,
    /// The extents of values that are not the same at all sizes; as the values were at first.
    pub(super) extents: HashMap<ValueId, Vec<Extent>>,
    /// Values with the same number along axes beyond their extents.
    masked: HashMap<(ValueId, Vec<usize>, Scalar), ValueId>,
    /// Whether some of the sizes are counts.
    pub(super) counted: bool,
    /// The sizes that are functions of others, in order; the last sizes.
    pub(super) sums: Vec<Extent>,
    /// The numbers that vary, of each node.
    pub(super) formulas: HashMap<NodeId, Formulas>,
    /// The rules of constants that vary.
    pub(super) rules: HashMap<NodeId, Rule>,
    /// The parts of values that are there.
    pub(super) shrunk: HashMap<ValueId, ValueId>,
}

/// A dimension may have the name of an input.
fn unused(graph: &Graph, name: &str) -> String {
    let is_taken = |name: &str| graph.inputs().iter().any(|input| graph.node(*input).name == name);
    let numbered = (1..).map(|n| format!("{name} ({n})"));
    first_unused(std::iter::once(name.to_owned()).chain(numbered), is_taken)
}

/// The numbers of a node that are not the same at all sizes.
pub(super) type Formulas = BTreeMap<usize, Formula>;

impl Build {
    /// The sizes with these names become inputs of the graph, the others are values of it.
    pub(super) fn new(
        mut graph: Graph,
        samples: Vec<Vec<usize>>,
        names: impl Iterator<Item = (String, i64)>,
        counts: Vec<ValueId>,
    ) -> Build {
        let scalar = || TensorType::new(DType::I64, []);
        let (mut sizes, mut lows) = (vec![], vec![]);
        for (name, low) in names {
            let name = unused(&graph, &name);
            sizes.push(graph.add_input(&name, scalar(), None));
            lows.push(low);
        }
        let counted = !counts.is_empty();
        lows.extend(counts.iter().map(|_| 0));
        sizes.extend(counts);
        Build {
            graph,
            samples,
            sizes,
            lows,
            known: Known::new(),
            extents: HashMap::new(),
            masked: HashMap::new(),
            counted,
            sums: vec![],
            formulas: HashMap::new(),
            rules: HashMap::new(),
            shrunk: HashMap::new(),
        }
    }

    pub(super) fn fit(&self) -> Fit<'_> {
        Fit { samples: &self.samples }
    }

    pub(super) fn nodes(&mut self, nodes: &[Seen]) -> Result<(), Unfit> {
        nodes.iter().try_for_each(|seen| self.node(seen))
    }

    fn node(&mut self, seen: &Seen) -> Result<(), Unfit> {
        let node = seen.node;
        if !seen.varies() {
            return self.same(node);
        }
        let formulas = self.formulas(seen)?;
        self.formulas.insert(node, formulas.clone());
        match self.graph.node(node).op.clone() {
            Op::Input { .. } => self.note(node, &formulas),
            Op::Const(_) => self.constant(seen, &formulas),
            Op::Compute(op) => self.compute(seen, &op, &formulas),
            Op::If(_) | Op::Loop(_) => self.control(seen, &formulas),
            Op::Host(HostOp::CheckIndices { extents }) => {
                self.check(node, &extents, &formulas);
                Ok(())
            }
            Op::Host(HostOp::Append { axis, each, .. }) => {
                self.append(node, (axis, each), &formulas)
            }
            Op::Host(HostOp::Spread { .. }) => self.note(node, &formulas),
            Op::Host(_) => self.host(node, &formulas),
        }
    }

    /// A node that is the same at all sizes.
    fn same(&mut self, node: NodeId) -> Result<(), Unfit> {
        let operands = self.graph.operands(node);
        let varies = |v: &ValueId| self.extents.contains_key(v);
        match &self.graph.node(node).op {
            Op::Host(HostOp::CheckIndices { .. }) if varies(&operands[0]) => {
                self.checked(node);
                Ok(())
            }
            Op::Host(_) if operands.iter().any(varies) => self.host(node, &Formulas::new()),
            _ => Ok(()),
        }
    }

    /// Rows are appended at the extent of what is there, and there are as many as the others have.
    fn append(
        &mut self,
        node: NodeId,
        (axis, each): (usize, bool),
        formulas: &Formulas,
    ) -> Result<(), Unfit> {
        self.note(node, formulas)?;
        let operands = self.graph.operands(node);
        let extent = |value: ValueId| match self.extents.get(&value) {
            Some(extents) => extents[axis].clone(),
            None => Extent::Constant(self.graph.ty(value).shape[axis] as i64),
        };
        let [at, count] = [operands[0], operands[1]].map(extent);
        let sizes = used([&at, &count].into_iter());
        let place = |size: u32| sizes.iter().position(|other| *other == size as usize);
        let renumbered = |extent| renumbered(&extent, &place).expect("all are listed");
        let [at, count] = [at, count].map(renumbered);
        self.graph.node_mut(node).op = Op::Host(HostOp::Append { axis, at, count, each });
        let all: Vec<ValueId> =
            operands.into_iter().chain(sizes.iter().map(|&s| self.sizes[s])).collect();
        self.graph.set_operands(node, &all);
        Ok(())
    }

    pub(super) fn unfit(&self, node: NodeId, reason: &str) -> Unfit {
        Unfit { node: self.graph.node(node).name.clone(), reason: reason.into() }
    }

    /// The formulas of the numbers that vary. What one number is may help to find what another is.
    fn formulas(&mut self, seen: &Seen) -> Result<Formulas, Unfit> {
        let mut formulas = Formulas::new();
        let mut bases: Vec<Vec<i64>> = vec![];
        let mut left: Vec<(usize, &Vec<Option<Scalar>>)> =
            seen.varying.iter().map(|(k, values)| (*k, values)).collect();
        // It may be another one only where it is not known.
        let varies = |values: &[Option<Scalar>]| {
            let mut known = values.iter().flatten();
            let first = known.next();
            known.any(|value| Some(value) != first)
        };
        left.retain(|(_, values)| varies(values));
        let mut sums = false;
        while let Some(&(_, first)) = left.first() {
            let before = left.len();
            left.retain(|(k, values)| {
                let whole = whole_numbers(values);
                let mut found = self.formula(seen.node, values);
                if let (None, Some(whole), true) = (&found, &whole, sums) {
                    found = self.sum(seen.node, whole, &bases).map(Formula::Whole);
                }
                let is_left = found.is_none();
                if let Some(whole) = whole.filter(|_| !is_left) {
                    bases.push(whole);
                }
                formulas.extend(found.map(|formula| (*k, formula)));
                is_left
            });
            if left.len() == before && std::mem::replace(&mut sums, true) {
                return Err(self.no_formula(seen.node, first));
            }
        }
        Ok(formulas)
    }

    /// The number that is one of these values at each sample where it is known.
    fn formula(&mut self, node: NodeId, values: &[Option<Scalar>]) -> Option<Formula> {
        let known: Vec<Scalar> = values.iter().flatten().copied().collect();
        if known.len() == values.len() {
            return formula(&known, &mut |values| self.extent_of(node, values));
        }
        let samples = self.samples.iter().zip(values).filter(|(_, value)| value.is_some());
        let samples: Vec<Vec<usize>> = samples.map(|(sizes, _)| sizes.clone()).collect();
        formula(&known, &mut |values| Fit { samples: &samples }.of(values))
    }

    fn no_formula(&self, node: NodeId, values: &[Option<Scalar>]) -> Unfit {
        let mut examples: Vec<String> = vec![];
        for (sizes, value) in self.samples.iter().zip(values).take(4) {
            if let Some(value) = value {
                examples.push(format!("{value} at {sizes:?}"));
            }
        }
        let reason = format!(
            "a number of its expression follows the sizes by no rule that is known: {}, ..",
            examples.join(", ")
        );
        self.unfit(node, &reason)
    }

    /// Notes the extents of the only value of a node, whose numbers begin with them.
    fn note(&mut self, node: NodeId, formulas: &Formulas) -> Result<(), Unfit> {
        self.note_value(ValueId { node, out: 0 }, 0, formulas)
    }

    /// Notes the extents of a value, which are the numbers from `from` on.
    pub(super) fn note_value(
        &mut self,
        value: ValueId,
        from: usize,
        formulas: &Formulas,
    ) -> Result<(), Unfit> {
        let shape = self.graph.ty(value).shape.clone();
        let extents: Vec<Extent> = shape
            .iter()
            .enumerate()
            .map(|(axis, e)| match formulas.get(&(from + axis)) {
                Some(Formula::Whole(extent)) => extent.clone(),
                _ => Extent::Constant(*e as i64),
            })
            .collect();
        let fits = |sizes: &Vec<usize>, (extent, room): (&Extent, &usize)| {
            extent.at(&wide(sizes)).is_some_and(|e| (0..=*room as i64).contains(&e))
        };
        let mut all = self.samples.iter();
        if !all.all(|sizes| extents.iter().zip(&shape).all(|pair| fits(sizes, pair))) {
            let reason = "a result of it has more elements at smaller sizes";
            return Err(self.unfit(value.node, reason));
        }
        if extents.iter().any(|extent| !extent.is_constant()) {
            self.extents.insert(value, extents);
        }
        Ok(())
    }

    pub(super) fn varying_axes(&self, value: ValueId) -> Vec<usize> {
        let extents = self.extents.get(&value).map_or(&[][..], |e| e);
        (0..extents.len()).filter(|&axis| !extents[axis].is_constant()).collect()
    }

    fn constant(&mut self, seen: &Seen, formulas: &Formulas) -> Result<(), Unfit> {
        let node = seen.node;
        self.note(node, formulas)?;
        let Some(tensors) = &seen.tensors else { return Ok(()) };
        let old = ValueId { node, out: 0 };
        let ty = self.graph.ty(old).clone();
        let axes: Vec<Expr> = (0..ty.rank()).map(Expr::var).collect();
        let rule = rule(tensors, &self.fit());
        self.rules.extend(rule.clone().map(|rule| (node, rule)));
        let (reads, extents) = match rule {
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
        let readers = Readers::of(&self.graph, old);
        let new = rewrite::add(&mut self.graph, name, op, inputs);
        readers.read(&mut self.graph, new);
        if let Some(extents) = self.extents.get(&old).cloned() {
            self.extents.insert(new, extents);
        }
    }

    /// The axis along which a value is zero beyond its extent anyway: where rows are appended to a
    /// state, no other rows follow. Its elements may have been moved since.
    fn zeros_follow(&self, value: ValueId) -> Option<usize> {
        let (from, indices) = match source(&self.graph, value) {
            Some((from, indices)) => (from, Some(indices)),
            None => (value, None),
        };
        let Op::Host(HostOp::Append { axis, .. }) = self.graph.node(from.node).op else {
            return None;
        };
        let Some(indices) = indices else { return Some(axis) };
        (0..self.graph.ty(value).rank()).find(|own| indices[axis] == Expr::var(*own))
    }

    /// The value with `fill` beyond its extents along these axes.
    pub(super) fn mask(
        &mut self,
        value: ValueId,
        axes: &[usize],
        fill: fn(DType) -> Scalar,
    ) -> ValueId {
        let ty = self.graph.ty(value).clone();
        let fill = fill(ty.dtype);
        let is_masked = |axis: &usize| !fill.is_zero() || Some(*axis) != self.zeros_follow(value);
        let axes = &axes.iter().copied().filter(is_masked).collect::<Vec<_>>()[..];
        if axes.is_empty() {
            return value;
        }
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
        self.masked.insert((new, axes.to_vec(), fill), new);
        self.masked.insert(key, new);
        new
    }
}

/// The whole number that a scalar is.
fn whole(value: Scalar) -> Option<i64> {
    if !value.dtype().is_float() {
        return Some(value.as_i64());
    }
    let value = value.as_f64();
    (value == value.trunc() && value.abs() < 1e15).then_some(value as i64)
}

/// The whole numbers that scalars are, if all are.
fn whole_numbers(values: &[Option<Scalar>]) -> Option<Vec<i64>> {
    values.iter().map(|value| value.and_then(whole)).collect()
}

/// The number with these values; `extent` finds it, if it is a whole one.
fn formula(values: &[Scalar], extent: &mut dyn FnMut(&[i64]) -> Option<Extent>) -> Option<Formula> {
    let dtype = values[0].dtype();
    let known: Option<Vec<i64>> = values.iter().map(|value| whole(*value)).collect();
    if let Some(extent) = known.and_then(|known| extent(&known)) {
        return Some(Formula::Whole(extent));
    }
    let reciprocals: Vec<f64> = values.iter().map(|v| (1.0 / v.as_f64()).round()).collect();
    let exact = |(v, r): (&Scalar, &f64)| *v == Scalar::from_f64(dtype, 1.0 / r);
    let is_small = |r: &f64| r.abs() < 1e15;
    let is_one = dtype.is_float()
        && reciprocals.iter().all(is_small)
        && values.iter().zip(&reciprocals).all(exact);
    if !is_one {
        return None;
    }
    let known: Vec<i64> = reciprocals.iter().map(|r| *r as i64).collect();
    extent(&known).map(Formula::Reciprocal)
}

/// A node or output that reads a value at some time.
pub(super) struct Readers {
    value: ValueId,
    nodes: Vec<(NodeId, u32)>,
}

impl Readers {
    pub(super) fn of(graph: &Graph, value: ValueId) -> Readers {
        Readers { value, nodes: graph.users(value) }
    }

    /// Lets them read `new`.
    pub(super) fn read(self, graph: &mut Graph, new: ValueId) {
        for (user, slot) in self.nodes {
            let mut operands = graph.operands(user);
            operands[slot as usize] = new;
            graph.set_operands(user, &operands);
        }
        for (_, output) in graph.outputs.iter_mut().filter(|(_, v)| *v == self.value) {
            *output = new;
        }
    }
}
