mod graphs;

use ansc_runtime::{DType, Tensor};

use super::{InterpError, eval};
use crate::compute::{Combiner, Compute, Stage, TensorType};
use crate::expr::{BinOp, Expr, UnOp};

fn f32s(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 37 % 23) as f32 - 11.0) / 4.0).collect();
    Tensor::from_slice(shape, &values)
}

fn f32_type(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

fn single(inputs: &[&Tensor], stage: Stage) -> Result<Tensor, InterpError> {
    let types = inputs.iter().map(|t| TensorType::of(t)).collect();
    eval(&Compute::single(types, stage), inputs).map(|mut outputs| outputs.remove(0))
}

#[test]
fn matmul_of_many_shapes() {
    for (m, k, n) in [(1, 1, 1), (3, 5, 7), (1, 2000, 2), (40, 3, 50), (2, 700, 1000), (600, 2, 1)]
    {
        let (a, b) = (f32s(&[m, k]), f32s(&[k, n]));
        let body = Expr::load(0, vec![Expr::var(0), Expr::var(2)])
            * Expr::load(1, vec![Expr::var(2), Expr::var(1)]);
        let stage = Stage::reduction("y", f32_type(&[m, n]), Combiner::Sum, vec![k], body);
        let y = single(&[&a, &b], stage).unwrap();
        let (a, b) = (a.as_slice::<f32>(), b.as_slice::<f32>());
        for i in 0..m {
            for j in 0..n {
                let expected: f32 = (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
                assert_eq!(y.as_slice::<f32>()[i * n + j], expected, "{m} {k} {n}");
            }
        }
    }
}

/// The four products written out, at all pairs of bytes that are extreme in some way, and where
/// sums of them wrap.
#[test]
fn products_of_four_bytes() {
    let bytes = [0u8, 1, 2, 127, 128, 129, 254, 255];
    let word = |i: usize| i32::from_le_bytes([0, 1, 2, 3].map(|j| bytes[(i >> (3 * j)) % 8]));
    let words: Vec<i32> = (0..4096).map(word).collect();
    let (a, b) = (Tensor::from_slice(&[4096], &words), Tensor::from_slice(&[4096], &words));
    let at = |i: Expr| Expr::load(0, vec![i]);
    let turned = (Expr::var(0) * Expr::int(37) + Expr::int(11)).floor_mod(4096);
    let body = Expr::binary(BinOp::Dot4, at(Expr::var(0)), Expr::load(1, vec![turned]));
    let y = single(&[&a, &b], Stage::map("y", TensorType::new(DType::I32, [4096]), body)).unwrap();
    for (i, found) in y.as_slice::<i32>().iter().enumerate() {
        let (a, b) = (words[i] as u32, words[(i * 37 + 11) % 4096] as u32);
        let product = |s: u32| ((a >> s) & 255) as i32 * i32::from(((b >> s) & 255) as u8 as i8);
        assert_eq!(*found, [0, 8, 16, 24].map(product).into_iter().sum::<i32>(), "{a:x} {b:x}");
    }
    // 2^16 times -4 * 255 * 128 is less than -2^31.
    let least = || Expr::binary(BinOp::Dot4, at(Expr::int(0)), Expr::load(1, vec![Expr::int(0)]));
    let ty = TensorType::new(DType::I32, [1]);
    let stage = Stage::reduction("y", ty, Combiner::Sum, vec![1 << 16], least());
    let one = |w: u32| Tensor::from_slice(&[1], &[w as i32]);
    let y = single(&[&one(0xffff_ffff), &one(0x8080_8080)], stage).unwrap();
    assert_eq!(y.as_slice::<i32>()[0], (-4 * 255 * 128i32).wrapping_mul(1 << 16));
}

/// Both products written out, at all pairs of words that are extreme in some way.
#[test]
fn products_of_two_words() {
    let halves = [0u16, 1, 2, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff];
    let word = |i: usize| (u32::from(halves[i % 8]) | u32::from(halves[i / 8]) << 16) as i32;
    let words: Vec<i32> = (0..64 * 64).map(|i| word(i % 64)).collect();
    let others: Vec<i32> = (0..64 * 64).map(|i| word(i / 64)).collect();
    let (a, b) = (Tensor::from_slice(&[4096], &words), Tensor::from_slice(&[4096], &others));
    let at = |input| Expr::load(input, vec![Expr::var(0)]);
    let body = Expr::binary(BinOp::Dot2, at(0), at(1));
    let y = single(&[&a, &b], Stage::map("y", TensorType::new(DType::I32, [4096]), body)).unwrap();
    for (i, found) in y.as_slice::<i32>().iter().enumerate() {
        let half = |x: i32, high: bool| i64::from(if high { (x >> 16) as i16 } else { x as i16 });
        let product = |high| half(words[i], high) * half(others[i], high);
        assert_eq!(*found, (product(false) + product(true)) as i32, "{i}");
    }
}

/// Halves are rounded to nearest even, and the products of pairs are those of their halves.
#[test]
fn products_of_pairs_of_halves() {
    let near = |steps: f32| 1.0 + steps / 256.0;
    let (a, b) = ([1.0, -2.5, 3.0e38, near(1.0)], [2.0, 0.333, -1.0, near(3.0)]);
    let (x, y) = (Tensor::from_slice(&[4], &a), Tensor::from_slice(&[4], &b));
    let at = |input| Expr::load(input, vec![Expr::var(0)]);
    let body = Expr::binary(BinOp::PairBf16, at(0), at(1));
    let ty = TensorType::new(DType::I32, [4]);
    let pairs = single(&[&x, &y], Stage::map("y", ty, body)).unwrap();
    let rounded = |v: f32| half::bf16::from_f32(v);
    for (i, &pair) in pairs.as_slice::<i32>().iter().enumerate() {
        let [low, high] = [a[i], b[i]].map(|v| u32::from(rounded(v).to_bits()));
        assert_eq!(pair as u32, low | high << 16, "{i}");
    }
    // Halfway between 1 and its neighbour, and between that one and the next.
    assert_eq!([a[3], b[3]].map(|v| rounded(v).to_f32()), [1.0, 1.015625]);
    let body = Expr::binary(BinOp::DotBf16, at(0), at(1));
    let ty = TensorType::new(DType::F32, [4]);
    let turned: Vec<i32> = pairs.as_slice::<i32>().iter().rev().copied().collect();
    let turned = Tensor::from_slice(&[4], &turned);
    let dots = single(&[&pairs, &turned], Stage::map("y", ty, body)).unwrap();
    for (i, &dot) in dots.as_slice::<f32>().iter().enumerate() {
        let product = |of: &[f32; 4]| rounded(of[i]).to_f32() * rounded(of[3 - i]).to_f32();
        assert_eq!(dot, product(&a) + product(&b), "{i}");
    }
}

/// A padded, strided convolution: guards, memo tables, runs and gathers at once.
fn conv(h: usize, stride: usize, channels: usize) {
    let (m, kernel, out) = (5, 3, (h + 2 - 3) / stride + 1);
    let (x, w) = (f32s(&[2, channels, h, h]), f32s(&[m, channels, kernel, kernel]));
    let at =
        |axis: usize, k: usize| Expr::var(axis) * Expr::index(stride) + Expr::var(k) - Expr::int(1);
    let inside = |e: Expr| Expr::int(0).le(e.clone()).and(e.lt(Expr::index(h)));
    let padded = Expr::select(
        inside(at(2, 5)).and(inside(at(3, 6))),
        Expr::load(0, vec![Expr::var(0), Expr::var(4), at(2, 5), at(3, 6)]),
        Expr::float(DType::F32, 0.0),
    );
    let body = padded * Expr::load(1, vec![Expr::var(1), Expr::var(4), Expr::var(5), Expr::var(6)]);
    let ty = f32_type(&[2, m, out, out]);
    let extents = vec![channels, kernel, kernel];
    let y = single(&[&x, &w], Stage::reduction("y", ty, Combiner::Sum, extents, body)).unwrap();
    let (x, w) = (x.as_slice::<f32>(), w.as_slice::<f32>());
    let term = |n: usize, o: usize, i: usize, j: usize, c: usize, a: usize, b: usize| {
        let (r, s) = ((i * stride + a).wrapping_sub(1), (j * stride + b).wrapping_sub(1));
        let inside = r < h && s < h;
        if inside {
            x[((n * channels + c) * h + r) * h + s] * w[((o * channels + c) * 3 + a) * 3 + b]
        } else {
            0.0
        }
    };
    for (position, &found) in y.as_slice::<f32>().iter().enumerate() {
        let (rest, j) = (position / out, position % out);
        let (rest, i) = (rest / out, rest % out);
        let (n, o) = (rest / m, rest % m);
        let terms = (0..channels * 9).map(|r| term(n, o, i, j, r / 9, r / 3 % 3, r % 3));
        assert_eq!(found, terms.sum::<f32>(), "{h} {stride} at {position}");
    }
}

#[test]
fn guarded_convolutions() {
    for (h, stride, channels) in [(1, 1, 1), (7, 1, 3), (8, 2, 2), (30, 1, 2), (31, 2, 40)] {
        conv(h, stride, channels);
    }
}

#[test]
fn unguarded_load_out_of_bounds_is_an_error() {
    let x = f32s(&[4]);
    let body = Expr::load(0, vec![Expr::var(0) + Expr::int(1)]);
    let found = single(&[&x], Stage::map("shift", f32_type(&[4]), body));
    let expected = InterpError::OutOfBounds {
        stage: "shift".into(),
        buffer: crate::expr::BufId(0),
        axis: 0,
        index: 4,
        extent: 4,
        point: vec![3],
    };
    assert_eq!(found, Err(expected));
}

#[test]
fn guards_nest_and_negate() {
    // v0 < 2 ? x[v0] : (v0 < 4 ? y[v0 - 2] : z[v0 - 4]), a concatenation.
    let (x, y, z) = (f32s(&[2]), f32s(&[2]), f32s(&[3]));
    let from = |b: usize, start: i64| Expr::load(b, vec![Expr::var(0) - Expr::int(start)]);
    let less = |n: i64| Expr::var(0).lt(Expr::int(n));
    let body = Expr::select(less(2), from(0, 0), Expr::select(less(4), from(1, 2), from(2, 4)));
    let found = single(&[&x, &y, &z], Stage::map("cat", f32_type(&[7]), body)).unwrap();
    let expected = [x.as_slice::<f32>(), y.as_slice::<f32>(), z.as_slice::<f32>()].concat();
    assert_eq!(found.as_slice::<f32>(), expected);
}

#[test]
fn indices_from_data() {
    let (x, at) = (f32s(&[5, 300]), Tensor::from_slice(&[4], &[3i64, 0, -1, 4]));
    let index = Expr::load(1, vec![Expr::var(0)]);
    let wrapped = Expr::select(index.clone().lt(Expr::int(0)), index.clone() + Expr::int(5), index);
    let body = Expr::load(0, vec![wrapped, Expr::var(1)]);
    let y = single(&[&x, &at], Stage::map("gather", f32_type(&[4, 300]), body)).unwrap();
    for (row, source) in [3, 0, 4, 4].into_iter().enumerate() {
        let expected = &x.as_slice::<f32>()[source * 300..][..300];
        assert_eq!(&y.as_slice::<f32>()[row * 300..][..300], expected);
    }
}

#[test]
fn arg_reductions_and_ties() {
    let x = Tensor::from_slice(&[2, 4], &[1f32, 3.0, 3.0, 2.0, f32::NAN, 5.0, f32::NAN, 0.0]);
    let table = [
        (Combiner::ArgMax { last: false }, [1, 0]),
        (Combiner::ArgMax { last: true }, [2, 2]),
        (Combiner::ArgMin { last: false }, [0, 0]),
        (Combiner::ArgMin { last: true }, [0, 2]),
    ];
    for (combiner, expected) in table {
        let body = Expr::load(0, vec![Expr::var(0), Expr::var(1)]);
        let ty = TensorType::new(DType::I64, [2]);
        let found = single(&[&x], Stage::reduction("a", ty, combiner, vec![4], body)).unwrap();
        assert_eq!(found.as_slice::<i64>(), expected, "{combiner:?}");
        // The same with lanes over the results.
        let wide = Tensor::from_slice(&[70, 4], &x.as_slice::<f32>()[..4].repeat(70));
        let body = Expr::load(0, vec![Expr::var(0), Expr::var(1)]);
        let ty = TensorType::new(DType::I64, [70]);
        let found = single(&[&wide], Stage::reduction("a", ty, combiner, vec![4], body)).unwrap();
        assert_eq!(found.as_slice::<i64>(), [expected[0]; 70], "{combiner:?}");
    }
}

#[test]
fn empty_reductions_give_the_identity() {
    for (combiner, expected) in
        [(Combiner::Sum, 0.0), (Combiner::Prod, 1.0), (Combiner::Max, f32::NEG_INFINITY)]
    {
        let x = f32s(&[0]);
        let body = Expr::load(0, vec![Expr::var(1)]);
        let stage = Stage::reduction("r", f32_type(&[3]), combiner, vec![0], body);
        assert_eq!(single(&[&x], stage).unwrap().as_slice::<f32>(), [expected; 3]);
    }
    let x = f32s(&[0]);
    let stage = Stage::map("m", f32_type(&[0]), Expr::load(0, vec![Expr::var(0)]));
    assert!(single(&[&x], stage).unwrap().is_empty());
}

#[test]
fn terms_that_do_not_vary_are_counted_each_time() {
    let sum = |extents: Vec<usize>, shape: &[usize]| {
        let body = Expr::float(DType::F32, 0.5);
        let stage = Stage::reduction("s", f32_type(shape), Combiner::Sum, extents, body);
        single(&[], stage).unwrap()
    };
    assert_eq!(sum(vec![1000], &[]).as_slice::<f32>(), [500.0]);
    assert_eq!(sum(vec![3, 1, 4], &[100]).as_slice::<f32>(), [6.0; 100]);
}

/// One value per operation, element type and operand: `op(a, b)` of a one-element tensor.
fn apply(op: BinOp, a: Tensor, b: Tensor) -> f64 {
    let ty = TensorType::new(op.result(a.dtype()), []);
    let body = Expr::binary(op, Expr::load(0, vec![]), Expr::load(1, vec![]));
    single(&[&a, &b], Stage::map("op", ty, body)).unwrap().to_f64_vec()[0]
}

#[test]
fn integer_semantics() {
    use BinOp::*;
    let table = [
        (Add, 127, 1, -128),
        (Mul, 100, 100, 16),
        (Div, -7, 2, -3),
        (Div, 7, 0, 0),
        (Div, -128, -1, -128),
        (Rem, -7, 2, -1),
        (FloorDiv, -7, 2, -4),
        (FloorDiv, 7, -2, -4),
        (FloorMod, -7, 2, 1),
        (FloorMod, 7, -2, -1),
        (FloorMod, 7, 0, 0),
        (Pow, 3, 4, 81),
        (Pow, 2, 7, -128),
        (Pow, 2, -1, 0),
        (Pow, -1, -3, -1),
        (Shl, 1, 7, -128),
        (Shl, 1, 8, 0),
        (Shr, -128, 9, -1),
        (Xor, 5, 3, 6),
        (Min, -1, 1, -1),
    ];
    for (op, a, b, expected) in table {
        let found = apply(op, Tensor::scalar(a as i8), Tensor::scalar(b as i8));
        assert_eq!(found, f64::from(expected), "{}({a}, {b})", op.name());
    }
    assert_eq!(apply(Shr, Tensor::scalar(200u8), Tensor::scalar(3u8)), 25.0);
    assert_eq!(apply(Sub, Tensor::scalar(0u16), Tensor::scalar(1u16)), 65535.0);
    assert_eq!(apply(Lt, Tensor::scalar(u64::MAX), Tensor::scalar(1u64)), 0.0);
}

#[test]
fn float_semantics() {
    use BinOp::*;
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let table = [
        (Min, 1.0, nan, nan),
        (Max, nan, 1.0, nan),
        (FloorMod, -7.0, 2.0, 1.0),
        (Rem, -7.0, 2.0, -1.0),
        (FloorDiv, -7.0, 2.0, -4.0),
        (Div, 1.0, 0.0, inf),
        (Pow, 2.0, 0.5, std::f32::consts::SQRT_2),
    ];
    for (op, a, b, expected) in table {
        let found = apply(op, Tensor::scalar(a), Tensor::scalar(b)) as f32;
        assert!(found == expected || (found.is_nan() && expected.is_nan()), "{op:?} gave {found}");
    }
    let half = |v: f32| Tensor::scalar(half::f16::from_f32(v));
    assert_eq!(apply(Add, half(2048.0), half(1.0)), 2048.0);
    assert_eq!(apply(Mul, half(300.0), half(300.0)), f64::INFINITY);
}

#[test]
fn casts() {
    let table: [(Tensor, DType, f64); 10] = [
        (Tensor::scalar(-3.7f32), DType::I8, -3.0),
        (Tensor::scalar(1e9f32), DType::I8, 127.0),
        (Tensor::scalar(f32::NAN), DType::I32, 0.0),
        (Tensor::scalar(-1.0f32), DType::U8, 0.0),
        (Tensor::scalar(300i32), DType::U8, 44.0),
        (Tensor::scalar(-1i8), DType::U16, 65535.0),
        (Tensor::scalar(0.25f64), DType::Bool, 1.0),
        (Tensor::scalar(true), DType::F16, 1.0),
        (Tensor::scalar(u64::MAX), DType::F32, 18446744073709551616.0),
        (Tensor::scalar((1i64 << 60) + (1 << 36) + 1), DType::F32, 1152921642045800448.0),
    ];
    for (x, to, expected) in table {
        let body = Expr::Cast(to, Box::new(Expr::load(0, vec![])));
        let found = single(&[&x], Stage::map("cast", TensorType::new(to, []), body)).unwrap();
        assert_eq!(found.to_f64_vec(), [expected], "{x:?} to {to}");
    }
}

#[test]
fn half_floats_round_after_each_operation() {
    let x = Tensor::from_slice(&[1], &[half::bf16::from_f32(1.0)]);
    let one = || Expr::load(0, vec![Expr::var(0)]);
    let small = || Expr::float(DType::BF16, 1.0 / 512.0);
    let body = (one() + small()) + small();
    let y = single(&[&x], Stage::map("h", TensorType::new(DType::BF16, [1]), body)).unwrap();
    assert_eq!(y.to_f64_vec(), [1.0]);
}

#[test]
fn bad_expressions_are_errors() {
    let x = f32s(&[2]);
    let load = || Expr::load(0, vec![Expr::var(0)]);
    let table = [
        Expr::unary(UnOp::Not, load()),
        load() + Expr::int(1),
        Expr::load(3, vec![]),
        Expr::load(0, vec![]),
        Expr::load(0, vec![load()]),
        Expr::select(load(), load(), load()),
        Expr::var(7),
        Expr::int(1),
    ];
    for body in table {
        let found = single(&[&x], Stage::map("bad", f32_type(&[2]), body.clone()));
        assert!(matches!(found, Err(InterpError::Malformed { .. })), "{body:?}: {found:?}");
    }
    let stage = Stage::map("ok", f32_type(&[2]), load());
    let compute = Compute::single(vec![f32_type(&[3])], stage);
    assert!(matches!(eval(&compute, &[&x]), Err(InterpError::Input { index: 0, .. })));
    assert!(matches!(eval(&compute, &[]), Err(InterpError::InputCount { .. })));
}

#[test]
fn stages_feed_each_other() {
    let x = f32s(&[2, 90]);
    let at = |b: usize, vars: &[usize]| Expr::load(b, vars.iter().map(|&v| Expr::var(v)).collect());
    let mut softmax =
        Compute { inputs: vec![f32_type(&[2, 90])], stages: vec![], outputs: vec![2] };
    softmax.push(Stage::reduction("max", f32_type(&[2]), Combiner::Max, vec![90], at(0, &[0, 1])));
    let e = Expr::unary(UnOp::Exp, at(0, &[0, 1]) - at(1, &[0]));
    softmax.push(Stage::reduction("sum", f32_type(&[2]), Combiner::Sum, vec![90], e.clone()));
    softmax.push(Stage::map("y", f32_type(&[2, 90]), e / at(2, &[0])));
    let y = eval(&softmax, &[&x]).unwrap().remove(0);
    for row in 0..2 {
        let x = &x.as_slice::<f32>()[row * 90..][..90];
        let total: f64 = x.iter().map(|&v| f64::from(v).exp()).sum();
        for (v, found) in x.iter().zip(&y.as_slice::<f32>()[row * 90..]) {
            assert!((f64::from(*v).exp() / total - f64::from(*found)).abs() < 1e-6);
        }
    }
}
