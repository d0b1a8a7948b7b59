//! Where the windows of a reduction reach beyond what they read from.
//!
//! ```text
//! conv[i] = sum{r: 3} select(1 <= i + r < 113, x[i + r - 1], 0) * w[r],  i in 0..112     inside: 1..111
//! tiles of 14: 0 | 1 2 3 4 5 6 | 7
//! ```
//!
//! A loop over tiles is cut there: the tiles inside read without a guard, and those at the ends hold theirs, most of
//! which their constant indices decide. So padding is never written out.

use std::ops::Range;

use ansc_graph::arith::{Context, Ranges};
use ansc_graph::{BinOp, Expr, Stage, VarId};

/// Indices along a spatial axis at which every guard that depends on it holds, whatever the other indices are. All of
/// them, where there is no guard, or none that ever holds.
pub(super) fn inside(s: &Stage, axis: usize) -> Range<usize> {
    let var = VarId::new(axis);
    let mut guards = vec![];
    s.body.visit(&mut |e| {
        if let Expr::Select(condition, ..) = e {
            conjuncts(condition, &mut guards);
        }
    });
    guards.retain(|guard| guard.vars().contains(&var));
    let (extents, all) = (s.extents(), 0..s.ty.shape[axis]);
    let hold = |at: &usize| {
        let range = |v: VarId| match v == var {
            true => Some((*at as i64, *at as i64)),
            false => Some((0, *extents.get(v.index())? as i64 - 1)),
        };
        let context = Context::new(&range as &Ranges<'_>);
        guards.iter().all(|guard| context.proves(guard))
    };
    let first = all.clone().find(hold).unwrap_or(0);
    let last = all.clone().rev().find(hold).unwrap_or(all.end - 1);
    first..last + 1
}

fn conjuncts<'a>(condition: &'a Expr, all: &mut Vec<&'a Expr>) {
    match condition {
        Expr::Binary(BinOp::And, a, b) => {
            conjuncts(a, all);
            conjuncts(b, all);
        }
        other => all.push(other),
    }
}

/// `tiles` of `size`, cut where those that lie inside begin and end.
pub(super) fn pieces(inside: &Range<usize>, size: usize, tiles: usize) -> Vec<Range<usize>> {
    let (first, last) = (inside.start.div_ceil(size), (inside.end / size).min(tiles));
    // The tile that the end cuts off may be a smaller one, which is none of these.
    if first >= last {
        return std::iter::once(0..tiles).filter(|all| !all.is_empty()).collect();
    }
    [0..first, first..last, last..tiles].into_iter().filter(|piece| !piece.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use ansc_graph::Compute;

    use super::*;

    #[test]
    fn guards_tell_what_is_inside() {
        let text = "compute(in0: f32[112, 8], in1: f32[3, 8]) -> conv {
          conv: f32[56, 8] = sum{r0: 3} mul(select(and(le(1, add(mul(i0, 2), r0)), lt(add(mul(i0, 2), r0), 113)), in0[sub(add(mul(i0, 2), r0), 1), i1], 0.0_f32), in1[r0, i1])
        }";
        let stage = &Compute::parse(text).unwrap().stages[0];
        assert_eq!((inside(stage, 0), inside(stage, 1)), (1..56, 0..8));
    }

    #[test]
    fn loops_are_cut_at_the_borders() {
        let cut = |inside: Range<usize>, size, tiles| {
            let all = pieces(&inside, size, tiles).into_iter();
            all.map(|piece| (piece.start, piece.end)).collect::<Vec<_>>()
        };
        assert_eq!(cut(1..111, 14, 8), [(0, 1), (1, 7), (7, 8)]);
        assert_eq!(cut(1..56, 6, 9), [(0, 1), (1, 9)]);
        assert_eq!(cut(0..56, 6, 9), [(0, 9)]);
        assert_eq!(cut(3..4, 6, 1), [(0, 1)]);
        assert_eq!(cut(0..0, 6, 0), []);
    }
}
