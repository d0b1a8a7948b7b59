//! Iterations that need not run, where a program serves a range of sizes.
//!
//! In: a finished program, the expression that it computes, and what a [`Demand`] tells of the
//! expression's operands and results. Out: for loops over what
//! may not be needed, a condition: an iteration for which it does not hold may be left out. The
//! sizes that conditions ask for are further parameters, after the operands. What is left out are
//! elements of results that nobody reads, and terms of sums that are zero.
//!
//! ```text
//! for i in 0..16 parallel { .. block b (..) { y[i * 4 + j, k] = .. } }     y is needed below s
//! ->  for i in 0..16 parallel while lt(mul(i, 4), s[]) { .. }
//! ```
//!
//! A condition is a permission: whoever ignores it computes more, and the same.

mod rests;
mod tiles;

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::demand::{Demand, Limits, apart, extent_of};
use ansc_graph::ops::shape::reshape_indices;
use ansc_graph::sizes::{expression, used};
use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, TensorType, VarId};
use ansc_runtime::{DType, Extent};

use crate::affine::{self, Digit, Extents, Sum};
use crate::program::{Access, Block, Body, For, ForKind, Program, Scope, Stmt};
use crate::tree;

/// Buffers that are computed one from the other are followed so far; else all are needed.
const ROUNDS: usize = 32;
/// Rounds after which a condition that becomes weaker and weaker is none: that of a sum in halves,
/// say, each of which adds elements that are farther away.
const EXACT: usize = 8;

/// Pairs: the first has to be below the second, so that a block has something to do.
type Conditions = BTreeSet<(Expr, Extent)>;

/// Writes conditions into a program; gives the sizes that became parameters, in order.
pub fn leave_out(program: &mut Program, compute: &Compute, demand: &Demand) -> Vec<usize> {
    if demand.is_empty() {
        return vec![];
    }
    let search = Search::of(program, compute, demand);
    let rests = search.rests(&search.conditions());
    let rests = rests::enclose(program, &rests);
    let search = Search::of(program, compute, demand);
    let found = [search.conditions(), rests].concat();
    let tiles = search.tiles(&found);
    let sizes = used(found.iter().flat_map(|(_, all)| all).map(|(_, extent)| extent));
    let held = add_parameters(program, demand.sizes.len(), &sizes);
    for (var, conditions) in found {
        let each = conditions.into_iter().map(|(index, below)| index.lt(expression(&below, &held)));
        program.needs.extend(tree::conjunction(each).map(|condition| (var, condition)));
    }
    tiles.iter().for_each(|tile| tile.shorten(program, &held));
    sizes
}

/// How many terms a program may add at most, from where on operands of its sums are zero; `None` if
/// it may add all of them.
pub fn terms_beyond(program: &Program, compute: &Compute, demand: &Demand) -> Option<i64> {
    let search = Search::of(program, compute, demand);
    let found = search.conditions();
    let mut most = 0;
    let mut known = true;
    tree::visit_nests(&program.body, &mut |loops, block| {
        // A block that drops what it read adds nothing of it.
        let dropped = search.of_dropped(block);
        let zeros = search.of_zeros(block);
        known &= !(zeros.is_empty() && search.adds_unknown_zeros(block));
        for (index, below) in zeros.into_iter().filter(|zero| !dropped.contains(zero)) {
            match search.beyond(&found, loops, block, &index, &below) {
                Some(more) => most = most.max(more),
                None => known = false,
            }
        }
    });
    known.then_some(most)
}

/// The buffer of each size.
fn add_parameters(program: &mut Program, after: usize, sizes: &[usize]) -> BTreeMap<usize, BufId> {
    let mut held = BTreeMap::new();
    for (place, &size) in sizes.iter().enumerate() {
        let name = program.fresh_buffer_name(&format!("size{size}"));
        let buffer = program.add_buffer(name, TensorType::new(DType::I64, []), Scope::Input);
        program.params.insert(after + place, buffer);
        held.insert(size, buffer);
    }
    held
}

struct Search<'p> {
    program: &'p Program,
    demand: &'p Demand,
    /// The types of parameters in the expression: a program may take several axes for one.
    types: Vec<TensorType>,
    extents: Extents,
    /// How often the blocks of the program access each buffer.
    uses: BTreeMap<BufId, usize>,
    /// Where buffers are needed that are no parameters, of those that are needed.
    own: BTreeMap<BufId, Places>,
    /// The loops around all accesses of each buffer.
    homes: BTreeMap<BufId, BTreeSet<VarId>>,
    /// Where zeros begin along each axis of buffers that are no parameters.
    zeros: BTreeMap<BufId, Limits>,
}

/// For each axis of a buffer, a number and an extent: an element is needed if its index and the
/// number are below the extent together; nothing, if all may be needed. The number is the same for
/// all accesses.
///
/// Where 64 rows are computed at a time, row `i` of block `p` is needed if `i + 64 * p < s`.
type Places = Vec<Option<Place>>;
type Place = (Expr, Extent);

impl<'p> Search<'p> {
    fn of(program: &'p Program, compute: &Compute, demand: &'p Demand) -> Search<'p> {
        let types = [compute.inputs.clone(), compute.output_types()].concat();
        let mut uses = BTreeMap::new();
        program.body.iter().for_each(|stmt| count_uses(stmt, &mut uses));
        let (extents, own) = (Extents::of(program), BTreeMap::new());
        let vars = |loops: Vec<VarId>| loops.into_iter().collect();
        let homes = tree::common_loops(program);
        let homes = homes.into_iter().map(|(buffer, loops)| (buffer, vars(loops))).collect();
        let zeros = BTreeMap::new();
        let mut search = Search { program, demand, types, extents, uses, own, homes, zeros };
        search.zeros = search.zeros_of_own();
        // At first nothing is needed but results: then what they are made of, and so on.
        for round in 0..ROUNDS {
            let mut own = search.needed_by_readers();
            if round >= EXACT {
                search.give_up_on_changes(&mut own);
            }
            if own == search.own {
                return search;
            }
            search.own = own;
        }
        search.own = search.uses.keys().map(|buffer| (*buffer, vec![])).collect();
        search
    }

    /// Drops conditions that differ from those of the round before, for good.
    fn give_up_on_changes(&self, own: &mut BTreeMap<BufId, Places>) {
        for (buffer, places) in own {
            let before = self.own.get(buffer).into_iter().flatten();
            places.iter_mut().zip(before).for_each(|(now, before)| {
                *now = now.take().filter(|now| before.as_ref() == Some(now));
            });
        }
    }

    /// Where blocks write nothing but zeros to buffers that are no parameters.
    ///
    /// `b[i, j] = select(j < s, .., 0)`: `b` is zero from `s` on along its second axis.
    fn zeros_of_own(&self) -> BTreeMap<BufId, Limits> {
        let mut zeros: BTreeMap<BufId, Limits> = BTreeMap::new();
        let mut visit = |block: &Block| {
            for access in block.body.writes() {
                let axes = access.indices.iter();
                let now: Limits = match &block.body {
                    Body::Assign { value, .. } => {
                        let mut all = vec![];
                        self.add_zeros(&mut all, value);
                        axes.map(|index| Some(all.iter().find(|(at, _)| at == index)?.1.clone()))
                            .collect()
                    }
                    _ => axes.map(|_| None).collect(),
                };
                let known = zeros.entry(access.buffer).or_insert_with(|| now.clone());
                known
                    .iter_mut()
                    .zip(now)
                    .for_each(|(a, b)| *a = a.take().filter(|a| Some(a) == b.as_ref()));
            }
        };
        self.program.body.iter().for_each(|stmt| stmt.visit_blocks(&mut visit));
        zeros.retain(|buffer, _| !self.program.params.contains(buffer));
        zeros
    }

    /// Where the blocks that read them need buffers that are no parameters. Others are computed in
    /// full: what was not written may be no index, and no truth value.
    fn needed_by_readers(&self) -> BTreeMap<BufId, Places> {
        let found = self.conditions();
        let mut needed: BTreeMap<BufId, Places> = BTreeMap::new();
        tree::visit_nests(&self.program.body, &mut |loops, block| {
            if !self.is_needed(block) {
                return;
            }
            let is_around = |var: &VarId| loops.iter().any(|l| l.var == *var);
            let around = found.iter().filter(|(var, _)| is_around(var)).flat_map(|(_, all)| all);
            let own = self.of_what_counts(block).into_iter();
            let own = own.chain(self.of_terms(&found, loops, block));
            let own: Vec<(Expr, Extent)> =
                own.map(|(index, below)| (self.over_loops(block, &index), below)).collect();
            let around: Vec<(Expr, Extent)> = around.cloned().collect();
            for (buffer, indices) in block.exprs().iter().flat_map(|e| e.loads()) {
                if self.program.params.contains(&buffer) {
                    continue;
                }
                let is_float = self.program.buffer(buffer).ty.dtype.is_float();
                let place = |(index, extent): (&Expr, &usize)| {
                    let index = self.over_loops(block, index);
                    let more =
                        |other: &Expr| Sum::of(&(other.clone() - index.clone()), &self.extents);
                    let exact = own.iter().chain(&around).filter_map(|(other, below)| {
                        let more = more(other).to_expr();
                        self.is_at_home(&more, buffer).then(|| (more, below.clone()))
                    });
                    // A condition on the index itself says more than one on what is outside.
                    let exact = exact.min_by_key(|(more, _)| more.as_const().is_none());
                    let some = || {
                        let some = own.iter().filter_map(|(other, below)| {
                            let more = self.least_at_home(more(other), &other.vars(), buffer)?;
                            Some((more, below.clone()))
                        });
                        let number = |(more, _): &Place| more.as_const().map(|more| more.as_i64());
                        // Elements up to 0 are there wherever anything is.
                        let says_little = |place: &Place| {
                            number(place).is_some_and(|more| more + *extent as i64 <= 1)
                        };
                        some.filter(|place| !says_little(place)).max_by_key(number)
                    };
                    exact.or_else(some).filter(|_| is_float)
                };
                let shape = &self.program.buffer(buffer).ty.shape;
                let places: Places = indices.iter().zip(shape).map(place).collect();
                let other = needed.entry(buffer).or_insert_with(|| places.clone());
                other.iter_mut().zip(places).for_each(|(a, b)| *a = self.both(a.take(), b));
            }
        });
        needed
    }

    /// The conditions without which a block adds no term.
    ///
    /// A loop of four terms at a time adds up to three beyond an end. They are zeros times what has
    /// to be computed: zero times what was never written may be no number.
    fn of_terms(
        &self,
        found: &[(VarId, Conditions)],
        loops: &[&For],
        block: &Block,
    ) -> Vec<(Expr, Extent)> {
        let reached = |(index, below): (Expr, Extent)| {
            let more = self.beyond(found, loops, block, &index, &below)?;
            Some((index - Expr::int(more), below))
        };
        self.of_zeros(block).into_iter().filter_map(reached).collect()
    }

    /// Where two readers together need a buffer: the weaker condition, if they differ in a number.
    fn both(&self, a: Option<Place>, b: Option<Place>) -> Option<Place> {
        let ((more, below), (other, end)) = (a?, b?);
        let larger = affine::simplify(&(other.clone() - more.clone()), &self.extents);
        let stronger = larger.as_const()?.as_i64() + apart(&below, &end)? >= 0;
        Some(if stronger { (more, below) } else { (other, end) })
    }

    /// Whether a number is the same at all accesses of a buffer that are made at a time.
    fn is_at_home(&self, number: &Expr, buffer: BufId) -> bool {
        let home = self.homes.get(&buffer);
        number.loads().is_empty() && home.is_some_and(|home| number.vars().is_subset(home))
    }

    /// A number that is no larger, and the same at all accesses of a buffer that are made at a
    /// time; `None` if the number depends on one of `vars` in other ways.
    ///
    /// `pad[i + r]` is read where `i < s`, for `r` in `0..3`: `pad[e]` is needed if `e - 2 < s`.
    fn least_at_home(&self, number: Sum, vars: &BTreeSet<VarId>, buffer: BufId) -> Option<Expr> {
        let home = self.homes.get(&buffer)?;
        let is_away = |digit: &Digit, _| digit.depends_on(&|var| !home.contains(&var));
        let (away, rest) = number.partition(is_away);
        let (more, rest) = (away.to_expr(), rest.to_expr());
        if [&more, &rest].iter().any(|e| !e.loads().is_empty()) || !more.vars().is_disjoint(vars) {
            return None;
        }
        let (least, _) = away.interval(&self.extents)?;
        Some(affine::simplify(&(rest + Expr::int(least)), &self.extents))
    }

    /// Whether anything reads what a block writes.
    fn is_needed(&self, block: &Block) -> bool {
        let is_needed = |access: &&Access| {
            self.program.params.contains(&access.buffer) || self.own.contains_key(&access.buffer)
        };
        block.body.writes().iter().any(is_needed)
    }

    /// An index of a block in terms of the loops around it.
    fn over_loops(&self, block: &Block, index: &Expr) -> Expr {
        affine::simplify(&bound(block, index), &self.extents)
    }

    /// The conditions of each loop that has some.
    fn conditions(&self) -> Vec<(VarId, Conditions)> {
        let mut found: Vec<(VarId, Conditions)> = vec![];
        let is_outermost = |l: &For| {
            let mut stmts = self.program.body.iter();
            stmts.any(|stmt| matches!(stmt, Stmt::For(other) if other.var == l.var))
        };
        tree::visit_loops(&self.program.body, &mut |l: &For| {
            if matches!(l.kind, ForKind::Serial | ForKind::Parallel) {
                // What no loop decides is asked by outermost ones.
                let asks = is_outermost(l);
                let of_loop = |c: &(Expr, Extent)| {
                    c.0.vars().contains(&l.var) || asks && self.may_be_nothing(c)
                };
                let conditions = self.of_all(l).into_iter().flatten().filter(of_loop);
                let conditions: Conditions = conditions.collect();
                if !conditions.is_empty() {
                    found.push((l.var, conditions));
                }
            }
        });
        found
    }

    /// Whether a condition of no loop may fail: nothing may be needed at all.
    fn may_be_nothing(&self, (index, below): &(Expr, Extent)) -> bool {
        let sizes = used(std::iter::once(below));
        let may_be_0 = |size: &usize| self.demand.empty.contains(&(*size as u32));
        let zeros = vec![0; sizes.last().map_or(0, |last| last + 1)];
        let first = index.as_const().map(|index| index.as_i64());
        sizes.iter().all(may_be_0) && first.is_some_and(|first| below.at(&zeros) <= Some(first))
    }

    /// How much an index exceeds its limit at most, where a loop around the block asks about it.
    fn beyond(
        &self,
        found: &[(VarId, Conditions)],
        loops: &[&For],
        block: &Block,
        index: &Expr,
        below: &Extent,
    ) -> Option<i64> {
        let index = bound(block, index);
        (0..loops.len()).rev().find_map(|at| {
            let (_, conditions) = found.iter().find(|(var, _)| *var == loops[at].var)?;
            let inner = loops[at + 1..].iter().map(|l| l.var).collect();
            let least = affine::simplify(&least(&index, &inner)?, &self.extents);
            let more = affine::simplify(&(index.clone() - least.clone()), &self.extents);
            let (_, most) = Sum::of(&more, &self.extents).interval(&self.extents)?;
            conditions.contains(&(least, below.clone())).then_some(most + of_instruction(block))
        })
    }

    /// Conditions without one of which no block in a loop has anything to do; `None` if no block
    /// does anything that is seen outside of an iteration.
    fn of_all(&self, l: &For) -> Option<Conditions> {
        self.of_stmts(&l.body)
    }

    fn of_stmts(&self, stmts: &[Stmt]) -> Option<Conditions> {
        let mut inner = BTreeSet::new();
        tree::visit_loops(stmts, &mut |inside: &For| {
            inner.insert(inside.var);
        });
        let mut uses = BTreeMap::new();
        stmts.iter().for_each(|stmt| count_uses(stmt, &mut uses));
        let mut all: Option<Conditions> = None;
        let mut visit = |block: &Block| {
            let passes = |access: &&Access| self.is_of_iteration(access.buffer, &uses);
            if block.body.writes().iter().all(passes) || !self.is_needed(block) {
                return;
            }
            let own = self.of_block(block, &inner);
            all = Some(all.take().map_or_else(|| own.clone(), |all| self.weaker(&all, &own)));
        };
        stmts.iter().for_each(|stmt| stmt.visit_blocks(&mut visit));
        all
    }

    /// The conditions that follow from both: of two that differ in a number, the weaker one.
    ///
    /// `k * 80 < s` and `k * 80 + 16 < s`: without `k * 80 < s`, neither holds.
    fn weaker(&self, a: &Conditions, b: &Conditions) -> Conditions {
        let both = |(index, below): &(Expr, Extent)| {
            b.iter().find_map(|(other, end)| {
                let more = affine::simplify(&(other.clone() - index.clone()), &self.extents);
                let stronger = more.as_const()?.as_i64() > apart(end, below)?;
                let (index, below) = if stronger { (index, below) } else { (other, end) };
                Some((index.clone(), below.clone()))
            })
        };
        a.iter().filter_map(both).collect()
    }

    /// Whether all that is done with a buffer is done in the one loop whose uses these are, by
    /// itself in each iteration.
    fn is_of_iteration(&self, buffer: BufId, uses: &BTreeMap<BufId, usize>) -> bool {
        self.program.buffer(buffer).scope.is_private()
            && uses.get(&buffer) == self.uses.get(&buffer)
    }

    /// The conditions of a block, for the iteration of inner loops that most likely has something
    /// to do.
    fn of_block(&self, block: &Block, inner: &BTreeSet<VarId>) -> Conditions {
        let relaxed = |(index, below): (Expr, Extent)| {
            let index = least(&bound(block, &index), inner)?;
            Some((affine::simplify(&index, &self.extents), below))
        };
        self.of_block_itself(block).into_iter().filter_map(relaxed).collect()
    }

    /// The conditions of a block, of its own variables.
    fn of_block_itself(&self, block: &Block) -> Vec<(Expr, Extent)> {
        [self.of_what_counts(block), self.of_zeros(block)].concat()
    }

    /// The conditions without which the term that a block adds is zero.
    fn of_zeros(&self, block: &Block) -> Vec<(Expr, Extent)> {
        let mut all = vec![];
        if let Body::Reduce { combiner: Combiner::Sum, value, .. } = &block.body {
            self.add_zeros(&mut all, value);
        }
        all
    }

    /// Whether a block adds products of floats of which some are zero, and nothing tells which.
    fn adds_unknown_zeros(&self, block: &Block) -> bool {
        let Body::Reduce { combiner: Combiner::Sum, dst, value, .. } = &block.body else {
            return false;
        };
        let is_float = self.program.buffer(dst.buffer).ty.dtype.is_float();
        let is_some = |limits: &Limits| limits.iter().any(Option::is_some);
        let has_zeros = |buffer: &BufId| {
            let param = self.program.params.iter().position(|p| p == buffer);
            let given = param.and_then(|param| self.demand.zeros.get(param));
            given.or_else(|| self.zeros.get(buffer)).is_some_and(is_some)
        };
        is_float && value.loads().iter().any(|(buffer, _)| has_zeros(buffer))
    }

    /// The conditions without which nobody reads what a block writes, or it drops what it read.
    fn of_what_counts(&self, block: &Block) -> Vec<(Expr, Extent)> {
        let mut all = vec![];
        for access in block.body.writes() {
            self.add(&mut all, access, &|param| self.demand.needed_of(param));
            if !self.program.params.contains(&access.buffer) {
                let places = self.own.get(&access.buffer).into_iter().flatten();
                let pairs = access.indices.iter().zip(places);
                all.extend(pairs.filter_map(|(index, place)| {
                    let (more, below) = place.clone()?;
                    Some((index.clone() + more, below))
                }));
            }
        }
        all.extend(self.of_dropped(block));
        all
    }

    /// The conditions without which a block drops what it read: it selects a value that changes
    /// nothing.
    fn of_dropped(&self, block: &Block) -> Vec<(Expr, Extent)> {
        let mut all = vec![];
        if let Body::Reduce { combiner, dst, value: Expr::Select(c, _, other), .. } = &block.body {
            let dtype = self.program.buffer(dst.buffer).ty.dtype;
            if other.as_const().is_some() && other.as_const() == combiner.identity(dtype) {
                self.add_condition(&mut all, c);
            }
        }
        all
    }

    /// Adds the extents that an access of a parameter has to be below.
    fn add<'d>(
        &self,
        all: &mut Vec<(Expr, Extent)>,
        access: &Access,
        limits: &dyn Fn(usize) -> Option<&'d Limits>,
    ) {
        let Some(param) = self.program.params.iter().position(|p| *p == access.buffer) else {
            return;
        };
        let (Some(limits), own) = (limits(param), &self.program.buffer(access.buffer).ty) else {
            return;
        };
        if own.len() != self.types[param].len() {
            return;
        }
        let axes = reshape_indices(&self.types[param].shape, &own.shape);
        for (axis, limit) in axes.iter().zip(limits) {
            let index = axis.substitute(&|v| access.indices.get(v.index()).cloned());
            all.extend(limit.clone().map(|below| (index, below)));
        }
    }

    /// Adds the conditions without which a term is zero.
    fn add_zeros(&self, all: &mut Vec<(Expr, Extent)>, term: &Expr) {
        match term {
            Expr::Binary(BinOp::Mul | BinOp::DotBf16, a, b) => {
                self.add_zeros(all, a);
                self.add_zeros(all, b);
            }
            // A pair is zero from where its first element is, if the second one comes later.
            Expr::Binary(BinOp::PairBf16, first, second) => {
                let [mut own, mut other] = [vec![], vec![]];
                self.add_zeros(&mut own, first);
                self.add_zeros(&mut other, second);
                let comes_later =
                    |(index, below): &(Expr, Extent), (later, end): &(Expr, Extent)| {
                        let more =
                            affine::simplify(&(later.clone() - index.clone()), &self.extents);
                        below == end && more.as_const().is_some_and(|more| more.as_i64() >= 0)
                    };
                own.retain(|zero| other.iter().any(|later| comes_later(zero, later)));
                all.extend(own);
            }
            Expr::Cast(_, x) => self.add_zeros(all, x),
            Expr::Select(condition, x, other) if is_zero(other) => {
                self.add_condition(all, condition);
                self.add_zeros(all, x);
            }
            Expr::Load(buffer, indices) => {
                let access = Access { buffer: *buffer, indices: indices.clone() };
                self.add(all, &access, &|param| self.demand.zeros.get(param));
                let zeros = self.zeros.get(buffer).into_iter().flatten();
                let ends = indices.iter().zip(zeros);
                all.extend(ends.filter_map(|(index, end)| Some((index.clone(), end.clone()?))));
            }
            _ => {}
        }
    }

    fn add_condition(&self, all: &mut Vec<(Expr, Extent)>, condition: &Expr) {
        let size = |buffer: BufId| {
            let param = self.program.params.iter().position(|p| *p == buffer)?;
            self.demand.sizes.get(param).copied().flatten()
        };
        for part in condition.conjuncts() {
            if let Expr::Binary(BinOp::Lt, index, below) = part {
                // A condition that holds at all sizes is in the program already.
                let below = extent_of(below, &size).filter(|below| !below.is_constant());
                all.extend(below.map(|below| ((**index).clone(), below)));
            }
        }
    }
}

/// An index of a block with the bindings of its variables.
fn bound(block: &Block, index: &Expr) -> Expr {
    let over =
        |v: VarId| block.iters.iter().find(|iter| iter.var == v).map(|iter| iter.binding.clone());
    index.substitute(&over)
}

/// Terms that the instruction of a block adds beyond the one that its index tells.
fn of_instruction(block: &Block) -> i64 {
    let is_dot = |e: &Expr| matches!(e, Expr::Binary(BinOp::DotBf16, ..));
    let adds = block.exprs().iter().any(|e| e.any(&mut |inner| is_dot(inner)));
    i64::from(adds)
}

fn is_zero(e: &Expr) -> bool {
    e.as_const().is_some_and(|value| value.is_zero())
}

/// How often blocks access each buffer.
fn count_uses(stmt: &Stmt, uses: &mut BTreeMap<BufId, usize>) {
    stmt.visit_blocks(&mut |block| {
        block.visit_buffers(&mut |buffer| *uses.entry(buffer).or_insert(0) += 1);
    });
}

/// An index that is no larger, and does not depend on the inner variables; each of them is 0 or
/// more.
fn least(e: &Expr, inner: &BTreeSet<VarId>) -> Option<Expr> {
    let is_fixed = |e: &Expr| e.loads().is_empty() && e.vars().is_disjoint(inner);
    match e {
        e if is_fixed(e) => Some(e.clone()),
        Expr::Var(_) => Some(Expr::int(0)),
        Expr::Binary(BinOp::Add, a, b) => Some(least(a, inner)? + least(b, inner)?),
        Expr::Binary(BinOp::Sub, a, b) if is_fixed(b) => Some(least(a, inner)? - (**b).clone()),
        Expr::Binary(BinOp::Mul, a, b) => match (a.as_const(), b.as_const()) {
            (_, Some(by)) if by.as_i64() >= 0 => Some(least(a, inner)? * (**b).clone()),
            (Some(by), _) if by.as_i64() >= 0 => Some((**a).clone() * least(b, inner)?),
            _ => None,
        },
        Expr::Binary(BinOp::FloorDiv, a, b) => {
            b.as_const().filter(|by| by.as_i64() > 0)?;
            Some(Expr::binary(BinOp::FloorDiv, least(a, inner)?, (**b).clone()))
        }
        Expr::Binary(BinOp::FloorMod, _, b) => {
            b.as_const().filter(|by| by.as_i64() > 0)?;
            Some(Expr::int(0))
        }
        Expr::Binary(op @ (BinOp::Min | BinOp::Max), a, b) => {
            Some(Expr::binary(*op, least(a, inner)?, least(b, inner)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
