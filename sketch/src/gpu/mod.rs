//! GPU programs: kernels, and what each of their threads does.
//!
//! A [`Program`] is one for a GPU by its bound loops; executed one iteration after the other it
//! computes the same. [`lower`] takes it after [`finish`](crate::finish()) and makes every
//! statement of the root a [`Kernel`]:
//!
//! 1. `virtual_threads`: loops over virtual threads move into the blocks;
//! 2. `threads`: other bound loops become the indices of threads;
//! 3. `races`: two threads never write the same element at a time; `fragments`: lanes of a warp
//!    read what they hold;
//! 4. `barriers`: threads wait for one another where one may need what another one did;
//! 5. `pipeline`: copies of the next iteration overlap with what the current one computes, where a
//!    loop says so;
//! 6. `verify`: the kernel fits the device.
//!
//! Programs contain no barriers: where they are follows from the accesses. Outside of bound loops
//! all threads of a block do the same, so that every barrier is reached by all of them.
//!
//! ```text
//! for i in 0..64 block_x { for t in 0..32 thread_x { s[t] = x[i, t] }  for u in 0..32 thread_x { y[i, u] = s[31 - u] } }
//! =>
//! kernel, grid 64, block 32: s[tx] = x[bx, tx];  barrier;  y[bx, tx] = s[31 - tx]
//! ```
//!
//! [`GpuProgram::cpu_form`] is the same program for a CPU, so that every GPU schedule can be run
//! and checked where there is no GPU.

mod barriers;
mod cpu;
mod error;
mod fragments;
mod limits;
mod pipeline;
mod races;
#[cfg(test)]
mod tests;
mod text;
mod threads;
mod verify;
mod virtual_threads;
mod watch;

pub use error::GpuError;
pub use limits::{GENERATIONS, Generation, GpuLimits};
pub use watch::{Blocks, Watched, watch};

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, Expr, VarId};

use crate::program::{Block, ForKind, Program, Scope, Stmt, ThreadAxis};
use crate::tree;

/// The axes of the grid, then those of a block.
const AXES: [ThreadAxis; 6] = [
    ThreadAxis::BlockX,
    ThreadAxis::BlockY,
    ThreadAxis::BlockZ,
    ThreadAxis::ThreadX,
    ThreadAxis::ThreadY,
    ThreadAxis::ThreadZ,
];

/// Kernels, to be launched in order.
#[derive(Clone, PartialEq, Debug)]
pub struct GpuProgram {
    /// Buffers, parameters and names of variables; its body is empty.
    pub program: Program,
    /// Kernels that are launched one after another.
    pub kernels: Vec<Kernel>,
}

/// The work that each thread does in a grid of thread blocks.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// The name of the kernel's entry in the PTX.
    pub name: String,
    /// Thread blocks along x, y, z.
    pub grid: [Axis; 3],
    /// Threads of a block along x, y, z.
    pub block: [Axis; 3],
    /// Over the variables of the axes and of loops.
    pub body: Vec<Step>,
}

/// The index of a thread or block along one axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    /// The variable that tells where along the axis a block or thread is.
    pub var: VarId,
    /// How many there are along the axis.
    pub extent: usize,
}

/// One piece of a thread's work.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// All threads of the block wait for one another.
    Barrier,
    /// A loop with barriers inside; all threads of the block execute it together.
    Loop(Box<Loop>),
    /// No barriers, no bound loops.
    Run(Stmt),
    /// Copies to shared memory that need not have happened yet. Those of a thread between two
    /// [`Step::Commit`]s are a group.
    Fetch(Stmt),
    /// The group of copies is complete.
    Commit,
    /// Every thread waits for its own copies, but for the last so many groups. Behind the next
    /// barrier the copies of all threads are there.
    Arrive(usize),
}

/// A loop with barriers inside.
#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    /// The variable that counts from 0.
    pub var: VarId,
    /// How many iterations there are.
    pub extent: usize,
    /// How iterations are executed; no loop is bound any more.
    pub kind: ForKind,
    /// Steps of one iteration.
    pub body: Vec<Step>,
}

/// The kernels of a finished program.
pub fn lower(program: &Program, limits: &GpuLimits) -> Result<GpuProgram, GpuError> {
    let mut program = program.clone();
    drop_empty(&mut program);
    share_across_kernels(&mut program);
    verify::verify_loops(&program, limits)?;
    virtual_threads::sink(&mut program)?;
    threads::check_local(&program)?;
    let roots = std::mem::take(&mut program.body);
    let mut kernels = Vec::with_capacity(roots.len());
    for root in roots {
        kernels.push(kernel(&mut program, root)?);
    }
    let gpu = GpuProgram { program, kernels };
    verify::verify(&gpu, limits)?;
    Ok(gpu)
}

fn kernel(program: &mut Program, root: Stmt) -> Result<Kernel, GpuError> {
    let (threads, stmts) = threads::collapse(program, root)?;
    program.body = stmts;
    races::check(program, &threads)?;
    fragments::check(program, &threads)?;
    let stmts = program.body.clone();
    let body = barriers::place(program, &threads, stmts);
    fragments::check_apart(program, &body)?;
    let body = pipeline::overlap(program, body);
    program.body.clear();
    let [x, y, z, tx, ty, tz] = threads;
    let mut kernel = Kernel { name: String::new(), grid: [x, y, z], block: [tx, ty, tz], body };
    kernel.name = kernel.last_block().unwrap_or_else(|| program.name.clone());
    Ok(kernel)
}

/// Statements that run over nothing.
fn drop_empty(program: &mut Program) {
    let body = std::mem::take(&mut program.body);
    program.body = tree::rewrite(body, &mut |stmt| match stmt {
        Stmt::For(l) if l.extent == 0 || l.body.is_empty() => vec![],
        other => vec![other],
    });
}

/// Moves buffers that several kernels use to global memory.
fn share_across_kernels(program: &mut Program) {
    let mut uses: BTreeMap<BufId, usize> = BTreeMap::new();
    for root in &program.body {
        let mut used = BTreeSet::new();
        root.visit_blocks(&mut |b| used.extend(b.buffers()));
        used.into_iter().for_each(|b| *uses.entry(b).or_default() += 1);
    }
    for (buffer, _) in uses.into_iter().filter(|(_, n)| *n > 1) {
        let scope = &mut program.buffers[buffer.index()].scope;
        if matches!(scope, Scope::Local | Scope::Shared) {
            *scope = Scope::Global;
        }
    }
}

impl Kernel {
    /// Threads of one block.
    pub fn threads(&self) -> usize {
        self.block.iter().map(|axis| axis.extent).product()
    }

    /// Thread blocks.
    pub fn blocks(&self) -> usize {
        self.grid.iter().map(|axis| axis.extent).product()
    }

    /// Calls `f` on every block of the kernel, in order.
    pub fn visit_blocks<'a>(&'a self, f: &mut impl FnMut(&'a Block)) {
        visit_steps(&self.body, f);
    }

    /// Barriers that one thread passes.
    pub fn barriers(&self) -> usize {
        fn count(steps: &[Step]) -> usize {
            let of = |step: &Step| match step {
                Step::Barrier => 1,
                Step::Loop(l) => l.extent * count(&l.body),
                Step::Run(_) | Step::Fetch(_) | Step::Commit | Step::Arrive(_) => 0,
            };
            steps.iter().map(of).sum()
        }
        count(&self.body)
    }

    fn last_block(&self) -> Option<String> {
        let mut last = None;
        self.visit_blocks(&mut |b| last = Some(b.name.clone()));
        last
    }
}

fn visit_steps<'a>(steps: &'a [Step], f: &mut impl FnMut(&'a Block)) {
    for step in steps {
        match step {
            Step::Barrier | Step::Commit | Step::Arrive(_) => {}
            Step::Loop(l) => visit_steps(&l.body, f),
            Step::Run(stmt) | Step::Fetch(stmt) => stmt.visit_blocks(f),
        }
    }
}

/// Replaces variables everywhere in a finished block.
fn rebind(block: &mut Block, f: &impl Fn(VarId) -> Option<Expr>) {
    for iter in &mut block.iters {
        iter.binding = iter.binding.substitute(f);
    }
    block.visit_exprs_mut(&mut |e| *e = e.substitute(f));
}

/// Whether anything in a finished block depends on the variable.
fn mentions(block: &Block, var: VarId) -> bool {
    let bindings = block.iters.iter().map(|i| &i.binding);
    bindings.chain(block.exprs()).any(|e| e.vars().contains(&var))
}

/// Accesses of `buffers` get a first index.
fn expand(block: &mut Block, buffers: &BTreeSet<BufId>, index: &Expr) {
    block.visit_accesses_mut(&mut |buffer, indices| {
        if buffers.contains(buffer) {
            indices.insert(0, index.clone());
        }
    });
}
