//! Buffers, variables and parameters: what there is, once.

use std::collections::HashSet;

use ansc_graph::{Expr, VarId};

use super::{Fault, loads};
use crate::program::{Block, Program, Scope, Stmt};

pub(super) fn check(program: &Program) -> Result<(), Fault> {
    let mut names = HashSet::with_capacity(program.buffers.len());
    let repeated = program.buffers.iter().find(|b| !names.insert(b.name.as_str()));
    if let Some(buffer) = repeated {
        return Err(Fault::SameName { buffer: buffer.name.clone() });
    }
    let none = vec![false; program.vars.len()];
    let mut names = Names { program, bound: none.clone(), open: none };
    names.stmts(&program.body)?;
    params(program)
}

/// Inputs and outputs are parameters, once each; no other buffer is.
fn params(program: &Program) -> Result<(), Fault> {
    let mut counts = vec![0; program.buffers.len()];
    for param in &program.params {
        let (index, buffers) = (param.index(), program.buffers.len());
        let count = counts.get_mut(index);
        let block = String::new();
        *count.ok_or(Fault::NoSuchBuffer { block, index, buffers })? += 1;
    }
    for (buffer, count) in program.buffers.iter().zip(counts) {
        let is_param = matches!(buffer.scope, Scope::Input | Scope::Output);
        let buffer = || buffer.name.clone();
        match (is_param, count) {
            (true, 1) | (false, 0) => {}
            (true, count) => return Err(Fault::Parameter { buffer: buffer(), count }),
            (false, _) => return Err(Fault::PrivateParameter { buffer: buffer() }),
        }
    }
    Ok(())
}

struct Names<'p> {
    program: &'p Program,
    /// Variables that a loop or an iterator binds.
    bound: Vec<bool>,
    /// Those of them that may be used here.
    open: Vec<bool>,
}

impl Names<'_> {
    fn stmts(&mut self, stmts: &[Stmt]) -> Result<(), Fault> {
        for stmt in stmts {
            match stmt {
                Stmt::For(l) => {
                    self.bind(l.var, || "a loop".into())?;
                    self.stmts(&l.body)?;
                    self.open[l.var.index()] = false;
                }
                Stmt::Block(block) => self.block(block)?,
            }
        }
        Ok(())
    }

    fn bind(&mut self, var: VarId, place: impl Fn() -> String) -> Result<(), Fault> {
        let (index, variables) = (var.index(), self.program.vars.len());
        match self.bound.get_mut(index) {
            None => Err(Fault::NoSuchVariable { place: place(), index, variables }),
            Some(true) => {
                let var = self.program.vars[index].clone();
                Err(Fault::BoundTwice { place: place(), var })
            }
            Some(bound) => {
                (*bound, self.open[index]) = (true, true);
                Ok(())
            }
        }
    }

    fn block(&mut self, block: &Block) -> Result<(), Fault> {
        block.iters.iter().try_for_each(|iter| self.expr(block, &iter.binding))?;
        let place = || format!("block `{}`", block.name);
        block.iters.iter().try_for_each(|iter| self.bind(iter.var, place))?;
        block.exprs().into_iter().try_for_each(|e| self.expr(block, e))?;
        for access in block.body.writes() {
            let buffer = self.program.buffers.get(access.buffer.index());
            let buffer = buffer.ok_or_else(|| self.no_such_buffer(block, access.buffer.index()))?;
            if buffer.scope == Scope::Input {
                let (block, buffer) = (block.name.clone(), buffer.name.clone());
                return Err(Fault::WritesInput { block, buffer });
            }
        }
        block.iters.iter().for_each(|iter| self.open[iter.var.index()] = false);
        Ok(())
    }

    /// Variables are in scope, and buffers exist.
    fn expr(&self, block: &Block, e: &Expr) -> Result<(), Fault> {
        let mut fault = None;
        e.visit(&mut |node| {
            if let Expr::Var(v) = node
                && !self.open.get(v.index()).copied().unwrap_or(false)
            {
                fault.get_or_insert_with(|| self.out_of_scope(block, *v));
            }
        });
        loads(e, false, &mut |buffer, _, _| {
            if buffer.index() >= self.program.buffers.len() {
                fault.get_or_insert_with(|| self.no_such_buffer(block, buffer.index()));
            }
        });
        fault.map_or(Ok(()), Err)
    }

    fn out_of_scope(&self, block: &Block, var: VarId) -> Fault {
        let name = self.program.vars.get(var.index());
        let var = name.cloned().unwrap_or_else(|| var.to_string());
        Fault::OutOfScope { block: block.name.clone(), var }
    }

    fn no_such_buffer(&self, block: &Block, index: usize) -> Fault {
        let (block, buffers) = (block.name.clone(), self.program.buffers.len());
        Fault::NoSuchBuffer { block, index, buffers }
    }
}
