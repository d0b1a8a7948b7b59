//! Iterations of loops that run side by side stay out of each other's way: what one writes, no
//! other one touches.
//!
//! Two accesses are apart if
//! - an axis has the same multiple of the loop's variable in both, and the rest is less than that:
//!   `y[p * 8 + i]` and `y[p * 8 + j]` with `i`, `j` in `0..8`;
//! - axes that are the same in both tell the value of the loop's variable;
//! - the boxes that they touch while the loop runs do not meet.

use ansc_graph::arith::gcd;
use ansc_graph::{BufId, Expr, VarId};

use super::cover::{Region, region};
use super::point::{Point, samples};
use super::{Answer, Fault, Question, Subject, Touch};
use crate::affine::{Digit, Source, Sum};
use crate::disjoint::determines;
use crate::program::{For, ForKind, Program, Scope, Stmt, ThreadAxis};
use crate::region::Span;
use crate::tree;

/// Pairs of accesses that are looked at under one loop; programs with more have long tables of
/// cases.
const MOST_PAIRS: usize = 64;

pub(super) fn check(subject: &mut Subject<'_>) -> Result<(), Fault> {
    let mut seen: Vec<VarId> = vec![];
    for site in 0..subject.sites.len() {
        for depth in 0..subject.sites[site].loops.len() {
            let l = subject.sites[site].loops[depth];
            if is_side_by_side(l.kind) && l.extent > 1 && !seen.contains(&l.var) {
                seen.push(l.var);
                Race { subject, l, depth }.check()?;
            }
        }
    }
    Ok(())
}

/// Two accesses of the same buffer under a loop, at least one of which writes.
pub(crate) struct Pair {
    pub(crate) block: String,
    pub(crate) other: String,
    pub(crate) buffer: BufId,
    /// Whether each iteration has the buffer to itself.
    pub(crate) private: bool,
}

/// The first pair that matters and may meet: it is not known that two iterations of the loop `var`
/// never touch the same element. The loop may be of any kind.
pub(crate) fn meeting(
    program: &Program,
    var: VarId,
    matters: impl Fn(&Pair) -> bool,
) -> Option<Pair> {
    let is_loop = &mut |stmt: &Stmt| matches!(stmt, Stmt::For(l) if l.var == var);
    let root = *tree::find_only(&program.body, is_loop)?.first()?;
    let mut subject = Subject::of_root(program, root);
    let is_it = |site: &super::Site<'_>| site.loops.iter().position(|l| l.var == var);
    let (depth, l) = subject.sites.iter().find_map(|s| Some((is_it(s)?, s.loops[is_it(s)?])))?;
    let mut race = Race { subject: &mut subject, l, depth };
    race.pairs().into_iter().find_map(|(write, other)| {
        let pair = Pair {
            block: race.subject.block_name(write.site),
            other: race.subject.block_name(other.site),
            buffer: write.buffer,
            private: race.is_private(&write),
        };
        (matters(&pair) && !race.are_apart(write, other)).then_some(pair)
    })
}

/// Virtual threads are parts of one thread, which run in order.
fn is_side_by_side(kind: ForKind) -> bool {
    match kind {
        ForKind::Parallel | ForKind::Vectorized => true,
        ForKind::Bound(axis) => axis != ThreadAxis::Virtual,
        ForKind::Serial | ForKind::Unrolled | ForKind::Pipelined(_) | ForKind::Tensor(_) => false,
    }
}

struct Race<'s, 'p> {
    subject: &'s mut Subject<'p>,
    l: &'p For,
    /// Loops around it.
    depth: usize,
}

impl<'p> Race<'_, 'p> {
    fn check(&mut self) -> Result<(), Fault> {
        let mut pairs = self.pairs();
        pairs.retain(|(write, _)| !self.is_private(write));
        for (number, (write, other)) in pairs.into_iter().enumerate() {
            let answer = match number < MOST_PAIRS {
                true => self.pair(write, other),
                false => Answer::Unknown,
            };
            self.subject.settle(Question::Race, answer)?;
        }
        Ok(())
    }

    /// Accesses of one buffer under the loop, the first of which writes. Two writes are one pair.
    fn pairs(&self) -> Vec<(Touch<'p>, Touch<'p>)> {
        let under = |t: &&Touch<'p>| {
            let loops = &self.subject.sites[t.site].loops;
            loops.get(self.depth).is_some_and(|l| l.var == self.l.var)
        };
        let touches: Vec<Touch<'p>> = self.subject.touches.iter().filter(under).copied().collect();
        let mut pairs = vec![];
        for (at, write) in touches.iter().enumerate().filter(|(_, t)| t.writes) {
            let is_pair = |(other_at, other): &(usize, &Touch<'p>)| {
                other.buffer == write.buffer && (!other.writes || *other_at >= at)
            };
            let others = touches.iter().enumerate().filter(is_pair);
            pairs.extend(others.map(|(_, other)| (*write, *other)));
        }
        pairs
    }

    /// Whether each iteration has the buffer to itself.
    fn is_private(&self, touch: &Touch<'_>) -> bool {
        let inside = || self.subject.home(touch.buffer).iter().any(|l| l.var == self.l.var);
        match self.subject.program.buffer(touch.buffer).scope {
            Scope::Input => true,
            Scope::Local | Scope::Fragment => inside(),
            // Which thread of a block writes what is settled when the program is lowered.
            Scope::Shared => self.l.kind.is_inside_block() || inside(),
            Scope::Output | Scope::Global => false,
        }
    }

    fn pair(&mut self, write: Touch<'p>, other: Touch<'p>) -> Answer {
        if self.are_apart(write, other) {
            return Answer::Proven;
        }
        if write.guarded || other.guarded || !self.do_meet(write, other) {
            return Answer::Unknown;
        }
        let (block, other) =
            (self.subject.block_name(write.site), self.subject.block_name(other.site));
        let (buffer, var) =
            (self.subject.buffer_name(write.buffer), self.subject.var_name(self.l.var));
        Answer::Refuted(Fault::Race { block, other, buffer, var })
    }

    fn are_apart(&mut self, a: Touch<'p>, b: Touch<'p>) -> bool {
        let of_a = self.sums(a);
        let of_b = if is_same(a, b) { of_a.clone() } else { self.sums(b) };
        of_a.iter().zip(&of_b).any(|(a, b)| self.is_own_part(a, b))
            || self.same_axes_tell((a, b), (&of_a, &of_b))
            || (!is_same(a, b) && self.boxes_are_apart(a, b))
    }

    fn sums(&mut self, touch: Touch<'p>) -> Vec<Sum> {
        self.subject.bind(touch.site);
        touch.indices.iter().map(|index| Sum::of(index, &self.subject.extents)).collect()
    }

    /// Whether a variable is one of the loops inside of this one.
    fn is_inner(&self, var: VarId) -> bool {
        let outer = |l: &&For| l.var == var;
        let site =
            |s: &&super::Site<'_>| s.loops.get(self.depth).is_some_and(|l| l.var == self.l.var);
        let mut sites = self.subject.sites.iter().filter(site);
        sites.any(|s| s.loops[self.depth + 1..].iter().any(&outer))
    }

    /// `c * loop + a` and `c * loop + b`, with what `a` and `b` come to closer together than `c`.
    fn is_own_part(&self, a: &Sum, b: &Sum) -> bool {
        let digit = Digit::whole(Source::Var(self.l.var));
        let (Some(by), Some(other)) = (a.terms.get(&digit), b.terms.get(&digit)) else {
            return false;
        };
        let own = Sum::digit(digit, by);
        let rest = |sum: &Sum| {
            sum.clone().minus(&own).partition(|d, _| d.depends_on(&|v| self.is_inner(v)))
        };
        let ((a, at), (b, bt)) = (rest(a), rest(b));
        let distance = bt.minus(&at).as_constant();
        let extents = &self.subject.extents;
        let (Some(distance), Some(a), Some(b)) =
            (distance, a.interval(extents), b.interval(extents))
        else {
            return false;
        };
        let low = a.0.min(b.0.saturating_add(distance));
        let high = a.1.max(b.1.saturating_add(distance));
        by == other
            && high.saturating_sub(low) < by.saturating_abs()
            && !self.depends_otherwise(&at)
    }

    fn depends_otherwise(&self, rest: &Sum) -> bool {
        rest.terms.keys().any(|digit| digit.depends_on(&|v| v == self.l.var))
    }

    /// Whether axes that are the same in both tell the iteration. Loops outside stand still; of
    /// those inside, each access has its own.
    fn same_axes_tell(&mut self, (a, b): (Touch<'p>, Touch<'p>), sums: (&[Sum], &[Sum])) -> bool {
        let mut same: Vec<Expr> = vec![];
        let (of_a, of_b) = (self.box_of(a), self.box_of(b));
        for ((a, b), spans) in sums.0.iter().zip(sums.1).zip(of_a.spans.iter().zip(&of_b.spans)) {
            match a == b {
                true => same.push(a.to_expr()),
                false => same.extend(self.same_part(spans)),
            }
        }
        !same.is_empty() && determines(&same, self.l.var, &self.subject.extents)
    }

    /// The box that an access touches in one iteration.
    fn box_of(&mut self, touch: Touch<'p>) -> Region {
        region(self.subject, touch, self.depth + 1)
    }

    /// The loop's step along an axis, if that is the same in both accesses where the axis is: what
    /// loops inside add is less than a step of it.
    ///
    /// ```text
    /// y[p % 2 * 4 + i] and y[p % 2 * 4 + j], i and j in 0..4     =>    p % 2 * 4
    /// ```
    fn same_part(&self, (a, b): (&Span, &Span)) -> Option<Expr> {
        let (own, _) = a.min.clone().partition(|d, _| d.depends_on(&|v| v == self.l.var));
        let step = own.terms.values().map(i64::unsigned_abs).reduce(gcd)?;
        let distance = b.min.clone().minus(&a.min).as_constant()?;
        let end = a.extent.max(distance.checked_add(b.extent)?);
        (end.abs_diff(distance.min(0)) <= step).then(|| own.to_expr())
    }

    fn boxes_are_apart(&mut self, a: Touch<'p>, b: Touch<'p>) -> bool {
        let depth = self.depth;
        let (a, b): (Region, Region) =
            (region(self.subject, a, depth), region(self.subject, b, depth));
        a.spans.iter().zip(&b.spans).any(|(a, b)| {
            let distance = b.min.clone().minus(&a.min).as_constant();
            distance.is_some_and(|d| d >= a.extent || d.saturating_neg() >= b.extent)
        })
    }

    /// Looks for an element that both touch, in two iterations.
    fn do_meet(&self, a: Touch<'p>, b: Touch<'p>) -> bool {
        let vars = self.subject.program.vars.len();
        let element = |touch: Touch<'p>, p: &Point| -> Option<Vec<i64>> {
            touch.indices.iter().map(|index| p.eval(index)).collect()
        };
        let at = |touch: Touch<'p>, iteration| {
            let points = samples(&self.subject.sites[touch.site], vars, self.depth, iteration);
            points.iter().filter_map(|p| element(touch, p)).collect::<Vec<_>>()
        };
        let last = i64::try_from(self.l.extent).unwrap_or(i64::MAX) - 1;
        [(0, 1), (1, 0), (0, last), (last, 0)].into_iter().any(|(i, j)| {
            let (of_a, of_b) = (at(a, i), at(b, j));
            of_a.iter().any(|element| of_b.contains(element))
        })
    }
}

fn is_same(a: Touch<'_>, b: Touch<'_>) -> bool {
    a.site == b.site && a.indices == b.indices
}
