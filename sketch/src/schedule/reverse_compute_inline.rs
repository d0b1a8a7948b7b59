//! reverse_compute_inline: a consumer becomes part of the block that writes what it reads.
//!
//! ```text
//! t[i, j] = f(i, j)   u[j, i] = g(t[i, j])
//! => reverse_compute_inline(u)
//! u[j, i] = g(f(i, j))
//! ```

use std::collections::BTreeMap;

use ansc_graph::{BufId, Expr, VarId};

use super::compute_at::loads_of;
use super::compute_inline::{assignment, fits, nodes};
use super::error::{Cause, Failure, buffer_name};
use super::moves::{
    check_neighbours, check_only_writer, check_parallel, is_internal, plain_indices, readers,
    remove_block, writers,
};
use super::query::{block_at, block_at_mut, block_path};
use super::{Result, Schedule};
use crate::program::{Access, Block, Body, Program};
use crate::tree::Path;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Removes `block`, and lets the only producer of one of its operands assign its result. The
    /// producer does not reduce, and `block` reads each of its elements exactly once.
    pub fn reverse_compute_inline(&mut self, block: &str) -> Result<()> {
        self.apply("reverse_compute_inline", |program| reverse_compute_inline(program, block))
    }
}

fn reverse_compute_inline(program: &mut Program, name: &str) -> Checked<()> {
    let path = block_path(program, name)?;
    check_only_writer(program, &path)?;
    let consumer = block_at(program, &path).clone();
    let (dst, value) = assignment(&consumer)?;
    let (source, producer_path) = producer(program, &consumer)?;
    check_neighbours(program, &path, &producer_path)?;
    let producer = block_at(program, &producer_path).clone();
    let (produced, produced_value) = assignment(&producer)?;
    check_other_reads(program, &consumer, source, &producer_path)?;
    let map = correspondence(program, &consumer, &produced, source)?;
    let size = loads_of(&consumer, source).len().saturating_mul(nodes(&produced_value));
    fits(nodes(&value).saturating_add(size), name)?;

    let renamed = |e: &Expr| e.substitute(&|v| map.get(&v).cloned());
    let value = renamed(&value).rewrite(&mut |node| match node {
        Expr::Load(buffer, _) if *buffer == source => Some(produced_value.clone()),
        _ => None,
    });
    let indices = dst.indices.iter().map(renamed).collect();
    let dst = Access { buffer: dst.buffer, indices };
    block_at_mut(program, &producer_path).body = Body::Assign { dst, value };
    remove_block(program, &path);
    check_parallel(program)
}

/// A buffer that `consumer` reads and that only it reads, with the block that writes it.
fn producer(program: &Program, consumer: &Block) -> Checked<(BufId, Path)> {
    let mut candidates = vec![];
    for buffer in consumer.reads() {
        let [writer] = &writers(program, buffer)[..] else { continue };
        let assigns = matches!(block_at(program, writer).body, Body::Assign { .. });
        if is_internal(program, buffer) && assigns && readers(program, buffer).len() == 1 {
            candidates.push((buffer, writer.clone()));
        }
    }
    candidates.pop().ok_or_else(|| Cause::NotOneProducer.at_block(&consumer.name))
}

/// Everything else that the consumer reads is there when the producer runs.
fn check_other_reads(
    program: &Program,
    consumer: &Block,
    source: BufId,
    producer: &Path,
) -> Checked<()> {
    for buffer in consumer.reads().into_iter().filter(|&b| b != source) {
        if let Some(late) = writers(program, buffer).into_iter().find(|w| w > producer) {
            let late = block_at(program, &late).name.clone();
            return Err(Cause::BeforeProducer(late).at_block(&consumer.name));
        }
    }
    Ok(())
}

/// The value of each iterator of the consumer, in terms of the producer's iterators.
fn correspondence(
    program: &Program,
    consumer: &Block,
    produced: &Access,
    source: BufId,
) -> Checked<BTreeMap<VarId, Expr>> {
    let not_plain = || Cause::IndexNotPlain.at_block(&consumer.name);
    plain_indices(&produced.indices).ok_or_else(not_plain)?;
    let loads = loads_of(consumer, source);
    let (first, rest) = loads.split_first().ok_or_else(|| {
        let buffer = buffer_name(program, source);
        Cause::NotAccessed { buffer }.at_block(&consumer.name)
    })?;
    if rest.iter().any(|other| other != first) {
        return Err(Cause::NotOneProducer.at_block(&consumer.name));
    }
    let axes = plain_indices(first).ok_or_else(not_plain)?;
    let mut map = BTreeMap::new();
    let shape = &program.buffer(source).ty.shape;
    for ((axis, at), &extent) in axes.iter().zip(&produced.indices).zip(shape) {
        match axis.and_then(|v| consumer.iters.iter().find(|i| i.var == v)) {
            Some(iter) if iter.extent == extent => map.insert(iter.var, at.clone()),
            None if extent == 1 => None,
            _ => return Err(not_plain()),
        };
    }
    for iter in consumer.iters.iter().filter(|i| !map.contains_key(&i.var)) {
        if iter.extent != 1 {
            return Err(not_plain());
        }
    }
    for iter in &consumer.iters {
        map.entry(iter.var).or_insert_with(|| Expr::int(0));
    }
    Ok(map)
}
