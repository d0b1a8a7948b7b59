//! The loops of a program, as code generation makes them.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, Expr, VarId};
use foldhash::{HashSet, HashSetExt};

use super::{GPU, ISSUED};
use crate::affine::{Extents, Sum};
use crate::intrinsic::{self, Native, Unit, mma};
use crate::lowering::{self, Pieces, Vectors};
use crate::machine::Machine;
use crate::program::{Block, For, ForKind, IntrinsicName, Program, Scope, Stmt, ThreadAxis};
use crate::tree;

/// A loop counts, compares and turns.
const LOOP: usize = 3;
/// An instruction on a tile, and its address.
const NATIVE: usize = 2;

/// A walk counts one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counting {
    /// Instructions that stand in the code.
    Code,
    /// Instructions that a run issues: a loop counts in each iteration. Addresses and conditions
    /// that the innermost loop does not change are computed outside of it, and count for nothing.
    Issued,
}

/// A vectorised loop whose lanes are written.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    pub(super) var: VarId,
    pub(super) count: usize,
    /// Unrolled loops around it.
    pub(super) outside: usize,
}

pub(super) struct Walk<'p> {
    pub(super) program: &'p Program,
    pub(super) machine: &'p Machine,
    pub(super) extents: Extents,
    /// Local buffers that become registers.
    pub(super) registers: BTreeSet<BufId>,
    /// Open loops that are written out, outermost first.
    pub(super) unrolled: Vec<(VarId, usize)>,
    pub(super) lanes: Option<Lanes>,
    /// Addresses that were counted.
    pub(super) addresses: HashSet<(BufId, Vec<Expr>)>,
    pub(super) counting: Counting,
    copies: usize,
    open: Vec<VarId>,
    /// The innermost open loop that is not written out.
    pub(super) turning: Option<VarId>,
    /// The number of times that each counted instruction stands for.
    factor: f64,
    total: f64,
    by_loop: BTreeMap<VarId, f64>,
}

impl<'p> Walk<'p> {
    pub(super) fn of(program: &'p Program, machine: &'p Machine, counting: Counting) -> Walk<'p> {
        let mut walk = Walk {
            program,
            machine,
            extents: Extents::of(program),
            registers: in_registers(program, machine),
            unrolled: vec![],
            lanes: None,
            addresses: HashSet::new(),
            counting,
            copies: 1,
            open: vec![],
            turning: None,
            factor: 1.0,
            total: 0.0,
            by_loop: BTreeMap::new(),
        };
        walk.stmts(&program.body);
        walk
    }

    fn stmts(&mut self, stmts: &'p [Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Block(block) => self.block(block),
                Stmt::For(l) => {
                    self.open.push(l.var);
                    self.for_loop(l);
                    self.open.pop();
                }
            }
        }
    }

    fn for_loop(&mut self, l: &'p For) {
        match l.kind {
            _ if l.extent == 0 => {}
            ForKind::Tensor(name) if let Some(native) = self.native(name) => {
                self.native_one(&native)
            }
            _ if l.extent == 1 => self.stmts(&l.body),
            ForKind::Vectorized if self.lanes.is_none() => self.vectorized(l),
            ForKind::Unrolled | ForKind::Bound(ThreadAxis::Virtual)
                if lowering::is_written_out(self.copies, l.extent) =>
            {
                self.copies *= l.extent;
                self.unrolled.push((l.var, l.extent));
                self.stmts(&l.body);
                self.unrolled.pop();
                self.copies /= l.extent;
            }
            _ => self.turns(l),
        }
    }

    /// The instruction, if the machine has it.
    fn native(&self, name: IntrinsicName) -> Option<Native> {
        let native = intrinsic::find(name.as_str())?.as_native().copied()?;
        native.unit.is_of(self.machine).then_some(native)
    }

    /// One instruction with its address. While its unit is busy, others could have been issued; an
    /// instruction of a warp is one of each of its lanes.
    fn native_one(&mut self, native: &Native) {
        let instructions = match self.counting {
            Counting::Code => NATIVE,
            Counting::Issued if native.unit == Unit::Mma => native.cycles as usize * mma::LANES,
            Counting::Issued => (native.cycles * ISSUED) as usize,
        };
        self.add(instructions, self.copies);
    }

    /// A loop that stays one.
    fn turns(&mut self, l: &'p For) {
        let times = match self.counting {
            Counting::Code => 1.0,
            Counting::Issued => l.extent as f64,
        };
        let outer = self.turning.replace(l.var);
        self.times(times, |walk| {
            walk.add(LOOP, walk.copies);
            walk.stmts(&l.body);
        });
        self.turning = outer;
    }

    fn vectorized(&mut self, l: &'p For) {
        let Pieces { width, mut whole, turns, rest } = Pieces::of(self.program, l, self.vectors());
        if turns {
            match self.counting {
                Counting::Code => {
                    self.add(LOOP, self.copies);
                    whole = 1;
                }
                Counting::Issued => self.add(LOOP * whole, self.copies),
            }
        }
        let rest = rest.into_iter().map(|count| (count, 1));
        for (count, times) in std::iter::once((width, whole)).chain(rest) {
            if times == 0 {
                continue;
            }
            self.extents.set(l.var, count);
            self.lanes =
                (count > 1).then_some(Lanes { var: l.var, count, outside: self.unrolled.len() });
            self.times(times as f64, |walk| walk.stmts(&l.body));
            self.lanes = None;
        }
        self.extents.set(l.var, l.extent);
    }

    /// Runs `f`, all of whose counts are multiplied by `times`.
    pub(super) fn times<T>(&mut self, times: f64, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.factor;
        self.factor *= times;
        let result = f(self);
        self.factor = outer;
        result
    }

    /// The vectors of the machine. [`GPU`] stands for all GPUs.
    fn vectors(&self) -> Vectors {
        match *self.machine == GPU {
            true => Vectors::Thread,
            false => Vectors::Registers(self.machine.vector_bytes),
        }
    }

    /// Counts instructions that stand here so many times.
    pub(super) fn add(&mut self, instructions: usize, times: usize) {
        let all = instructions as f64 * times as f64 * self.factor;
        self.total += all;
        for var in &self.open {
            *self.by_loop.entry(*var).or_default() += all;
        }
    }

    /// Instructions of the program.
    pub(super) fn instructions(&self) -> usize {
        self.total as usize
    }

    /// Whether code generation computes this once, outside of the loop that turns most often.
    pub(super) fn is_hoisted(&self, vars: &BTreeSet<VarId>) -> bool {
        let moves = |v: &VarId| {
            self.turning == Some(*v)
                || self.lanes.is_some_and(|lanes| lanes.var == *v)
                || self.unrolled.iter().any(|(u, _)| u == v)
        };
        self.counting == Counting::Issued && !vars.iter().any(moves)
    }

    /// Instructions that stand in a loop.
    pub(super) fn inside(&self, l: VarId) -> usize {
        self.by_loop.get(&l).map_or(0, |size| *size as usize)
    }

    /// Copies of what depends on all unrolled loops.
    pub(super) fn all_copies(&self) -> usize {
        self.copies
    }

    /// The position of an element as a sum.
    pub(super) fn flat(&self, buffer: BufId, indices: &[Expr]) -> Sum {
        let shape = &self.program.buffer(buffer).ty.shape;
        indices.iter().zip(shape).fold(Sum::constant(0), |flat, (index, &extent)| {
            flat.times(extent as i64).joined(Sum::of(index, &self.extents))
        })
    }
}

/// Local buffers whose indices are known when all that is to be written out is, and that fit the
/// registers.
fn in_registers(program: &Program, machine: &Machine) -> BTreeSet<BufId> {
    let bytes = machine.vector_bytes * machine.registers;
    let fits = |id: &BufId| {
        let buffer = program.buffer(*id);
        buffer.scope == Scope::Local && buffer.ty.bytes() <= bytes
    };
    let mut all: BTreeSet<BufId> =
        (0..program.buffers.len()).map(BufId::new).filter(fits).collect();
    tree::visit_nests(&program.body, &mut |loops: &[&For], block: &Block| {
        let written_out = |v: VarId| {
            loops.iter().any(|l| {
                let kinds = [ForKind::Unrolled, ForKind::Vectorized];
                l.var == v && (kinds.contains(&l.kind) || l.extent == 1)
            })
        };
        let known =
            |indices: &[Expr]| indices.iter().all(|e| e.vars().into_iter().all(written_out));
        for (buffer, indices) in block.exprs().iter().flat_map(|e| e.loads()) {
            if all.contains(&buffer) && !known(indices) {
                all.remove(&buffer);
            }
        }
        for access in block.body.writes() {
            if all.contains(&access.buffer) && !known(&access.indices) {
                all.remove(&access.buffer);
            }
        }
    });
    all
}
