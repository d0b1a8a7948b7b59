//! The tensor expression of a naive program: what [`lower()`](crate::lower()) undoes.
//!
//! ```text
//! for i in 0..4 { for r in 0..8 {
//!   block s (vi: spatial = i, vr: reduce = r) { s[vi] sum= in0[vi, vr] init }
//! } }
//! =>
//! s: f32[4] = sum{r0: 8} in0[i0, r0]
//! ```

use std::collections::BTreeMap;

use ansc_graph::{BufId, Compute, Expr, Reduce, Stage, VarId};

use crate::program::{Access, Block, Body, Iter, IterKind, Program, Scope, Stmt};

/// None where a nest of the root is more than one block that writes at its spatial iterators.
pub(crate) fn raise(program: &Program) -> Option<Compute> {
    let is_input = |b: &BufId| program.buffer(*b).scope == Scope::Input;
    let inputs: Vec<BufId> = program.params.iter().copied().filter(is_input).collect();
    let blocks = program.body.iter().map(own_block).collect::<Option<Vec<&Block>>>()?;
    let made = blocks.iter().map(|b| Some(result(b)?.buffer)).collect::<Option<Vec<_>>>()?;
    let numbers: BTreeMap<BufId, BufId> =
        inputs.iter().chain(&made).enumerate().map(|(new, old)| (*old, BufId::new(new))).collect();
    let stages = blocks.iter().map(|block| stage(program, block, &numbers));
    let stage_of = |b: &BufId| made.iter().position(|m| m == b);
    Some(Compute {
        inputs: inputs.iter().map(|b| program.buffer(*b).ty.clone()).collect(),
        stages: stages.collect::<Option<_>>()?,
        outputs: program
            .params
            .iter()
            .filter(|b| !is_input(b))
            .map(stage_of)
            .collect::<Option<_>>()?,
    })
}

fn own_block(nest: &Stmt) -> Option<&Block> {
    match nest {
        Stmt::Block(block) => Some(block),
        Stmt::For(l) => match l.body.as_slice() {
            [only] => own_block(only),
            _ => None,
        },
    }
}

/// The access that writes the block's result.
fn result(block: &Block) -> Option<&Access> {
    let access = match &block.body {
        Body::Assign { dst, .. } | Body::Reduce { dst, init: true, .. } => dst,
        Body::ArgReduce { position, init: true, .. } => position,
        Body::Reduce { .. } | Body::ArgReduce { .. } => return None,
    };
    let spatial = block.iters.iter().filter(|iter| iter.kind == IterKind::Spatial);
    let at_own_place = spatial.map(|iter| Expr::Var(iter.var)).eq(access.indices.iter().cloned());
    (at_own_place && block.predicate.is_none()).then_some(access)
}

fn stage(program: &Program, block: &Block, numbers: &BTreeMap<BufId, BufId>) -> Option<Stage> {
    let is_spatial = |iter: &&Iter| iter.kind == IterKind::Spatial;
    let (spatial, reduced): (Vec<&Iter>, Vec<&Iter>) = block.iters.iter().partition(is_spatial);
    let axes: BTreeMap<VarId, Expr> = spatial
        .iter()
        .chain(&reduced)
        .enumerate()
        .map(|(i, iter)| (iter.var, Expr::var(i)))
        .collect();
    let mut body = block.body.value().substitute(&|v| axes.get(&v).cloned());
    let mut known = true;
    body.visit_mut(&mut |e| {
        if let Expr::Load(buffer, _) = e {
            known &= numbers.contains_key(buffer);
            *buffer = numbers.get(buffer).copied().unwrap_or(*buffer);
        }
    });
    let extents = || reduced.iter().map(|iter| iter.extent).collect();
    let reduce = match block.body {
        Body::Assign { .. } => None,
        Body::Reduce { combiner, .. } | Body::ArgReduce { combiner, .. } => {
            Some(Reduce { combiner, extents: extents() })
        }
    };
    let ty = program.buffer(result(block)?.buffer).ty.clone();
    known.then(|| Stage { name: block.name.clone(), ty, reduce, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{arg_max, concat, conv, matmul_bias_relu, softmax, transpose};

    #[test]
    fn what_is_lowered_is_raised_again() {
        let softmax = softmax(3, 8);
        let all = [arg_max(3, 7), concat(2, 3, 4), conv(2, 3, 5, 6, 2), matmul_bias_relu(4, 5, 6)];
        for compute in all.iter().chain([&softmax, &transpose(2, 3, 4)]) {
            assert_eq!(raise(&crate::lower("k", compute)).as_ref(), Some(compute));
        }
    }

    #[test]
    fn a_scheduled_program_is_not_raised() {
        let mut schedule = crate::Schedule::new(crate::lower("k", &softmax(3, 8)));
        let l = schedule.loops("max").unwrap()[0];
        schedule.split(l, &[0, 2]).unwrap();
        assert_eq!(raise(schedule.program()), None);
    }
}
