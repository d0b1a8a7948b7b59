//! Descriptions of intrinsics: one block under a loop for each axis.
//!
//! ```text
//! axes (4, spatial), (8, reduce); a: f32[8] at 1, b: f32[4, 8] at 0, 1; c: f32[4] at 0; sum; a * b
//! =>
//! for i0 in 0..4 { for i1 in 0..8 { block step (v0, v1) { c[v0] sum= a[v1] * b[v0, v1] } } }
//! ```

use ansc_graph::{BufId, Combiner, Expr, TensorType, VarId};
use ansc_runtime::DType;

use crate::program::{
    Access, Block, Body, For, ForKind, Iter, IterKind, Program, Scope, Shared, Stmt,
};
use crate::tree;

/// A parameter, and its element that one iteration uses: indices over the numbers of axes.
pub(super) struct Operand {
    pub(super) ty: TensorType,
    pub(super) at: Vec<Expr>,
}

impl Operand {
    /// Each axis of the buffer is as long as an axis of the description, and walks along it.
    pub(super) fn plain(dtype: DType, axes: &[(usize, usize)]) -> Operand {
        let shape: Vec<usize> = axes.iter().map(|(length, _)| *length).collect();
        let at = axes.iter().map(|(_, axis)| Expr::var(*axis)).collect();
        Operand { ty: TensorType::new(dtype, shape), at }
    }
}

/// `result = value`, or `result = combine(result, value)`. Loops are the variables `0..n`,
/// iterators `n..2n`; operands are the first parameters, the result is the last one.
pub(super) fn description<const N: usize>(
    axes: &[(usize, IterKind)],
    operands: [Operand; N],
    result: Operand,
    combiner: Option<Combiner>,
    value: impl FnOnce([Expr; N]) -> Expr,
) -> Program {
    let mut program = Program::new("step");
    let loops: Vec<VarId> = (0..axes.len()).map(|n| program.add_var(format!("i{n}"))).collect();
    let mut iter = |(&(extent, kind), &l): (&(usize, IterKind), &VarId)| {
        let var = program.add_var(format!("v{}", l.index()));
        Iter { var, extent, kind, binding: Expr::Var(l) }
    };
    let iters: Vec<Iter> = axes.iter().zip(&loops).map(&mut iter).collect();
    let mut number = 0;
    let mut param = |operand: Operand, scope: Scope| -> (BufId, Vec<Expr>) {
        let name = char::from(b'a' + number).to_string();
        number += 1;
        let id = program.add_buffer(name, operand.ty, scope);
        program.params.push(id);
        let own = |e: Expr| e.substitute(&|v| iters.get(v.index()).map(|i| Expr::Var(i.var)));
        (id, operand.at.into_iter().map(own).collect())
    };
    let loads = operands.map(|operand| {
        let (buffer, at) = param(operand, Scope::Input);
        Expr::Load(buffer, at)
    });
    let (buffer, indices) = param(result, Scope::Output);
    let (dst, value) = (Access { buffer, indices }, value(loads));
    let body = match combiner {
        None => Body::Assign { dst, value },
        Some(combiner) => Body::Reduce { combiner, dst, value, init: false },
    };
    let block = Block { name: "step".into(), iters, predicate: None, body };
    let nest = loops.iter().zip(axes).map(|(&var, &(extent, _))| For {
        var,
        extent,
        kind: ForKind::Serial,
        body: vec![],
    });
    program.body = tree::nest(nest.collect(), vec![Stmt::Block(Shared::new(block))]);
    program
}
