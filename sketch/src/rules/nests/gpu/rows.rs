//! A block of threads for each row: of stages that agree on their leading axes, or of one long
//! reduction.
//!
//! ```text
//! m[v0] = max[8192] x[v0, v1];  y[v0, v1] = exp(x[v0, v1] - m[v0])
//! =>
//! for p in 0..n block_x {
//!   for t in 0..256 thread_x { part[t] = max[32] x[p, r * 256 + t] }
//!   for t in 0..16 thread_x { part2[t] = max[16] part[t * 16 + r] }
//!   m = max[16] part2[r]
//!   for i in 0..32 { for t in 0..256 thread_x { y[p, i * 256 + t] = exp(x[..] - m) } }
//! }
//! ```
//!
//! Each stage becomes nests whose outermost loop is over rows; at last these loops become one.
//! Results of a stage that later ones read stay in shared memory if they fit, and those of one
//! element in a register of each thread.

use std::ops::Range;

use ansc_graph::{Combiner, Expr, Stage, TensorType, VarId};

use super::{Result, choose, fused};
use crate::gpu::GpuLimits;
use crate::program::{Scope, ThreadAxis};
use crate::rules::nests::Nests;
use crate::rules::nests::rows::runs;
use crate::trace::{BlockVar, LoopVar, Number, Recorder};
use crate::usage::{has_reuse, readers};

/// Threads of a block at most.
const THREADS: usize = 256;
/// Other numbers of threads.
const OTHERS: [usize; 5] = [32, 64, 128, 256, 512];
/// Shorter rows have one thread each.
const SHORTEST: usize = 32;
/// Fewer results than this do not keep a GPU busy with a thread for each.
const FEW_RESULTS: usize = 512;
/// So few rows of so many terms leave multiprocessors idle.
const FEW_ROWS: usize = 16;
const MANY_TERMS: usize = 1 << 14;
/// Partial results that every thread combines on its own at the end.
const LAST: usize = 16;
/// The part of shared memory that rows may fill.
const SHARED_BYTES: usize = 32 << 10;

/// How many stages were scheduled, or `None` if rows are short or there are none.
pub(super) fn apply(nests: &mut Nests, first: usize, limits: &GpuLimits) -> Result<Option<usize>> {
    let Some((stages, axes)) =
        runs(nests, first).into_iter().next().or_else(|| alone(nests, first))
    else {
        return Ok(None);
    };
    let work = |stage: usize| nests.stage(stage).extents()[axes..].iter().product::<usize>();
    let longest = stages.clone().map(work).max().unwrap_or(0);
    if longest < SHORTEST || !stages.clone().all(|s| is_plain(nests.stage(s))) {
        return Ok(None);
    }
    let rows: usize = nests.stage(first).extents()[..axes].iter().product();
    let elements = stages.clone().filter(|&stage| work(stage) > 1).count();
    // One sum for each row, and little else: more than a block of threads shares each.
    if rows <= FEW_ROWS && longest >= MANY_TERMS && elements == 1 {
        return Ok(None);
    }
    let threads = longest.div_ceil(4).next_power_of_two().clamp(limits.warp, THREADS);
    let r = &mut nests.recorder;
    let lengths = [
        choose(r, threads, &OTHERS, |n| n <= limits.threads_per_block)?,
        choose(r, LAST, &[4, 8, 32], |_| true)?,
    ];
    let mut rows = Rows::new(axes, stages.clone(), threads, lengths);
    for stage in stages.clone() {
        rows.stage(nests, stage)?;
    }
    rows.join(&mut nests.recorder)?;
    Ok(Some(stages.len()))
}

fn is_plain(s: &Stage) -> bool {
    match s.reduce.as_ref().map(|r| r.combiner) {
        Some(Combiner::ArgMax { .. } | Combiner::ArgMin { .. }) => false,
        _ => !s.extents().contains(&0),
    }
}

/// One long reduction on its own.
fn alone(nests: &Nests, stage: usize) -> Option<(Range<usize>, usize)> {
    let s = nests.stage(stage);
    let last = VarId::new(s.extents().len().checked_sub(1)?);
    // Threads side by side take neighbouring terms; otherwise neighbouring results are better.
    let contiguous = |indices: &[Expr]| indices.last().is_some_and(|e| e.vars().contains(&last));
    let walks_rows = s.body.loads().iter().any(|(_, indices)| contiguous(indices));
    let is_long = s.reduce.is_some() && !has_reuse(s) && (walks_rows || s.ty.len() < FEW_RESULTS);
    is_long.then(|| (stage..stage + 1, s.ty.rank()))
}

struct Rows {
    /// Leading axes that count rows.
    axes: usize,
    stages: Range<usize>,
    /// Threads of a block by the first candidate.
    threads: usize,
    /// Partial results of a reduction: one of each thread, and those of the last step.
    lengths: [Number; 2],
    /// The loop over rows of each nest.
    heads: Vec<LoopVar>,
    /// Where buffers live, which then hold one row.
    scopes: Vec<(String, Scope)>,
    /// Bytes of shared memory in use.
    shared: usize,
}

impl Rows {
    fn new(axes: usize, stages: Range<usize>, threads: usize, lengths: [Number; 2]) -> Rows {
        let (heads, scopes) = (vec![], vec![]);
        Rows { axes, stages, threads, lengths, heads, scopes, shared: 0 }
    }

    fn stage(&mut self, nests: &mut Nests, stage: usize) -> Result<()> {
        let s = nests.stage(stage).clone();
        let inner: usize = s.ty.shape[self.axes..].iter().product();
        let terms = s.reduce.as_ref().map(|r| r.extents.iter().product::<usize>());
        match (terms, inner) {
            (None | Some(1), 1) => self.single(nests, stage),
            (None, _) => self.map(nests, stage),
            (Some(_), 1) => self.across(nests, stage),
            (Some(_), _) => self.columns(nests, stage),
        }
    }

    /// The loop over rows becomes the outermost one of a nest; the loops inside.
    fn head(&mut self, r: &mut Recorder, block: BlockVar) -> Result<Vec<LoopVar>> {
        let mut loops = r.get_loops(block)?;
        let inside = loops.split_off(self.axes);
        if loops.is_empty() {
            let row = r.add_unit_loop(block)?;
            if !inside.is_empty() {
                r.reorder(&[&[row], &inside[..]].concat())?;
            }
            loops.push(row);
        }
        let row = fused(r, &loops)?;
        self.heads.push(row);
        Ok(inside)
    }

    /// One element, by every thread for itself.
    fn single(&mut self, nests: &mut Nests, stage: usize) -> Result<()> {
        let block = nests.block(stage)?;
        self.head(&mut nests.recorder, block)?;
        self.publish(nests, stage, block)
    }

    /// Every thread has what the block writes in a register, for later stages; it is in memory too
    /// if it is wanted elsewhere.
    fn publish(&mut self, nests: &mut Nests, stage: usize, block: BlockVar) -> Result<()> {
        let readers = readers(&nests.compute, nests.compute.stage_buffer(stage));
        let is_read = readers.iter().any(|reader| !self.stages.contains(reader));
        if !is_read && !nests.compute.outputs.contains(&stage) {
            return self.keep(&nests.recorder, block, Scope::Local);
        }
        let copy = nests.recorder.cache_write(block, Scope::Local)?;
        for reader in readers.into_iter().filter(|reader| self.stages.contains(reader)) {
            let reader = nests.block(reader)?;
            nests.recorder.inline_into(copy, reader)?;
        }
        self.head(&mut nests.recorder, copy).map(drop)
    }

    /// The result of the block will live there, a row of it at a time.
    fn keep(&mut self, r: &Recorder, block: BlockVar, scope: Scope) -> Result<()> {
        self.scopes.extend(r.workspaces(block)?.into_iter().map(|buffer| (buffer, scope)));
        Ok(())
    }

    /// Elements of a row, one by each thread at a time.
    fn map(&mut self, nests: &mut Nests, stage: usize) -> Result<()> {
        let block = nests.block(stage)?;
        let inside = self.head(&mut nests.recorder, block)?;
        let elements = fused(&mut nests.recorder, &inside)?;
        self.each(&mut nests.recorder, elements)?;
        self.hold(nests, stage, block)
    }

    /// Elements of a row that are reductions each: a thread for each.
    fn columns(&mut self, nests: &mut Nests, stage: usize) -> Result<()> {
        let own = nests.stage(stage).ty.rank() - self.axes;
        let block = nests.block(stage)?;
        let inside = self.head(&mut nests.recorder, block)?;
        let r = &mut nests.recorder;
        let elements = fused(r, &inside[..own])?;
        let copy = r.cache_write(block, Scope::Local)?;
        r.reverse_compute_at(copy, elements)?;
        self.each(r, elements)?;
        self.hold(nests, stage, copy)
    }

    /// One reduction by all threads: partial results, partial results of those, and the last step
    /// by every thread for itself.
    fn across(&mut self, nests: &mut Nests, stage: usize) -> Result<()> {
        let s = nests.stage(stage).clone();
        let block = nests.block(stage)?;
        let counts = [self.threads, LAST];
        for (length, count) in self.lengths.into_iter().zip(counts) {
            let inside = self.head(&mut nests.recorder, block)?;
            let r = &mut nests.recorder;
            let terms = fused(r, &inside[s.ty.rank() - self.axes..])?;
            let parts = r.split(terms, &[0.into(), length])?;
            let partial = r.rfactor(block, parts[1], s.ty.rank())?;
            r.reorder(&[parts[1], parts[0]])?;
            r.bind(parts[1], ThreadAxis::ThreadX)?;
            self.keep(r, partial, Scope::Shared)?;
            self.shared += (count * s.ty.dtype.size()).next_multiple_of(16);
        }
        self.head(&mut nests.recorder, block)?;
        self.publish(nests, stage, block)
    }

    /// All iterations of a loop, one by each thread at a time.
    fn each(&self, r: &mut Recorder, elements: LoopVar) -> Result<()> {
        let parts = r.split(elements, &[0.into(), self.lengths[0]])?;
        r.bind(parts[1], ThreadAxis::ThreadX)
    }

    /// A row of a stage's result stays in shared memory, unless there is no room or it is a result
    /// of the program.
    fn hold(&mut self, nests: &Nests, stage: usize, block: BlockVar) -> Result<()> {
        let s = nests.stage(stage);
        let bytes = TensorType::new(s.ty.dtype, &s.ty.shape[self.axes..]).bytes();
        if self.shared + bytes > SHARED_BYTES {
            return Ok(());
        }
        if !nests.compute.outputs.contains(&stage) {
            self.shared += bytes.next_multiple_of(16);
        }
        self.keep(&nests.recorder, block, Scope::Shared)
    }

    /// The nests under one loop, which runs over blocks of threads.
    fn join(self, r: &mut Recorder) -> Result<()> {
        let row = self.heads[0];
        for &next in &self.heads[1..] {
            r.fuse_siblings(row, next)?;
        }
        for (buffer, scope) in &self.scopes {
            r.set_scope(buffer, *scope)?;
        }
        r.bind(row, ThreadAxis::BlockX)
    }
}
