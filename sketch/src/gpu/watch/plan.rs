//! The accesses that the threads of a kernel make, without the values that they compute.
//!
//! A block whose loops hold nothing else becomes a list of its accesses, first reads, then writes.
//! Each access keeps only the loops that its indices and guards depend on. That is sound if the
//! block reads, of the buffers that it writes, only the element that it writes. Other blocks keep
//! all of their loops.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BufId, Expr, VarId};

use super::lanes::{Node, Threads};
use crate::disjoint;
use crate::gpu::{Kernel, Step};
use crate::program::{Block, Body, Program, Scope, Stmt};
use crate::tree;

pub(super) struct Plan {
    pub(super) threads: Threads,
    pub(super) body: Vec<Code>,
    /// Whether both sides of a branch that depends on data are taken somewhere.
    pub(super) guesses: bool,
}

pub(super) enum Code {
    Barrier,
    /// With the buffers that begin anew in each iteration.
    For {
        var: VarId,
        extent: usize,
        fresh: Vec<BufId>,
        body: Vec<Code>,
    },
    Block {
        name: String,
        touches: Vec<Touch>,
    },
}

/// Something that a block does in every iteration of `loops` in which all of the conditions are as
/// they should be.
pub(super) struct Touch {
    pub(super) loops: Vec<(VarId, usize)>,
    pub(super) conditions: Vec<(Node, bool)>,
    pub(super) what: What,
}

pub(super) enum What {
    Iterator { name: String, extent: usize, value: Node },
    Access { buffer: BufId, indices: Vec<Node>, write: bool },
}

/// `None` if indices depend on data.
pub(super) fn plan(program: &Program, kernel: &Kernel) -> Option<Plan> {
    let planner = Planner { program, threads: Threads::of(kernel), homes: homes(program, kernel) };
    let body = planner.steps(&kernel.body)?;
    let mut guesses = false;
    kernel.visit_blocks(&mut |b| guesses |= b.exprs().into_iter().any(branches_on_data));
    Some(Plan { threads: planner.threads, body, guesses })
}

/// The loop in whose iterations a buffer of a thread or of its block begins anew. Shared ones do so
/// where all threads go round together.
fn homes(program: &Program, kernel: &Kernel) -> BTreeMap<BufId, VarId> {
    let mut common: BTreeMap<BufId, Vec<VarId>> = BTreeMap::new();
    each_nest(&kernel.body, &mut vec![], &mut |steps, loops, block| {
        for buffer in block.buffers() {
            let here = match program.buffer(buffer).scope {
                Scope::Local | Scope::Fragment => [steps, loops].concat(),
                Scope::Shared => steps.to_vec(),
                _ => continue,
            };
            let shared = common.entry(buffer).or_insert_with(|| here.clone());
            let length = shared.iter().zip(&here).take_while(|(a, b)| a == b).count();
            shared.truncate(length);
        }
    });
    common.into_iter().filter_map(|(buffer, loops)| Some((buffer, *loops.last()?))).collect()
}

fn branches_on_data(e: &Expr) -> bool {
    e.any(&mut |e| matches!(e, Expr::Select(condition, ..) if !condition.loads().is_empty()))
}

/// Calls `f` with the loops around each block: those with barriers inside, and the others.
fn each_nest(
    steps: &[Step],
    around: &mut Vec<VarId>,
    f: &mut impl FnMut(&[VarId], &[VarId], &Block),
) {
    for step in steps {
        match step {
            Step::Barrier | Step::Commit | Step::Arrive(_) => {}
            Step::Loop(l) => {
                around.push(l.var);
                each_nest(&l.body, around, f);
                around.pop();
            }
            Step::Run(stmt) | Step::Fetch(stmt) => {
                tree::visit_nests(std::slice::from_ref(stmt), &mut |loops, block| {
                    let loops: Vec<VarId> = loops.iter().map(|l| l.var).collect();
                    f(around, &loops, block);
                });
            }
        }
    }
}

struct Planner<'a> {
    program: &'a Program,
    threads: Threads,
    homes: BTreeMap<BufId, VarId>,
}

impl Planner<'_> {
    fn steps(&self, steps: &[Step]) -> Option<Vec<Code>> {
        let mut all = vec![];
        for step in steps {
            all.push(match step {
                Step::Barrier => Code::Barrier,
                Step::Commit | Step::Arrive(_) => continue,
                Step::Loop(l) => self.code_of_loop(l.var, l.extent, self.steps(&l.body)?),
                Step::Run(stmt) | Step::Fetch(stmt) => self.stmt(stmt)?,
            });
        }
        Some(all)
    }

    fn stmt(&self, stmt: &Stmt) -> Option<Code> {
        let mut loops = vec![];
        if let Some(block) = self.lone_block(stmt, &mut loops)
            && (loops.is_empty() || reads_only_what_it_writes(block))
        {
            return Some(Code::Block {
                name: block.name.clone(),
                touches: self.block(block, &loops)?,
            });
        }
        let Stmt::For(l) = stmt else { unreachable!("a block is under no loop of its own") };
        let body = l.body.iter().map(|s| self.stmt(s)).collect::<Option<_>>()?;
        Some(self.code_of_loop(l.var, l.extent, body))
    }

    fn code_of_loop(&self, var: VarId, extent: usize, body: Vec<Code>) -> Code {
        let fresh = self.homes.iter().filter(|(_, v)| **v == var).map(|(b, _)| *b).collect();
        Code::For { var, extent, fresh, body }
    }

    /// The block below loops that hold nothing else.
    fn lone_block<'a>(&self, stmt: &'a Stmt, loops: &mut Vec<(VarId, usize)>) -> Option<&'a Block> {
        match stmt {
            Stmt::Block(block) => Some(block),
            Stmt::For(l) if l.extent > 0 && !self.homes.values().any(|v| *v == l.var) => {
                let [inner] = &l.body[..] else { return None };
                loops.push((l.var, l.extent));
                self.lone_block(inner, loops)
            }
            Stmt::For(_) => None,
        }
    }

    /// The touches of a block under `loops`. Its iterators are replaced by what they are bound to.
    fn block(&self, block: &Block, loops: &[(VarId, usize)]) -> Option<Vec<Touch>> {
        let predicate = block.predicate.as_ref().map(|p| (disjoint::bound(block, p), true));
        let mut accesses = Accesses { planner: self, found: vec![] };
        let under: Vec<(Expr, bool)> = predicate.into_iter().collect();
        accesses.body(&block.body, &|e| disjoint::bound(block, e), &under);
        let iterators = block.iters.iter().map(|iter| {
            let name = self.program.vars[iter.var.index()].clone();
            let what =
                What::Iterator { name, extent: iter.extent, value: self.node(&iter.binding)? };
            self.touch(loops, &under, &iter.binding.vars(), what)
        });
        let accesses = accesses.found.iter().map(|access| self.access(loops, access));
        iterators.chain(accesses).collect()
    }

    fn access(&self, loops: &[(VarId, usize)], access: &Access) -> Option<Touch> {
        let vars = access.indices.iter().flat_map(Expr::vars).collect();
        let indices = access.indices.iter().map(|e| self.node(e)).collect::<Option<_>>()?;
        let what = What::Access { buffer: access.buffer, indices, write: access.write };
        self.touch(loops, &access.under, &vars, what)
    }

    fn touch(
        &self,
        loops: &[(VarId, usize)],
        under: &[(Expr, bool)],
        vars: &BTreeSet<VarId>,
        what: What,
    ) -> Option<Touch> {
        let depends =
            |v: VarId| vars.contains(&v) || under.iter().any(|(e, _)| e.vars().contains(&v));
        let loops = loops.iter().copied().filter(|l| depends(l.0)).collect();
        let conditions = under.iter().map(|(e, holds)| Some((self.node(e)?, *holds)));
        Some(Touch { loops, conditions: conditions.collect::<Option<_>>()?, what })
    }

    fn node(&self, e: &Expr) -> Option<Node> {
        Node::of(e, &self.threads)
    }
}

/// Whether the block reads, of the buffers that it writes, only the element that it writes.
fn reads_only_what_it_writes(block: &Block) -> bool {
    let writes = block.body.writes();
    let loads: Vec<_> = block.exprs().into_iter().flat_map(Expr::loads).collect();
    let other = |(buffer, at): &(BufId, &[Expr])| {
        writes.iter().any(|w| w.buffer == *buffer && w.indices != *at)
    };
    !loads.iter().any(other)
}

#[derive(Clone, PartialEq)]
struct Access {
    buffer: BufId,
    indices: Vec<Expr>,
    under: Vec<(Expr, bool)>,
    write: bool,
}

/// The accesses of a block in their order, none of them twice.
struct Accesses<'a> {
    planner: &'a Planner<'a>,
    found: Vec<Access>,
}

impl Accesses<'_> {
    fn body(&mut self, body: &Body, bound: &impl Fn(&Expr) -> Expr, under: &[(Expr, bool)]) {
        self.reads(&bound(body.value()), under);
        if let Body::ArgReduce { term, .. } = body {
            self.reads(&bound(term), under);
        }
        let holds = !matches!(body, Body::Assign { .. });
        for write in [false, true].into_iter().skip(usize::from(!holds)) {
            for access in body.writes() {
                let indices = access.indices.iter().map(bound).collect();
                self.add(Access { buffer: access.buffer, indices, under: under.to_vec(), write });
            }
        }
    }

    fn add(&mut self, access: Access) {
        if !self.found.contains(&access) {
            self.found.push(access);
        }
    }

    fn reads(&mut self, e: &Expr, under: &[(Expr, bool)]) {
        match e {
            Expr::Load(buffer, indices) => {
                let (indices, under) = (indices.clone(), under.to_vec());
                self.add(Access { buffer: *buffer, indices, under, write: false });
            }
            Expr::Select(condition, then, other) => {
                self.reads(condition, under);
                for (side, holds) in [(then, true), (other, false)] {
                    if !side.loads().is_empty() {
                        self.reads(side, &[under, &self.known(condition, holds)].concat());
                    }
                }
            }
            _ => e.children().into_iter().for_each(|child| self.reads(child, under)),
        }
    }

    /// The facts that follow where the condition turned out as `holds`, whatever the data are.
    fn known(&self, condition: &Expr, holds: bool) -> Vec<(Expr, bool)> {
        let follows = |e: &&Expr| self.planner.node(e).is_some();
        let parts = if holds { condition.conjuncts() } else { vec![condition] };
        parts.into_iter().filter(follows).map(|e| (e.clone(), holds)).collect()
    }
}
