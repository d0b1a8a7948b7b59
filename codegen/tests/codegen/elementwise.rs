//! Every operation on every type it is defined for, scalar and vectorised.

use ansc_graph::{BinOp, Compute, Expr, Stage, TensorType, UnOp};
use ansc_runtime::{DType, Tensor};

use crate::check::{Random, check, exact, filled, relative};

/// Odd, so that vectors have tails.
pub(crate) const SHAPE: [usize; 2] = [3, 45];

pub(crate) fn unary_defined(op: UnOp, dtype: DType) -> bool {
    match op {
        UnOp::Neg | UnOp::Abs | UnOp::Sign => dtype != DType::Bool,
        UnOp::Not => !dtype.is_float(),
        UnOp::Tf32 => dtype == DType::F32,
        _ => dtype.is_float(),
    }
}

pub(crate) fn binary_defined(op: BinOp, dtype: DType) -> bool {
    use BinOp::*;
    match op {
        Add | Sub | Mul | Div | Rem | FloorDiv | FloorMod | Pow => dtype != DType::Bool,
        And | Or | Xor => !dtype.is_float(),
        Shl | Shr => dtype.is_int(),
        Min | Max | Eq | Ne | Lt | Le => true,
        Dot4 | Dot2 | DotBf16 => dtype == DType::I32,
        PairBf16 => dtype == DType::F32,
        Mix => dtype == DType::U32,
    }
}

/// Values that hurt, then random ones of all sizes.
fn sample(dtype: DType, seed: u64) -> Tensor {
    let ty = TensorType::new(dtype, SHAPE);
    let special: &[f64] = if dtype.is_float() {
        &[
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e-40,
            -1e-7,
            65504.0,
            3e38,
            -3e38,
            88.8,
            -87.5,
            20.0,
            0.1,
        ]
    } else {
        &[0.0, 1.0, -1.0, 2.0, -2.0, 7.0, -7.0, 31.0, 127.0, -128.0, 1e30, -1e30, 64.0, 3.0]
    };
    let n = special.len();
    filled(&ty, &mut Random(seed), |i, random| {
        let pick = random.next();
        match i {
            _ if i % 7 == 0 => special[(pick % n as u64) as usize],
            _ if dtype == DType::Bool => (pick % 2) as f64,
            _ if dtype.is_float() => random.unit() * 10f64.powi((pick % 4) as i32 - 2),
            _ => (random.unit() * 2f64.powi((pick % 12) as i32)).trunc(),
        }
    })
}

/// How far results may be off: exact unless the operation is approximated; then a few units in the
/// last place, where half types see one rounding step of `f32` approximations.
fn tolerance(dtype: DType, approximated: bool) -> f64 {
    match dtype {
        _ if !approximated => 0.0,
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        DType::F32 => 1e-6,
        _ => 1e-14,
    }
}

fn run(name: &str, body: Expr, inputs: &[Tensor], result: DType, tolerance: f64) {
    let types = inputs.iter().map(TensorType::of).collect();
    let stage = Stage::map("e", TensorType::new(result, SHAPE), body);
    let compute = Compute::single(types, stage);
    match tolerance {
        // Numbers that are subnormal may be rounded to zero.
        0.0 if result == DType::BF16 => check(name, &compute, inputs, &relative(0.0)),
        0.0 => check(name, &compute, inputs, &exact),
        t => check(name, &compute, inputs, &relative(t)),
    }
}

pub(crate) fn element(input: usize) -> Expr {
    Expr::load(input, vec![Expr::var(0), Expr::var(1)])
}

#[test]
fn unary_operations() {
    for dtype in DType::ALL {
        for op in UnOp::ALL.into_iter().filter(|&op| unary_defined(op, dtype)) {
            use UnOp::*;
            let exact = matches!(
                op,
                Neg | Abs | Sign | Not | Sqrt | Floor | Ceil | Round | Trunc | IsNan | IsInf
            );
            let name = format!("{}_{dtype}", op.name());
            let inputs = [sample(dtype, 1)];
            let t = tolerance(dtype, !exact);
            run(&name, Expr::unary(op, element(0)), &inputs, op.result(dtype), t);
        }
    }
}

#[test]
fn binary_operations() {
    for dtype in DType::ALL {
        // Pairs of halves are looked at bit by bit in `dot_bf16`, without subnormal numbers.
        let defined = |op: &BinOp| binary_defined(*op, dtype) && *op != BinOp::PairBf16;
        for op in BinOp::ALL.into_iter().filter(defined) {
            let name = format!("{}_{dtype}", op.name());
            let inputs = [sample(dtype, 2), sample(dtype, 3)];
            let t = tolerance(dtype, op == BinOp::Pow && dtype.is_float());
            let body = Expr::binary(op, element(0), element(1));
            run(&name, body, &inputs, op.result(dtype), t);
        }
    }
}

#[test]
fn casts() {
    for from in DType::ALL {
        for to in DType::ALL {
            let inputs = [sample(from, 4)];
            run(&format!("{from}_to_{to}"), Expr::cast(from, to, element(0)), &inputs, to, 0.0);
        }
    }
}

#[test]
fn selects_and_constants() {
    for dtype in DType::ALL {
        let inputs = [sample(DType::Bool, 5), sample(dtype, 6), sample(dtype, 7)];
        run(
            &format!("where_{dtype}"),
            Expr::select(element(0), element(1), element(2)),
            &inputs,
            dtype,
            0.0,
        );
        let zero = Expr::Const(ansc_graph::Scalar::zero(dtype));
        let inputs = [sample(dtype, 8)];
        run(&format!("relu_{dtype}"), element(0).max(zero.clone()), &inputs, dtype, 0.0);
        run(&format!("min_{dtype}"), zero.min(element(0)), &inputs, dtype, 0.0);
    }
}

#[test]
fn indices_as_values() {
    let (i, j) = (Expr::var(0), Expr::var(1));
    let cases = [
        ("sum", i.clone() * Expr::int(45) + j.clone()),
        ("div", (i.clone() * Expr::int(5) + j.clone()).floor_div(7)),
        ("mod", (j.clone() - i.clone() * Expr::int(20)).floor_mod(6)),
        ("product", i.clone() * j.clone()),
        ("min", i.clone().min(j.clone())),
        ("rem", Expr::binary(BinOp::Rem, j.clone() - Expr::int(9), Expr::int(4))),
        ("pick", Expr::select(j.clone().lt(Expr::int(11)), i, j)),
    ];
    for (name, body) in cases {
        run(name, body.clone(), &[], DType::I64, 0.0);
        run(&format!("{name}_f32"), Expr::cast(DType::I64, DType::F32, body), &[], DType::F32, 0.0);
    }
}

/// Also where the processor has a fused operation on halves, which would round once.
#[test]
fn halves_are_rounded_between_a_product_and_a_sum() {
    for dtype in [DType::F16, DType::BF16] {
        let inputs = [3, 4, 5].map(|seed| sample(dtype, seed));
        let product = Expr::binary(BinOp::Mul, element(0), element(1));
        for op in [BinOp::Add, BinOp::Sub] {
            let body = Expr::binary(op, product.clone(), element(2));
            run(&format!("mul_{}_{dtype}", op.name()), body, &inputs, dtype, 0.0);
        }
    }
}
