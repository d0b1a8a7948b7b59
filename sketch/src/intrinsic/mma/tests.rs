//! The instructions as a warp executes them, one after the other, against a product of plain loops.

use ansc_runtime::{DType, Tensor};

use super::*;
use crate::exec;
use crate::intrinsic::verify::with_given_results;
use crate::intrinsic::{find, operand};

/// Numbers of a tensor.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F16 => tensor.as_slice::<half::f16>().iter().map(|x| x.to_f64()).collect(),
        DType::BF16 => tensor.as_slice::<half::bf16>().iter().map(|x| x.to_f64()).collect(),
        DType::F32 => tensor.as_slice::<f32>().iter().map(|x| f64::from(*x)).collect(),
        DType::I8 => tensor.as_slice::<i8>().iter().map(|x| f64::from(*x)).collect(),
        DType::U8 => tensor.as_slice::<u8>().iter().map(|x| f64::from(*x)).collect(),
        DType::I32 => tensor.as_slice::<i32>().iter().map(|x| f64::from(*x)).collect(),
        other => panic!("{other}"),
    }
}

fn run(name: &str, inputs: &[&Tensor]) -> Tensor {
    let found = find(name).unwrap_or_else(|| panic!("no {name}"));
    let program = match found.description().params.len() > inputs.len() {
        true => found.description().clone(),
        false => with_given_results(found.description()),
    };
    exec::run(&program, inputs).unwrap_or_else(|e| panic!("{name}: {e}")).swap_remove(0)
}

/// A part of a tensor that begins at this element.
fn part(tensor: &Tensor, begin: usize, shape: &[usize]) -> Tensor {
    let (size, count) = (tensor.dtype().size(), shape.iter().product::<usize>());
    let mut part = Tensor::zeros(tensor.dtype(), shape);
    part.bytes_mut().copy_from_slice(&tensor.bytes()[begin * size..(begin + count) * size]);
    part
}

/// Element `i, j` of rows of so many columns that lie as the ISA's tables say: groups of four lanes
/// hold a row.
fn of_sums(sums: &[f64], i: usize, j: usize) -> f64 {
    let (group, in_group) = (i % 8, j / 2);
    sums[(4 * group + in_group) * 4 + 2 * (i / 8) + j % 2]
}

/// The pairs of the ISA's tables, and what it sums their products in.
const PAIRS: [([DType; 2], DType); 7] = [
    ([DType::F32, DType::F32], DType::F32),
    ([DType::F16, DType::F16], DType::F32),
    ([DType::BF16, DType::BF16], DType::F32),
    ([DType::U8, DType::I8], DType::I32),
    ([DType::I8, DType::U8], DType::I32),
    ([DType::U8, DType::U8], DType::I32),
    ([DType::I8, DType::I8], DType::I32),
];

#[test]
fn instructions_multiply_matrices() {
    for (factors, sum) in PAIRS {
        let names = Names { factors };
        let [x, y] = factors;
        let k = terms(x);
        for across in [[false, false], [false, true], [true, false], [true, true]] {
            let sizes = |n: usize, across: bool| if across { [k, n] } else { [n, k] };
            let a = operand(&TensorType::new(x, sizes(ROWS, across[0])), 3);
            let b = operand(&TensorType::new(y, sizes(LOADED, across[1])), 5);
            let rows = run(&names.load(Side::Rows, across[0]), &[&a]);
            let columns = run(&names.load(Side::Columns, across[1]), &[&b]);
            let [a, b] = [&a, &b].map(numbers);
            for half in 0..LOADED / COLUMNS {
                let elements = COLUMNS * k / LANES;
                let own = part(&columns, half * LANES * elements, &[LANES, elements]);
                let zero = run(&names.zero(), &[]);
                let sums = run(&names.dot(), &[&rows, &own, &zero]);
                assert_eq!(sums.dtype(), sum);
                let found = numbers(&sums);
                for (i, j) in (0..ROWS).flat_map(|i| (0..COLUMNS).map(move |j| (i, j))) {
                    let of_a = |t: usize| if across[0] { a[t * ROWS + i] } else { a[i * k + t] };
                    let column = half * COLUMNS + j;
                    let of_b = |t: usize| {
                        if across[1] { b[t * LOADED + column] } else { b[column * k + t] }
                    };
                    let expected: f64 = (0..k).map(|t| of_a(t) * of_b(t)).sum();
                    assert_eq!(of_sums(&found, i, j), expected, "{factors:?} {across:?} {i} {j}");
                }
            }
        }
    }
}

/// Tensor cores read 11 bits of an `f32`, the last one rounded.
#[test]
fn floats_are_rounded_as_they_are_read() {
    let names = Names { factors: [DType::F32, DType::F32] };
    let with = |shape: &[usize], first: f32| {
        let mut tensor = Tensor::zeros(DType::F32, shape);
        tensor.as_mut_slice::<f32>()[0] = first;
        tensor
    };
    let ulp = 2f32.powi(-10);
    let cases = [
        (1.0 + ulp, 1.0 + ulp),
        (1.0 + 0.49 * ulp, 1.0),
        (1.0 + 0.5 * ulp, 1.0 + ulp),
        (-1.0 - 0.5 * ulp, -1.0 - ulp),
        (2.0 - 0.5 * ulp, 2.0),
        (f32::INFINITY, f32::INFINITY),
    ];
    for (x, expected) in cases {
        let a = with(&[LANES, ROWS * terms(DType::F32) / LANES], x);
        let b = with(&[LANES, COLUMNS * terms(DType::F32) / LANES], 1.0);
        let sums = run(&names.dot(), &[&a, &b, &run(&names.zero(), &[])]);
        assert_eq!(sums.as_slice::<f32>()[0], expected, "{x:?}");
    }
}

/// Places of factors in fragments, as the ISA's tables have them: which register of a lane, and
/// which part of it.
#[test]
fn factors_lie_as_the_manual_says() {
    for dtype in [DType::F32, DType::F16, DType::I8] {
        let (w, k) = (word(dtype), terms(dtype));
        for (i, t) in (0..ROWS).flat_map(|i| (0..k).map(move |t| (i, t))) {
            let (far, near) = (t / (4 * w), t % (4 * w));
            let lane = 4 * (i % 8) + near / w;
            let register = 2 * far + i / 8;
            let place = |e: [Expr; 2]| e.map(|e| constant(&e));
            let expected = [lane, register * w + near % w];
            let (row, term) = (Expr::index(i), Expr::index(t));
            assert_eq!(place(in_rows(&row, &term, w)), expected);
            if i < COLUMNS {
                assert_eq!(place(in_columns(&term, &row, w)), [lane, far * w + near % w]);
            }
        }
    }
}

fn constant(e: &Expr) -> usize {
    let simple = crate::affine::simplify(e, &crate::affine::Extents::default());
    usize::try_from(simple.as_const().unwrap().as_i64()).unwrap()
}
