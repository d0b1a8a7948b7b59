//! The box of a buffer that indices reach while some loops run and others stand still, by interval
//! arithmetic.
//!
//! ```text
//! x[i0 * 4 + i1, k]   with i1 in 0..4, k in 0..9 running, i0 = 0
//! => [0, 4) x [0, 9): 36 elements
//! ```
//! Unlike `region` this does not keep track of where the box is: it runs thousands of times a
//! millisecond. An index that it cannot tell anything about reaches the whole axis, and none
//! reaches further.

use ansc_graph::Expr;
use ansc_graph::arith::bounds_of_parts;

/// An inclusive range.
pub(super) type Interval = (i64, i64);

/// The extent along one axis of the box that holds all accesses.
pub(super) fn extent(
    accesses: &[&[Expr]],
    axis: usize,
    length: usize,
    bounds: &[Interval],
) -> usize {
    let mut hull: Option<Interval> = None;
    for indices in accesses {
        let Some(here) = indices.get(axis).and_then(|index| interval(index, bounds)) else {
            return length;
        };
        hull = Some(hull.map_or(here, |all| union(all, here)));
    }
    let extent = hull.map_or(0, |(low, high)| high.saturating_sub(low).saturating_add(1));
    usize::try_from(extent).unwrap_or(length).min(length)
}

fn union(a: Interval, b: Interval) -> Interval {
    (a.0.min(b.0), a.1.max(b.1))
}

fn interval(e: &Expr, bounds: &[Interval]) -> Option<Interval> {
    bounds_of_parts(e, &|v| bounds.get(v.index()).copied())
}

#[cfg(test)]
mod tests {
    use ansc_graph::{BinOp, UnOp};

    use super::*;

    #[test]
    fn intervals_hold_every_value_and_no_more_where_indices_are_digits() {
        let (i, j, c) = (|| Expr::var(0), || Expr::var(1), Expr::int);
        let (n, m) = (6, 5);
        let cases: [(Expr, bool); 9] = [
            (i() * c(5) + j(), true),
            (c(3) - i() * c(2), true),
            (Expr::unary(UnOp::Neg, j()), true),
            ((i() * c(5) + j()).floor_div(7), true),
            (i().floor_mod(4), true),
            ((j() - c(9)).floor_mod(7), false),
            (i().min(c(2)) + j().max(c(3)), true),
            (Expr::select(i().lt(j()), i(), j() - c(2)), false),
            (Expr::binary(BinOp::Rem, i() * j(), c(4)), false),
        ];
        for (e, exact) in cases {
            let values: Vec<i64> = (0..n)
                .flat_map(|a| (0..m).map(move |b| (a, b)))
                .map(|(a, b)| eval(&e, &[a, b]))
                .collect();
            let (low, high) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
            let found = interval(&e, &[(0, n - 1), (0, m - 1)]).unwrap();
            assert!(found.0 <= low && high <= found.1, "{e}: {found:?} lacks {low}..={high}");
            assert!(!exact || found == (low, high), "{e}: {found:?} is not {low}..={high}");
        }
    }

    fn eval(e: &Expr, at: &[i64]) -> i64 {
        match e {
            Expr::Const(s) => s.as_i64(),
            Expr::Var(v) => at[v.index()],
            Expr::Unary(UnOp::Neg, x) => -eval(x, at),
            Expr::Select(c, a, b) => eval(if eval(c, at) != 0 { a } else { b }, at),
            Expr::Binary(op, a, b) => {
                let (a, b) = (eval(a, at), eval(b, at));
                match op {
                    BinOp::Add => a + b,
                    BinOp::Sub => a - b,
                    BinOp::Mul => a * b,
                    BinOp::Min => a.min(b),
                    BinOp::Max => a.max(b),
                    BinOp::FloorDiv => a.div_euclid(b),
                    BinOp::FloorMod => a.rem_euclid(b),
                    BinOp::Rem => a % b,
                    BinOp::Lt => i64::from(a < b),
                    other => unreachable!("no case has {other:?}"),
                }
            }
            other => unreachable!("no case has {other}"),
        }
    }

    #[test]
    fn what_cannot_be_told_reaches_the_whole_axis() {
        let gathered = [Expr::load(0, vec![Expr::var(0)])];
        assert_eq!(extent(&[&gathered], 0, 9, &[(0, 3)]), 9);
        let beyond = [Expr::var(0) * Expr::int(4)];
        assert_eq!(extent(&[&beyond], 0, 9, &[(0, 3)]), 9);
    }

    #[test]
    fn accesses_are_joined_in_one_box() {
        let (x, y) = ([Expr::var(0)], [Expr::var(0) + Expr::int(3)]);
        assert_eq!(extent(&[&x, &y], 0, 100, &[(0, 3)]), 7);
        assert_eq!(extent(&[&x], 0, 100, &[(0, 3)]), 4);
    }
}
