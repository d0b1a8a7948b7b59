//! The intrinsics that come with the compiler: update steps of matrix products.

use ansc_graph::{Combiner, Expr};
use ansc_runtime::DType;

use super::Intrinsic;
use super::description::{Operand, description};
use crate::program::IterKind::{Reduce, Spatial};
use crate::program::{For, ForKind, Program, Stmt};
use crate::tree;

/// Names like `dot_16x4_u8i8i32` say rows, terms and the types of both operands and the sum.
pub(super) fn all() -> Vec<Intrinsic> {
    let dots = [
        ("dot_16x4_u8i8i32", [DType::U8, DType::I8, DType::I32]),
        ("dot_16x4_i8i8i32", [DType::I8, DType::I8, DType::I32]),
    ];
    let products = [("outer_4x8_f32", 4, 8), ("outer_6x16_f32", 6, 16), ("outer_4x32_f32", 4, 32)];
    let dots = dots.into_iter().map(|(name, types)| dot(name, types));
    dots.chain(products.into_iter().map(|(name, rows, lanes)| outer(name, rows, lanes))).collect()
}

/// `c[i] += a[k] * b[i, k]`, sixteen sums of four terms: what `vpdpbusd` and its like do.
fn dot(name: &str, [a, b, sum]: [DType; 3]) -> Intrinsic {
    let operands = [Operand::plain(a, &[(4, 1)]), Operand::plain(b, &[(16, 0), (4, 1)])];
    let (axes, result) = ([(16, Spatial), (4, Reduce)], Operand::plain(sum, &[(16, 0)]));
    let description = description(&axes, operands, result, Some(Combiner::Sum), |[x, y]| {
        Expr::cast(a, sum, x) * Expr::cast(b, sum, y)
    });
    in_order(name, description, &[(1, ForKind::Unrolled), (0, ForKind::Vectorized)])
}

/// `c[i, j] += a[i] * b[j]`: a register tile of a matrix product.
fn outer(name: &str, rows: usize, lanes: usize) -> Intrinsic {
    let f32s = |axes: &[(usize, usize)]| Operand::plain(DType::F32, axes);
    let operands = [f32s(&[(rows, 0)]), f32s(&[(lanes, 1)])];
    // The third loop is the one of the reduction, of which this is one step.
    let axes = [(rows, Spatial), (lanes, Spatial), (1, Reduce)];
    let result = f32s(&[(rows, 0), (lanes, 1)]);
    let description = description(&axes, operands, result, Some(Combiner::Sum), |[x, y]| x * y);
    let order = [(2, ForKind::Serial), (0, ForKind::Unrolled), (1, ForKind::Vectorized)];
    in_order(name, description, &order)
}

/// The implementation is the description with its loops in another order: for each, its place in
/// the description, and how it is executed.
fn in_order(name: &str, description: Program, order: &[(usize, ForKind)]) -> Intrinsic {
    let (mut loops, mut step) = (vec![], description.body.clone());
    while let [Stmt::For(l)] = &step[..] {
        loops.push(For { body: vec![], ..For::clone(l) });
        step = l.body.clone();
    }
    let loops = order.iter().map(|&(at, kind)| For { kind, ..loops[at].clone() }).collect();
    let implementation = Program { body: tree::nest(loops, step), ..description.clone() };
    Intrinsic::new(name, description, implementation).expect("a built-in intrinsic")
}
