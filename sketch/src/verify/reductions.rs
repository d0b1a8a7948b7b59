//! Sums begin once, arg-reductions take their terms in order, and guards keep results and terms
//! apart.

use ansc_graph::{Expr, VarId};

use super::boxes;
use super::cover::{constant, region};
use super::point::{Point, samples};
use super::{Answer, Fault, Question, Site, Subject, Touch, is_update, serves};
use crate::affine::{Digit, Source, Sum};
use crate::program::{Body, IterKind};

pub(super) fn check(subject: &mut Subject<'_>) -> Result<(), Fault> {
    for at in 0..subject.sites.len() {
        guard(&subject.sites[at])?;
        let answer = term_order(subject, at);
        if let Some(answer) = answer {
            subject.settle(Question::TermOrder, answer)?;
        }
    }
    for at in 0..subject.touches.len() {
        let touch = subject.touches[at];
        let block = subject.sites[touch.site].block;
        if touch.writes && !matches!(block.body, Body::Assign { .. }) {
            let answer = match is_update(block) {
                true => begins_once(subject, touch),
                false => inits_are_apart(subject, touch),
            };
            subject.settle(Question::Initialisation, answer)?;
        }
    }
    Ok(())
}

/// Each part of a guard depends on spatial iterators or on those of terms.
fn guard(site: &Site<'_>) -> Result<(), Fault> {
    let depends = |vars: &[VarId], kind| {
        let is_own = |v: VarId| site.block.iters.iter().any(|i| i.var == v && i.kind == kind);
        vars.iter().any(|v| is_own(*v) || serves(site.block, *v, kind))
    };
    let parts = site.block.predicate.iter().flat_map(Expr::conjuncts);
    let mixed = |part: &Expr| {
        let vars: Vec<VarId> = part.vars().into_iter().collect();
        depends(&vars, IterKind::Spatial) && depends(&vars, IterKind::Reduce)
    };
    match parts.into_iter().any(mixed) {
        true => Err(Fault::MixedGuard { block: site.block.name.clone() }),
        false => Ok(()),
    }
}

/// Whether the numbers of terms grow from iteration to iteration.
fn term_order(subject: &mut Subject<'_>, at: usize) -> Option<Answer> {
    let Body::ArgReduce { term, .. } = &subject.sites[at].block.body else { return None };
    subject.bind(at);
    let site = &subject.sites[at];
    let of_terms: Vec<_> =
        site.loops.iter().filter(|l| serves(site.block, l.var, IterKind::Reduce)).collect();
    let sum = Sum::of(term, &subject.extents);
    let mut reach: i64 = 0;
    let grows = of_terms.iter().rev().all(|l| {
        let by = sum.terms.get(&Digit::whole(Source::Var(l.var))).unwrap_or(0);
        let grows = l.extent == 1 || by > reach;
        reach = reach.saturating_add(by.saturating_mul(l.extent as i64 - 1));
        grows
    });
    let is_plain = sum.terms.keys().all(|digit| {
        matches!(digit.source, Source::Var(_)) && digit.modulus.is_none() && digit.divisor == 1
    });
    if grows && is_plain {
        return Some(Answer::Proven);
    }
    let decreases = (0..of_terms.len()).any(|turning| {
        let value = |carry: bool| {
            let mut point = Point::first(subject.program.vars.len());
            for (i, l) in of_terms.iter().enumerate() {
                let last = i > turning && !carry;
                let value =
                    if last { l.extent as i64 - 1 } else { i64::from(i == turning && carry) };
                point.set(l.var, value);
            }
            if point.enters(site) { point.eval(term) } else { None }
        };
        of_terms[turning].extent > 1 && value(false).zip(value(true)).is_some_and(|(a, b)| b <= a)
    });
    Some(match decreases {
        true => Answer::Refuted(Fault::TermOrder { block: site.block.name.clone() }),
        false => Answer::Unknown,
    })
}

/// Whether no assignment starts a sum anew while its terms are added up, if nobody took what was
/// there.
fn begins_once(subject: &Subject<'_>, update: Touch<'_>) -> Answer {
    let site = &subject.sites[update.site];
    let others =
        || subject.touches.iter().filter(|t| t.buffer == update.buffer && t.site != update.site);
    for start in others().filter(|t| t.writes && !is_update(subject.sites[t.site].block)) {
        let shared = site.shared(&subject.sites[start.site]);
        for (depth, l) in site.loops[..shared].iter().enumerate() {
            let is_read = || {
                others().any(|t| {
                    !t.writes && t.site != start.site && is_under(subject, t, depth, l.var)
                })
            };
            if l.extent > 1 && serves(site.block, l.var, IterKind::Reduce) && !is_read() {
                return match do_meet(subject, update, *start, depth) {
                    true => Answer::Refuted(Fault::InitialisedAgain {
                        block: subject.block_name(start.site),
                        buffer: subject.buffer_name(update.buffer),
                        var: subject.var_name(l.var),
                    }),
                    false => Answer::Unknown,
                };
            }
        }
    }
    Answer::Proven
}

fn is_under(subject: &Subject<'_>, touch: &Touch<'_>, depth: usize, var: VarId) -> bool {
    subject.sites[touch.site].loops.get(depth).is_some_and(|l| l.var == var)
}

/// Whether an element that the update writes in the first iteration of a loop is assigned in the
/// second.
fn do_meet(subject: &Subject<'_>, update: Touch<'_>, start: Touch<'_>, depth: usize) -> bool {
    let elements = |touch: Touch<'_>, iteration| {
        let points =
            samples(&subject.sites[touch.site], subject.program.vars.len(), depth, iteration);
        let element =
            |p: &Point| touch.indices.iter().map(|i| p.eval(i)).collect::<Option<Vec<_>>>();
        points.iter().filter_map(element).collect::<Vec<_>>()
    };
    let written = elements(update, 0);
    elements(start, 1).iter().any(|element| written.contains(element))
}

/// Whether no earlier reduction began, and was not read, where this one begins.
fn inits_are_apart(subject: &mut Subject<'_>, touch: Touch<'_>) -> Answer {
    let begins = |t: &&Touch<'_>| {
        let (site, block) = (t.site, subject.sites[t.site].block);
        t.buffer == touch.buffer && t.writes && site < touch.site && block.has_init()
    };
    let Some(before) = subject.touches.iter().rfind(begins).copied() else {
        return Answer::Proven;
    };
    let between = before.site + 1..=touch.site;
    let is_read =
        |t: &Touch<'_>| t.buffer == touch.buffer && !t.writes && between.contains(&t.site);
    if subject.touches.iter().any(is_read) {
        return Answer::Proven;
    }
    let (a, b) = (region(subject, before, 0), region(subject, touch, 0));
    let (Some(first), Some(second)) = (constant(&a), constant(&b)) else { return Answer::Unknown };
    match boxes::meet(&first, &second) {
        None => Answer::Proven,
        Some(_) if a.full && b.full => Answer::Refuted(Fault::InitialisedTwice {
            block: subject.block_name(touch.site),
            other: subject.block_name(before.site),
            buffer: subject.buffer_name(touch.buffer),
        }),
        Some(_) => Answer::Unknown,
    }
}
