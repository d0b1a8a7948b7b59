//! A block of threads for each row.
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
//! Results of a stage that later ones read stay in shared memory if they fit.

use ansc_graph::{BufId, Combiner, Expr, Stage, TensorType, VarId};

use super::super::build::{Builder, Path};
use super::super::rows::run;
use super::super::usage::has_reuse;
use super::like;
use crate::gpu::GpuLimits;
use crate::program::{Access, Body, ForKind, IterKind, Scope, Stmt, ThreadAxis};

/// Threads of a block at most.
const THREADS: usize = 256;
/// Shorter rows have one thread each.
const SHORTEST: usize = 32;
/// Fewer results than this do not keep a GPU busy with a thread for each.
const FEW_RESULTS: usize = 512;
/// Partial results that every thread combines on its own at the end.
const LAST: usize = 16;
/// The part of shared memory that rows may fill.
const SHARED_BYTES: usize = 32 << 10;

/// The stages that were scheduled, or `None` if rows are short or there are none.
pub(super) fn schedule(
    b: &mut Builder<'_>,
    first: usize,
    limits: &GpuLimits,
) -> Option<Vec<usize>> {
    let (stages, rows) = run(b, first, None).or_else(|| alone(b, first))?;
    let is_plain = |s: &Stage| match s.reduce.as_ref().map(|r| r.combiner) {
        Some(Combiner::ArgMax { .. } | Combiner::ArgMin { .. }) => false,
        _ => !s.extents().contains(&0),
    };
    let longest = stages.iter().map(|&s| work(&b.compute.stages[s], rows)).max()?;
    let fits = stages.iter().all(|&s| is_plain(&b.compute.stages[s]));
    if !fits || longest < SHORTEST {
        return None;
    }
    let threads = longest.div_ceil(4).next_power_of_two().clamp(limits.warp, THREADS);
    let mut row = Row { threads, rows, stages: stages.clone(), shared: 0 };
    let extents = b.compute.stages[first].ty.shape[..rows].to_vec();
    let stmts = row.nest(b, &extents);
    b.push(stmts);
    Some(stages)
}

/// One long reduction on its own.
fn alone(b: &Builder<'_>, stage: usize) -> Option<(Vec<usize>, usize)> {
    let s = &b.compute.stages[stage];
    let last = VarId::new(s.extents().len().checked_sub(1)?);
    // Threads side by side take neighbouring terms; otherwise neighbouring results are better.
    let contiguous = |indices: &[Expr]| indices.last().is_some_and(|e| e.vars().contains(&last));
    let walks_rows = s.body.loads().iter().any(|(_, indices)| contiguous(indices));
    let is_long = s.reduce.is_some() && !has_reuse(s) && (walks_rows || s.ty.len() < FEW_RESULTS);
    is_long.then(|| (vec![stage], s.ty.rank()))
}

/// Elements or terms of a stage in one row.
fn work(s: &Stage, rows: usize) -> usize {
    s.extents()[rows..].iter().product()
}

struct Row {
    threads: usize,
    /// Leading axes that count rows.
    rows: usize,
    stages: Vec<usize>,
    /// Bytes of shared memory in use.
    shared: usize,
}

impl Row {
    fn nest(&mut self, b: &mut Builder<'_>, extents: &[usize]) -> Vec<Stmt> {
        let total: usize = extents.iter().product();
        let var = b.program.add_var("p");
        let row = Expr::Var(var);
        let kind = ForKind::Bound(ThreadAxis::BlockX);
        let path: Path = vec![Builder::step(var, total, IterKind::Spatial)];
        let at = unflatten(&row, extents);
        let mut body = vec![];
        for stage in self.stages.clone() {
            body.extend(self.stage(b, &path, stage, &at));
        }
        vec![Stmt::For(Box::new(crate::program::For { var, extent: total, kind, body }))]
    }

    fn stage(&mut self, b: &mut Builder<'_>, path: &Path, stage: usize, row: &[Expr]) -> Vec<Stmt> {
        let s = b.compute.stages[stage].clone();
        let inner: usize = s.ty.shape[self.rows..].iter().product();
        match (&s.reduce, inner) {
            (None, 1) => self.single(b, path, stage, row),
            (None, _) => self.map(b, path, stage, row),
            (Some(_), 1) => self.across(b, path, stage, row),
            (Some(_), _) => self.columns(b, path, stage, row),
        }
    }

    /// One element, by every thread for itself.
    fn single(
        &mut self,
        b: &mut Builder<'_>,
        path: &Path,
        stage: usize,
        row: &[Expr],
    ) -> Vec<Stmt> {
        let s = b.compute.stages[stage].clone();
        let at = [row.to_vec(), vec![Expr::int(0); s.ty.rank() - self.rows]].concat();
        let value = b.body_at(stage, &at);
        let own = b.local(&s.name, like(&s.ty, &s.ty.shape[self.rows..]));
        let indices = at[self.rows..].to_vec();
        let mut stmts = b.block(path, &s.name, assign(own, indices.clone(), value));
        stmts.extend(self.publish(b, path, stage, own, &at));
        stmts
    }

    /// What every thread has in `own`, for later stages; in memory too if it is wanted elsewhere.
    fn publish(
        &self,
        b: &mut Builder<'_>,
        path: &Path,
        stage: usize,
        own: BufId,
        at: &[Expr],
    ) -> Vec<Stmt> {
        let result = b.compute.stage_buffer(stage);
        let is_read = |s: &usize| {
            b.compute.stages[*s].body.loads().iter().any(|(buffer, _)| *buffer == result)
        };
        let outside = (0..b.compute.stages.len()).filter(|s| !self.stages.contains(s));
        let is_wanted =
            b.compute.outputs.contains(&stage) || outside.into_iter().any(|s| is_read(&s));
        let target = b.source(result);
        b.redirect(result, own, self.rows);
        if !is_wanted {
            return vec![];
        }
        let value = Expr::Load(own, at[self.rows..].to_vec());
        let name = format!("{}_out", b.compute.stages[stage].name);
        b.block(path, &name, assign(target, at.to_vec(), value))
    }

    /// Elements of a row, one by each thread at a time.
    fn map(&mut self, b: &mut Builder<'_>, path: &Path, stage: usize, row: &[Expr]) -> Vec<Stmt> {
        let s = b.compute.stages[stage].clone();
        let shape = s.ty.shape[self.rows..].to_vec();
        let (buffer, skip) = self.target(b, stage);
        let n: usize = shape.iter().product();
        self.each(b, path, n, |b, path, element| {
            let at = [row.to_vec(), unflatten(&element, &shape)].concat();
            let value = b.body_at(stage, &at);
            b.block(path, &s.name, assign(buffer, at[skip..].to_vec(), value))
        })
    }

    /// Elements of a row that are reductions each: a thread for each.
    fn columns(
        &mut self,
        b: &mut Builder<'_>,
        path: &Path,
        stage: usize,
        row: &[Expr],
    ) -> Vec<Stmt> {
        let s = b.compute.stages[stage].clone();
        let reduce = s.reduce.clone().expect("a reduction");
        let shape = s.ty.shape[self.rows..].to_vec();
        let (buffer, skip) = self.target(b, stage);
        let n: usize = shape.iter().product();
        let sum = b.local(&s.name, like(&s.ty, &[]));
        self.each(b, path, n, |b, path, element| {
            let at = [row.to_vec(), unflatten(&element, &shape)].concat();
            let mut stmts =
                b.serial_all(path, &reduce.extents, IterKind::Reduce, &mut |b, path, terms| {
                    let value = b.body_at(stage, &[&at[..], &terms].concat());
                    let dst = Access { buffer: sum, indices: vec![] };
                    let body = Body::Reduce { combiner: reduce.combiner, dst, value, init: true };
                    b.block(path, &format!("{}_sum", s.name), body)
                });
            let value = Expr::Load(sum, vec![]);
            stmts.extend(b.block(path, &s.name, assign(buffer, at[skip..].to_vec(), value)));
            stmts
        })
    }

    /// One reduction by all threads: partial results, partial results of those, and the last step by every
    /// thread for itself.
    fn across(
        &mut self,
        b: &mut Builder<'_>,
        path: &Path,
        stage: usize,
        row: &[Expr],
    ) -> Vec<Stmt> {
        let s = b.compute.stages[stage].clone();
        let reduce = s.reduce.clone().expect("a reduction");
        let n: usize = reduce.extents.iter().product();
        let at = [row.to_vec(), vec![Expr::int(0); s.ty.rank() - self.rows]].concat();
        let combine = |dst: BufId, indices: Vec<Expr>, value: Expr| {
            let dst = Access { buffer: dst, indices };
            Body::Reduce { combiner: reduce.combiner, dst, value, init: true }
        };
        let identity = reduce.combiner.identity(s.ty.dtype).expect("a plain combiner");
        let threads = self.threads;
        let part = self.shared(b, &s.name, &like(&s.ty, &[threads]));
        let mut stmts = self.by_threads(b, path, threads, |b, path, t| {
            b.serial(path, n.div_ceil(threads), IterKind::Reduce, |b, path, r| {
                let term = r * Expr::index(threads) + t.clone();
                let at = [at.clone(), unflatten(&term, &reduce.extents)].concat();
                let value = b.body_at(stage, &at);
                let value = if n.is_multiple_of(threads) {
                    value
                } else {
                    // A term that does not exist adds nothing.
                    Expr::select(term.lt(Expr::index(n)), value, Expr::Const(identity))
                };
                b.block(path, &format!("{}_part", s.name), combine(part, vec![t], value))
            })
        });
        let last = threads.min(LAST);
        let mut from = part;
        if threads > last {
            from = self.shared(b, &s.name, &like(&s.ty, &[last]));
            stmts.extend(self.by_threads(b, path, last, |b, path, t| {
                b.serial(path, threads / last, IterKind::Reduce, |b, path, r| {
                    let value = Expr::Load(part, vec![r * Expr::index(last) + t.clone()]);
                    b.block(path, &format!("{}_parts", s.name), combine(from, vec![t], value))
                })
            }));
        }
        let own = b.local(&s.name, like(&s.ty, &s.ty.shape[self.rows..]));
        let indices = at[self.rows..].to_vec();
        stmts.extend(b.serial(path, last, IterKind::Reduce, |b, path, r| {
            b.block(path, &s.name, combine(own, indices, Expr::Load(from, vec![r])))
        }));
        stmts.extend(self.publish(b, path, stage, own, &at));
        stmts
    }

    /// Where a stage's row goes, and how many leading axes that lacks: the result, shared memory, or a workspace.
    fn target(&mut self, b: &mut Builder<'_>, stage: usize) -> (BufId, usize) {
        let (buffer, s) = (b.compute.stage_buffer(stage), b.compute.stages[stage].clone());
        let row = like(&s.ty, &s.ty.shape[self.rows..]);
        if b.compute.outputs.contains(&stage) || self.shared + row.bytes() > SHARED_BYTES {
            return (b.source(buffer), 0);
        }
        let shared = self.shared(b, &s.name, &row);
        b.redirect(buffer, shared, self.rows);
        (shared, self.rows)
    }

    fn shared(&mut self, b: &mut Builder<'_>, name: &str, ty: &TensorType) -> BufId {
        self.shared += ty.bytes().next_multiple_of(16);
        let number = b.program.buffers.len();
        b.program.add_buffer(format!("{name}{number}"), ty.clone(), Scope::Shared)
    }

    /// A loop over the first `extent` threads.
    fn by_threads(
        &self,
        b: &mut Builder<'_>,
        path: &Path,
        extent: usize,
        body: impl FnOnce(&mut Builder<'_>, &Path, Expr) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let kind = ForKind::Bound(ThreadAxis::ThreadX);
        b.repeat(path, ("t", extent), (kind, IterKind::Spatial), |b, path, t| body(b, path, t))
    }

    /// All of `0..n`, one by each thread at a time.
    fn each(
        &self,
        b: &mut Builder<'_>,
        path: &Path,
        n: usize,
        body: impl FnOnce(&mut Builder<'_>, &Path, Expr) -> Vec<Stmt>,
    ) -> Vec<Stmt> {
        let threads = self.threads;
        b.serial(path, n.div_ceil(threads), IterKind::Spatial, |b, path, i| {
            let kind = ForKind::Bound(ThreadAxis::ThreadX);
            b.repeat(path, ("t", threads), (kind, IterKind::Spatial), |b, path, t| {
                let element = i * Expr::index(threads) + t;
                let stmts = body(b, path, element.clone());
                guarded(stmts, element, n)
            })
        })
    }
}

fn assign(buffer: BufId, indices: Vec<Expr>, value: Expr) -> Body {
    Body::Assign { dst: Access { buffer, indices }, value }
}

/// The blocks where `index < extent` only. The index is over loops.
fn guarded(mut stmts: Vec<Stmt>, index: Expr, extent: usize) -> Vec<Stmt> {
    crate::tree::visit_blocks_mut(&mut stmts, &mut |b| {
        b.predicate = Some(index.clone().lt(Expr::index(extent)));
    });
    stmts
}

/// The indices in `shape` of a row-major position.
fn unflatten(position: &Expr, shape: &[usize]) -> Vec<Expr> {
    let mut inner: usize = shape.iter().product();
    let mut first = true;
    shape
        .iter()
        .map(|&extent| {
            inner /= extent;
            if extent == 1 {
                return Expr::int(0);
            }
            let divided = if inner == 1 {
                position.clone()
            } else {
                position.clone().floor_div(inner as i64)
            };
            let index = if first { divided } else { divided.floor_mod(extent as i64) };
            first = false;
            index
        })
        .collect()
}
