//! reverse_compute_at: a consumer moves under a loop of its producers.
//!
//! In each iteration it computes what the part that the producers under the loop have finished
//! allows.
//!
//! ```text
//! for i0 in 0..2 { for i1 in 0..4 { t[i0 * 4 + i1] = .. } }   for i in 0..8 { u[i] = t[i] }
//! => reverse_compute_at(u, i0)
//! for i0 in 0..2 { for i1 in 0..4 { t[i0 * 4 + i1] = .. }   for i in 0..4 { u[i0 * 4 + i] = t[..] } }
//! ```

use ansc_graph::{BinOp, Expr, VarId};

use super::compute_at::{check_target, loads_of};
use super::error::{Cause, Failure, buffer_name};
use super::moves::{
    check_neighbours, check_only_writer, check_order, check_parallel_after_move, contains,
    insert_under, loops_below, names, remove_block, renest, writers,
};
use super::query::{block_at, block_path, bound_to, loop_at, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::affine::{Extents, Sum};
use crate::disjoint::{bound, determines};
use crate::program::{Access, Block, Body, IterKind, Program};
use crate::region::{self, Span};
use crate::tree::{self, Path};

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Moves `block` to the end of the body of `l`, which contains writers of something it reads.
    pub fn reverse_compute_at(&mut self, block: &str, l: LoopRef) -> Result<()> {
        self.apply("reverse_compute_at", |program| reverse_compute_at(program, block, l))
    }
}

fn reverse_compute_at(program: &mut Program, name: &str, l: LoopRef) -> Checked<()> {
    let path = block_path(program, name)?;
    let target = loop_path(program, l)?;
    check_target(program, &target, l)?;
    check_only_writer(program, &path)?;
    check_neighbours(program, &path, &target)?;
    let block = block_at(program, &path).clone();
    let producers = producers_under(program, &block, &target);
    if producers.is_empty() {
        return Err(Cause::NoProducer.at_loop(l));
    }
    let spans = available(program, &block, &producers, l)?;
    let parted = written_in_parts(program, &block, &producers);

    let producers = names(program, &producers);
    let before = program.body.clone();
    remove_block(program, &path);
    let nest = renest(program, block, &spans);
    let target = loop_path(program, l)?;
    let body = &loop_at(program, &target).body;
    let last = body.iter().rposition(|s| contains(s, &producers));
    let place = last.map_or(body.len(), |i| i + 1);
    insert_under(program, l, place, nest)?;
    check_order(program, name)?;
    check_terms_once(program, name)?;
    if let Some(writer) = parted.filter(|_| !is_complete(program, name)) {
        return Err(Cause::PartlyProduced(writer).at_block(name));
    }
    check_parallel_after_move(program, &before)
}

/// One of the producers, if others write its buffer too: another part of it, maybe.
fn written_in_parts(program: &Program, block: &Block, producers: &[Path]) -> Option<String> {
    let reads = block.reads();
    let mut written = producers.iter().map(|path| block_at(program, path));
    let shares = |b: &&Block| {
        let own = b.body.writes().into_iter().map(|a| a.buffer).filter(|a| reads.contains(a));
        own.into_iter().any(|buffer| writers(program, buffer).len() > 1)
    };
    written.find(shares).map(|b| b.name.clone())
}

/// Whether the loops around the block are known to take each of its iterators through all values.
fn is_complete(program: &Program, name: &str) -> bool {
    let extents = Extents::of(program);
    let Ok(path) = block_path(program, name) else { return false };
    block_at(program, &path).iters.iter().all(|iter| {
        let span = region::dense_span(&iter.binding, iter.extent, &[], &|_| true, &extents);
        span == Some(Span::whole(iter.extent))
    })
}

/// Under the loop at `target`: the last writer of each buffer that `block` reads.
fn producers_under(program: &Program, block: &Block, target: &Path) -> Vec<Path> {
    let under = |p: &Path| p.starts_with(target);
    block.reads().iter().filter_map(|&b| writers(program, b).into_iter().rfind(under)).collect()
}

/// For each iterator of `block`, the values that one iteration of `l` makes possible.
fn available(
    program: &Program,
    block: &Block,
    producers: &[Path],
    l: LoopRef,
) -> Checked<Vec<Span>> {
    let extents = Extents::of(program);
    let mut spans: Vec<Option<Span>> = vec![None; block.iters.len()];
    for path in producers {
        let producer = block_at(program, path);
        let below = loops_below(program, path, l);
        check_finished(producer, &below)?;
        for access in producer.body.writes() {
            let region = written(program, producer, access, &below, &extents)?;
            for indices in loads_of(block, access.buffer) {
                let shape = &program.buffer(access.buffer).ty.shape;
                for ((index, span), &axis) in indices.iter().zip(&region).zip(shape) {
                    restrict(&mut spans, block, index, span, axis)?;
                }
            }
        }
    }
    let whole = block.iters.iter().map(|i| Span::whole(i.extent));
    Ok(spans.into_iter().zip(whole).map(|(span, whole)| span.unwrap_or(whole)).collect())
}

/// The reduction of a producer must be complete after one iteration of the loop.
fn check_finished(producer: &Block, below: &[VarId]) -> Checked<()> {
    let reduced = bound_to(producer, IterKind::Reduce);
    match reduced.iter().find(|v| !below.contains(v)) {
        None => Ok(()),
        Some(&v) => Err(Cause::ReductionLoop(producer.name.clone()).at_loop(LoopRef(v))),
    }
}

/// The box of `access` that the producer fills without gaps while the loops `below` run.
fn written(
    program: &Program,
    producer: &Block,
    access: &Access,
    below: &[VarId],
    extents: &Extents,
) -> Checked<Vec<Span>> {
    let not_a_box = || {
        let buffer = buffer_name(program, access.buffer);
        Cause::NotABox { buffer }.at_block(&producer.name)
    };
    let shape = &program.buffer(access.buffer).ty.shape;
    let indices: Vec<Expr> = access.indices.iter().map(|i| bound(producer, i)).collect();
    let sums: Vec<Sum> = indices.iter().map(|i| Sum::of(i, extents)).collect();
    let mut bounds = vec![];
    for (sum, bound) in guards(producer, extents).ok_or_else(not_a_box)? {
        let of_axis = sums.iter().zip(shape).any(|(s, &n)| *s == sum && bound >= n as i64);
        if of_axis || sum.terms.keys().all(|d| d.depends_on(&|v| is_reduced(producer, v))) {
            continue;
        }
        bounds.push((sum, bound));
    }
    let running = |v: VarId| below.contains(&v);
    let mut used: Vec<VarId> = vec![];
    let mut region = vec![];
    for (index, &axis) in indices.iter().zip(shape) {
        let span = region::dense_span(index, axis, &bounds, &running, extents);
        region.push(span.ok_or_else(not_a_box)?);
        let moving: Vec<VarId> = index.vars().into_iter().filter(|&v| running(v)).collect();
        // A loop that moves two indices at once draws a diagonal, unless the digits are apart.
        let shared = moving.iter().any(|v| used.contains(v));
        if shared && !covers_together(&indices, &running, extents) {
            return Err(not_a_box());
        }
        used.extend(moving);
    }
    let consumed = |(sum, _): &(Sum, i64)| {
        sums.iter().any(|s| s.clone().partition(|d, _| d.depends_on(&running)).0 == *sum)
    };
    if bounds.iter().all(consumed) { Ok(region) } else { Err(not_a_box()) }
}

fn is_reduced(block: &Block, v: VarId) -> bool {
    bound_to(block, IterKind::Reduce).contains(&v)
}

/// The predicate as upper bounds of sums over loops; lower bounds of zero on indices hold anyway.
/// `None` if it has other parts.
fn guards(block: &Block, extents: &Extents) -> Option<Vec<(Sum, i64)>> {
    let mut guards = vec![];
    for part in block.predicate.iter().flat_map(Expr::conjuncts) {
        let Expr::Binary(op, a, b) = part else { return None };
        let (a, b) = (Sum::of(&bound(block, a), extents), Sum::of(&bound(block, b), extents));
        match (op, a.as_constant(), b.as_constant()) {
            (BinOp::Lt, None, Some(bound)) => guards.push((a, bound)),
            (BinOp::Le, Some(0), None) => {}
            _ => return None,
        }
    }
    Some(guards)
}

/// Whether different digits of the same loops in several indices take all combinations.
fn covers_together(indices: &[Expr], running: &impl Fn(VarId) -> bool, extents: &Extents) -> bool {
    let mut fields: Vec<(VarId, i64, Option<i64>)> = vec![];
    for index in indices {
        for digit in Sum::of(index, extents).terms.keys().filter(|d| d.depends_on(running)) {
            let crate::affine::Source::Var(v) = digit.source else { return false };
            fields.push((v, digit.divisor, digit.modulus));
        }
    }
    fields.sort_unstable();
    fields.windows(2).all(|pair| {
        let ((v, divisor, modulus), (w, next, _)) = (pair[0], pair[1]);
        let divides = |m: i64| extents.get(v).is_some_and(|e| e as i64 % (divisor * m) == 0);
        v != w || modulus.is_some_and(|m| divisor * m == next && divides(m))
    })
}

/// Takes into account that `index` of a load must lie in `span`.
fn restrict(
    spans: &mut [Option<Span>],
    block: &Block,
    index: &Expr,
    span: &Span,
    axis: usize,
) -> Checked<()> {
    if *span == Span::whole(axis) {
        return Ok(());
    }
    let place = match index {
        Expr::Var(v) => block.iters.iter().position(|i| i.var == *v),
        _ => None,
    };
    let place = place.ok_or_else(|| Cause::IndexNotPlain.at_block(&block.name))?;
    if block.iters[place].extent > axis {
        // A guarded load: no part of the buffer makes the other iterations possible.
        return Err(Cause::DifferentParts.at_block(&block.name));
    }
    match &spans[place] {
        Some(other) if other != span => Err(Cause::DifferentParts.at_block(&block.name)),
        _ => {
            spans[place] = Some(span.clone());
            Ok(())
        }
    }
}

/// A reduction takes every term once: the loops that its terms depend on can be told from the
/// terms.
fn check_terms_once(program: &Program, name: &str) -> Checked<()> {
    let path = block_path(program, name)?;
    let block = block_at(program, &path);
    check_own_order(program, block, &path)?;
    let extents = Extents::of(program);
    let bindings: Vec<Expr> = block.iters.iter().map(|i| i.binding.clone()).collect();
    for v in bound_to(block, IterKind::Reduce) {
        if !determines(&bindings, v, &extents) {
            return Err(Cause::RepeatedTerms.at_block(name));
        }
    }
    Ok(())
}

/// The terms of an arg-reduction come in order only if its own loops are all that drives them.
fn check_own_order(program: &Program, block: &Block, path: &Path) -> Checked<()> {
    let loops = tree::loops_above(&program.body, path);
    let own: Vec<VarId> = loops[loops.len() - block.iters.len()..].iter().map(|l| l.var).collect();
    let foreign = bound_to(block, IterKind::Reduce).iter().any(|v| !own.contains(v));
    match block.body {
        Body::ArgReduce { .. } if foreign => Err(Cause::TermOrder.at_block(&block.name)),
        _ => Ok(()),
    }
}
