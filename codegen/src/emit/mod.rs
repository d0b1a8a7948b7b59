//! Programs as LLVM IR.
//!
//! In: a finished program (no `init`, parallel loops at the root only). Out: a module with one
//! function of the type `KernelFn` for each launch: a parallel loop at the root, or a run of other
//! root statements.
//!
//! ```text
//! for i in 0..8 parallel { .. }   ->   define void @k_0(ptr %buffers, ptr %scratch, i64 %begin, i64 %end)
//! ```

mod address;
mod after;
mod again;
mod ahead;
mod amx;
mod block;
mod bytes;
mod function;
pub(crate) mod gpu;
mod guards;
mod lanes;
mod late;
mod loops;
mod memory;
mod mma;
mod rounded;
mod stream;
mod tables;
mod tiles;
mod twins;
mod value;

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, TensorType};
use ansc_runtime::manifest::Launch;
use ansc_sketch::program::{For, ForKind};
use ansc_sketch::{Program, Scope, Stmt};
use inkwell::context::Context;

use crate::error::CodegenError;
use crate::ir::Ir;
use crate::target::Target;
pub(crate) use function::describe;
use function::{Buffers, Emitter};

/// A module and what must be known to call its functions.
pub(crate) struct Code<'c> {
    pub(crate) ir: Ir<'c>,
    pub(crate) launches: Vec<Launch>,
    /// Types of the workspace buffers, which follow the parameters in the argument list.
    pub(crate) workspace: Vec<TensorType>,
}

/// The part of a program that one function computes.
enum Piece<'p> {
    Parallel(&'p For),
    Serial(Vec<&'p Stmt>),
}

pub(crate) fn emit<'c>(
    context: &'c Context,
    program: &Program,
    symbol: &str,
    target: &Target,
) -> Result<Code<'c>, CodegenError> {
    let pieces = pieces(program);
    let buffers = Buffers { arguments: arguments(program, &pieces), uses: uses(&program.body) };
    let mut ir = Ir::new(context, symbol, target.libm);
    let mut launches: Vec<Launch> = Vec::with_capacity(pieces.len());
    let twins = twins::twins(program, &pieces, &buffers);
    for (index, (piece, twin)) in pieces.iter().zip(twins).enumerate() {
        let symbol = format!("{symbol}_{index}");
        let needed = match piece {
            Piece::Parallel(l) => guards::needed(program, l),
            Piece::Serial(_) => None,
        };
        if let Some(twin) = twin {
            let of = launches[twin.of].clone();
            launches.push(Launch { needed, ..twin.launch(&ir, target, of, symbol) });
            continue;
        }
        let mut emitter = Emitter::new(ir, program, target, &buffers, written(piece), &symbol);
        let extent = match piece {
            Piece::Parallel(l) => emitter.parallel(l).map(|()| l.extent as u64),
            Piece::Serial(stmts) => emitter.serial(stmts).map(|()| 1),
        };
        let (back, scratch) = emitter.finish();
        ir = back;
        let extent = extent
            .map_err(|what| CodegenError::Unsupported { program: program.name.clone(), what })?;
        launches.push(Launch { symbol, extent, scratch, needed });
    }
    let workspace = buffers.arguments[program.params.len()..]
        .iter()
        .map(|&b| program.buffer(b).ty.clone())
        .collect();
    Ok(Code { ir, launches, workspace })
}

fn pieces(program: &Program) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for stmt in &program.body {
        match (stmt, pieces.last_mut()) {
            (Stmt::For(l), _) if l.extent == 0 => {}
            (Stmt::For(l), _) if l.kind == ForKind::Parallel => pieces.push(Piece::Parallel(l)),
            (stmt, Some(Piece::Serial(run))) => run.push(stmt),
            (stmt, _) => pieces.push(Piece::Serial(vec![stmt])),
        }
    }
    pieces
}

/// Buffers that the blocks of a piece write.
fn written(piece: &Piece<'_>) -> BTreeSet<BufId> {
    let mut all = BTreeSet::new();
    let mut visit = |stmt: &Stmt| {
        stmt.visit_blocks(&mut |block| {
            all.extend(block.body.writes().iter().map(|access| access.buffer));
        });
    };
    match piece {
        Piece::Parallel(l) => l.body.iter().for_each(&mut visit),
        Piece::Serial(stmts) => stmts.iter().for_each(|s| visit(s)),
    }
    all
}

/// Parameters, then what lives between launches: global buffers, and local ones that more than one
/// launch uses.
fn arguments(program: &Program, pieces: &[Piece<'_>]) -> Vec<BufId> {
    let mut uses = vec![0usize; program.buffers.len()];
    for piece in pieces {
        let mut used = vec![false; program.buffers.len()];
        let mut mark = |stmt: &Stmt| {
            stmt.visit_blocks(&mut |block| {
                accesses(block).for_each(|b| used[b.index()] = true);
            });
        };
        match piece {
            Piece::Parallel(l) => l.body.iter().for_each(&mut mark),
            Piece::Serial(stmts) => stmts.iter().for_each(|s| mark(s)),
        }
        uses.iter_mut().zip(used).for_each(|(n, u)| *n += usize::from(u));
    }
    let shared = |(index, _): &(usize, &ansc_sketch::Buffer)| {
        let buffer = &program.buffers[*index];
        let id = BufId::new(*index);
        !program.params.contains(&id)
            && match buffer.scope {
                Scope::Input | Scope::Output | Scope::Global => uses[*index] > 0,
                Scope::Local | Scope::Shared | Scope::Fragment => uses[*index] > 1,
            }
    };
    let workspace =
        program.buffers.iter().enumerate().filter(shared).map(|(index, _)| BufId::new(index));
    program.params.iter().copied().chain(workspace).collect()
}

/// How often blocks use each buffer.
fn uses(body: &[Stmt]) -> BTreeMap<BufId, usize> {
    let mut counts = BTreeMap::new();
    for stmt in body {
        stmt.visit_blocks(&mut |block| {
            accesses(block).for_each(|b| *counts.entry(b).or_insert(0) += 1);
        });
    }
    counts
}

/// Buffers that a block uses.
fn accesses(block: &ansc_sketch::Block) -> impl Iterator<Item = BufId> {
    let written: Vec<BufId> = block.body.writes().iter().map(|a| a.buffer).collect();
    loads_of(block).chain(written)
}

/// Buffers that a block loads from.
fn loads_of(block: &ansc_sketch::Block) -> impl Iterator<Item = BufId> {
    let mut all = Vec::new();
    let mut visit = |e: &ansc_graph::Expr| all.extend(e.loads().iter().map(|(b, _)| *b));
    visit(block.body.value());
    block.predicate.iter().for_each(&mut visit);
    for access in block.body.writes() {
        access.indices.iter().for_each(&mut visit);
    }
    all.into_iter()
}
