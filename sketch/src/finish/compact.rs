//! Local buffers shrink to the box that one iteration of their home loop touches, shared ones to
//! what all threads of a block touch in it.
//!
//! ```text
//! t: f32[64]   for i { for j in 0..4 { t[i * 4 + j] = .. }   for j in 0..4 { .. t[i * 4 + j] .. } }
//! =>
//! t: f32[4]    for i { for j in 0..4 { t[j] = .. }   for j in 0..4 { .. t[j] .. } }
//! ```
//! Expressions are over loops (see `resolve`).

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, Expr, VarId};

use crate::affine::{self, Extents};
use crate::program::{Block, Program, Scope};
use crate::region::{self, Span};
use crate::tree;

pub(super) fn compact_buffers(program: &mut Program) {
    let threads = threads(program);
    let mut common = tree::common_loops(program);
    for (buffer, home) in &mut common {
        // All threads of a block use the same shared memory.
        if program.buffer(*buffer).scope == Scope::Shared {
            home.retain(|v| !threads.contains(v));
        }
    }
    let is_private = |b: &BufId| {
        let scope = program.buffer(*b).scope;
        scope.is_private() || scope == Scope::Shared
    };
    common.retain(|buffer, _| is_private(buffer));
    if common.is_empty() {
        return;
    }
    let extents = Extents::of(program);
    let boxes = touched(program, &common, &extents);
    tree::visit_blocks_mut(&mut program.body, &mut |block| shift(block, &boxes, &extents));
    for (buffer, spans) in boxes {
        let shape = &mut program.buffers[buffer.index()].ty.shape;
        for (length, span) in shape.iter_mut().zip(spans) {
            *length = usize::try_from(span.extent).unwrap_or(*length).min(*length);
        }
    }
}

fn threads(program: &Program) -> BTreeSet<VarId> {
    let mut threads = BTreeSet::new();
    tree::visit_loops(&program.body, &mut |l| {
        if l.kind.is_inside_block() {
            threads.insert(l.var);
        }
    });
    threads
}

/// For each buffer the union of all accesses in one iteration of the innermost loop of its home.
fn touched(
    program: &Program,
    homes: &BTreeMap<BufId, Vec<VarId>>,
    extents: &Extents,
) -> BTreeMap<BufId, Vec<Span>> {
    let shape = |buffer: &BufId| &program.buffer(*buffer).ty.shape;
    let mut all: BTreeMap<BufId, Vec<Option<Span>>> =
        homes.keys().map(|buffer| (*buffer, vec![None; shape(buffer).len()])).collect();
    for block in program.blocks() {
        for (buffer, indices) in accesses(block) {
            let Some(spans) = all.get_mut(&buffer) else { continue };
            let running = |v: VarId| !homes[&buffer].contains(&v);
            for ((known, index), &axis) in spans.iter_mut().zip(indices).zip(shape(&buffer)) {
                let span = region::span(index, axis, &[], &running, extents);
                *known = Some(match known.take() {
                    None => span,
                    Some(other) => other.union(&span).unwrap_or_else(|| Span::whole(axis)),
                });
            }
        }
    }
    let fit = |(span, &axis): (Option<Span>, &usize)| match span {
        Some(span) if span.extent < Span::whole(axis).extent => span,
        _ => Span::whole(axis),
    };
    let fit_all = |(buffer, spans): (BufId, Vec<Option<Span>>)| {
        (buffer, spans.into_iter().zip(shape(&buffer)).map(fit).collect())
    };
    all.into_iter().map(fit_all).collect()
}

/// The accesses of the block: its reads, then its writes.
fn accesses(block: &Block) -> Vec<(BufId, &[Expr])> {
    let mut all: Vec<(BufId, &[Expr])> = vec![];
    for e in block.exprs() {
        e.visit(&mut |node| {
            if let Expr::Load(buffer, indices) = node {
                all.push((*buffer, indices));
            }
        });
    }
    all.extend(block.body.writes().into_iter().map(|a| (a.buffer, a.indices.as_slice())));
    all
}

/// Indices relative to the boxes.
fn shift(block: &mut Block, boxes: &BTreeMap<BufId, Vec<Span>>, extents: &Extents) {
    let relative = |index: &Expr, span: &Span| match span.min.as_constant() {
        Some(0) => index.clone(),
        _ => affine::simplify(&(index.clone() - span.min.to_expr()), extents),
    };
    block.visit_accesses_mut(&mut |buffer, indices| {
        let spans = boxes.get(buffer).into_iter().flatten();
        indices.iter_mut().zip(spans).for_each(|(i, s)| *i = relative(i, s));
    });
}
