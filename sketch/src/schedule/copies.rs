//! Copies of statements, with variables, blocks and local buffers of their own.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ansc_graph::text::{first_unused, unused};
use ansc_graph::{BufId, Expr, VarId};

use crate::program::{Block, Program, Stmt};
use crate::tree;

/// The names that a copy has for variables, buffers and blocks of the original.
#[derive(Default)]
pub(super) struct Renaming {
    pub(super) vars: BTreeMap<VarId, VarId>,
    pub(super) buffers: BTreeMap<BufId, BufId>,
    pub(super) blocks: Blocks,
}

impl Renaming {
    fn expr(&self, e: &Expr) -> Expr {
        e.substitute(&|v| self.vars.get(&v).map(|&twin| Expr::Var(twin)))
    }
}

/// Blocks with the names of their copies, in program order.
pub(super) type Blocks = Vec<(String, String)>;

/// Things that were a second time in a program, with the names that they have got instead.
#[derive(Default)]
pub(super) struct Twins {
    pub(super) loops: Vec<(VarId, VarId)>,
    pub(super) blocks: Blocks,
}

/// Gives loops, iterators and blocks names of their own, if statements are in the program more than
/// once. The first ones keep theirs.
pub(super) fn own_names(program: &mut Program) -> Twins {
    let loops = tree::own_variables(program);
    let again = named_again(program);
    if again.is_empty() {
        return Twins { loops, blocks: vec![] };
    }
    let mut used: BTreeSet<String> =
        program.blocks().into_iter().map(|block| block.name.clone()).collect();
    let (mut seen, mut blocks) = (BTreeSet::new(), vec![]);
    let is_again = |block: &Block| again.contains(&block.name);
    tree::visit_some_blocks_mut(&mut program.body, &is_again, &mut |block| {
        if !seen.insert(block.name.clone()) {
            let name = unused(&block.name, |name| used.contains(name));
            used.insert(name.clone());
            blocks.push((std::mem::replace(&mut block.name, name.clone()), name));
        }
    });
    Twins { loops, blocks }
}

/// Names that more than one block has.
fn named_again(program: &Program) -> BTreeSet<String> {
    let mut used = HashSet::new();
    let blocks = program.blocks().into_iter();
    blocks.filter(|block| !used.insert(&block.name)).map(|block| block.name.clone()).collect()
}

/// Gives the statements buffers of their own instead of those of `buffers` that they use.
pub(super) fn own_buffers(program: &mut Program, stmts: &mut [Stmt], buffers: &[BufId]) {
    let mut used = BTreeSet::new();
    stmts.iter().for_each(|s| s.visit_blocks(&mut |b| used.extend(b.buffers())));
    let buffers: Vec<BufId> = buffers.iter().copied().filter(|b| used.contains(b)).collect();
    let twins = twin_buffers(program, &buffers);
    tree::visit_blocks_mut(stmts, &mut |block| redirect(block, &twins));
}

/// Local buffers that one iteration of the loop has for itself.
pub(super) fn private_buffers(program: &Program, l: VarId) -> Vec<BufId> {
    let mut buffers = tree::used_only_under(program, l);
    buffers.retain(|b| program.buffer(*b).scope.is_private());
    buffers
}

fn twin_buffers(program: &mut Program, buffers: &[BufId]) -> BTreeMap<BufId, BufId> {
    let twin = |&buffer: &BufId| {
        let original = program.buffer(buffer).clone();
        let name = program.fresh_buffer_name(&original.name);
        let twin = program.add_buffer(name, original.ty, original.scope);
        program.buffers[twin.index()].align = original.align;
        (buffer, twin)
    };
    buffers.iter().map(twin).collect()
}

pub(super) fn redirect(block: &mut Block, buffers: &BTreeMap<BufId, BufId>) {
    block.visit_accesses_mut(&mut |buffer, _| {
        *buffer = buffers.get(buffer).copied().unwrap_or(*buffer)
    });
}

/// A copy of `stmts`. `buffers` are those of which the copy gets its own.
pub(super) fn copy(
    program: &mut Program,
    stmts: &[Stmt],
    buffers: &[BufId],
) -> (Vec<Stmt>, Renaming) {
    let mut renaming = Renaming { buffers: twin_buffers(program, buffers), ..Renaming::default() };
    let mut copies = stmts.to_vec();
    copies.iter_mut().for_each(|s| rename(program, s, &mut renaming));
    (copies, renaming)
}

/// A copy of `stmts` that works on the same buffers, whose loops end where the others do.
pub(crate) fn copy_with_needs(program: &mut Program, stmts: &[Stmt]) -> Vec<Stmt> {
    let (copies, renaming) = copy(program, stmts, &[]);
    let twin = |(var, condition): &(VarId, Expr)| {
        Some((*renaming.vars.get(var)?, renaming.expr(condition)))
    };
    let needs: Vec<(VarId, Expr)> = program.needs.iter().filter_map(twin).collect();
    program.needs.extend(needs);
    copies
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
    redirect(block, &renaming.buffers);
}

/// `base_1`, ... that neither a block of the program has nor one of `others`.
fn fresh_name<'a>(
    program: &Program,
    base: &str,
    others: impl Iterator<Item = &'a String> + Clone,
) -> String {
    let used = |name: &str| {
        others.clone().any(|o| o == name) || program.blocks().iter().any(|b| b.name == name)
    };
    first_unused((1..).map(|n| format!("{base}_{n}")), used)
}

/// The statements of another program with variables and blocks of this one, and its buffers other
/// than parameters added here.
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
