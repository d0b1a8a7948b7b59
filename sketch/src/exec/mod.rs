//! Runs a program slowly and suspiciously: the reference that schedules are tested against.
//!
//! Element by element, in the order of the loops. Every access is checked: indices in bounds, no
//! read of an element that nothing wrote, iterations of parallel, bound and vectorised loops that
//! do not touch what another one writes, every element of the results written. `init` of reductions
//! is done as `finish` would. [`watch`](crate::gpu::watch()) does the same to some thread blocks of
//! programs for GPUs, without computing anything, so much faster.

mod memory;
mod race;
pub(crate) mod scalar;

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, Combiner, Expr, Scalar, TensorType, VarId};
use ansc_runtime::{DType, Tensor};

use crate::finish;
use crate::program::{Access, Block, Body, For, ForKind, Program, Scope, Stmt, ThreadAxis};
use crate::tree;
use memory::Memory;
use race::Tracker;

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ExecError {
    #[error("input {index} should be {expected}, found {found}")]
    Input { index: usize, expected: TensorType, found: TensorType },
    #[error("the program has {expected} inputs, {found} were given")]
    InputCount { expected: usize, found: usize },
    #[error("buffer `{buffer}` is too large")]
    TooLarge { buffer: String },
    #[error("block `{block}` accesses `{buffer}` at {indices:?}, outside of {ty}")]
    OutOfBounds { block: String, buffer: String, indices: Vec<i64>, ty: TensorType },
    #[error("block `{block}` reads `{buffer}` at {indices:?}, which nothing wrote")]
    Uninitialised { block: String, buffer: String, indices: Vec<i64> },
    #[error("block `{block}` writes its input `{buffer}`")]
    WritesInput { block: String, buffer: String },
    #[error(
        "block `{block}` touches `{buffer}` at {indices:?}, which iterations of loop `{var}` share"
    )]
    Race { block: String, buffer: String, indices: Vec<i64>, var: String },
    #[error("iterator `{iter}` of block `{block}` is {value}, outside of 0..{extent}")]
    Iterator { block: String, iter: String, value: i64, extent: usize },
    #[error("result `{buffer}` is not written completely")]
    Incomplete { buffer: String },
}

/// The results of `program` for `inputs`, in the order of its parameters.
pub fn run(program: &Program, inputs: &[&Tensor]) -> Result<Vec<Tensor>, ExecError> {
    let mut program = program.clone();
    finish::decompose_inits(&mut program);
    let mut machine = Machine::new(&program, inputs)?;
    machine.stmts(&program.body)?;
    machine.results()
}

/// Runs a program whose global memory holds zeros; of its last statement, which is a loop, the
/// chosen iterations alone.
pub(crate) fn run_on_zeros(
    program: &Program,
    iterations: BTreeSet<usize>,
) -> Result<(), ExecError> {
    let (last, before) = program.body.split_last().expect("a statement");
    let mut machine = Machine::on_zeros(program)?;
    machine.stmts(before)?;
    machine.only = Some(iterations);
    machine.stmts(std::slice::from_ref(last))
}

struct Machine<'a> {
    program: &'a Program,
    memory: Vec<Memory>,
    /// Values of loops and block iterators.
    vars: Vec<i64>,
    /// The local buffers that begin anew in each iteration of a loop.
    privates: BTreeMap<VarId, Vec<BufId>>,
    /// For each buffer the loop whose iterations have a copy of it each.
    homes: Vec<Option<VarId>>,
    /// The parallel and vectorised loops that run, and who touched what in them.
    shared: Vec<SharedLoop>,
    /// For each variable of a loop that runs, how many loops run around it.
    depths: Vec<Option<usize>>,
    /// How many loops run.
    depth: usize,
    /// The iterations of parallel loops that run, where not all do.
    only: Option<BTreeSet<usize>>,
}

/// A loop whose iterations do not wait for one another.
struct SharedLoop {
    var: VarId,
    /// How many loops run around it.
    depth: usize,
    tracker: Tracker,
}

impl<'a> Machine<'a> {
    fn new(program: &'a Program, inputs: &[&Tensor]) -> Result<Machine<'a>, ExecError> {
        let mut machine = Machine::holding(program, |_| false)?;
        let is_input = |b: &&BufId| program.buffer(**b).scope == Scope::Input;
        let params: Vec<BufId> = program.params.iter().filter(is_input).copied().collect();
        if params.len() != inputs.len() {
            return Err(ExecError::InputCount { expected: params.len(), found: inputs.len() });
        }
        for (index, (&param, &tensor)) in params.iter().zip(inputs).enumerate() {
            let (expected, found) = (program.buffer(param).ty.clone(), TensorType::of(tensor));
            // Axes of a parameter may be collapsed: that moves no element.
            if expected.dtype != found.dtype || expected.len() != found.len() {
                return Err(ExecError::Input { index, expected, found });
            }
            machine.memory[param.index()] = Memory::holding(tensor, &expected);
        }
        Ok(machine)
    }

    /// Global memory holds zeros.
    fn on_zeros(program: &'a Program) -> Result<Machine<'a>, ExecError> {
        let is_global = |scope| matches!(scope, Scope::Input | Scope::Output | Scope::Global);
        Machine::holding(program, is_global)
    }

    /// Buffers of the scopes for which `zeros` holds are initialised.
    fn holding(
        program: &'a Program,
        zeros: impl Fn(Scope) -> bool,
    ) -> Result<Machine<'a>, ExecError> {
        let mut memory = Vec::with_capacity(program.buffers.len());
        for buffer in program.buffers.iter() {
            let fresh = Memory::zeros(&buffer.ty, zeros(buffer.scope));
            memory.push(fresh.ok_or_else(|| ExecError::TooLarge { buffer: buffer.name.clone() })?);
        }
        let mut privates: BTreeMap<VarId, Vec<BufId>> = BTreeMap::new();
        let mut homes = vec![None; program.buffers.len()];
        for (buffer, home) in tree::homes(program) {
            privates.entry(home).or_default().push(buffer);
            homes[buffer.index()] = Some(home);
        }
        let vars = vec![0; program.vars.len()];
        let (depths, depth) = (vec![None; program.vars.len()], 0);
        let shared = vec![];
        Ok(Machine { program, memory, vars, privates, homes, shared, depths, depth, only: None })
    }

    fn results(self) -> Result<Vec<Tensor>, ExecError> {
        let mut results = vec![];
        for &param in &self.program.params {
            let buffer = self.program.buffer(param);
            let memory = &self.memory[param.index()];
            if buffer.scope != Scope::Output {
                continue;
            }
            let missing = || ExecError::Incomplete { buffer: buffer.name.clone() };
            results.push(memory.tensor().ok_or_else(missing)?);
        }
        Ok(results)
    }

    fn stmts(&mut self, stmts: &'a [Stmt]) -> Result<(), ExecError> {
        stmts.iter().try_for_each(|stmt| match stmt {
            Stmt::For(l) => self.for_loop(l),
            Stmt::Block(block) => self.block(block),
        })
    }

    fn for_loop(&mut self, l: &'a For) -> Result<(), ExecError> {
        let independent = match l.kind {
            ForKind::Parallel | ForKind::Vectorized => true,
            ForKind::Bound(axis) => axis != ThreadAxis::Virtual,
            ForKind::Serial | ForKind::Unrolled | ForKind::Pipelined(_) | ForKind::Tensor(_) => {
                false
            }
        };
        if independent {
            let (var, depth) = (l.var, self.depth);
            self.shared.push(SharedLoop { var, depth, tracker: Tracker::default() });
        }
        self.depths[l.var.index()] = Some(self.depth);
        self.depth += 1;
        for iteration in 0..l.extent {
            if !self.does_run(l.kind, iteration) {
                continue;
            }
            for &buffer in self.privates.get(&l.var).into_iter().flatten() {
                self.memory[buffer.index()].forget();
            }
            if let Some(shared) = self.shared.last_mut().filter(|_| independent) {
                shared.tracker.begin(iteration);
            }
            self.vars[l.var.index()] = iteration as i64;
            self.stmts(&l.body)?;
        }
        self.depth -= 1;
        self.depths[l.var.index()] = None;
        if independent {
            self.shared.pop();
        }
        Ok(())
    }

    fn does_run(&self, kind: ForKind, iteration: usize) -> bool {
        let only = self.only.as_ref().filter(|_| kind == ForKind::Parallel);
        only.is_none_or(|only| only.contains(&iteration))
    }

    fn block(&mut self, block: &'a Block) -> Result<(), ExecError> {
        for iter in &block.iters {
            let value = self.index(block, &iter.binding)?;
            self.vars[iter.var.index()] = value;
        }
        if let Some(predicate) = &block.predicate
            && self.eval(block, predicate)?.is_zero()
        {
            return Ok(());
        }
        for iter in &block.iters {
            let value = self.vars[iter.var.index()];
            if !usize::try_from(value).is_ok_and(|v| v < iter.extent) {
                let iter_name = self.program.vars[iter.var.index()].clone();
                let block = block.name.clone();
                return Err(ExecError::Iterator {
                    block,
                    iter: iter_name,
                    value,
                    extent: iter.extent,
                });
            }
        }
        self.body(block)
    }

    fn body(&mut self, block: &'a Block) -> Result<(), ExecError> {
        match &block.body {
            Body::Assign { dst, value } => {
                let value = self.eval(block, value)?;
                self.write(block, dst, value)
            }
            Body::Reduce { combiner, dst, value, .. } => {
                let value = self.eval(block, value)?;
                let old = self.read(block, dst.buffer, &dst.indices)?;
                self.write(block, dst, scalar::combine(*combiner, old, value))
            }
            Body::ArgReduce { combiner, best, position, value, term, .. } => {
                let value = self.eval(block, value)?;
                let term = self.eval(block, term)?;
                self.arg_reduce(block, *combiner, (best, value), (position, term))
            }
        }
    }

    fn arg_reduce(
        &mut self,
        block: &'a Block,
        combiner: Combiner,
        (best, value): (&'a Access, Scalar),
        (position, term): (&'a Access, Scalar),
    ) -> Result<(), ExecError> {
        let held = self.read(block, best.buffer, &best.indices)?;
        self.read(block, position.buffer, &position.indices)?;
        if !scalar::replaces(combiner, value, held) {
            return Ok(());
        }
        self.write(block, best, value)?;
        self.write(block, position, term)
    }

    fn eval(&mut self, block: &'a Block, e: &'a Expr) -> Result<Scalar, ExecError> {
        Ok(match e {
            Expr::Const(s) => *s,
            Expr::Var(v) => Scalar::index(self.vars[v.index()]),
            Expr::Load(buffer, indices) => self.read(block, *buffer, indices)?,
            Expr::Unary(op, x) => scalar::unary(*op, self.eval(block, x)?),
            Expr::Binary(op, a, b) => {
                scalar::binary(*op, self.eval(block, a)?, self.eval(block, b)?)
            }
            Expr::Select(c, a, b) => {
                let chosen = if self.eval(block, c)?.is_zero() { b } else { a };
                self.eval(block, chosen)?
            }
            Expr::Cast(to, x) => scalar::cast(*to, self.eval(block, x)?),
        })
    }

    fn read(
        &mut self,
        block: &'a Block,
        buffer: BufId,
        at: &'a [Expr],
    ) -> Result<Scalar, ExecError> {
        let offset = self.locate(block, buffer, at, false)?;
        match self.memory[buffer.index()].get(offset) {
            Some(value) => Ok(value),
            None => Err(ExecError::Uninitialised {
                block: block.name.clone(),
                buffer: self.program.buffer(buffer).name.clone(),
                indices: self.indices(block, at)?,
            }),
        }
    }

    fn write(&mut self, block: &'a Block, dst: &'a Access, value: Scalar) -> Result<(), ExecError> {
        if self.program.buffer(dst.buffer).scope == Scope::Input {
            let buffer = self.program.buffer(dst.buffer).name.clone();
            return Err(ExecError::WritesInput { block: block.name.clone(), buffer });
        }
        let offset = self.locate(block, dst.buffer, &dst.indices, true)?;
        self.memory[dst.buffer.index()].set(offset, value);
        Ok(())
    }

    /// The offset of an access, after the checks on where it may go.
    fn locate(
        &mut self,
        block: &'a Block,
        buffer: BufId,
        at: &'a [Expr],
        write: bool,
    ) -> Result<usize, ExecError> {
        let Some(offset) = self.offset(block, buffer, at)? else {
            let described = self.program.buffer(buffer);
            return Err(ExecError::OutOfBounds {
                block: block.name.clone(),
                buffer: described.name.clone(),
                indices: self.indices(block, at)?,
                ty: described.ty.clone(),
            });
        };
        if self.shared.is_empty() {
            return Ok(offset);
        }
        let home = self.homes[buffer.index()];
        let home = home.and_then(|home| self.depths[home.index()]);
        let is_shared = |l: &&mut SharedLoop| home.is_none_or(|home| home < l.depth);
        let mut shared = self.shared.iter_mut().filter(is_shared);
        let Some(l) = shared.find_map(|l| {
            let is_alone = l.tracker.touch(buffer, offset, write);
            (!is_alone).then_some(l.var)
        }) else {
            return Ok(offset);
        };
        Err(ExecError::Race {
            block: block.name.clone(),
            buffer: self.program.buffer(buffer).name.clone(),
            indices: self.indices(block, at)?,
            var: self.program.vars[l.index()].clone(),
        })
    }

    /// The row-major offset of an access, or `None` out of bounds.
    fn offset(
        &mut self,
        block: &'a Block,
        buffer: BufId,
        at: &'a [Expr],
    ) -> Result<Option<usize>, ExecError> {
        if self.memory[buffer.index()].ty.shape.len() != at.len() {
            return Ok(None);
        }
        let mut offset = 0;
        for (axis, index) in at.iter().enumerate() {
            let index = self.index(block, index)? as usize;
            let extent = self.memory[buffer.index()].ty.shape[axis];
            // A negative one is large as it is.
            if index >= extent {
                return Ok(None);
            }
            offset = offset * extent + index;
        }
        Ok(Some(offset))
    }

    /// The value of an index, mostly by [`Machine::number`], which is ten times as fast as
    /// [`Machine::eval`].
    fn index(&mut self, block: &'a Block, e: &'a Expr) -> Result<i64, ExecError> {
        match self.number(e) {
            Some(value) => Ok(value),
            None => Ok(self.eval(block, e)?.as_i64()),
        }
    }

    /// The value of an expression of variables and 64-bit integers in which nothing is loaded or
    /// selected.
    fn number(&self, e: &Expr) -> Option<i64> {
        match e {
            Expr::Const(s) => (s.dtype() == DType::I64).then(|| s.as_i64()),
            Expr::Var(v) => Some(self.vars[v.index()]),
            Expr::Binary(op, a, b) => Some(op.of_indices()?(self.number(a)?, self.number(b)?)),
            _ => None,
        }
    }

    fn indices(&mut self, block: &'a Block, at: &'a [Expr]) -> Result<Vec<i64>, ExecError> {
        at.iter().map(|index| self.index(block, index)).collect()
    }
}

#[cfg(test)]
mod tests;
