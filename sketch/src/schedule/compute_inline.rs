//! compute_inline: a producer becomes part of the expressions that read it.
//!
//! ```text
//! t[i] = f(i)   u[j] = g(t[j + 1])
//! => compute_inline(t)
//! u[j] = g(f(j + 1))
//! ```

use ansc_graph::{BufId, Expr, VarId};

use super::error::{Cause, Failure};
use super::moves::{
    check_only_writer, check_producers, is_internal, plain_indices, readers, remove_block,
};
use super::query::{block_at, block_path};
use super::{Result, Schedule};
use crate::program::{Access, Block, Body, Program};
use crate::tree;

/// Nodes of the expression of a block. No kernel that fits its budget of code comes near.
const MOST_NODES: usize = 1 << 18;

impl Schedule {
    /// Removes `block`, which assigns without reducing, and puts its value where it is read.
    pub fn compute_inline(&mut self, block: &str) -> Result<()> {
        self.apply("compute_inline", |program| compute_inline(program, block))
    }
}

fn compute_inline(program: &mut Program, name: &str) -> std::result::Result<(), Failure> {
    let path = block_path(program, name)?;
    check_only_writer(program, &path)?;
    let block = block_at(program, &path);
    let (dst, value) = assignment(block)?;
    if !is_internal(program, dst.buffer) {
        return Err(Cause::WritesResult.at_block(name));
    }
    if readers(program, dst.buffer).is_empty() {
        return Err(Cause::NoConsumer.at_block(name));
    }
    let axes = inlinable_axes(block, &dst)?;
    for reader in readers(program, dst.buffer) {
        check_producers(program, &path, &reader)?;
        check_size(block_at(program, &reader), dst.buffer, &axes, &value)?;
    }
    remove_block(program, &path);
    tree::visit_blocks_mut(&mut program.body, &mut |reader| {
        reader.visit_exprs_mut(&mut |e| {
            *e = e.rewrite(&mut |node| inlined(node, dst.buffer, &axes, &value));
        });
    });
    Ok(())
}

/// The place and the value that the block assigns. A reduction is an error.
pub(super) fn assignment(block: &Block) -> std::result::Result<(Access, Expr), Failure> {
    let Body::Assign { dst, value } = &block.body else {
        return Err(Cause::IsReduction.at_block(&block.name));
    };
    Ok((dst.clone(), value.clone()))
}

/// The iterator of each axis of `dst`; together they are all iterators.
pub(super) fn inlinable_axes(
    block: &Block,
    dst: &Access,
) -> std::result::Result<Vec<Option<VarId>>, Failure> {
    let axes = plain_indices(&dst.indices);
    let complete = |axes: &Vec<Option<VarId>>| {
        block.iters.iter().all(|i| i.extent == 1 || axes.contains(&Some(i.var)))
    };
    axes.filter(complete).ok_or_else(|| Cause::IndexNotPlain.at_block(&block.name))
}

/// The reader stays small enough. A chain of producers, each of which is read twice, would double
/// it with each.
pub(super) fn check_size(
    reader: &Block,
    buffer: BufId,
    axes: &[Option<VarId>],
    value: &Expr,
) -> std::result::Result<(), Failure> {
    let mut size = 0usize;
    let loads = reader.body.value().loads().into_iter();
    for (_, indices) in loads.filter(|(loaded, _)| *loaded == buffer) {
        let sizes: Vec<usize> = indices.iter().map(nodes).collect();
        value.visit(&mut |node| {
            let axis = match node {
                Expr::Var(v) => axes.iter().position(|a| *a == Some(*v)),
                _ => None,
            };
            size = size.saturating_add(axis.map_or(1, |axis| sizes[axis]));
        });
    }
    fits(nodes(reader.body.value()).saturating_add(size), &reader.name)
}

/// A block may compute an expression of so many nodes.
pub(super) fn fits(nodes: usize, block: &str) -> std::result::Result<(), Failure> {
    match nodes <= MOST_NODES {
        true => Ok(()),
        false => Err(Cause::TooMuchInOne(MOST_NODES).at_block(block)),
    }
}

pub(super) fn nodes(e: &Expr) -> usize {
    let mut count = 0;
    e.visit(&mut |_| count += 1);
    count
}

/// The value that takes the place of `node`, if that is a load of the inlined buffer.
pub(super) fn inlined(
    node: &Expr,
    buffer: BufId,
    axes: &[Option<VarId>],
    value: &Expr,
) -> Option<Expr> {
    match node {
        Expr::Load(loaded, indices) if *loaded == buffer => Some(value.substitute(&|v| {
            let axis = axes.iter().position(|a| *a == Some(v));
            // An iterator that no index is has extent 1.
            Some(axis.map_or_else(|| Expr::int(0), |axis| indices[axis].clone()))
        })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use ansc_graph::Compute;

    use super::*;
    use crate::lower::lower;
    use crate::schedule::ScheduleError;

    /// Producers that are read twice, one after another.
    fn chain() -> Schedule {
        let mut text = String::from("compute(in0: f32[4]) -> s60 {\n  s0: f32[4] = in0[i0]\n");
        for i in 1..=60 {
            let before = i - 1;
            writeln!(text, "  s{i}: f32[4] = add(s{before}[i0], s{before}[i0])").unwrap();
        }
        let compute = Compute::parse(&(text + "}")).unwrap();
        Schedule::new(lower("k", &compute))
    }

    fn ends_early(inline: impl Fn(&mut Schedule, usize) -> Result<()>) {
        let mut schedule = chain();
        let error = (0..60).find_map(|i| inline(&mut schedule, i).err()).unwrap();
        let cause = |e: &ScheduleError| e.to_string().contains("an expression of more than 262144");
        assert!(cause(&error), "{error}");
    }

    #[test]
    fn expressions_do_not_explode() {
        ends_early(|schedule, i| schedule.compute_inline(&format!("s{i}")));
        ends_early(|schedule, i| schedule.reverse_compute_inline(&format!("s{}", i + 1)));
    }
}
