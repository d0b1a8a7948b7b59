//! Copies of statements, with variables, blocks and local buffers of their own.

use std::collections::BTreeMap;

use ansc_graph::{BufId, Expr, VarId};

use super::cache::{redirect_reads, redirect_writes};
use crate::program::{Block, Program, Stmt};
use crate::tree;

/// What a copy calls things.
#[derive(Default)]
pub(super) struct Renaming {
    pub(super) vars: BTreeMap<VarId, VarId>,
    pub(super) buffers: BTreeMap<BufId, BufId>,
    /// Blocks with the names of their copies, in program order.
    pub(super) blocks: Vec<(String, String)>,
}

impl Renaming {
    fn expr(&self, e: &Expr) -> Expr {
        e.substitute(&|v| self.vars.get(&v).map(|&twin| Expr::Var(twin)))
    }
}

/// A copy of `stmts`. `buffers` are those of which the copy gets its own.
pub(super) fn copy(
    program: &mut Program,
    stmts: &[Stmt],
    buffers: &[BufId],
) -> (Vec<Stmt>, Renaming) {
    let mut renaming = Renaming::default();
    for &buffer in buffers {
        let original = program.buffer(buffer).clone();
        let name = program.fresh_buffer_name(&original.name);
        let twin = program.add_buffer(name, original.ty, original.scope);
        program.buffers[twin.index()].align = original.align;
        renaming.buffers.insert(buffer, twin);
    }
    let mut copies = stmts.to_vec();
    copies.iter_mut().for_each(|s| rename(program, s, &mut renaming));
    (copies, renaming)
}

fn rename(program: &mut Program, stmt: &mut Stmt, renaming: &mut Renaming) {
    match stmt {
        Stmt::For(l) => {
            let twin = tree::twin(program, l.var);
            renaming.vars.insert(l.var, twin);
            l.var = twin;
            l.body.iter_mut().for_each(|s| rename(program, s, renaming));
        }
        Stmt::Block(block) => rename_block(program, block, renaming),
    }
}

fn rename_block(program: &mut Program, block: &mut Block, renaming: &mut Renaming) {
    let base = block.name.clone();
    let name = fresh_name(program, &base, renaming.blocks.iter().map(|(_, copy)| copy));
    renaming.blocks.push((base, name.clone()));
    block.name = name;
    for iter in &mut block.iters {
        iter.binding = renaming.expr(&iter.binding);
        let twin = tree::twin(program, iter.var);
        renaming.vars.insert(iter.var, twin);
        iter.var = twin;
    }
    block.visit_exprs_mut(&mut |e| *e = renaming.expr(e));
    let buffers = &renaming.buffers;
    redirect_reads(block, &|buffer, at| Some(Expr::Load(*buffers.get(&buffer)?, at.to_vec())));
    redirect_writes(&mut block.body, &|access| {
        access.buffer = buffers.get(&access.buffer).copied().unwrap_or(access.buffer);
    });
}

/// `base_1`, ... that neither a block of the program has nor one of `others`.
fn fresh_name<'a>(
    program: &Program,
    base: &str,
    others: impl Iterator<Item = &'a String> + Clone,
) -> String {
    let used = |name: &String| {
        others.clone().any(|o| o == name) || program.blocks().iter().any(|b| b.name == *name)
    };
    let mut names = (1..).map(|n| format!("{base}_{n}"));
    names.find(|name| !used(name)).expect("numbers do not run out")
}

/// The statements of another program with variables and blocks of this one, and its buffers other than
/// parameters added here.
pub(super) fn adopt(
    program: &mut Program,
    other: &Program,
    base: &str,
) -> (Vec<Stmt>, BTreeMap<BufId, BufId>) {
    let mut buffers = BTreeMap::new();
    for (index, buffer) in other.buffers.iter().enumerate() {
        let id = BufId::new(index);
        if !other.params.contains(&id) {
            let name = program.fresh_buffer_name(&format!("{base}_{}", buffer.name));
            buffers.insert(id, program.add_buffer(name, buffer.ty.clone(), buffer.scope));
        }
    }
    let vars: Vec<VarId> = other.vars.iter().map(|name| program.add_var(name.clone())).collect();
    let mut stmts = other.body.clone();
    renumber(&mut stmts, &vars);
    let mut names: Vec<String> = vec![];
    tree::visit_blocks_mut(&mut stmts, &mut |block| {
        block.name = fresh_name(program, &format!("{base}_{}", block.name), names.iter());
        names.push(block.name.clone());
    });
    (stmts, buffers)
}

/// Variable `n` becomes `vars[n]`.
fn renumber(stmts: &mut [Stmt], vars: &[VarId]) {
    let expr = |e: &Expr| e.substitute(&|v| Some(Expr::Var(vars[v.index()])));
    for stmt in stmts {
        match stmt {
            Stmt::For(l) => {
                l.var = vars[l.var.index()];
                renumber(&mut l.body, vars);
            }
            Stmt::Block(block) => {
                for iter in &mut block.iters {
                    iter.var = vars[iter.var.index()];
                    iter.binding = expr(&iter.binding);
                }
                block.visit_exprs_mut(&mut |e| *e = expr(e));
            }
        }
    }
}
