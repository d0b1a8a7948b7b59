//! partition_guards: a loop is cut at the borders, so that nothing is guarded inside of them.
//!
//! ```text
//! for i in 0..8 { for j in 0..14 {
//!   y[i * 14 + j] = select(1 <= i * 14 + j, x[i * 14 + j - 1], 0)
//! } }
//! => partition_guards(i)
//! for i in 0..1 { for j in 0..14 { y[j] = select(1 <= j, x[j - 1], 0) } }
//! for i in 0..7 { for j in 0..14 { y[i * 14 + j + 14] = x[i * 14 + j + 13] } }
//! ```
//!
//! A convolution that reads its padding through a select reads without one in all tiles but those
//! at the ends.

use ansc_graph::{Expr, VarId};

use super::copies::Twins;
use super::error::Failure;
use super::loop_partition::partition;
use super::query::{blocks_under, loop_at, loop_at_mut, loop_path};
use super::{LoopRef, Result, Schedule};
use crate::affine::{self, Digit, Extents, Source};
use crate::disjoint::bound;
use crate::program::{Block, ForKind, Program};
use crate::region;
use crate::tree;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Parts the serial loop `l` into at most three: the iterations in which every guard and every
    /// condition of a select that the loop decides holds, whatever other loops do, and those before
    /// and after; what a parallel loop around `l` decides, too, is left. Conditions that hold or
    /// fail in all of a part are simplified there. Where there is no such iteration, or no such
    /// condition, the loop stays as it is. The parts are what
    /// [`loop_partition`](Schedule::loop_partition) makes of the loop.
    pub fn partition_guards(&mut self, l: LoopRef) -> Result<Vec<LoopRef>> {
        let (loops, twins) =
            self.apply("partition_guards", |program| partition_guards(program, l))?;
        self.copy_all_notes(&twins);
        Ok(loops)
    }
}

fn partition_guards(program: &mut Program, l: LoopRef) -> Checked<(Vec<LoopRef>, Twins)> {
    let path = loop_path(program, l)?;
    let Some((begin, end)) = inside(program, l)? else { return Ok((vec![l], Twins::default())) };
    let extent = loop_at(program, &path).extent;
    let points: Vec<usize> = [begin, end].into_iter().filter(|p| (1..extent).contains(p)).collect();
    let (loops, twins) = match points.is_empty() {
        true => (vec![l], Twins::default()),
        false => partition(program, l, &points)?,
    };
    let extents = Extents::of(program);
    for &part in &loops {
        // A part in which nothing runs is gone.
        if let Ok(path) = loop_path(program, part) {
            let body = &mut loop_at_mut(program, &path).body;
            tree::visit_blocks_mut(body, &mut |block| settle(block, &extents));
        }
    }
    Ok((loops, twins))
}

/// The iterations in which all conditions that the loop decides hold.
fn inside(program: &Program, l: LoopRef) -> Checked<Option<(usize, usize)>> {
    let path = loop_path(program, l)?;
    let target = loop_at(program, &path);
    let above = tree::loops_above(&program.body, &path);
    let is_apart = |v: &VarId| above.iter().any(|f| f.var == *v && f.kind == ForKind::Parallel);
    let extents = Extents::of(program);
    let whole = (0, i64::try_from(target.extent).unwrap_or(i64::MAX));
    let (mut range, mut is_decided) = (whole, false);
    for block in blocks_under(target) {
        let all = conditions(block).into_iter().map(|condition| bound(block, condition));
        for condition in all.filter(|condition| !condition.vars().iter().any(is_apart)) {
            if let Some((begin, end)) = holds(&condition, l, &extents) {
                range = (range.0.max(begin), range.1.min(end));
                is_decided = true;
            }
        }
    }
    let range = Some(range).filter(|(begin, end)| is_decided && begin < end);
    Ok(range.and_then(|(begin, end)| Some((begin.try_into().ok()?, end.try_into().ok()?))))
}

/// Parts of the guard, and of the conditions of selects.
fn conditions(block: &Block) -> Vec<&Expr> {
    let mut all: Vec<&Expr> = block.predicate.iter().flat_map(Expr::conjuncts).collect();
    block.body.value().visit(&mut |e| {
        if let Expr::Select(condition, ..) = e {
            all.extend(condition.conjuncts());
        }
    });
    all
}

/// The iterations from which on, and until which, a condition over loops holds, if its sum grows or
/// shrinks with the loop.
fn holds(condition: &Expr, l: LoopRef, extents: &Extents) -> Option<(i64, i64)> {
    let slack = region::slack(condition, extents)?;
    let (own, rest) = slack.partition(|digit, _| digit.depends_on(&|v| v == l.0));
    let (digit, coefficient) = own.terms.only()?;
    if *digit != Digit::whole(Source::Var(l.0)) {
        return None;
    }
    // 0 <= coefficient * i + rest
    let (least, _) = rest.interval(extents)?;
    Some(match coefficient {
        grows if grows > 0 => {
            (least.checked_neg()?.checked_add(grows - 1)?.div_euclid(grows), i64::MAX)
        }
        shrinks => (i64::MIN, least.div_euclid(shrinks.checked_neg()?).checked_add(1)?),
    })
}

/// Without conditions that are decided by the ranges of loops.
fn settle(block: &mut Block, extents: &Extents) {
    let decided = {
        let iters = block.clone();
        move |e: &Expr| affine::decided(&bound(&iters, e), extents)
    };
    if let Some(predicate) = block.predicate.take() {
        let open = predicate.conjuncts().into_iter().filter(|p| decided(p) != Some(true));
        block.predicate = tree::conjunction(open.cloned());
    }
    let value = block.body.value_mut();
    *value = settled(value, &decided);
}

fn settled(e: &Expr, decided: &impl Fn(&Expr) -> Option<bool>) -> Expr {
    let Expr::Select(condition, a, b) = e else {
        return e.map_children(|child| settled(child, decided));
    };
    let parts: Vec<(&Expr, Option<bool>)> =
        condition.conjuncts().into_iter().map(|part| (part, decided(part))).collect();
    if parts.iter().any(|(_, holds)| *holds == Some(false)) {
        return settled(b, decided);
    }
    let open = parts.into_iter().filter(|(_, holds)| holds.is_none()).map(|(part, _)| part.clone());
    match tree::conjunction(open) {
        None => settled(a, decided),
        Some(open) => Expr::select(open, settled(a, decided), settled(b, decided)),
    }
}
