//! Elements are written before they are read, and results completely.
//!
//! While some loops run and others stand still, an access touches elements within a box. It touches
//! all of them if each axis is a sum without gaps, axes do not depend on each other, and the guard
//! is on such a sum. Boxes of writes that are full are taken out of the box of a read; if nothing
//! is left, all that is read was written.

use ansc_graph::{BufId, Expr, VarId};

use super::boxes::{self, Box};
use super::point::{Point, climb};
use super::{Answer, Fault, Question, Subject, Touch, is_update};
use crate::affine::{Extents, Source, Sum};
use crate::program::{Block, Program, Scope};
use crate::region::{self, Limit, Span};

pub(super) fn check(subject: &mut Subject<'_>) -> Result<(), Fault> {
    for at in 0..subject.touches.len() {
        let touch = subject.touches[at];
        let is_input = subject.program.buffer(touch.buffer).scope == Scope::Input;
        let is_known = subject.touches[..at]
            .iter()
            .rev()
            .take_while(|t| t.site == touch.site)
            .any(|t| t.buffer == touch.buffer && t.indices == touch.indices && !t.writes);
        if !touch.writes && !is_input && !is_known {
            let answer = definition(subject, touch);
            subject.settle(Question::Definition, answer)?;
        }
    }
    for buffer in subject.program.params.clone() {
        if subject.program.buffer(buffer).scope == Scope::Output {
            let answer = coverage(subject, buffer);
            subject.settle(Question::Coverage, answer)?;
        }
    }
    Ok(())
}

/// The elements that an access touches while loops run; the ends of spans are sums over those that
/// stand still.
pub(super) struct Region {
    pub(super) spans: Vec<Span>,
    /// Whether it touches all of that.
    pub(super) full: bool,
}

/// The region of an access while loops from `standing` on run.
pub(super) fn region(subject: &mut Subject<'_>, touch: Touch<'_>, standing: usize) -> Region {
    subject.bind(touch.site);
    let (site, extents) = (&subject.sites[touch.site], &subject.extents);
    let running = |v: VarId| site.loops[standing..].iter().any(|l| l.var == v);
    let shape = &subject.program.buffer(touch.buffer).ty.shape;
    let limits = region::limits(site.block, extents);
    let is_full = is_full(site.block, touch, &limits, &running, extents);
    let mut full = is_full;
    let spans = touch.indices.iter().zip(shape).map(|(index, &axis)| {
        let dense = full.then(|| region::dense_span(index, axis, &limits, &running, extents));
        dense.flatten().unwrap_or_else(|| {
            full = false;
            region::span(index, axis, &limits, &running, extents)
        })
    });
    let spans = spans.collect();
    Region { spans, full }
}

/// Whether axes are independent of each other, and guards are on sums that are axes.
fn is_full(
    block: &Block,
    touch: Touch<'_>,
    limits: &[Limit],
    running: &impl Fn(VarId) -> bool,
    extents: &Extents,
) -> bool {
    let mut fields: Vec<(VarId, i64, Option<i64>)> = vec![];
    let mut moving = vec![];
    for index in touch.indices {
        let (sum, _) = Sum::of(index, extents).partition(|digit, _| digit.depends_on(running));
        for digit in sum.terms.keys() {
            let Source::Var(v) = digit.source else { return false };
            fields.push((v, digit.divisor, digit.modulus));
        }
        moving.push(sum);
    }
    fields.sort_unstable();
    let apart = fields.windows(2).all(|pair| {
        let [(a, divisor, modulus), (b, next, _)] = pair else { return true };
        let end = modulus.and_then(|m| m.checked_mul(*divisor));
        a != b || end.is_some_and(|end| next % end == 0)
    });
    let whole = fields.iter().enumerate().all(|(i, (v, divisor, modulus))| {
        let is_last = fields.get(i + 1).is_none_or(|(next, ..)| next != v);
        let extent = extents.interval(*v).map(|(_, high)| high + 1);
        let unit =
            modulus.filter(|_| !is_last).and_then(|m| m.checked_mul(*divisor)).unwrap_or(*divisor);
        extent.is_some_and(|extent| extent % unit == 0)
            && modulus.is_none_or(|m| {
                !is_last || extent.is_some_and(|e| e / divisor <= m || e % (divisor * m) == 0)
            })
    });
    let conjuncts: Vec<&Expr> = block.predicate.iter().flat_map(Expr::conjuncts).collect();
    // One that is no limit is not known to let anything pass.
    let on_axes = limits.iter().all(|(sum, _)| moving.iter().filter(|m| *m == sum).count() == 1);
    apart && whole && conjuncts.len() == limits.len() && on_axes
}

/// Whether everything that the access reads was written.
fn definition(subject: &mut Subject<'_>, read: Touch<'_>) -> Answer {
    let writes: Vec<Touch<'_>> = subject
        .touches
        .iter()
        .filter(|t| t.writes && t.buffer == read.buffer)
        .filter(|t| t.site < read.site && !is_update(subject.sites[t.site].block))
        .copied()
        .collect();
    if writes.is_empty() {
        return if reads_nothing_written(subject, read) {
            let (block, buffer) = (subject.block_name(read.site), subject.buffer_name(read.buffer));
            Answer::Refuted(Fault::Undefined { block, buffer })
        } else {
            Answer::Unknown
        };
    }
    let shared = |w: &Touch<'_>| subject.sites[read.site].shared(&subject.sites[w.site]);
    let standing = writes.iter().map(shared).max().unwrap_or(0);
    let depths: Vec<usize> = writes.iter().map(shared).collect();
    let wanted = region(subject, read, standing);
    let whole: Box = wanted.spans.iter().map(|span| (0, span.extent)).collect();
    let mut written = vec![];
    for (write, depth) in writes.into_iter().zip(depths) {
        let region = region(subject, write, depth);
        written.extend(relative(&region, &wanted).filter(|_| region.full));
    }
    match boxes::left(whole, written.iter()) {
        Some(left) if left.is_empty() => Answer::Proven,
        _ => Answer::Unknown,
    }
}

/// A region with the beginning of another one as the origin, if their distance is known.
fn relative(region: &Region, origin: &Region) -> Option<Box> {
    let pairs = region.spans.iter().zip(&origin.spans);
    let span = |(span, origin): (&Span, &Span)| {
        let begin = match span.min == origin.min {
            true => 0,
            false => span.min.clone().minus(&origin.min).as_constant()?,
        };
        Some((begin, begin.checked_add(span.extent)?))
    };
    pairs.map(span).collect()
}

/// Whether the access happens before any write of its buffer for sure. Nothing earlier writes it;
/// what is later may have done so in an earlier iteration of a loop around both.
fn reads_nothing_written(subject: &Subject<'_>, read: Touch<'_>) -> bool {
    let site = &subject.sites[read.site];
    let vars = subject.program.vars.len();
    let writes = |t: &&Touch<'_>| {
        t.writes && t.buffer == read.buffer && !is_update(subject.sites[t.site].block)
    };
    let mut later =
        subject.touches.iter().filter(writes).map(|t| site.shared(&subject.sites[t.site]));
    if read.guarded {
        return false;
    }
    match later.all(|shared| shared == 0) {
        true => climb(site, vars, &|_| Some(1)).is_some(),
        false => Point::first(vars).enters(site),
    }
}

/// Whether a buffer is written completely.
fn coverage(subject: &mut Subject<'_>, buffer: BufId) -> Answer {
    let shape = subject.program.buffer(buffer).ty.shape.clone();
    let whole: Box = shape.iter().map(|&n| (0, i64::try_from(n).unwrap_or(i64::MAX))).collect();
    let writes = subject.touches.iter().filter(|t| t.writes && t.buffer == buffer);
    let writes: Vec<Touch<'_>> =
        writes.filter(|t| !is_update(subject.sites[t.site].block)).copied().collect();
    let (mut full, mut all) = (vec![], vec![]);
    for write in writes {
        let region = region(subject, write, 0);
        let touched = constant(&region).unwrap_or_else(|| whole.clone());
        if region.full {
            full.push(touched.clone());
        }
        all.push(touched);
    }
    if boxes::left(whole.clone(), full.iter()).is_some_and(|left| left.is_empty()) {
        return Answer::Proven;
    }
    match boxes::left(whole, all.iter()).and_then(|left| left.into_iter().next()) {
        None => Answer::Unknown,
        Some(part) => {
            let element = part.iter().map(|(low, _)| *low).collect();
            Answer::Refuted(Fault::Uncovered { buffer: subject.buffer_name(buffer), element })
        }
    }
}

/// How much of a buffer a program writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    All,
    Part,
    Unknown,
}

pub(crate) fn written(program: &Program, buffer: BufId) -> Written {
    match coverage(&mut Subject::of(program), buffer) {
        Answer::Proven => Written::All,
        Answer::Refuted(_) => Written::Part,
        Answer::Unknown => Written::Unknown,
    }
}

/// The region as a box, if nothing stands still.
pub(super) fn constant(region: &Region) -> Option<Box> {
    let span = |span: &Span| {
        let low = span.min.as_constant()?;
        Some((low, low.checked_add(span.extent)?))
    };
    region.spans.iter().map(span).collect()
}
