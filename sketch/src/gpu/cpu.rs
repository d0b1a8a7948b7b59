//! A GPU program for a CPU.
//!
//! Copies of a pipelined loop happen where they are begun: nothing reads them before the barrier
//! that they wait for, which [`GpuProgram::late_form`] is for. Thread blocks run in parallel.
//! Between two barriers one thread after the other does its part; local buffers that outlive a
//! barrier get an element for each thread, shared ones belong to the block. The first lane of a
//! warp executes the instructions of all of them, in fragments that each warp has; the others read
//! these behind a barrier.
//!
//! ```text
//! kernel, grid 64, block 32: s[tx] = x[bx, tx];  barrier;  y[bx, tx] = s[31 - tx]
//! =>
//! for b in 0..64 parallel { for t in 0..32 { s[t] = x[b, t] }  for t in 0..32 { y[b, t] = s[31 - t] } }
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ansc_graph::{BinOp, BufId, Expr, VarId};

use super::{Axis, GpuProgram, Kernel, Step, expand, fragments, rebind};
use crate::intrinsic::mma::LANES;
use crate::program::{Buffer, For, ForKind, Program, Scope, Shared, Stmt, ThreadAxis};
use crate::tree;

impl GpuProgram {
    /// The program with threads one after the other, for a CPU.
    pub fn cpu_form(&self) -> Program {
        let mut program = self.program.clone();
        for kernel in &self.kernels {
            let body = fragments::parted(&self.program, &kernel.body);
            let outlive = outliving(self, &body);
            self.form(&mut program, kernel, outlive, ForKind::Serial).kernel(&body);
        }
        for_cpu(program)
    }

    /// The same for whoever looks for races: the threads between two barriers are in a bound loop,
    /// and loops with barriers inside are written out, so that what no barrier separates is in one
    /// loop.
    pub fn checked_form(&self) -> Program {
        self.watched(written_out)
    }

    /// The same with copies of pipelined loops where they arrive, at the latest that a GPU allows:
    /// what reads them before finds what was there before.
    pub fn late_form(&self) -> Program {
        self.watched(|steps| late(written_out(steps)))
    }

    fn watched(&self, steps: impl Fn(&[Step]) -> Vec<Step>) -> Program {
        let mut program = self.program.clone();
        let threads = ForKind::Bound(ThreadAxis::ThreadX);
        for kernel in &self.kernels {
            let outlive = self.buffers_in(kernel, Scope::Local);
            let body = fragments::parted(&self.program, &steps(&kernel.body));
            self.form(&mut program, kernel, outlive, threads).kernel(&body);
        }
        for_cpu(program)
    }

    fn form<'a>(
        &self,
        program: &'a mut Program,
        kernel: &'a Kernel,
        outlive: BTreeSet<BufId>,
        threads: ForKind,
    ) -> Form<'a> {
        let fragments = self.buffers_in(kernel, Scope::Fragment);
        Form { program, kernel, outlive, fragments, threads }
    }

    fn buffers_in(&self, kernel: &Kernel, scope: Scope) -> BTreeSet<BufId> {
        let is_there = |b: &BufId| self.program.buffer(*b).scope == scope;
        self.buffers(kernel).into_iter().filter(is_there).collect()
    }
}

/// Lets instructions of a warp be executed where the condition holds.
fn by_first(stmts: &mut [Stmt], is_first: &Expr) {
    for stmt in stmts {
        let Stmt::For(l) = stmt else { continue };
        match l.kind {
            ForKind::Tensor(_) => {
                l.kind = ForKind::Serial;
                tree::visit_blocks_mut(&mut l.body, &mut |b| {
                    b.predicate = Some(is_first.clone());
                });
            }
            _ => by_first(&mut l.body, is_first),
        }
    }
}

/// The memory of a block is its own, and so are the variables of each loop.
fn for_cpu(mut program: Program) -> Program {
    tree::own_variables(&mut program);
    let of_block = |b: &&mut Buffer| matches!(b.scope, Scope::Shared | Scope::Fragment);
    for buffer in program.buffers.iter_mut().filter(of_block) {
        buffer.scope = Scope::Local;
    }
    program
}

/// The steps without loops that have barriers inside.
fn written_out(steps: &[Step]) -> Vec<Step> {
    let mut all = vec![];
    for step in steps {
        match step {
            Step::Loop(l) => {
                let body = written_out(&l.body);
                for iteration in 0..l.extent {
                    let value = Expr::index(iteration);
                    all.extend(body.iter().map(|s| fixed(s, l.var, &value)));
                }
            }
            other => all.push(other.clone()),
        }
    }
    all
}

/// Steps without loops, with copies moved to where their group arrives.
fn late(steps: Vec<Step>) -> Vec<Step> {
    let mut all = vec![];
    let mut groups: VecDeque<Vec<Step>> = VecDeque::new();
    let mut begun = vec![];
    for step in steps {
        match step {
            Step::Fetch(stmt) => begun.push(Step::Run(stmt)),
            Step::Commit => groups.push_back(std::mem::take(&mut begun)),
            Step::Arrive(left) => {
                let arrived = groups.len().saturating_sub(left);
                all.extend(groups.drain(..arrived).flatten());
            }
            other => all.push(other),
        }
    }
    all.extend(groups.into_iter().flatten());
    all.extend(begun);
    all
}

/// A step that is no loop, with a variable fixed.
fn fixed(step: &Step, var: VarId, value: &Expr) -> Step {
    let (Step::Run(stmt) | Step::Fetch(stmt)) = step else { return step.clone() };
    let mut stmts = vec![stmt.clone()];
    let value = |v| (v == var).then(|| value.clone());
    tree::visit_blocks_mut(&mut stmts, &mut |b| rebind(b, &value));
    match step {
        Step::Fetch(_) => Step::Fetch(stmts.remove(0)),
        _ => Step::Run(stmts.remove(0)),
    }
}

/// Local buffers that are used on both sides of a barrier.
fn outliving(gpu: &GpuProgram, steps: &[Step]) -> BTreeSet<BufId> {
    let mut phases: BTreeMap<BufId, BTreeSet<usize>> = BTreeMap::new();
    let mut phase = 0;
    count(steps, &mut phase, &mut phases);
    let is_local = |b: &BufId| gpu.program.buffer(*b).scope == Scope::Local;
    phases.into_iter().filter(|(b, p)| is_local(b) && p.len() > 1).map(|(b, _)| b).collect()
}

fn count(steps: &[Step], phase: &mut usize, phases: &mut BTreeMap<BufId, BTreeSet<usize>>) {
    for step in steps {
        match step {
            Step::Barrier => *phase += 1,
            Step::Commit | Step::Arrive(_) => {}
            Step::Loop(l) => {
                *phase += 1;
                count(&l.body, phase, phases);
                *phase += 1;
            }
            Step::Run(stmt) | Step::Fetch(stmt) => stmt.visit_blocks(&mut |b| {
                b.buffers().into_iter().for_each(|b| {
                    phases.entry(b).or_default().insert(*phase);
                });
            }),
        }
    }
}

struct Form<'a> {
    program: &'a mut Program,
    kernel: &'a Kernel,
    outlive: BTreeSet<BufId>,
    fragments: BTreeSet<BufId>,
    threads: ForKind,
}

impl Form<'_> {
    fn kernel(mut self, steps: &[Step]) {
        for &buffer in &self.outlive {
            self.program.buffers[buffer.index()].ty.shape.insert(0, self.kernel.threads());
        }
        for &buffer in &self.fragments {
            let warps = self.kernel.threads().div_ceil(LANES);
            self.program.buffers[buffer.index()].ty.shape.insert(0, warps);
        }
        let body = self.steps(steps);
        let body = self.grid(body);
        self.program.body.extend(body);
    }

    fn steps(&mut self, steps: &[Step]) -> Vec<Stmt> {
        let mut all = vec![];
        let mut phase = vec![];
        for step in steps {
            match step {
                Step::Run(stmt) | Step::Fetch(stmt) => phase.push(stmt.clone()),
                Step::Commit | Step::Arrive(_) => {}
                Step::Barrier => all.extend(self.phase(std::mem::take(&mut phase))),
                Step::Loop(l) => {
                    all.extend(self.phase(std::mem::take(&mut phase)));
                    let body = self.steps(&l.body);
                    let l = For { var: l.var, extent: l.extent, kind: ForKind::Serial, body };
                    all.push(Stmt::For(Shared::new(l)));
                }
            }
        }
        all.extend(self.phase(phase));
        all
    }

    /// A loop over the threads. Each of them executes the statements between two barriers.
    fn phase(&mut self, mut stmts: Vec<Stmt>) -> Vec<Stmt> {
        if stmts.is_empty() {
            return stmts;
        }
        let extent = self.kernel.threads();
        let var = self.program.add_var("t");
        let indices = positions(var, &self.kernel.block);
        let warp = Expr::Var(var).floor_div(LANES as i64);
        let lane = Expr::Var(var).floor_mod(LANES as i64);
        by_first(&mut stmts, &Expr::binary(BinOp::Eq, lane, Expr::int(0)));
        tree::visit_blocks_mut(&mut stmts, &mut |b| {
            expand(b, &self.outlive, &Expr::Var(var));
            expand(b, &self.fragments, &warp);
            rebind(b, &|v| indices.get(&v).cloned());
        });
        vec![Stmt::For(Shared::new(For { var, extent, kind: self.threads, body: stmts }))]
    }

    fn grid(&mut self, mut body: Vec<Stmt>) -> Vec<Stmt> {
        let extent = self.kernel.blocks();
        let var = self.program.add_var("b");
        let indices = positions(var, &self.kernel.grid);
        tree::visit_blocks_mut(&mut body, &mut |b| rebind(b, &|v| indices.get(&v).cloned()));
        vec![Stmt::For(Shared::new(For { var, extent, kind: ForKind::Parallel, body }))]
    }
}

/// The index along each axis, of a number that counts along the first axis first.
fn positions(var: VarId, axes: &[Axis; 3]) -> BTreeMap<VarId, Expr> {
    let total: usize = axes.iter().map(|a| a.extent).product();
    let mut below = 1;
    let mut positions = BTreeMap::new();
    for axis in axes {
        let mut index = Expr::Var(var);
        if below > 1 {
            index = index.floor_div(below as i64);
        }
        if axis.extent * below < total {
            index = index.floor_mod(axis.extent as i64);
        }
        positions.insert(axis.var, if axis.extent == 1 { Expr::int(0) } else { index });
        below *= axis.extent;
    }
    positions
}
