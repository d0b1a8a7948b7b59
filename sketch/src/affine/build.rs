//! Expressions into sums of digits, and simplification by that.

use ansc_graph::arith::{self, gcd};
use ansc_graph::{BinOp, Expr, Scalar, UnOp};
use ansc_runtime::DType;

use super::{Digit, Extents, Source, Sum};

/// The sum that the `i64` expression `e` is; where it is none, a single opaque digit.
pub(super) fn sum(e: &Expr, extents: &Extents) -> Sum {
    let mut all = Sum::constant(0);
    add(&mut all, e, 1, extents);
    all.merged()
}

/// Adds `factor * e` term by term: most expressions are sums, and a sum for each part of them
/// would be many.
fn add(all: &mut Sum, e: &Expr, factor: i64, extents: &Extents) {
    match e {
        Expr::Const(s) if s.dtype() == DType::I64 => all.add_constant(s.as_i64(), factor),
        Expr::Var(v) => match (extents.binding(*v), extents.get(*v)) {
            (Some(binding), _) => all.add(binding, factor),
            (None, Some(1)) => {}
            _ => all.add_term(Digit::whole(Source::Var(*v)), factor),
        },
        Expr::Unary(UnOp::Neg, x) => add(all, x, factor.wrapping_neg(), extents),
        Expr::Binary(BinOp::Add, a, b) => {
            add(all, a, factor, extents);
            add(all, b, factor, extents);
        }
        Expr::Binary(BinOp::Sub, a, b) => {
            add(all, a, factor, extents);
            add(all, b, factor.wrapping_neg(), extents);
        }
        Expr::Binary(BinOp::Mul, a, b) => match (known(a), known(b)) {
            (_, Some(by)) => add(all, a, factor.wrapping_mul(by), extents),
            (Some(by), _) => add(all, b, factor.wrapping_mul(by), extents),
            _ => all.add(&binary(BinOp::Mul, a, b, extents), factor),
        },
        Expr::Binary(op, a, b) => all.add(&binary(*op, a, b, extents), factor),
        _ => match logic(e.map_children(|c| simplify_operand(e, c, extents)), extents) {
            // A select that is decided leaves one of its sides.
            side if matches!(e, Expr::Select(..)) && !matches!(side, Expr::Select(..)) => {
                add(all, &side, factor, extents);
            }
            other => all.add(&opaque(other), factor),
        },
    }
}

/// The value of a constant of `i64`.
pub(super) fn known(e: &Expr) -> Option<i64> {
    e.as_const().filter(|s| s.dtype() == DType::I64).map(|s| s.as_i64())
}

fn opaque(e: Expr) -> Sum {
    match e {
        Expr::Const(s) if s.dtype() == DType::I64 => Sum::constant(s.as_i64()),
        Expr::Var(v) => Sum::digit(Digit::whole(Source::Var(v)), 1),
        e => Sum::digit(Digit::whole(Source::Opaque(Box::new(e))), 1),
    }
}

fn binary(op: BinOp, a: &Expr, b: &Expr, extents: &Extents) -> Sum {
    let (a, b) = (sum(a, extents), sum(b, extents));
    let other = |a: &Sum, b: &Sum| opaque(Expr::binary(op, a.to_expr(), b.to_expr()));
    match (op, a.as_constant(), b.as_constant()) {
        (BinOp::Mul, _, Some(factor)) => a.times(factor),
        (BinOp::Mul, Some(factor), _) => b.times(factor),
        (BinOp::FloorDiv, _, Some(d)) if d > 0 => floor_div(a, d, extents),
        (BinOp::FloorMod, _, Some(d)) if d > 0 => floor_mod(a, d, extents),
        (BinOp::Div | BinOp::Rem, _, Some(d)) if d > 0 && !may_be_negative(&a, extents) => match op
        {
            BinOp::Div => floor_div(a, d, extents),
            _ => floor_mod(a, d, extents),
        },
        (BinOp::Min | BinOp::Max, ..) => {
            let (less, more) = match op {
                BinOp::Min => (&a, &b),
                _ => (&b, &a),
            };
            // `less <= more` for sure: min(less, more) = less and max(more, less) = more.
            match more.clone().minus(less).interval(extents) {
                Some((low, _)) if low >= 0 => a,
                Some((_, high)) if high <= 0 => b,
                _ => other(&a, &b),
            }
        }
        _ => other(&a, &b),
    }
}

fn may_be_negative(a: &Sum, extents: &Extents) -> bool {
    a.interval(extents).is_none_or(|(low, _)| low < 0)
}

/// `(d * q + r) // d = q + r // d`, and what can be said of `r // d`.
fn floor_div(a: Sum, d: i64, extents: &Extents) -> Sum {
    let (multiples, mut rest) = a.partition(|_, c| c % d == 0);
    let mut quotient = Sum::constant(rest.constant.div_euclid(d));
    rest.constant = rest.constant.rem_euclid(d);
    for (digit, c) in multiples.terms {
        quotient.add_term(digit, c / d);
    }
    if let Some((low, high)) = rest.interval(extents)
        && low.div_euclid(d) == high.div_euclid(d)
    {
        return quotient.joined(Sum::constant(low.div_euclid(d)));
    }
    if let Some((coarse, g)) = coarse_part(&rest, d, extents) {
        return quotient.joined(floor_div(coarse, d / g, extents));
    }
    let part = Digit { divisor: d, modulus: None, ..whole(&rest) };
    quotient.joined(digit_div(&rest, d, extents).unwrap_or_else(|| Sum::digit(part, 1)))
}

/// `(d * q + r) % d = r % d`, and what can be said of that.
fn floor_mod(a: Sum, d: i64, extents: &Extents) -> Sum {
    let (_, mut rest) = a.partition(|_, c| c % d == 0);
    rest.constant = rest.constant.rem_euclid(d);
    if let Some((low, high)) = rest.interval(extents)
        && low.div_euclid(d) == high.div_euclid(d)
    {
        return rest.joined(Sum::constant(-d * low.div_euclid(d)));
    }
    if let Some((coarse, g)) = coarse_part(&rest, d, extents) {
        let fine = rest.minus(&coarse.times(g));
        return floor_mod(coarse, d / g, extents).times(g).joined(fine);
    }
    let part = Digit { modulus: Some(d), ..whole(&rest) };
    digit_mod(&rest, d, extents).unwrap_or_else(|| Sum::digit(part, 1))
}

/// A sum as the source of digits.
fn whole(sum: &Sum) -> Digit {
    Digit::whole(Source::Opaque(Box::new(sum.to_expr())))
}

/// `rest = g * coarse + fine` where `g > 1` divides `d` and `0 <= fine < g`: then `rest // d =
/// coarse // (d / g)`. The largest such `g` among the coefficients' divisors.
fn coarse_part(rest: &Sum, d: i64, extents: &Extents) -> Option<(Sum, i64)> {
    // `d` is positive, and what divides it is no larger.
    let shared = |c: i64| gcd(c.unsigned_abs(), d.unsigned_abs()) as i64;
    let mut candidates: Vec<i64> = rest.terms.values().map(shared).collect();
    candidates.sort_unstable_by(|a, b| b.cmp(a));
    candidates.dedup();
    candidates.into_iter().filter(|&g| g > 1 && g < d).find_map(|g| {
        let (multiples, mut fine) = rest.clone().partition(|_, c| c % g == 0);
        let mut coarse = Sum::constant(fine.constant.div_euclid(g));
        fine.constant = fine.constant.rem_euclid(g);
        for (digit, c) in multiples.terms {
            coarse.add_term(digit, c / g);
        }
        let (low, high) = fine.interval(extents)?;
        (low >= 0 && high < g).then_some((coarse, g))
    })
}

/// The one digit of `sum`, if it is that and nothing else.
fn single(sum: &Sum) -> Option<&Digit> {
    match sum.terms.only() {
        Some((digit, 1)) if sum.constant == 0 => Some(digit),
        _ => None,
    }
}

fn digit_div(rest: &Sum, d: i64, extents: &Extents) -> Option<Sum> {
    let digit = single(rest)?;
    let modulus = match digit.modulus {
        None => None,
        Some(m) if m % d == 0 => Some(m / d),
        Some(_) => return None,
    };
    let divisor = digit.divisor.checked_mul(d)?;
    // The terms of the source may share a factor with the larger divisor, so the source is divided
    // anew.
    if *digit != Digit::whole(digit.source.clone())
        && let Source::Opaque(e) = &digit.source
    {
        let quotient = floor_div(sum(e, extents), divisor, extents);
        return Some(match modulus {
            Some(m) => floor_mod(quotient, m, extents),
            None => quotient,
        });
    }
    Some(Sum::digit(Digit { source: digit.source.clone(), divisor, modulus }, 1))
}

fn digit_mod(rest: &Sum, d: i64, extents: &Extents) -> Option<Sum> {
    let digit = single(rest)?;
    match (digit.modulus, &digit.source) {
        (Some(m), _) if m % d != 0 => None,
        (Some(_), Source::Opaque(e)) => {
            Some(floor_mod(floor_div(sum(e, extents), digit.divisor, extents), d, extents))
        }
        _ => Some(Sum::digit(Digit { modulus: Some(d), ..digit.clone() }, 1)),
    }
}

pub(super) fn simplify(e: &Expr, extents: &Extents) -> Expr {
    match e {
        Expr::Const(_) => e.clone(),
        _ if is_index(e) => sum(e, extents).to_expr(),
        _ => logic(e.map_children(|child| simplify_operand(e, child, extents)), extents),
    }
}

/// Operands of comparisons and indices of loads are simplified as sums where they are `i64`.
fn simplify_operand(parent: &Expr, child: &Expr, extents: &Extents) -> Expr {
    match parent {
        Expr::Load(..) => sum(child, extents).to_expr(),
        _ => simplify(child, extents),
    }
}

/// Whether the type is `i64` by the form of the expression alone: arithmetic over at least one
/// variable or `i64` constant.
pub(crate) fn is_index(e: &Expr) -> bool {
    match e {
        Expr::Const(s) => s.dtype() == DType::I64,
        Expr::Var(_) => true,
        Expr::Unary(UnOp::Neg, x) => is_index(x),
        Expr::Binary(op, a, b) => {
            use BinOp::*;
            matches!(op, Add | Sub | Mul | Div | Rem | FloorDiv | FloorMod | Min | Max)
                && (is_index(a) || is_index(b))
        }
        Expr::Cast(to, _) => *to == DType::I64,
        Expr::Select(_, a, b) => is_index(a) || is_index(b),
        Expr::Load(..) | Expr::Unary(..) => false,
    }
}

/// Conditions that are decided, and selects on them.
fn logic(e: Expr, extents: &Extents) -> Expr {
    let known = |x: &Expr| x.as_const().filter(|s| s.dtype() == DType::Bool).map(|s| !s.is_zero());
    match e {
        Expr::Binary(op @ (BinOp::Lt | BinOp::Le | BinOp::Eq | BinOp::Ne), a, b)
            if is_index(&a) || is_index(&b) =>
        {
            match decide(op, &a, &b, extents) {
                Some(value) => Expr::bool(value),
                None => Expr::Binary(op, a, b),
            }
        }
        Expr::Binary(BinOp::And, a, b) => match (known(&a), known(&b)) {
            (Some(true), _) => *b,
            (_, Some(true)) => *a,
            (Some(false), _) | (_, Some(false)) => Expr::bool(false),
            _ => Expr::Binary(BinOp::And, a, b),
        },
        Expr::Binary(BinOp::Or, a, b) => match (known(&a), known(&b)) {
            (Some(false), _) => *b,
            (_, Some(false)) => *a,
            (Some(true), _) | (_, Some(true)) => Expr::bool(true),
            _ => Expr::Binary(BinOp::Or, a, b),
        },
        Expr::Unary(UnOp::Not, x) => match known(&x) {
            Some(value) => Expr::Const(Scalar::bool(!value)),
            None => Expr::Unary(UnOp::Not, x),
        },
        Expr::Select(c, a, b) => match known(&c) {
            Some(true) => *a,
            Some(false) => *b,
            None => Expr::Select(c, a, b),
        },
        other => other,
    }
}

/// Whether a comparison of `i64` expressions always or never holds.
fn decide(op: BinOp, a: &Expr, b: &Expr, extents: &Extents) -> Option<bool> {
    let difference = sum(b, extents).minus(&sum(a, extents));
    let (low, high) = arith::binary_bounds(op, (0, 0), difference.interval(extents)?)?;
    (low == high).then_some(low == 1)
}

/// Whether a `bool` expression always or never holds.
pub(crate) fn decided(e: &Expr, extents: &Extents) -> Option<bool> {
    simplify(e, extents).as_const().map(|s| !s.is_zero())
}
