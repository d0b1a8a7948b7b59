//! How far apart in memory accesses in neighbouring iterations of a loop are, approximately.

use ansc_graph::{BinOp, Expr, VarId};

/// Elements between the accesses of neighbouring iterations of `var`: the least over all accesses,
/// by the right-most index of each in which the variable occurs. `None` if it occurs nowhere.
pub(super) fn stride(accesses: &[&[Expr]], shape: &[usize], var: VarId) -> Option<f64> {
    let strides = accesses.iter().filter_map(|indices| {
        let mut below = 1.0;
        for (index, &length) in indices.iter().zip(shape).rev() {
            if let Some(found) = coefficient(index, var) {
                return Some(found.value() * below);
            }
            below *= length as f64;
        }
        None
    });
    strides.reduce(f64::min)
}

/// The first sum or product on the way up from the variable in an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coefficient {
    Nothing,
    Factor(i64),
    Addition,
    /// The variable occurs twice.
    Unclear,
}

impl Coefficient {
    fn value(self) -> f64 {
        match self {
            Coefficient::Nothing | Coefficient::Addition => 1.0,
            Coefficient::Factor(c) => c.unsigned_abs() as f64,
            Coefficient::Unclear => 2.0,
        }
    }
}

fn coefficient(e: &Expr, var: VarId) -> Option<Coefficient> {
    match e {
        Expr::Const(_) => None,
        Expr::Var(v) => (*v == var).then_some(Coefficient::Nothing),
        Expr::Load(_, indices) => either(indices.iter().map(|i| coefficient(i, var))),
        Expr::Unary(_, x) | Expr::Cast(_, x) => coefficient(x, var),
        Expr::Select(c, a, b) => either([c, a, b].into_iter().map(|x| coefficient(x, var))),
        Expr::Binary(op, a, b) => {
            let below = either([a, b].into_iter().map(|x| coefficient(x, var)))?;
            let factor = a.as_const().or(b.as_const()).map(|s| s.as_i64());
            Some(match (op, below, factor) {
                (BinOp::Add, Coefficient::Nothing, _) => Coefficient::Addition,
                (BinOp::Mul, Coefficient::Nothing | Coefficient::Factor(_), Some(c)) => {
                    Coefficient::Factor(c)
                }
                _ => below,
            })
        }
    }
}

fn either(parts: impl Iterator<Item = Option<Coefficient>>) -> Option<Coefficient> {
    parts.flatten().reduce(|_, _| Coefficient::Unclear)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_multiplier_nearest_to_the_variable_counts() {
        let (i, j, c) = (|| Expr::var(0), || Expr::var(1), Expr::int);
        let cases = [
            (i(), Some(1.0)),
            (i() * c(8) + j(), Some(8.0)),
            (j() * c(8) + i(), Some(1.0)),
            ((i() + j()) * c(8), Some(1.0)),
            (c(3) - i() * c(-2), Some(2.0)),
            (i() * c(4) + i(), Some(2.0)),
            (i().floor_div(4), Some(1.0)),
            (j() * c(8), None),
        ];
        for (index, expected) in cases {
            assert_eq!(
                stride(&[std::slice::from_ref(&index)], &[100], VarId(0)),
                expected,
                "{index}"
            );
        }
    }

    #[test]
    fn indices_further_left_move_by_whole_rows() {
        let row = [Expr::var(0) * Expr::int(2), Expr::var(1)];
        assert_eq!(stride(&[&row], &[10, 7], VarId(0)), Some(14.0));
        let diagonal = [Expr::var(0), Expr::var(0)];
        assert_eq!(stride(&[&row, &diagonal], &[10, 7], VarId(0)), Some(1.0));
    }
}
