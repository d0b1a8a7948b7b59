//! Positions in the loop tree of a program, and edits at them.
//!
//! A [`Path`] is the index of a statement at each level, outermost first. The empty path is the
//! root, which is no statement.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, Expr, VarId};

use crate::program::{Block, Body, For, Program, Shared, Stmt};

pub(crate) type Path = Vec<usize>;

/// Loops around the innermost block.
pub(crate) fn depth(stmt: &Stmt) -> usize {
    match stmt {
        Stmt::For(l) => 1 + l.body.iter().map(depth).max().unwrap_or(0),
        Stmt::Block(_) => 0,
    }
}

/// Without blocks that never run, and without loops that are left empty.
pub(crate) fn alive(stmts: Vec<Stmt>) -> Vec<Stmt> {
    let never = Some(Expr::bool(false));
    rewrite(stmts, &mut |stmt| match stmt {
        Stmt::Block(block) if block.predicate == never => vec![],
        Stmt::For(l) if l.body.is_empty() => vec![],
        other => vec![other],
    })
}

/// The path of the first statement in program order for which `f` holds.
pub(crate) fn find(stmts: &[Stmt], f: &mut impl FnMut(&Stmt) -> bool) -> Option<Path> {
    for (index, stmt) in stmts.iter().enumerate() {
        if f(stmt) {
            return Some(vec![index]);
        }
        if let Stmt::For(l) = stmt
            && let Some(mut below) = find(&l.body, f)
        {
            below.insert(0, index);
            return Some(below);
        }
    }
    None
}

/// The same of a statement of which there is one. Nests are scheduled in their order, so that it is
/// sooner found from the end, before which are those that are not written down yet.
pub(crate) fn find_only(stmts: &[Stmt], f: &mut impl FnMut(&Stmt) -> bool) -> Option<Path> {
    fn go(stmts: &[Stmt], f: &mut impl FnMut(&Stmt) -> bool, path: &mut Path) -> bool {
        stmts.iter().enumerate().rev().any(|(index, stmt)| {
            path.push(index);
            let is_there = f(stmt) || matches!(stmt, Stmt::For(l) if go(&l.body, f, path));
            if !is_there {
                path.pop();
            }
            is_there
        })
    }
    let mut path = vec![];
    go(stmts, f, &mut path).then_some(path)
}

pub(crate) fn stmt<'a>(body: &'a [Stmt], path: &[usize]) -> Option<&'a Stmt> {
    let (&first, rest) = path.split_first()?;
    let here = body.get(first)?;
    match here {
        _ if rest.is_empty() => Some(here),
        Stmt::For(l) => stmt(&l.body, rest),
        Stmt::Block(_) => None,
    }
}

/// The statements that `path` is one of, and its index among them.
pub(crate) fn siblings_mut<'a>(
    body: &'a mut Vec<Stmt>,
    path: &[usize],
) -> (&'a mut Vec<Stmt>, usize) {
    let (&first, rest) = path.split_first().expect("the path of a statement is not empty");
    if rest.is_empty() {
        return (body, first);
    }
    match &mut body[first] {
        Stmt::For(l) => siblings_mut(&mut l.body, rest),
        Stmt::Block(_) => unreachable!("a path does not go through a block"),
    }
}

pub(crate) fn stmt_mut<'a>(body: &'a mut Vec<Stmt>, path: &[usize]) -> &'a mut Stmt {
    let (siblings, index) = siblings_mut(body, path);
    &mut siblings[index]
}

/// Replaces the statement at `path`.
pub(crate) fn splice(body: &mut Vec<Stmt>, path: &[usize], with: Vec<Stmt>) {
    let (siblings, index) = siblings_mut(body, path);
    siblings.splice(index..=index, with);
}

/// The loops that `path` goes through, outermost first, the statement at `path` not included.
pub(crate) fn loops_above<'a>(body: &'a [Stmt], path: &[usize]) -> Vec<&'a For> {
    let mut loops = vec![];
    let mut stmts = body;
    for &index in &path[..path.len().saturating_sub(1)] {
        let Stmt::For(l) = &stmts[index] else {
            unreachable!("a path does not go through a block")
        };
        loops.push(&**l);
        stmts = &l.body;
    }
    loops
}

/// Rebuilds bottom-up: `f` gets each statement after those below it and returns what takes its
/// place.
pub(crate) fn rewrite(stmts: Vec<Stmt>, f: &mut impl FnMut(Stmt) -> Vec<Stmt>) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for stmt in stmts {
        let rebuilt = match stmt {
            Stmt::For(mut l) => {
                l.body = rewrite(std::mem::take(&mut l.body), f);
                Stmt::For(l)
            }
            block => block,
        };
        out.extend(f(rebuilt));
    }
    out
}

pub(crate) fn visit_blocks_mut(stmts: &mut [Stmt], f: &mut impl FnMut(&mut Block)) {
    for stmt in stmts {
        match stmt {
            Stmt::Block(block) => f(block),
            Stmt::For(l) => visit_blocks_mut(&mut l.body, f),
        }
    }
}

/// The same for blocks that are `wanted`. Statements without one stay shared with the program's
/// copies.
pub(crate) fn visit_some_blocks_mut(
    stmts: &mut [Stmt],
    wanted: &impl Fn(&Block) -> bool,
    f: &mut impl FnMut(&mut Block),
) {
    for stmt in stmts {
        let mut has_some = false;
        stmt.visit_blocks(&mut |block| has_some |= wanted(block));
        match stmt {
            _ if !has_some => {}
            Stmt::Block(block) => f(block),
            Stmt::For(l) => visit_some_blocks_mut(&mut l.body, wanted, f),
        }
    }
}

pub(crate) fn visit_loops<'a>(stmts: &'a [Stmt], f: &mut impl FnMut(&'a For)) {
    for stmt in stmts {
        if let Stmt::For(l) = stmt {
            f(l);
            visit_loops(&l.body, f);
        }
    }
}

/// `stmt` under `loops`, the first outermost. A loop is given by all but its body.
pub(crate) fn nest(loops: Vec<For>, stmts: Vec<Stmt>) -> Vec<Stmt> {
    loops.into_iter().rev().fold(stmts, |body, mut l| {
        l.body = body;
        vec![Stmt::For(Shared::new(l))]
    })
}

pub(crate) fn conjunction(parts: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    parts.into_iter().reduce(Expr::and)
}

/// A copy of `var` under the same name.
pub(crate) fn twin(program: &mut Program, var: VarId) -> VarId {
    let name = program.vars[var.index()].clone();
    program.add_var(name)
}

/// Gives loops and iterators that are bound a second time variables of their own; the loops with
/// these.
pub(crate) fn own_variables(program: &mut Program) -> Vec<(VarId, VarId)> {
    let again = bound_again(program);
    let mut twins = vec![];
    if again.is_empty() {
        return twins;
    }
    let mut body = std::mem::take(&mut program.body);
    let mut bound = BTreeSet::new();
    own(program, &mut body, &again, &mut bound, &mut BTreeMap::new(), &mut twins);
    program.body = body;
    twins
}

/// Variables that more than one loop or iterator binds.
fn bound_again(program: &Program) -> BTreeSet<VarId> {
    let (mut bound, mut again) = (vec![false; program.vars.len()], BTreeSet::new());
    visit_bound(&program.body, &mut |var| {
        if std::mem::replace(&mut bound[var.index()], true) {
            again.insert(var);
        }
    });
    again
}

/// Calls `f` on the variable of every loop and iterator.
fn visit_bound(stmts: &[Stmt], f: &mut impl FnMut(VarId)) {
    for stmt in stmts {
        match stmt {
            Stmt::For(l) => {
                f(l.var);
                visit_bound(&l.body, f);
            }
            Stmt::Block(block) => block.iters.iter().for_each(|iter| f(iter.var)),
        }
    }
}

fn own(
    program: &mut Program,
    stmts: &mut [Stmt],
    again: &BTreeSet<VarId>,
    bound: &mut BTreeSet<VarId>,
    renamed: &mut BTreeMap<VarId, VarId>,
    twins: &mut Vec<(VarId, VarId)>,
) {
    for stmt in stmts {
        // Statements that do not change stay shared with the program's copies.
        if renamed.is_empty() && !binds(stmt, again) {
            continue;
        }
        match stmt {
            Stmt::For(l) => {
                let var = l.var;
                let outer = renamed.remove(&var);
                if !bound.insert(var) {
                    l.var = twin(program, var);
                    renamed.insert(var, l.var);
                    twins.push((var, l.var));
                }
                own(program, &mut l.body, again, bound, renamed, twins);
                renamed.remove(&var);
                renamed.extend(outer.map(|outer| (var, outer)));
            }
            Stmt::Block(block) => {
                let mut of_block = renamed.clone();
                for iter in &mut block.iters {
                    let var = iter.var;
                    if !bound.insert(var) {
                        iter.var = twin(program, var);
                        of_block.insert(var, iter.var);
                    }
                }
                if of_block.is_empty() {
                    continue;
                }
                let new = |v: VarId| of_block.get(&v).map(|v| Expr::Var(*v));
                for iter in &mut block.iters {
                    iter.binding = iter.binding.substitute(&new);
                }
                block.visit_exprs_mut(&mut |e| *e = e.substitute(&new));
            }
        }
    }
}

fn binds(stmt: &Stmt, vars: &BTreeSet<VarId>) -> bool {
    let mut found = false;
    visit_bound(std::slice::from_ref(stmt), &mut |var| found |= vars.contains(&var));
    found
}

impl Block {
    /// Calls `f` on every expression that is written in terms of block iterators or loops:
    /// predicate, indices, value. Bindings are not among them.
    pub(crate) fn visit_exprs_mut(&mut self, f: &mut impl FnMut(&mut Expr)) {
        self.predicate.iter_mut().for_each(&mut *f);
        match &mut self.body {
            Body::Assign { dst, value } | Body::Reduce { dst, value, .. } => {
                dst.indices.iter_mut().for_each(&mut *f);
                f(value);
            }
            Body::ArgReduce { best, position, value, term, .. } => {
                best.indices.iter_mut().chain(&mut position.indices).for_each(&mut *f);
                f(value);
                f(term);
            }
        }
    }

    /// Calls `f` on the buffer and the indices of every element that is read or written; on those
    /// within indices first.
    pub(crate) fn visit_accesses_mut(&mut self, f: &mut impl FnMut(&mut BufId, &mut Vec<Expr>)) {
        self.visit_exprs_mut(&mut |e| {
            e.visit_mut(&mut |node| {
                if let Expr::Load(buffer, indices) = node {
                    f(buffer, indices);
                }
            });
        });
        for access in self.body.writes_mut() {
            f(&mut access.buffer, &mut access.indices);
        }
    }

    /// Replaces loop variables by what `f` gives, in bindings and in the predicate.
    pub(crate) fn substitute_loops(&mut self, f: &impl Fn(VarId) -> Option<Expr>) {
        for iter in &mut self.iters {
            iter.binding = iter.binding.substitute(f);
        }
        if let Some(predicate) = &mut self.predicate {
            *predicate = predicate.substitute(f);
        }
    }

    /// Every expression in terms of block iterators or loops: predicate, indices, value.
    pub(crate) fn exprs(&self) -> Vec<&Expr> {
        let mut exprs: Vec<&Expr> = self.predicate.iter().collect();
        exprs.extend(self.body.writes().into_iter().flat_map(|a| &a.indices));
        exprs.push(self.body.value());
        if let Body::ArgReduce { term, .. } = &self.body {
            exprs.push(term);
        }
        exprs
    }

    pub(crate) fn reads(&self) -> BTreeSet<BufId> {
        self.exprs().iter().flat_map(|e| e.loads()).map(|(buffer, _)| buffer).collect()
    }

    /// Calls `f` on everything that the block reads or writes, once for each access.
    pub(crate) fn visit_buffers(&self, f: &mut impl FnMut(BufId)) {
        let mut loads = |e: &Expr| {
            e.visit(&mut |node| {
                if let Expr::Load(buffer, _) = node {
                    f(*buffer);
                }
            });
        };
        self.predicate.iter().for_each(&mut loads);
        loads(self.body.value());
        if let Body::ArgReduce { term, .. } = &self.body {
            loads(term);
        }
        for access in self.body.writes() {
            access.indices.iter().for_each(&mut loads);
        }
        self.body.writes().iter().for_each(|a| f(a.buffer));
    }

    /// Everything that the block reads or writes.
    pub(crate) fn buffers(&self) -> BTreeSet<BufId> {
        let mut buffers = BTreeSet::new();
        self.visit_buffers(&mut |buffer| _ = buffers.insert(buffer));
        buffers
    }

    /// Whether the block's destinations are to be initialised before the first term.
    pub(crate) fn has_init(&self) -> bool {
        matches!(self.body, Body::Reduce { init: true, .. } | Body::ArgReduce { init: true, .. })
    }
}

/// Calls `f` on every block with the loops around it, outermost first.
pub(crate) fn visit_nests<'a>(stmts: &'a [Stmt], f: &mut impl FnMut(&[&'a For], &'a Block)) {
    fn go<'a>(
        stmts: &'a [Stmt],
        loops: &mut Vec<&'a For>,
        f: &mut impl FnMut(&[&'a For], &'a Block),
    ) {
        for stmt in stmts {
            match stmt {
                Stmt::Block(block) => f(loops, block),
                Stmt::For(l) => {
                    loops.push(l);
                    go(&l.body, loops, f);
                    loops.pop();
                }
            }
        }
    }
    go(stmts, &mut vec![], f);
}

/// The loops that contain all accesses to each buffer, outermost first; unused buffers are left
/// out.
pub(crate) fn common_loops(program: &Program) -> BTreeMap<BufId, Vec<VarId>> {
    let mut common: Vec<Option<Vec<VarId>>> = vec![None; program.buffers.len()];
    visit_nests(&program.body, &mut |loops, block| {
        block.visit_buffers(&mut |buffer| match &mut common[buffer.index()] {
            Some(shared) => {
                let same = shared.iter().zip(loops).take_while(|(var, l)| **var == l.var);
                let length = same.count();
                shared.truncate(length);
            }
            unused => *unused = Some(loops.iter().map(|l| l.var).collect()),
        });
    });
    let used = common.into_iter().enumerate();
    used.filter_map(|(buffer, loops)| Some((BufId::new(buffer), loops?))).collect()
}

/// Buffers that are used under the loop, and nowhere else.
pub(crate) fn used_only_under(program: &Program, l: VarId) -> Vec<BufId> {
    let [mut under, mut elsewhere] = [(); 2].map(|()| vec![false; program.buffers.len()]);
    visit_nests(&program.body, &mut |loops, block| {
        let is_under = loops.iter().any(|around| around.var == l);
        let side = if is_under { &mut under } else { &mut elsewhere };
        block.visit_buffers(&mut |buffer| side[buffer.index()] = true);
    });
    let all = (0..program.buffers.len()).filter(|&b| under[b] && !elsewhere[b]);
    all.map(BufId::new).collect()
}

/// The loop of whose iterations each has its own copy of a local buffer; buffers without one are
/// left out.
pub(crate) fn homes(program: &Program) -> BTreeMap<BufId, VarId> {
    common_loops(program)
        .into_iter()
        .filter(|(buffer, _)| program.buffer(*buffer).scope.is_private())
        .filter_map(|(buffer, loops)| Some((buffer, *loops.last()?)))
        .collect()
}
