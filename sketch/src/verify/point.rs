//! Points of iteration spaces, at which something is wrong.

use ansc_graph::{BinOp, Expr, UnOp, VarId};
use ansc_runtime::DType;

use super::Site;

/// A condition, and whether it holds.
pub(super) type Fact<'p> = (&'p Expr, bool);

/// A value for each variable.
#[derive(Clone)]
pub(super) struct Point {
    values: Vec<i64>,
}

impl Point {
    /// All loops at their beginning.
    pub(super) fn first(vars: usize) -> Point {
        Point { values: vec![0; vars] }
    }

    pub(super) fn set(&mut self, var: VarId, value: i64) {
        self.values[var.index()] = value;
    }

    /// Sets the iterators of the block. False if its guard does not hold, or depends on data.
    pub(super) fn enters(&mut self, site: &Site<'_>) -> bool {
        for iter in &site.block.iters {
            let Some(value) = self.eval(&iter.binding) else { return false };
            self.set(iter.var, value);
        }
        site.block.predicate.as_ref().is_none_or(|p| self.eval(p) == Some(1))
    }

    pub(super) fn satisfies(&self, facts: &[Fact<'_>]) -> bool {
        facts.iter().all(|(condition, holds)| self.eval(condition) == Some(i64::from(*holds)))
    }

    /// The value of an index or a condition; none if it depends on data.
    pub(super) fn eval(&self, e: &Expr) -> Option<i64> {
        match e {
            Expr::Const(s) if s.dtype() == DType::I64 => Some(s.as_i64()),
            Expr::Const(s) if s.dtype() == DType::Bool => Some(i64::from(!s.is_zero())),
            Expr::Var(v) => Some(self.values[v.index()]),
            Expr::Unary(UnOp::Neg, x) => self.eval(x)?.checked_neg(),
            Expr::Unary(UnOp::Abs, x) => self.eval(x)?.checked_abs(),
            Expr::Binary(BinOp::And, a, b) => match (self.eval(a), self.eval(b)) {
                (Some(0), _) | (_, Some(0)) => Some(0),
                (Some(1), Some(1)) => Some(1),
                _ => None,
            },
            Expr::Binary(op, a, b) => Some(op.of_indices()?(self.eval(a)?, self.eval(b)?)),
            Expr::Select(c, a, b) => self.eval(if self.eval(c)? == 0 { b } else { a }),
            Expr::Const(_) | Expr::Load(..) | Expr::Unary(..) | Expr::Cast(..) => None,
        }
    }
}

/// The first, the last and a middle iteration of a loop.
fn choices(extent: usize) -> [i64; 3] {
    let last = i64::try_from(extent).unwrap_or(i64::MAX).max(1) - 1;
    [0, last, last / 2]
}

/// Looks for a point at which the block runs and `score` is positive, by going uphill one loop at a
/// time. `score` is none where there is nothing to score.
pub(super) fn climb(
    site: &Site<'_>,
    vars: usize,
    score: &impl Fn(&Point) -> Option<i64>,
) -> Option<i64> {
    let scored = |point: &mut Point| if point.enters(site) { score(point) } else { None };
    for start in 0..3 + site.loops.len() {
        let mut point = Point::first(vars);
        let begin = |position: usize, extent| choices(extent)[begins(start, position)];
        site.loops.iter().enumerate().for_each(|(at, l)| point.set(l.var, begin(at, l.extent)));
        let Some(mut best) = scored(&mut point) else { continue };
        for (at, l) in site.loops.iter().enumerate() {
            let mut kept = begin(at, l.extent);
            for value in choices(l.extent) {
                point.set(l.var, value);
                if let Some(found) = scored(&mut point).filter(|found| *found > best) {
                    (best, kept) = (found, value);
                }
            }
            point.set(l.var, kept);
        }
        if best > 0 {
            return Some(best);
        }
    }
    None
}

/// Which choice the loop at `position` begins with: all have the same one, or one loop the last and
/// the others the first.
fn begins(start: usize, position: usize) -> usize {
    match start.checked_sub(3) {
        None => start,
        Some(only) => usize::from(only == position),
    }
}

/// Some points at which the block runs, with loops outside of `depth` at their beginning; the loop
/// at `depth` is at `at`.
pub(super) fn samples(site: &Site<'_>, vars: usize, depth: usize, at: i64) -> Vec<Point> {
    let mut points = vec![Point::first(vars)];
    for (position, l) in site.loops.iter().enumerate().skip(depth) {
        if position == depth {
            points.iter_mut().for_each(|p| p.set(l.var, at));
        } else if points.len() < MOST_SAMPLES {
            let mut last = points.clone();
            last.iter_mut().for_each(|p| p.set(l.var, choices(l.extent)[1]));
            points.extend(last);
        }
    }
    points.retain_mut(|p| p.enters(site));
    points
}

const MOST_SAMPLES: usize = 16;
