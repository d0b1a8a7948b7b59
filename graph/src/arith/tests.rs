//! Against brute force: a plain evaluator of its own, at every point of small ranges.

use ansc_runtime::DType;
use proptest::prelude::*;

use super::{Context, Linear, bounds, simplify};
use crate::expr::{BinOp, Expr, UnOp, VarId};
use crate::scalar::Scalar;

const RANGES: [(i64, i64); 4] = [(0, 5), (0, 3), (-4, 6), (0, 11)];

fn ranges(v: VarId) -> Option<(i64, i64)> {
    RANGES.get(v.index()).copied()
}

/// The value of an `i64` or bool expression (a bool as 0 or 1) in 128-bit arithmetic: the tests
/// stay far from wrapping.
fn value(e: &Expr, at: &[i128]) -> i128 {
    let v = |e: &Expr| value(e, at);
    match e {
        Expr::Const(s) => i128::from(s.as_i64()),
        Expr::Var(var) => at[var.index()],
        Expr::Load(_, indices) => v(&indices[0]).rem_euclid(7) - 3,
        Expr::Unary(UnOp::Neg, x) => -v(x),
        Expr::Unary(UnOp::Abs, x) => v(x).abs(),
        Expr::Unary(UnOp::Not, x) => 1 - v(x),
        Expr::Unary(op, _) => panic!("{op:?} is not generated"),
        Expr::Select(c, a, b) => {
            if v(c) != 0 {
                v(a)
            } else {
                v(b)
            }
        }
        Expr::Cast(DType::Bool, x) => i128::from(v(x) != 0),
        Expr::Cast(DType::I8, x) => i128::from(v(x) as i8),
        Expr::Cast(DType::U8, x) => i128::from(v(x) as u8),
        Expr::Cast(_, x) => v(x),
        Expr::Binary(op, a, b) => binary(*op, v(a), v(b)),
    }
}

fn binary(op: BinOp, a: i128, b: i128) -> i128 {
    match op {
        BinOp::Add => a + b,
        BinOp::Sub => a - b,
        BinOp::Mul => a * b,
        BinOp::Div => {
            if b == 0 {
                0
            } else {
                a / b
            }
        }
        BinOp::Rem => {
            if b == 0 {
                0
            } else {
                a % b
            }
        }
        BinOp::FloorDiv => {
            if b == 0 {
                0
            } else {
                (a - binary(BinOp::FloorMod, a, b)) / b
            }
        }
        BinOp::FloorMod => {
            if b == 0 {
                0
            } else {
                ((a % b) + b) % b
            }
        }
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Eq => i128::from(a == b),
        BinOp::Ne => i128::from(a != b),
        BinOp::Lt => i128::from(a < b),
        BinOp::Le => i128::from(a <= b),
        BinOp::Pow
        | BinOp::Shl
        | BinOp::Shr
        | BinOp::Dot4
        | BinOp::Dot2
        | BinOp::PairBf16
        | BinOp::DotBf16
        | BinOp::Mix => {
            panic!("{op:?} is not generated")
        }
    }
}

fn points() -> Vec<Vec<i128>> {
    let mut points = vec![vec![]];
    for (low, high) in RANGES {
        points = points
            .into_iter()
            .flat_map(|p: Vec<i128>| {
                (low..=high).map(move |v| p.iter().copied().chain([v.into()]).collect())
            })
            .collect();
    }
    points
}

fn index() -> impl Strategy<Value = Expr> {
    let divisors = [1i64, 2, 3, 4, 6, 8, 12, -3];
    let leaf = prop_oneof![
        3 => (0usize..RANGES.len()).prop_map(Expr::var),
        1 => (-9i64..10).prop_map(Expr::int),
    ];
    leaf.prop_recursive(4, 24, 3, move |inner| {
        let pair = (inner.clone(), inner.clone());
        let divisor = proptest::sample::select(divisors.to_vec()).prop_map(Expr::int);
        prop_oneof![
            4 => (arithmetic(), pair.clone()).prop_map(|(op, (a, b))| Expr::binary(op, a, b)),
            3 => (inner.clone(), 1i64..13).prop_map(|(a, k)| a * Expr::int(k)),
            6 => (division(), inner.clone(), divisor).prop_map(|(op, a, b)| Expr::binary(op, a, b)),
            1 => (division(), pair.clone()).prop_map(|(op, (a, b))| Expr::binary(op, a, b)),
            1 => inner.clone().prop_map(|a| Expr::unary(UnOp::Neg, a)),
            1 => inner.clone().prop_map(|a| Expr::unary(UnOp::Abs, a)),
            1 => inner.clone().prop_map(|a| Expr::load(0, vec![a])),
            1 => inner.clone().prop_map(|a| Expr::cast(DType::I8, DType::I64, Expr::Cast(DType::I8, Box::new(a)))),
            2 => (condition(inner.clone()), pair).prop_map(|(c, (a, b))| Expr::select(c, a, b)),
        ]
    })
}

fn arithmetic() -> impl Strategy<Value = BinOp> {
    use BinOp::*;
    proptest::sample::select(vec![Add, Add, Add, Sub, Sub, Mul, Min, Max])
}

fn division() -> impl Strategy<Value = BinOp> {
    use BinOp::*;
    proptest::sample::select(vec![FloorDiv, FloorDiv, FloorMod, FloorMod, Div, Rem])
}

fn condition(index: impl Strategy<Value = Expr> + Clone + 'static) -> BoxedStrategy<Expr> {
    use BinOp::*;
    let comparison = proptest::sample::select(vec![Eq, Ne, Lt, Lt, Le, Le]);
    let leaf = (comparison, index.clone(), index).prop_map(|(op, a, b)| Expr::binary(op, a, b));
    leaf.prop_recursive(2, 6, 2, |inner| {
        let junction = proptest::sample::select(vec![And, And, Or, Xor]);
        prop_oneof![
            3 => (junction, inner.clone(), inner.clone())
                .prop_map(|(op, a, b)| Expr::binary(op, a, b)),
            1 => inner.prop_map(|x| Expr::unary(UnOp::Not, x)),
        ]
    })
    .boxed()
}

/// Equal everywhere, within the bounds, and at rest.
fn check(e: &Expr) {
    let types = |_| DType::I64;
    let context = Context::new(&ranges).with_buffers(&types);
    for (context, typed) in [(Context::new(&ranges), false), (context, true)] {
        let simple = context.simplify(e);
        let range = context.bounds(e);
        for at in points() {
            let expected = value(e, &at);
            assert_eq!(value(&simple, &at), expected, "typed {typed} at {at:?}\n{e:?}\n{simple:?}");
            if let Some((low, high)) = range {
                assert!(
                    i128::from(low) <= expected && expected <= i128::from(high),
                    "{expected} is not in {low}..={high} at {at:?}\n{e:?}"
                );
            }
        }
        assert_eq!(context.simplify(&simple), simple, "typed {typed}\n{e:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn indices_keep_their_values(e in index()) {
        check(&e);
    }

    #[test]
    fn conditions_keep_their_values(e in condition(index().boxed())) {
        check(&e);
    }

    #[test]
    fn linear_forms_keep_their_values(e in index()) {
        let form = Linear::from_expr(&e);
        let back = form.to_expr();
        for at in points() {
            assert_eq!(value(&e, &at), value(&back, &at));
        }
        assert_eq!(Linear::from_expr(&back), form);
    }

    #[test]
    fn assumptions_hold_where_they_are_made(c in condition(index().boxed()), e in index()) {
        for holds in [true, false] {
            let context = Context::new(&ranges).assume(&c, holds);
            let (simple, range) = (context.simplify(&e), context.bounds(&e));
            for at in points().into_iter().filter(|at| (value(&c, at) != 0) == holds) {
                let expected = value(&e, &at);
                assert_eq!(value(&simple, &at), expected, "{at:?} {c:?} is {holds}\n{e:?}\n{simple:?}");
                let (low, high) = range.unwrap_or((i64::MIN, i64::MAX));
                assert!(i128::from(low) <= expected && expected <= i128::from(high));
            }
        }
    }
}

fn v(i: usize) -> Expr {
    Expr::var(i)
}

fn i(value: i64) -> Expr {
    Expr::int(value)
}

/// v0 in 0..6, v1 in 0..4, v2 in -4..7, v3 in 0..12.
#[test]
fn known_forms() {
    let table = [
        (((v(0) * i(4)) + v(1)).floor_div(4), v(0)),
        (((v(0) * i(4)) + v(1)).floor_mod(4), v(1)),
        (((v(0) * i(4)) + v(1)).floor_div(8), v(0).floor_div(2)),
        (((v(0) * i(4)) + v(1)).floor_mod(8), v(1) + v(0).floor_mod(2) * i(4)),
        (v(3).floor_div(4) * i(4) + v(3).floor_mod(4), v(3)),
        (v(2).floor_div(5) * i(10) + v(2).floor_mod(5) * i(2), v(2) * i(2)),
        (
            v(3).floor_mod(2) + v(3).floor_div(2).floor_mod(3) * i(2) + v(3).floor_div(6) * i(6),
            v(3),
        ),
        (v(3).floor_div(2).floor_div(3), v(3).floor_div(6)),
        (v(3).floor_mod(6).floor_mod(3), v(3).floor_mod(3)),
        (v(3).floor_mod(6).floor_div(3), v(3).floor_div(3).floor_mod(2)),
        (v(0).floor_div(6), i(0)),
        (v(0).floor_mod(6), v(0)),
        ((v(0) + i(12)).floor_mod(6), v(0)),
        ((v(0) - i(6)).floor_div(6), i(-1)),
        ((v(0) * i(4) + v(1)).lt(i(16)), v(0).lt(i(4))),
        ((v(0) * i(4) + v(1)).lt(i(24)), Expr::bool(true)),
        (i(0).le(v(2) - i(1)), i(1).le(v(2))),
        ((v(0) * i(2)).eq(i(3)), Expr::bool(false)),
        ((v(0) * i(2)).eq(i(4)), v(0).eq(i(2))),
        (v(0).min(i(5)), v(0)),
        (v(0).max(i(9)), i(9)),
        (v(2).min(i(3)).min(i(2)), v(2).min(i(2))),
        (v(0) + v(1) - v(0), v(1)),
        (v(0) * i(0), i(0)),
        (Expr::select(v(0).lt(i(3)), v(0).lt(i(4)), Expr::bool(false)), v(0).lt(i(3))),
        (Expr::select(v(2).lt(i(3)), v(2).min(i(7)), v(2).max(i(3))), v(2)),
        (v(0).lt(i(3)).and(v(0).lt(i(4))), v(0).lt(i(3))),
        (Expr::unary(UnOp::Not, v(0).lt(i(3))), i(3).le(v(0))),
        (Expr::Cast(DType::I64, Box::new(Expr::Cast(DType::I32, Box::new(v(0))))), v(0)),
        (Expr::binary(BinOp::Div, v(3), i(5)), v(3).floor_div(5)),
    ];
    for (e, expected) in table {
        assert_eq!(simplify(&e, &ranges), expected, "{e:?}");
        check(&e);
    }
}

#[test]
fn what_could_wrap_stays() {
    let none = |_: VarId| None;
    let e = (v(0) * i(4) + v(1)).floor_div(4);
    assert_eq!(simplify(&e, &none), e);
    let e = v(0).lt(v(0) + i(1));
    assert_eq!(simplify(&e, &none), e);
    assert_eq!(bounds(&(v(0) * i(2)), &none), Some((i64::MIN, i64::MAX)));
    // A difference that cancels is exact even so.
    assert_eq!(simplify(&(v(0) + i(3) - v(0)), &none), i(3));
}

#[test]
fn bounds_of_known_forms() {
    let load = || Expr::load(0, vec![v(0)]);
    let small = |e: Expr| Expr::Cast(DType::U8, Box::new(e));
    let table = [
        (v(0) * i(4) - v(1), Some((-3, 20))),
        (v(2) * v(2), Some((-24, 36))),
        (v(2).floor_div(3), Some((-2, 2))),
        (v(2).floor_mod(3), Some((0, 2))),
        (Expr::unary(UnOp::Abs, v(2)), Some((0, 6))),
        (load().max(i(0)).min(i(9)), Some((0, 9))),
        (load(), None),
        (Expr::float(DType::F32, 1.0), None),
        (Expr::Cast(DType::I64, Box::new(small(load()))), Some((0, 255))),
        (small(load()) + small(load()), Some((0, 255))),
        (Expr::select(v(2).lt(i(0)), v(2) + i(7), v(2)), Some((0, 6))),
        (v(0).lt(i(9)), Some((1, 1))),
        (v(0).lt(i(3)), Some((0, 1))),
    ];
    for (e, expected) in table {
        assert_eq!(bounds(&e, &ranges), expected, "{e:?}");
    }
}

/// A guard bounds sums of several variables, as a padded convolution needs it.
#[test]
fn guards_bound_sums() {
    let at = v(0) * i(2) + v(1) - i(1);
    let guard = i(0).le(at.clone()).and(at.clone().lt(i(8)));
    let context = Context::new(&ranges).assume(&guard, true);
    assert_eq!(context.bounds(&at), Some((0, 7)));
    assert_eq!(context.bounds(&(at.clone() * i(-3) + i(1))), Some((-20, 1)));
    assert!(context.proves(&at.lt(i(9))));
}

#[test]
fn floats_fold_only_bit_for_bit() {
    let x = || Expr::load(0, vec![]);
    let f = |value: f64| Expr::float(DType::F32, value);
    let types = |_| DType::F32;
    let context = Context::new(&ranges).with_buffers(&types);
    let kept = [
        x() + f(0.0),
        x() * f(0.0),
        x() - x(),
        (x() + f(1.0)) + f(2.0),
        x().eq(x()),
        Expr::unary(UnOp::Not, x().lt(f(1.0))),
    ];
    for e in kept {
        assert_eq!(context.simplify(&e), e);
    }
    let folded = [
        (x() * f(1.0), x()),
        (f(1.0) * x(), x()),
        (x() - f(0.0), x()),
        (x() / f(1.0), x()),
        (x() + f(-0.0), x()),
        (f(2.0) * f(3.0), f(6.0)),
        (Expr::unary(UnOp::Sqrt, f(9.0)), f(3.0)),
        (Expr::unary(UnOp::Neg, Expr::unary(UnOp::Neg, x())), x()),
        (x().max(x()), x()),
    ];
    for (e, expected) in folded {
        assert_eq!(context.simplify(&e), expected);
    }
}

/// Every pair of conversions against the evaluator's on a spread of values.
#[test]
fn conversions_go_away_only_where_they_change_nothing() {
    for from in DType::ALL {
        for middle in DType::ALL {
            for to in DType::ALL {
                check_conversions(from, middle, to);
            }
        }
    }
}

fn check_conversions(from: DType, middle: DType, to: DType) {
    let types = |_| from;
    let context = Context::new(&ranges).with_buffers(&types);
    let x = Expr::load(0, vec![]);
    let cast = |to, e: Expr| Expr::Cast(to, Box::new(e));
    let simple = context.simplify(&cast(to, cast(middle, x)));
    let values =
        [-1e30, -70000.0, -300.5, -129.0, -1.5, -0.0, 0.5, 1.0, 255.0, 2049.0, 1e10, f64::NAN];
    let scalars = values.map(|v| super::fold_cast(from, Scalar::from_f64(DType::F64, v)));
    for s in scalars.into_iter().chain([Scalar::lowest(from), Scalar::highest(from)]) {
        let expected = super::fold_cast(to, super::fold_cast(middle, s));
        let found = super::fold_constants(
            &simple.rewrite(&mut |e| matches!(e, Expr::Load(..)).then_some(Expr::Const(s))),
        );
        assert_eq!(found, Expr::Const(expected), "{s} over {middle} to {to} by {simple:?}");
    }
}
