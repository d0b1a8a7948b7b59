//! The types of expressions, and the number of indices.

use ansc_graph::verify::type_of;
use ansc_graph::{BufId, Expr};
use ansc_runtime::DType;

use super::{Fault, Subject};
use crate::program::{Block, Body};

pub(super) fn check(subject: &Subject<'_>) -> Result<(), Fault> {
    ranks(subject)?;
    subject.sites.iter().try_for_each(|site| block(subject, site.block))
}

fn ranks(subject: &Subject<'_>) -> Result<(), Fault> {
    for touch in &subject.touches {
        let (rank, found) = (subject.program.buffer(touch.buffer).ty.rank(), touch.indices.len());
        if rank != found {
            let block = subject.block_name(touch.site);
            return Err(Fault::Rank {
                block,
                buffer: subject.buffer_name(touch.buffer),
                rank,
                found,
            });
        }
    }
    Ok(())
}

fn block(subject: &Subject<'_>, block: &Block) -> Result<(), Fault> {
    let index = |what, e: &Expr| has_type(subject, block, what, e, DType::I64);
    let dtype = |buffer: BufId| subject.program.buffer(buffer).ty.dtype;
    block.iters.iter().try_for_each(|iter| index("the binding of an iterator", &iter.binding))?;
    let guard = |e| has_type(subject, block, "the guard", e, DType::Bool);
    block.predicate.iter().try_for_each(guard)?;
    for access in block.body.writes() {
        access.indices.iter().try_for_each(|e| index("an index", e))?;
    }
    let written = match &block.body {
        Body::Assign { dst, .. } | Body::Reduce { dst, .. } => dtype(dst.buffer),
        Body::ArgReduce { best, position, term, .. } => {
            index("the term", term)?;
            let found = dtype(position.buffer);
            if found != DType::I64 {
                let (block, what) = (block.name.clone(), "the position");
                return Err(Fault::Type { block, what, expected: DType::I64, found });
            }
            dtype(best.buffer)
        }
    };
    has_type(subject, block, "the value", block.body.value(), written)
}

fn has_type(
    subject: &Subject<'_>,
    block: &Block,
    what: &'static str,
    e: &Expr,
    expected: DType,
) -> Result<(), Fault> {
    let buffers = |b: BufId| subject.program.buffers.get(b.index()).map(|b| &b.ty);
    let name = || block.name.clone();
    match type_of(e, &|_| true, &buffers) {
        Ok(found) if found == expected => Ok(()),
        Ok(found) => Err(Fault::Type { block: name(), what, expected, found }),
        Err(problem) => Err(Fault::IllTyped { block: name(), problem }),
    }
}
