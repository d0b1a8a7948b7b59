//! A tensor expression as the naive program e0.
//!
//! Every stage becomes one block under a serial loop nest, spatial axes outside, reduction axes
//! inside, in the order of the stages. The buffer of stage `s` has the id by which the stages load
//! it, so that bodies are taken over with their variables renamed.
//!
//! ```text
//! s0: f32[4, 6] = sum[8] mul(b0[v0, v2], b1[v2, v1])
//! =>
//! for i in 0..4 { for j in 0..6 { for r in 0..8 {
//!   block s0 (vi: spatial = i, vj: spatial = j, vr: reduce = r) { s0[vi, vj] sum= mul(b0[vi, vr], b1[vr, vj]) init }
//! }}}
//! ```

use std::collections::BTreeSet;

use ansc_graph::text::unique;
use ansc_graph::{BufId, Combiner, Compute, Expr, Stage, TensorType, VarId};
use ansc_runtime::DType;

use crate::program::{
    Access, Block, Body, Buffer, For, ForKind, Iter, IterKind, Program, Scope, Shared, Stmt,
};

/// The naive program that computes `compute`. `compute` is well-formed (see the graph's verifier).
pub fn lower(name: &str, compute: &Compute) -> Program {
    let mut lowering = Lowering::new(name, compute);
    for (index, stage) in compute.stages.iter().enumerate() {
        lowering.stage(compute.stage_buffer(index), stage);
    }
    for (position, &stage) in compute.outputs.iter().enumerate() {
        lowering.output(compute.outputs[..position].contains(&stage), compute.stage_buffer(stage));
    }
    lowering.program
}

struct Lowering {
    program: Program,
    names: BTreeSet<String>,
}

impl Lowering {
    fn new(name: &str, compute: &Compute) -> Lowering {
        let program = Program::new(name);
        let mut lowering = Lowering { program, names: BTreeSet::new() };
        for (index, ty) in compute.inputs.iter().enumerate() {
            let id = lowering.buffer(&format!("in{index}"), ty.clone(), Scope::Input);
            lowering.program.params.push(id);
        }
        for (index, stage) in compute.stages.iter().enumerate() {
            let is_output = compute.outputs.contains(&index);
            let scope = if is_output { Scope::Output } else { Scope::Global };
            lowering.buffer(&stage.name, stage.ty.clone(), scope);
        }
        lowering
    }

    fn buffer(&mut self, name: &str, ty: TensorType, scope: Scope) -> BufId {
        let name = unique(&mut self.names, name);
        self.program.buffers.push(Buffer::new(name, ty, scope));
        BufId::new(self.program.buffers.len() - 1)
    }

    fn stage(&mut self, dst: BufId, stage: &Stage) {
        let name = self.program.buffer(dst).name.clone();
        let rank = stage.ty.rank();
        let (loops, iters) = self.axes(&stage.extents(), rank);
        let vars: Vec<VarId> = iters.iter().map(|i| i.var).collect();
        let value = stage.body.substitute(&|v| Some(Expr::Var(vars[v.index()])));
        let indices: Vec<Expr> = vars[..rank].iter().map(|&v| Expr::Var(v)).collect();
        let dst = Access { buffer: dst, indices };
        let body = match stage.reduce.as_ref().map(|r| r.combiner) {
            None => Body::Assign { dst, value },
            Some(combiner @ (Combiner::ArgMax { .. } | Combiner::ArgMin { .. })) => {
                let ty = TensorType::new(self.dtype(&value), stage.ty.shape.clone());
                let best = self.buffer(&format!("{name}_best"), ty, Scope::Global);
                let best = Access { buffer: best, indices: dst.indices.clone() };
                let term = row_major(&iters[rank..]);
                Body::ArgReduce { combiner, best, position: dst, value, term, init: true }
            }
            Some(combiner) => Body::Reduce { combiner, dst, value, init: true },
        };
        self.push(loops, Block { name, iters, predicate: None, body });
    }

    /// A result that is named twice is copied: parameters do not overlap.
    fn output(&mut self, repeated: bool, source: BufId) {
        if !repeated {
            self.program.params.push(source);
            return;
        }
        let ty = self.program.buffer(source).ty.clone();
        let name = format!("{}_copy", self.program.buffer(source).name);
        let (loops, iters) = self.axes(&ty.shape, ty.rank());
        let buffer = self.buffer(&name, ty, Scope::Output);
        let indices: Vec<Expr> = iters.iter().map(|i| Expr::Var(i.var)).collect();
        let value = Expr::Load(source, indices.clone());
        let body = Body::Assign { dst: Access { buffer, indices }, value };
        let name = self.program.buffer(buffer).name.clone();
        self.push(loops, Block { name, iters, predicate: None, body });
        self.program.params.push(buffer);
    }

    /// A loop and a block iterator bound to it for each axis.
    fn axes(&mut self, extents: &[usize], rank: usize) -> (Vec<(VarId, usize)>, Vec<Iter>) {
        let mut loops = Vec::with_capacity(extents.len());
        let mut iters = Vec::with_capacity(extents.len());
        for (axis, &extent) in extents.iter().enumerate() {
            let (name, kind) = match axis.checked_sub(rank) {
                None => (format!("i{axis}"), IterKind::Spatial),
                Some(r) => (format!("r{r}"), IterKind::Reduce),
            };
            let var = self.program.add_var(format!("v{name}"));
            let loop_var = self.program.add_var(name);
            loops.push((loop_var, extent));
            iters.push(Iter { var, extent, kind, binding: Expr::Var(loop_var) });
        }
        (loops, iters)
    }

    fn push(&mut self, loops: Vec<(VarId, usize)>, block: Block) {
        let nest = loops.into_iter().rev().fold(Stmt::Block(Shared::new(block)), |body, l| {
            let (var, extent) = l;
            Stmt::For(Shared::new(For { var, extent, kind: ForKind::Serial, body: vec![body] }))
        });
        self.program.body.push(nest);
    }

    fn dtype(&self, value: &Expr) -> DType {
        value.dtype(&|b| self.program.buffer(b).ty.dtype)
    }
}

/// The position of the point that `iters` name in their row-major domain.
fn row_major(iters: &[Iter]) -> Expr {
    let Some((first, rest)) = iters.split_first() else {
        return Expr::int(0);
    };
    rest.iter().fold(Expr::Var(first.var), |position, iter| {
        position * Expr::index(iter.extent) + Expr::Var(iter.var)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    #[test]
    fn a_reduction_has_spatial_loops_outside() {
        let body = Expr::load(0, vec![Expr::var(0), Expr::var(2)])
            * Expr::load(1, vec![Expr::var(2), Expr::var(1)]);
        let stage = Stage::reduction("mm", f32s(&[4, 6]), Combiner::Sum, vec![8], body);
        let compute = Compute::single(vec![f32s(&[4, 8]), f32s(&[8, 6])], stage);
        let program = lower("k", &compute);
        let mut extents = vec![];
        let mut stmt = &program.body[0];
        while let Stmt::For(l) = stmt {
            extents.push(l.extent);
            stmt = &l.body[0];
        }
        assert_eq!(extents, [4, 6, 8]);
        assert_eq!(program.params.len(), 3);
        let Stmt::Block(block) = stmt else { panic!("a block under the loops") };
        assert!(matches!(block.body, Body::Reduce { init: true, .. }));
        assert_eq!(block.iters[2].kind, IterKind::Reduce);
    }

    #[test]
    fn arg_reductions_keep_the_extreme_in_a_buffer() {
        let body = Expr::load(0, vec![Expr::var(0), Expr::var(1), Expr::var(2)]);
        let ty = TensorType::new(DType::I64, [4]);
        let combiner = Combiner::ArgMax { last: false };
        let stage = Stage::reduction("am", ty, combiner, vec![2, 3], body);
        let program = lower("k", &Compute::single(vec![f32s(&[4, 2, 3])], stage));
        assert_eq!(program.buffers[2].ty, f32s(&[4]));
        assert_eq!(program.buffers[2].scope, Scope::Global);
        assert_eq!(program.params, [BufId(0), BufId(1)]);
    }

    #[test]
    fn names_are_unique_words_and_results_are_distinct() {
        let load = || Expr::load(0, vec![Expr::var(0)]);
        let mut compute =
            Compute { inputs: vec![f32s(&[4])], stages: vec![], outputs: vec![0, 1, 0] };
        compute.push(Stage::map("a.b", f32s(&[4]), load()));
        compute.push(Stage::map("a.b", f32s(&[4]), load()));
        let program = lower("k", &compute);
        let names: Vec<&str> = program.buffers.iter().map(|b| b.name.as_str()).collect();
        assert_eq!(names, ["in0", "a_b", "a_b_1", "a_b_copy"]);
        assert_eq!(program.params, [BufId(0), BufId(1), BufId(2), BufId(3)]);
    }
}
