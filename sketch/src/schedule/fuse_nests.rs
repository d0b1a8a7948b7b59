//! fuse_nests, parallel_nests: what lies side by side under outer loops becomes nests of its own.
//!
//! ```text
//! for j in 0..4 (outer: 1) { for p in 0..2 (outer: 0) { a }   b }
//! => parallel_nests("outer", "more", 0)
//! parallel p_j in 0..8 { a }
//! parallel j in 0..4 { b }
//! ```
//!
//! Which loops are meant is told by notes: peeling and parting leave several loops of one, with the
//! same notes. The value of a note is the place of the loop among those that become one.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ansc_graph::{BufId, Expr, VarId};

use super::annotate::Annotation;
use super::copies;
use super::error::{Cause, Failure, buffer_name};
use super::query::{blocks_under, bound_to, loop_at, loop_at_mut, loop_path, simplify_under};
use super::{LoopRef, Result, Schedule};
use crate::affine::{Extents, Sum};
use crate::disjoint::{self, bound};
use crate::program::{Block, Body, For, ForKind, IterKind, Program, Shared, Stmt};
use crate::tree;
use ansc_graph::flat::spread;

type Checked<T> = std::result::Result<T, Failure>;

/// The notes of loops.
struct Notes {
    /// The place of each loop that becomes part of another one.
    places: BTreeMap<VarId, i64>,
    /// Loops directly inside that may, too.
    more: BTreeSet<VarId>,
    /// Iterations that are enough without these.
    few: usize,
}

impl Notes {
    fn has(&self, l: VarId) -> bool {
        self.places.contains_key(&l) || self.more.contains(&l)
    }
}

/// A nest that is to be: its loops, and what is inside of them.
struct Nest {
    loops: Vec<For>,
    body: Vec<Stmt>,
}

impl Schedule {
    /// Takes apart all nests of the root, or of a parallel loop there, that begin with a loop that
    /// has one of the notes: each group of statements under loops with the note `outer` becomes a
    /// nest of its own, in order, under one loop, which runs over those around the group in the
    /// order of their notes. If that has fewer iterations than `few`, loops with the note `more`
    /// directly in the group leave it and join, as the innermost. Nothing that one iteration or
    /// group writes is touched by another one; only the same iteration may assign it again.
    pub fn fuse_nests(&mut self, outer: &str, more: &str, few: usize) -> Result<()> {
        self.nests("fuse_nests", [outer, more], few, ForKind::Serial)
    }

    /// The same, and the new loops run in parallel.
    pub fn parallel_nests(&mut self, outer: &str, more: &str, few: usize) -> Result<()> {
        self.nests("parallel_nests", [outer, more], few, ForKind::Parallel)
    }

    fn nests(
        &mut self,
        primitive: &'static str,
        [outer, more]: [&str; 2],
        few: usize,
        kind: ForKind,
    ) -> Result<()> {
        let places = self.noted(outer).into_iter().filter_map(|(v, note)| match note {
            Annotation::Int(place) => Some((v, *place)),
            _ => None,
        });
        let places = places.collect();
        let more = self.noted(more).into_iter().map(|(v, _)| v).collect();
        let notes = Notes { places, more, few };
        let twins = self.apply(primitive, |program| take_apart(program, &notes, kind))?;
        self.copy_all_notes(&twins);
        Ok(())
    }

    /// Does the iterations of each loop that has the note side by side; see
    /// [`unroll_jam`](Schedule::unroll_jam).
    pub fn jam_noted(&mut self, key: &str) -> Result<()> {
        self.each_noted(key, |changed, l| changed.unroll_jam(l).map(drop))
    }

    /// Parts each loop that has the note where padding begins and ends; see
    /// [`partition_guards`](Schedule::partition_guards). The note is gone afterwards.
    pub fn partition_noted(&mut self, key: &str) -> Result<()> {
        self.each_noted(key, |changed, l| {
            let is_serial = changed.for_loop(l)?.kind == ForKind::Serial;
            if is_serial { changed.partition_guards(l).map(drop) } else { Ok(()) }
        })
    }

    /// Loops that are gone are passed over, and the note is taken away.
    fn each_noted(
        &mut self,
        key: &str,
        apply: impl Fn(&mut Schedule, LoopRef) -> Result<()>,
    ) -> Result<()> {
        let noted: Vec<VarId> = self.noted(key).into_iter().map(|(v, _)| v).collect();
        let mut changed = self.clone();
        for l in noted.into_iter().map(LoopRef) {
            changed.unannotate_loop(l, key);
            if changed.for_loop(l).is_ok() {
                apply(&mut changed, l)?;
            }
        }
        *self = changed;
        Ok(())
    }
}

fn take_apart(program: &mut Program, notes: &Notes, kind: ForKind) -> Checked<copies::Twins> {
    let (stmts, mut fused) = (std::mem::take(&mut program.body), vec![]);
    program.body = apart(program, stmts, notes, &mut fused)?;
    let twins = copies::own_names(program);
    for l in fused {
        let path = loop_path(program, l)?;
        simplify_under(program, &path, &[l.0]);
        set_kind(program, &path, kind)?;
    }
    Ok(twins)
}

/// Statements with nests of their own for those that begin with a loop that has a note; `fused` are
/// the new loops.
fn apart(
    program: &mut Program,
    stmts: Vec<Stmt>,
    notes: &Notes,
    fused: &mut Vec<LoopRef>,
) -> Checked<Vec<Stmt>> {
    let mut body = vec![];
    for stmt in stmts {
        match stmt {
            Stmt::For(l) if notes.has(l.var) => {
                let stmt = Stmt::For(l);
                check_apart(program, &stmt, notes)?;
                let mut nests = vec![];
                gather(vec![stmt], &[], &|l| notes.places.contains_key(&l.var), &mut nests);
                let nests: Vec<Nest> =
                    nests.into_iter().flat_map(|nest| joined(nest, notes)).collect();
                check_groups(program, &nests)?;
                for nest in nests {
                    let (stmts, l) = one_loop(program, nest, notes);
                    body.extend(stmts);
                    fused.extend(l);
                }
            }
            Stmt::For(mut l) if l.kind == ForKind::Parallel => {
                l.body = apart(program, std::mem::take(&mut l.body), notes, fused)?;
                body.push(Stmt::For(l));
            }
            other => body.push(other),
        }
    }
    Ok(body)
}

/// The groups under loops of which `is_outer` holds, each with these loops.
fn gather(stmts: Vec<Stmt>, above: &[For], is_outer: &dyn Fn(&For) -> bool, nests: &mut Vec<Nest>) {
    let mut group = vec![];
    let close = |group: &mut Vec<Stmt>, nests: &mut Vec<Nest>| {
        if !group.is_empty() {
            nests.push(Nest { loops: above.to_vec(), body: std::mem::take(group) });
        }
    };
    for stmt in stmts {
        match stmt {
            Stmt::For(mut l) if is_outer(&l) => {
                close(&mut group, nests);
                let inside = std::mem::take(&mut l.body);
                gather(inside, &[above, &[l.into_inner()]].concat(), is_outer, nests);
            }
            other => group.push(other),
        }
    }
    close(&mut group, nests);
}

/// The nest, or those that it becomes if loops inside join those outside.
fn joined(nest: Nest, notes: &Notes) -> Vec<Nest> {
    let iterations: usize = nest.loops.iter().map(|l| l.extent).product();
    let joins = |l: &For| l.extent > 1 && notes.more.contains(&l.var);
    if iterations >= notes.few {
        return vec![nest];
    }
    let mut parts = vec![];
    gather(nest.body, &nest.loops, &joins, &mut parts);
    parts
}

/// The statements of a nest under one loop; without a loop if that is one iteration.
fn one_loop(program: &mut Program, nest: Nest, notes: &Notes) -> (Vec<Stmt>, Option<LoopRef>) {
    let Nest { mut loops, mut body } = nest;
    loops.sort_by_key(|l| notes.places.get(&l.var).copied().unwrap_or(i64::MAX));
    let extents: Vec<usize> = loops.iter().map(|l| l.extent).collect();
    let names: Vec<&str> = loops.iter().map(|l| &*program.vars[l.var.index()]).collect();
    let var = program.add_var(names.join("_"));
    let places = spread(&Expr::Var(var), &extents);
    let place = |v: VarId| loops.iter().position(|l| l.var == v).map(|at| places[at].clone());
    tree::visit_blocks_mut(&mut body, &mut |block| block.substitute_loops(&place));
    let extent = extents.iter().product();
    if extent == 1 {
        return (body, None);
    }
    let l = For { var, extent, kind: ForKind::Serial, body };
    (vec![Stmt::For(Shared::new(l))], Some(LoopRef(var)))
}

fn set_kind(program: &mut Program, path: &[usize], kind: ForKind) -> Checked<()> {
    let l = loop_at(program, path);
    let at = LoopRef(l.var);
    if kind == ForKind::Parallel && path.len() != 1 {
        return Err(Cause::NotOutermost.at_loop(at));
    }
    if let Some((block, buffer)) = disjoint::shared_write(program, l, ForKind::Parallel) {
        let buffer = buffer_name(program, buffer);
        return Err(Cause::SharedWrites { block, buffer }.at_loop(at));
    }
    loop_at_mut(program, path).kind = kind;
    Ok(())
}

/// No sum goes on over the loops, and nothing that is written under them is read there, but for
/// what one iteration has for itself.
fn check_apart(program: &Program, stmt: &Stmt, notes: &Notes) -> Checked<()> {
    let Stmt::For(outermost) = stmt else { return Ok(()) };
    let at = LoopRef(outermost.var);
    let blocks = blocks_under(outermost);
    for block in &blocks {
        let reduced = bound_to(block, IterKind::Reduce);
        if reduced.iter().any(|v| notes.places.contains_key(v) || notes.more.contains(v)) {
            return Err(Cause::ReductionLoop(block.name.clone()).at_loop(at));
        }
    }
    let reads: BTreeSet<BufId> = blocks.iter().flat_map(|b| b.reads()).collect();
    for block in &blocks {
        for access in block.body.writes() {
            let buffer = program.buffer(access.buffer);
            if !buffer.scope.is_private() && reads.contains(&access.buffer) {
                let other = blocks.iter().find(|b| b.reads().contains(&access.buffer));
                let other = other.map_or_else(String::new, |b| b.name.clone());
                let (block, buffer) = (block.name.clone(), buffer.name.clone());
                return Err(Cause::Dependent { block, other, buffer }.at_loop(at));
            }
        }
    }
    Ok(())
}

/// A write of a group to a buffer that others may see.
struct Written<'p> {
    block: &'p Block,
    buffer: BufId,
    /// The values of the block's iterators, and those of the indices.
    iters: Vec<Option<(i64, i64)>>,
    indices: Vec<Option<(i64, i64)>>,
    extents: Rc<Extents>,
}

/// Groups write different elements, or write them again, and use no private buffer together.
fn check_groups(program: &Program, nests: &[Nest]) -> Checked<()> {
    if nests.len() < 2 {
        return Ok(());
    }
    let (mut private, mut written) = (BTreeSet::new(), vec![]);
    for nest in nests {
        let (used, own) = uses(program, nest);
        for buffer in used {
            if !private.insert(buffer) {
                let buffer = buffer_name(program, buffer);
                return Err(Cause::OtherReaders { buffer }.into());
            }
        }
        written.push(own);
    }
    for (at, group) in written.iter().enumerate() {
        for (later, other) in written.iter().enumerate().skip(at + 1) {
            let around = around_both(&nests[at], &nests[later]);
            check_pair(program, &around, group, other)?;
        }
    }
    Ok(())
}

/// The loops that contain two groups, with all of their iterations.
fn around_both(nest: &Nest, other: &Nest) -> Vec<VarId> {
    let pairs = nest.loops.iter().zip(&other.loops);
    let same = pairs.take_while(|(a, b)| a.var == b.var && a.extent == b.extent);
    same.filter(|(l, _)| l.extent > 1).map(|(l, _)| l.var).collect()
}

fn check_pair(
    program: &Program,
    around: &[VarId],
    group: &[Written<'_>],
    other: &[Written<'_>],
) -> Checked<()> {
    for a in group {
        for b in other.iter().filter(|b| b.buffer == a.buffer) {
            if !are_apart(a, b) && !is_written_again(a, b, around) {
                let (block, other) = (a.block.name.clone(), b.block.name.clone());
                let buffer = buffer_name(program, a.buffer);
                return Err(Cause::Dependent { block, other, buffer }.into());
            }
        }
    }
    Ok(())
}

/// The private buffers of a group, and what it writes elsewhere.
fn uses<'n>(program: &Program, nest: &'n Nest) -> (BTreeSet<BufId>, Vec<Written<'n>>) {
    let mut extents = Extents::default();
    nest.loops.iter().for_each(|l| extents.set(l.var, l.extent));
    tree::visit_loops(&nest.body, &mut |l| extents.set(l.var, l.extent));
    let extents = Rc::new(extents);
    let (mut private, mut written) = (BTreeSet::new(), vec![]);
    let is_private = |b: &BufId| program.buffer(*b).scope.is_private();
    let mut visit = |block: &'n Block| {
        private.extend(block.buffers().into_iter().filter(is_private));
        for access in block.body.writes().into_iter().filter(|a| !is_private(&a.buffer)) {
            let span = |e: &Expr| Sum::of(e, &extents).interval(&extents);
            let iters = block.iters.iter().map(|i| span(&i.binding)).collect();
            let indices = access.indices.iter().map(|e| span(&bound(block, e))).collect();
            let (buffer, extents) = (access.buffer, extents.clone());
            written.push(Written { block, buffer, iters, indices, extents });
        }
    };
    nest.body.iter().for_each(|s| s.visit_blocks(&mut visit));
    (private, written)
}

/// Whether the two write different elements: an index tells them apart; or they are parts of one
/// block, and an iterator does, of which different values are independent.
fn are_apart(a: &Written<'_>, b: &Written<'_>) -> bool {
    let differ = |a: &[Option<(i64, i64)>], b: &[Option<(i64, i64)>]| {
        a.iter().zip(b).any(|pair| match pair {
            (Some((a, to_a)), Some((b, to_b))) => to_a < b || to_b < a,
            _ => false,
        })
    };
    differ(&a.indices, &b.indices) || (is_same_block(a, b) && differ(&a.iters, &b.iters))
}

/// Whether the two assign an element of one block in the same iteration of the loops around both
/// only: then the later one is the last, before and after the groups are nests. The iterators that
/// both have from these loops tell iterations apart.
fn is_written_again(a: &Written<'_>, b: &Written<'_>, around: &[VarId]) -> bool {
    let assigns = |w: &Written<'_>| matches!(w.block.body, Body::Assign { .. });
    let pairs = a.block.iters.iter().zip(&b.block.iters);
    let same = pairs.filter(|(of_a, of_b)| of_a.binding == of_b.binding);
    let same: Vec<Expr> = same.map(|(iter, _)| iter.binding.clone()).collect();
    let is_told = |l: &VarId| {
        let by = |extents: &Extents| disjoint::determines(&same, *l, extents);
        by(&a.extents) && by(&b.extents)
    };
    is_same_block(a, b) && assigns(a) && assigns(b) && around.iter().all(is_told)
}

fn is_same_block(a: &Written<'_>, b: &Written<'_>) -> bool {
    let (of_a, of_b) = (&a.block.iters, &b.block.iters);
    let renamed = |v: VarId| {
        let at = of_b.iter().position(|i| i.var == v)?;
        Some(Expr::Var(of_a.get(at)?.var))
    };
    let places = |w: &Written<'_>| {
        let access = w.block.body.writes().into_iter().find(|x| x.buffer == w.buffer);
        access.map(|access| access.indices.clone())
    };
    let kinds = of_a.iter().zip(of_b).all(|(a, b)| a.extent == b.extent && a.kind == b.kind);
    let of_b_indices = places(b).map(|p| p.iter().map(|e| e.substitute(&renamed)).collect());
    of_a.len() == of_b.len() && kinds && places(a) == of_b_indices
}
