//! decompose_padding: a block that pads as one that fills and one that copies, without a branch.
//!
//! ```text
//! for i in 0..10 { block pad (vi = i) { pad[vi] = select(1 <= vi && vi < 9, x[vi - 1], 0) } }
//! => decompose_padding(pad, i)
//! for i in 0..10 { block pad_fill (vi = i) { pad[vi] = 0 } }
//! for i in 0..8 { block pad (vi = i + 1) { pad[vi] = x[vi - 1] } }
//! ```

use std::collections::BTreeSet;

use ansc_graph::{Expr, Scalar, VarId};

use super::error::{Cause, Failure};
use super::moves::check_parallel;
use super::query::{
    block_at, block_at_mut, block_path, blocks_under, loop_at, loop_at_mut, loop_path,
};
use super::{LoopRef, Result, Schedule};
use crate::affine::{Digit, Extents, Source, Sum};
use crate::decompose::init_nest;
use crate::program::{Access, Body, For, ForKind, Program};
use crate::region;
use crate::tree::{self, Path};

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// `block` assigns `select(condition, value, constant)`. The constant is assigned at every
    /// point by a new block just before the loop `l`, whose name is returned; `block` then assigns
    /// the value where the condition holds. Bounds on an iterator with a loop of its own from `l`
    /// on become the range of that loop, all else the predicate of the block.
    pub fn decompose_padding(&mut self, block: &str, l: LoopRef) -> Result<String> {
        self.apply("decompose_padding", |program| decompose(program, block, l))
    }
}

fn decompose(program: &mut Program, name: &str, l: LoopRef) -> Checked<String> {
    let path = block_path(program, name)?;
    let target = loop_path(program, l)?;
    if !path.starts_with(&target) {
        return Err(Cause::NotUnder.at_loop(l));
    }
    let (dst, condition, value, constant) = padding(program, &path)?;
    let fill = insert_fill(program, &path, target.len() - 1, dst.clone(), constant);

    let path = block_path(program, name)?;
    block_at_mut(program, &path).body = Body::Assign { dst, value };
    let rest: Vec<Expr> = condition
        .conjuncts()
        .into_iter()
        .filter(|part| narrow(program, &path, l, part).is_none())
        .cloned()
        .collect();
    let block = block_at_mut(program, &path);
    block.predicate = tree::conjunction(block.predicate.take().into_iter().chain(rest));
    check_parallel(program)?;
    Ok(fill)
}

/// The destination, the condition, what is assigned if it holds and what otherwise.
fn padding(program: &Program, path: &Path) -> Checked<(Access, Expr, Expr, Scalar)> {
    let block = block_at(program, path);
    let Body::Assign { dst, value } = &block.body else {
        return Err(Cause::IsReduction.at_block(&block.name));
    };
    match value {
        Expr::Select(condition, value, other) => match &**other {
            Expr::Const(constant) => {
                Ok((dst.clone(), (**condition).clone(), (**value).clone(), *constant))
            }
            _ => Err(Cause::NoPadding.at_block(&block.name)),
        },
        _ => Err(Cause::NoPadding.at_block(&block.name)),
    }
}

/// A nest before the ancestor of the block of depth `depth`, over the loops from there on.
fn insert_fill(
    program: &mut Program,
    path: &Path,
    depth: usize,
    dst: Access,
    constant: Scalar,
) -> String {
    let block = block_at(program, path).clone();
    // A guard may depend on a loop that binds nothing.
    let bindings = block.iters.iter().map(|i| &i.binding);
    let used: BTreeSet<VarId> = bindings.chain(&block.predicate).flat_map(Expr::vars).collect();
    let kept: Vec<For> = tree::loops_above(&program.body, path)[depth..]
        .iter()
        .filter(|f| used.contains(&f.var))
        .map(|f| For { var: f.var, extent: f.extent, kind: f.kind, body: vec![] })
        .collect();
    let name = program.fresh_block_name(&format!("{}_fill", block.name));
    let nest = init_nest(program, &block, &kept, &BTreeSet::new(), name.clone(), dst, constant);
    let (siblings, index) = tree::siblings_mut(&mut program.body, &path[..=depth]);
    siblings.splice(index..index, nest);
    name
}

/// Lets a loop run only where `part` holds, if that bounds the loop's own iterator by a constant.
fn narrow(program: &mut Program, path: &Path, l: LoopRef, part: &Expr) -> Option<()> {
    let (var, bound) = iterator_bound(part, &Extents::of(program))?;
    let place = block_at(program, path).iters.iter().position(|i| i.var == var)?;
    let (own, shift) = own_loop(program, path, l, place)?;
    let extent = loop_at(program, &own).extent as i64;
    let (low, high) = match bound {
        Bound::AtLeast(least) => ((least - shift).clamp(0, extent), extent),
        Bound::Below(end) => (0, (end - shift).clamp(0, extent)),
    };
    if low >= high {
        return None;
    }
    let l = loop_at_mut(program, &own);
    l.extent = usize::try_from(high - low).ok()?;
    let loop_var = l.var;
    let block = block_at_mut(program, path);
    block.substitute_loops(&|v| (v == loop_var).then(|| Expr::Var(v) + Expr::int(low)));
    let extents = Extents::of(program);
    let binding = &mut block_at_mut(program, path).iters[place].binding;
    *binding = Sum::of(binding, &extents).to_expr();
    Some(())
}

enum Bound {
    AtLeast(i64),
    Below(i64),
}

/// `v + a < b`, `a <= v + b` and their like, as a bound on the variable.
fn iterator_bound(part: &Expr, extents: &Extents) -> Option<(VarId, Bound)> {
    let difference = region::slack(part, extents)?;
    let (digit, coefficient) = difference.terms.only()?;
    let Digit { source: Source::Var(var), divisor: 1, modulus: None } = *digit else { return None };
    match coefficient {
        1 => Some((var, Bound::AtLeast(-difference.constant))),
        -1 => Some((var, Bound::Below(difference.constant + 1))),
        _ => None,
    }
}

/// The serial loop from `l` on that alone binds the iterator, plus a constant, and nothing else.
fn own_loop(program: &Program, path: &Path, l: LoopRef, place: usize) -> Option<(Path, i64)> {
    let block = block_at(program, path);
    let sum = Sum::of(&block.iters[place].binding, &Extents::of(program));
    let (digit, 1) = sum.terms.only()? else { return None };
    let Digit { source: Source::Var(var), divisor: 1, modulus: None } = *digit else { return None };
    let own = loop_path(program, LoopRef(var)).ok()?;
    let found = loop_at(program, &own);
    let uses = block.iters.iter().filter(|i| i.binding.vars().contains(&var)).count();
    let mentioned = block.predicate.iter().any(|p| p.vars().contains(&var));
    let is_own = uses == 1
        && !mentioned
        && found.kind == ForKind::Serial
        && blocks_under(found).len() == 1
        && own.starts_with(&loop_path(program, l).ok()?);
    is_own.then_some((own, sum.constant))
}
