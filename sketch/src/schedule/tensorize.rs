//! tensorize: an intrinsic in place of the nest that does the same.
//!
//! ```text
//! for ko { for i in 0..16 { for k in 0..4 { block dot: c[i] sum= a[ko * 4 + k] * b[i, ko * 4 + k] } } }
//! => tensorize(i, dot_16x4)
//! for ko { for k in 0..4 unrolled { for i in 0..16 vectorized { block dot_step: .. } } }
//! ```
//! Code generation sees the implementation, a program like any other.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, Combiner, Expr, VarId};

use super::blockize::{blockize, inner_loops};
use super::copies;
use super::error::{Cause, Failure};
use super::moves::check_parallel;
use super::query::{block_at, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::affine::{Extents, Sum};
use crate::intrinsic::{self, Intrinsic};
use crate::program::{Access, Block, Body, For, Iter, IterKind, Program, Stmt};
use crate::tree;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// The nest from `l` on, which is or can be made a unit (see `blockize`), has the loops of the
    /// intrinsic's description, and its block the same body over parts of its buffers. It becomes
    /// the intrinsic's implementation.
    pub fn tensorize(&mut self, l: LoopRef, intrinsic: &str) -> Result<()> {
        self.apply("tensorize", |program| {
            let found = intrinsic::find(intrinsic);
            let found = found.ok_or_else(|| Cause::NoSuchIntrinsic(intrinsic.into()).at_loop(l))?;
            tensorize(program, l, &found)
        })
    }
}

fn tensorize(program: &mut Program, l: LoopRef, intrinsic: &Intrinsic) -> Checked<()> {
    let path = blockize(program, l)?;
    let block = block_at(program, &path).clone();
    let parts = Matcher::new(program, intrinsic, l, &block)
        .and_then(|mut matcher| matcher.parts(&block))
        .map_err(|what| {
            Cause::Mismatch { intrinsic: intrinsic.name().as_str().to_owned(), what }.at_loop(l)
        })?;
    let outer: Vec<Iter> = {
        let inner = inner_loops(program, &path, l);
        let is_outer = |i: &&Iter| i.binding.vars().is_disjoint(&inner);
        block.iters.iter().filter(is_outer).cloned().collect()
    };
    let nest = instance(program, &block.name, intrinsic, &parts, &outer);
    let place = loop_path(program, l)?;
    tree::splice(&mut program.body, &place, nest);
    check_parallel(program)
}

/// The part of a buffer that a parameter of the intrinsic is: for each axis where it begins, and
/// whether it is an axis of the parameter.
#[derive(Clone, PartialEq)]
struct Part {
    buffer: BufId,
    axes: Vec<(Expr, bool)>,
}

impl Part {
    fn place(&self, at: &[Expr]) -> Vec<Expr> {
        let mut at = at.iter();
        let of = |(start, is_axis): &(Expr, bool)| match is_axis.then(|| at.next()).flatten() {
            Some(index) if *start == Expr::int(0) => index.clone(),
            Some(index) => start.clone() + index.clone(),
            None => start.clone(),
        };
        self.axes.iter().map(of).collect()
    }
}

type Parts = BTreeMap<BufId, Part>;
type Matched<T> = std::result::Result<T, &'static str>;

struct Matcher<'a> {
    program: &'a Program,
    intrinsic: &'a Intrinsic,
    extents: Extents,
    /// Iterators of the description to those of the block.
    iters: BTreeMap<VarId, Expr>,
    inner: BTreeSet<VarId>,
    parts: Parts,
}

impl<'a> Matcher<'a> {
    /// Pairs loops, and with them iterators.
    fn new(
        program: &'a Program,
        intrinsic: &'a Intrinsic,
        l: LoopRef,
        block: &Block,
    ) -> Matched<Matcher<'a>> {
        let (loops, described) = intrinsic.nest();
        let path = loop_path(program, l).map_err(|_| "there is no such loop")?;
        let found = chain(tree::stmt(&program.body, &path).into_iter().collect());
        let lengths = |loops: &[&For]| loops.iter().map(|f| f.extent).collect::<Vec<_>>();
        if lengths(&found) != lengths(&loops) {
            return Err("the loops have other extents");
        }
        let (mut iters, mut inner) = (BTreeMap::new(), BTreeSet::new());
        for (f, of_description) in found.iter().zip(&described.iters) {
            match block.iters.iter().find(|i| i.binding == Expr::Var(f.var)) {
                Some(i) if i.kind == of_description.kind => {
                    iters.insert(of_description.var, Expr::Var(i.var));
                    inner.insert(i.var);
                }
                // A loop of one iteration may be bound to nothing.
                None if f.extent == 1 => {
                    iters.insert(of_description.var, Expr::int(0));
                }
                _ => return Err("an iterator is not simply a loop, or of another kind"),
            }
        }
        let extents = Extents::of(program);
        Ok(Matcher { program, intrinsic, extents, iters, inner, parts: Parts::new() })
    }

    /// The part of a buffer for each parameter.
    fn parts(&mut self, block: &Block) -> Matched<Parts> {
        let (_, described) = self.intrinsic.nest();
        let dst = match (&described.body, &block.body) {
            (Body::Assign { dst: a, .. }, Body::Assign { dst: b, .. }) => (a, b),
            (
                Body::Reduce { combiner: a, dst: to, init: x, .. },
                Body::Reduce { combiner: b, dst: from, init: y, .. },
            ) => {
                same_reduction((*a, *x), (*b, *y))?;
                (to, from)
            }
            _ => return Err("the block does something else"),
        };
        self.access(dst.0, dst.1)?;
        self.expr(described.body.value(), block.body.value())?;
        Ok(std::mem::take(&mut self.parts))
    }

    fn expr(&mut self, described: &Expr, found: &Expr) -> Matched<()> {
        let same = match (described, found) {
            (Expr::Load(a, i), Expr::Load(b, j)) => {
                let a = Access { buffer: *a, indices: i.clone() };
                return self.access(&a, &Access { buffer: *b, indices: j.clone() });
            }
            (Expr::Var(a), b) => self.iters.get(a) == Some(b),
            _ => described.is_same_node(found),
        };
        if !same {
            return Err("the block computes another value");
        }
        let pairs = described.children().into_iter().zip(found.children());
        pairs.into_iter().try_for_each(|(a, b)| self.expr(a, b))
    }

    /// An access to a parameter and one to the buffer of which it is a part.
    fn access(&mut self, described: &Access, found: &Access) -> Matched<()> {
        let dtype = |p: &Program, b: BufId| p.buffer(b).ty.dtype;
        if dtype(self.intrinsic.description(), described.buffer)
            != dtype(self.program, found.buffer)
        {
            return Err("a buffer has another element type");
        }
        let mut wanted = described.indices.iter();
        let mut axes = vec![];
        for index in &found.indices {
            let sum = Sum::of(index, &self.extents);
            let is_inner = |v: VarId| self.inner.contains(&v);
            let (within, around) = sum.partition(|digit, _| digit.depends_on(&is_inner));
            let moves = !within.terms.is_empty();
            if moves {
                let wanted = wanted.next().ok_or("a buffer is accessed along more axes")?;
                let wanted = wanted.substitute(&|v| self.iters.get(&v).cloned());
                if Sum::of(&wanted, &self.extents) != within {
                    return Err("a buffer is accessed at other places");
                }
            }
            axes.push((around.to_expr(), moves));
        }
        if wanted.next().is_some() {
            return Err("a buffer is accessed along fewer axes");
        }
        let part = Part { buffer: found.buffer, axes };
        match self.parts.insert(described.buffer, part.clone()) {
            Some(other) if other != part => Err("a parameter would be two buffers"),
            _ => Ok(()),
        }
    }
}

fn same_reduction(a: (Combiner, bool), b: (Combiner, bool)) -> Matched<()> {
    match a {
        (combiner, _) if combiner != b.0 => Err("the reduction combines in another way"),
        (_, init) if init != b.1 => Err("only one of both initialises its result"),
        _ => Ok(()),
    }
}

/// The loops from the given one on.
fn chain(mut stmts: Vec<&Stmt>) -> Vec<&For> {
    let mut loops = vec![];
    while let [Stmt::For(l)] = stmts[..] {
        loops.push(&**l);
        stmts = l.body.iter().collect();
    }
    loops
}

/// The implementation over the parts, with the outer iterators that they depend on.
fn instance(
    program: &mut Program,
    base: &str,
    intrinsic: &Intrinsic,
    parts: &Parts,
    outer: &[Iter],
) -> Vec<Stmt> {
    let (described, done) = (intrinsic.description(), intrinsic.implementation());
    let of_params: BTreeMap<BufId, &Part> =
        done.params.iter().zip(&described.params).map(|(&own, p)| (own, &parts[p])).collect();
    let (mut nest, buffers) = copies::adopt(program, done, base);
    let place = |buffer: BufId, at: &[Expr]| match of_params.get(&buffer) {
        Some(part) => (part.buffer, part.place(at)),
        None => (buffers[&buffer], at.to_vec()),
    };
    tree::visit_blocks_mut(&mut nest, &mut |block| {
        block.visit_accesses_mut(&mut |buffer, at| (*buffer, *at) = place(*buffer, at));
        add_outer(program, block, outer);
    });
    nest
}

/// Iterators of its own for what the block uses of `outer`. Only a reduction reduces.
fn add_outer(program: &mut Program, block: &mut Block, outer: &[Iter]) {
    let used: BTreeSet<VarId> = block.exprs().into_iter().flat_map(Expr::vars).collect();
    let reduces = !matches!(block.body, Body::Assign { .. });
    let mut twins = BTreeMap::new();
    let mut iters = vec![];
    for iter in outer.iter().filter(|i| used.contains(&i.var)) {
        let var = tree::twin(program, iter.var);
        twins.insert(iter.var, var);
        let kind = if reduces { iter.kind } else { IterKind::Spatial };
        iters.push(Iter { var, kind, ..iter.clone() });
    }
    block.iters.splice(0..0, iters);
    block.visit_exprs_mut(&mut |e| {
        *e = e.substitute(&|v| twins.get(&v).map(|&twin| Expr::Var(twin)));
    });
}
