use ansc_graph::{BinOp, Expr, UnOp, VarId};
use proptest::prelude::*;

use super::*;

const EXTENTS: [usize; 4] = [1, 3, 5, 8];

fn extents() -> Extents {
    let mut extents = Extents::default();
    for (i, &extent) in EXTENTS.iter().enumerate() {
        extents.set(VarId::new(i), extent);
    }
    extents
}

fn value(e: &Expr, point: &[i64]) -> i64 {
    match e {
        Expr::Const(s) => s.as_i64(),
        Expr::Var(v) => point[v.index()],
        Expr::Binary(op, a, b) => {
            let (a, b) = (value(a, point), value(b, point));
            match op {
                BinOp::Add => a + b,
                BinOp::Sub => a - b,
                BinOp::Mul => a * b,
                BinOp::FloorDiv if b == 0 => 0,
                BinOp::FloorDiv => (a - a.rem_euclid(b)) / b,
                BinOp::FloorMod if b == 0 => 0,
                BinOp::FloorMod => a.rem_euclid(b),
                BinOp::Div => a.checked_div(b).unwrap_or(0),
                BinOp::Rem => a.checked_rem(b).unwrap_or(0),
                BinOp::Min => a.min(b),
                BinOp::Max => a.max(b),
                BinOp::Lt => i64::from(a < b),
                BinOp::Le => i64::from(a <= b),
                BinOp::Eq => i64::from(a == b),
                BinOp::And => i64::from(a != 0 && b != 0),
                other => panic!("{other:?} is not generated"),
            }
        }
        Expr::Unary(UnOp::Abs, x) => value(x, point).abs(),
        Expr::Unary(UnOp::Neg, x) => -value(x, point),
        Expr::Select(c, a, b) => value(if value(c, point) != 0 { a } else { b }, point),
        other => panic!("{other:?} is not generated"),
    }
}

fn points() -> Vec<Vec<i64>> {
    EXTENTS.iter().fold(vec![vec![]], |points, &extent| {
        let extend = |p: &Vec<i64>| {
            let p = p.clone();
            (0..extent as i64).map(move |i| [p.clone(), vec![i]].concat()).collect::<Vec<_>>()
        };
        points.iter().flat_map(extend).collect()
    })
}

fn index() -> impl Strategy<Value = Expr> {
    let leaf =
        prop_oneof![(0..EXTENTS.len()).prop_map(Expr::var), (-9i64..10).prop_map(Expr::int),];
    leaf.prop_recursive(5, 24, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            pair.clone().prop_map(|(a, b)| a + b),
            pair.clone().prop_map(|(a, b)| a - b),
            (inner.clone(), -8i64..9).prop_map(|(a, b)| a * Expr::int(b)),
            (inner.clone(), 1i64..13).prop_map(|(a, b)| a.floor_div(b)),
            (inner.clone(), 1i64..13).prop_map(|(a, b)| a.floor_mod(b)),
            (inner.clone(), 1i64..13).prop_map(|(a, b)| a / Expr::int(b)),
            (inner.clone(), 1i64..13).prop_map(|(a, b)| Expr::binary(BinOp::Rem, a, Expr::int(b))),
            inner.clone().prop_map(|a| Expr::Unary(UnOp::Abs, Box::new(a))),
            inner.clone().prop_map(|a| Expr::Unary(UnOp::Neg, Box::new(a))),
            pair.clone().prop_map(|(a, b)| a.min(b)),
            pair.clone().prop_map(|(a, b)| a.max(b)),
            (pair, inner.clone(), inner).prop_map(|((a, b), c, d)| Expr::select(
                a.clone().lt(b.clone()).and(a.le(b)),
                c,
                d
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn simplification_keeps_values(e in index()) {
        let extents = extents();
        let simple = simplify(&e, &extents);
        for point in points() {
            prop_assert_eq!(value(&simple, &point), value(&e, &point), "{:?} at {:?}", simple, point);
        }
        prop_assert_eq!(simplify(&simple, &extents), simple);
    }

    #[test]
    fn intervals_contain_values(e in index()) {
        let inside = interval(&e, &extents());
        for point in points() {
            prop_assert!(inside.is_none_or(|(low, high)| (low..=high).contains(&value(&e, &point))), "{:?}", point);
        }
    }
}

#[test]
fn tiles_cancel() {
    let v = Expr::var;
    let int = Expr::int;
    let tiled = v(1) * int(8) + v(3);
    let cases = [
        (tiled.clone().floor_div(8), v(1)),
        (tiled.clone().floor_mod(8), v(3)),
        (tiled.clone().floor_div(4) * int(4) + tiled.clone().floor_mod(4), v(1) * int(8) + v(3)),
        ((v(1) * int(40) + v(2) * int(8) + v(3)).floor_div(8).floor_mod(5), v(2)),
        ((v(2) * int(2) + v(0)).floor_div(4), v(2).floor_div(2)),
        ((v(3) + int(16)).floor_mod(8), v(3)),
        (v(3).min(int(7)), v(3)),
        ((v(1) * int(6)).floor_div(5).floor_div(2), (v(1) * int(3)).floor_div(5)),
    ];
    for (e, expected) in cases {
        assert_eq!(simplify(&e, &extents()), expected, "{e:?}");
    }
    assert_eq!(simplify(&tiled.lt(int(24)), &extents()), Expr::bool(true));
}

#[test]
fn what_is_no_sum_is_simplified_inside() {
    // As a mirrored index has it.
    let abs = |x: Expr| Expr::unary(UnOp::Abs, x);
    let e = abs(Expr::var(3) - Expr::int(4) + Expr::int(1)) + Expr::int(2);
    let simple = simplify(&e, &extents());
    assert_eq!(simple, abs(Expr::var(3) - Expr::int(3)) + Expr::int(2));
    assert_eq!(simplify(&simple, &extents()), simple);
}
