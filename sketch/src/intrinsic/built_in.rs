//! The intrinsics that come with the compiler: update steps of matrix products.

use ansc_graph::{BufId, Combiner, Expr, TensorType, VarId};
use ansc_runtime::DType;

use super::Intrinsic;
use crate::program::IterKind::{Reduce, Spatial};
use crate::program::{Access, Block, Body, For, ForKind, Iter, IterKind, Program, Scope, Stmt};
use crate::schedule::{Result, Schedule};
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
    let (i, k) = (Expr::var(2), Expr::var(3));
    let term = |buffer: usize, from, at| Expr::cast(from, sum, Expr::load(buffer, at));
    let value = term(0, a, vec![k.clone()]) * term(1, b, vec![i.clone(), k]);
    let operands = [TensorType::new(a, [4]), TensorType::new(b, [16, 4])];
    let description =
        update(operands, TensorType::new(sum, [16]), &[(16, Spatial), (4, Reduce)], value, vec![i]);
    scheduled(name, description, |s, loops| {
        s.reorder(&[loops[1], loops[0]])?;
        s.vectorize(loops[0])?;
        s.unroll(loops[1])
    })
}

/// `c[i, j] += a[i] * b[j]`: a register tile of a matrix product.
fn outer(name: &str, rows: usize, lanes: usize) -> Intrinsic {
    let f32s = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let (i, j) = (Expr::var(3), Expr::var(4));
    // The third loop is the one of the reduction, of which this is one step.
    let value = Expr::load(0, vec![i.clone()]) * Expr::load(1, vec![j.clone()]);
    let axes = [(rows, Spatial), (lanes, Spatial), (1, Reduce)];
    let result = f32s(&[rows, lanes]);
    let description = update([f32s(&[rows]), f32s(&[lanes])], result, &axes, value, vec![i, j]);
    scheduled(name, description, |s, loops| {
        s.reorder(&[loops[2], loops[0], loops[1]])?;
        s.unroll(loops[0])?;
        s.vectorize(loops[1])
    })
}

/// `result[at] sum= value` under a loop for each axis. Loops are the variables `0..n`, iterators `n..2n`.
fn update(
    operands: [TensorType; 2],
    result: TensorType,
    axes: &[(usize, IterKind)],
    value: Expr,
    at: Vec<Expr>,
) -> Program {
    let mut program = Program {
        name: "step".into(),
        buffers: vec![],
        params: vec![],
        vars: vec![],
        body: vec![],
    };
    let [a, b] = operands;
    for (name, ty, scope) in
        [("a", a, Scope::Input), ("b", b, Scope::Input), ("c", result, Scope::Output)]
    {
        let id = program.add_buffer(name, ty, scope);
        program.params.push(id);
    }
    let loops: Vec<VarId> = (0..axes.len()).map(|n| program.add_var(format!("i{n}"))).collect();
    let iters: Vec<Iter> = axes
        .iter()
        .zip(&loops)
        .map(|(&(extent, kind), &l)| {
            let var = program.add_var(format!("v{}", l.index()));
            Iter { var, extent, kind, binding: Expr::Var(l) }
        })
        .collect();
    let dst = Access { buffer: BufId::new(2), indices: at };
    let body = Body::Reduce { combiner: Combiner::Sum, dst, value, init: false };
    let block = Block { name: "step".into(), iters, predicate: None, body };
    let nest = loops.iter().zip(axes).map(|(&var, &(extent, _))| For {
        var,
        extent,
        kind: ForKind::Serial,
        body: vec![],
    });
    program.body = tree::nest(nest.collect(), vec![Stmt::Block(Box::new(block))]);
    program
}

/// The implementation is the description, scheduled.
fn scheduled(
    name: &str,
    description: Program,
    f: impl FnOnce(&mut Schedule, &[crate::LoopRef]) -> Result<()>,
) -> Intrinsic {
    let mut schedule = Schedule::new(description.clone());
    let loops = schedule.loops("step").expect("the block of the description");
    f(&mut schedule, &loops).expect("the schedule of a built-in intrinsic");
    Intrinsic::new(name, description, schedule.into_program()).expect("a built-in intrinsic")
}
