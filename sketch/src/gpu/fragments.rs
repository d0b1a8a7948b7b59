//! Fragments belong to a warp: its lanes use them together in instructions, and each alone what it
//! holds.
//!
//! The last two axes of a fragment are the lane and the element that it holds (see
//! [`mma`](crate::intrinsic::mma)). Outside of instructions a lane reads its own elements.
//!
//! ```text
//! for i in 0..16 tensor(mma_dot_f16_f16) { .. c[lane of (i, j), e] += .. }   by the warp
//! y[tx // 4, tx % 4 * 2 + e] = c[tx, e]                                     by each lane
//! ```

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr};

use super::threads::Threads;
use super::{GpuError, Step};
use crate::affine::{Extents, Sum};
use crate::intrinsic::mma::LANES;
use crate::intrinsic::{self, Unit};
use crate::program::{Block, For, ForKind, Program, Scope, Stmt};

/// Instructions are whole nests of a warp, and all other accesses are to elements of the own lane.
pub(super) fn check(program: &Program, threads: &Threads) -> Result<(), GpuError> {
    let mut extents = Extents::of(program);
    threads.iter().for_each(|axis| extents.set(axis.var, axis.extent));
    program.body.iter().try_for_each(|stmt| check_stmt(program, threads, &extents, stmt))
}

fn check_stmt(
    program: &Program,
    threads: &Threads,
    extents: &Extents,
    stmt: &Stmt,
) -> Result<(), GpuError> {
    match stmt {
        Stmt::For(l) => match l.kind {
            ForKind::Tensor(name) => {
                let found = intrinsic::find(name.as_str());
                let native = found.and_then(|i| i.as_native().copied());
                let is_of_warps = native.is_some_and(|native| native.unit == Unit::Mma);
                check_instruction(l, threads, is_of_warps)
            }
            _ => l.body.iter().try_for_each(|s| check_stmt(program, threads, extents, s)),
        },
        Stmt::Block(block) => check_lane(program, threads, extents, block),
    }
}

fn check_instruction(l: &For, threads: &Threads, is_of_warps: bool) -> Result<(), GpuError> {
    let what = match () {
        () if !is_of_warps => "is an instruction of another unit",
        () if threads[3].extent != LANES => {
            "is an instruction of a warp, where thread_x are not the lanes of one"
        }
        () => "is an instruction of a warp, and not all of its lanes execute it",
    };
    let mut found = Ok(());
    l.body.iter().for_each(|s| {
        s.visit_blocks(&mut |block| {
            if !is_of_warps || threads[3].extent != LANES || block.predicate.is_some() {
                found = Err(GpuError::Fragments { block: block.name.clone(), what });
            }
        });
    });
    found
}

/// The accesses of a block outside of instructions to fragments.
fn check_lane(
    program: &Program,
    threads: &Threads,
    extents: &Extents,
    block: &Block,
) -> Result<(), GpuError> {
    let refused = |what| Err(GpuError::Fragments { block: block.name.clone(), what });
    let is_fragment = |b: BufId| program.buffer(b).scope == Scope::Fragment;
    if block.body.writes().iter().any(|a| is_fragment(a.buffer)) {
        return refused("writes a fragment, which only instructions do");
    }
    let own = Sum::of(&Expr::Var(threads[3].var), extents);
    let loads = block.exprs().into_iter().flat_map(|e| e.loads());
    for (_, indices) in loads.filter(|(b, _)| is_fragment(*b)) {
        let lane = indices.len().checked_sub(2).map(|axis| Sum::of(&indices[axis], extents));
        if lane != Some(own.clone()) {
            return refused("reads elements of a fragment that other lanes hold");
        }
    }
    Ok(())
}

/// Fragments that instructions use, and those that lanes do.
#[derive(Default)]
struct Uses {
    by_warp: BTreeSet<BufId>,
    by_lane: BTreeSet<BufId>,
}

impl Uses {
    fn of(program: &Program, stmt: &Stmt) -> Uses {
        let mut uses = Uses::default();
        uses.add(program, stmt, false);
        uses
    }

    fn add(&mut self, program: &Program, stmt: &Stmt, inside: bool) {
        match stmt {
            Stmt::For(l) => {
                let inside = inside || matches!(l.kind, ForKind::Tensor(_));
                l.body.iter().for_each(|s| self.add(program, s, inside));
            }
            Stmt::Block(block) => {
                let all = block.buffers().into_iter();
                let fragments = all.filter(|b| program.buffer(*b).scope == Scope::Fragment);
                let side = if inside { &mut self.by_warp } else { &mut self.by_lane };
                side.extend(fragments);
            }
        }
    }

    fn passes_on(&self, later: &Uses) -> bool {
        !self.by_warp.is_disjoint(&later.by_lane) || !self.by_lane.is_disjoint(&later.by_warp)
    }

    fn merge(&mut self, other: Uses) {
        self.by_warp.extend(other.by_warp);
        self.by_lane.extend(other.by_lane);
    }
}

/// Lanes read what instructions left in statements of their own.
pub(super) fn check_apart(program: &Program, steps: &[Step]) -> Result<(), GpuError> {
    steps.iter().try_for_each(|step| match step {
        Step::Loop(l) => check_apart(program, &l.body),
        Step::Run(stmt) | Step::Fetch(stmt) => {
            let uses = Uses::of(program, stmt);
            if !uses.passes_on(&uses) {
                return Ok(());
            }
            let mut block = String::new();
            stmt.visit_blocks(&mut |b| block.clone_from(&b.name));
            Err(GpuError::Fragments { block, what: "uses what an instruction beside it leaves" })
        }
        Step::Barrier | Step::Commit | Step::Arrive(_) => Ok(()),
    })
}

/// The steps with barriers wherever a lane reads what its warp has computed: a CPU executes warps
/// lane by lane.
pub(super) fn parted(program: &Program, steps: &[Step]) -> Vec<Step> {
    let (mut all, mut before) = (vec![], Uses::default());
    for step in steps {
        let (step, uses) = match step {
            Step::Run(stmt) | Step::Fetch(stmt) => (step.clone(), Uses::of(program, stmt)),
            Step::Loop(l) => {
                let body = parted(program, &l.body);
                (Step::Loop(Box::new(super::Loop { body, ..(**l).clone() })), Uses::default())
            }
            other => (other.clone(), Uses::default()),
        };
        if matches!(step, Step::Barrier | Step::Loop(_)) {
            before = Uses::default();
        } else if before.passes_on(&uses) {
            all.push(Step::Barrier);
            before = Uses::default();
        }
        before.merge(uses);
        all.push(step);
    }
    all
}
