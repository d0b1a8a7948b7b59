//! Checks that hold of every program, whatever made it.
//!
//! [`verify`] checks
//! - names: buffers and variables exist, buffers differ in names, each loop and each iterator has a
//!   variable of its own, and expressions use variables of loops around them and of their block
//!   only (`names`);
//! - parameters are the inputs and the outputs, once each; nothing writes an input (`names`);
//! - the types of expressions agree, and each index has an axis (`types`);
//! - parallel loops are outermost, and vectors do not run over terms of a sum (`loops`);
//! - local buffers are used by one thread (`loops`);
//! - iterators stay within their extents and indices within their buffers, wherever guards and
//!   selects let an access happen (`bounds`);
//! - iterations of parallel, vectorised and bound loops stay out of each other's way (`races`);
//! - elements are written before they are read, and results are written completely (`cover`);
//! - a reduction is initialised once, the terms of an arg-reduction come in increasing order, and
//!   no part of a guard mixes results and terms (`reductions`).
//!
//! The last four are answered by intervals and sums of digits: *proven*, or *refuted* by a point at
//! which something is wrong, so that there are no false alarms; or *unknown*, which passes.
//! [`report`] counts the answers.

mod bounds;
mod boxes;
mod cover;
mod fault;
mod loops;
mod names;
mod point;
mod races;
mod reductions;
mod types;

#[cfg(test)]
mod tests;

use ansc_graph::{BufId, Expr, VarId};

use crate::affine::Extents;
use crate::program::{Access, Block, Body, For, IterKind, Program, Stmt};

pub(crate) use cover::{Written, written};
pub use fault::{Defect, Fault};
pub(crate) use races::{Pair, meeting};

/// Checks a program, see the [module](self).
pub fn verify(program: &Program) -> Result<(), Fault> {
    report(program).map(|_| ())
}

/// The same, with the number of answers of each kind.
pub fn report(program: &Program) -> Result<Report, Fault> {
    names::check(program)?;
    let mut subject = Subject::of(program);
    types::check(&subject)?;
    loops::check(&subject)?;
    bounds::check(&mut subject)?;
    reductions::check(&mut subject)?;
    races::check(&mut subject)?;
    cover::check(&mut subject)?;
    Ok(subject.report)
}

/// A question that is often asked of a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Question {
    Iterator,
    Index,
    Initialisation,
    TermOrder,
    Race,
    Definition,
    Coverage,
}

impl Question {
    pub const ALL: [Question; 7] = {
        use Question::*;
        [Iterator, Index, Initialisation, TermOrder, Race, Definition, Coverage]
    };
}

/// How many questions were answered, and how many were not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Answered {
    pub proven: usize,
    pub unknown: usize,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report([Answered; Question::ALL.len()]);

impl Report {
    pub fn of(&self, question: Question) -> Answered {
        self.0[question as usize]
    }

    pub fn add(&mut self, other: &Report) {
        for (all, one) in self.0.iter_mut().zip(&other.0) {
            all.proven += one.proven;
            all.unknown += one.unknown;
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = |q: Question| {
            let Answered { proven, unknown } = self.of(q);
            format!("{q:?}: {proven} proven, {unknown} unknown")
        };
        f.write_str(&Question::ALL.map(line).join("\n"))
    }
}

/// An answer to a question: proven, refuted, or unknown.
enum Answer {
    Proven,
    Refuted(Fault),
    Unknown,
}

/// A block and the loops around it, outermost first.
struct Site<'p> {
    block: &'p Block,
    loops: Vec<&'p For>,
    /// Whether it initialises a reduction that has no terms, and does nothing else.
    only_begins: bool,
}

impl Site<'_> {
    /// How many loops around both there are.
    fn shared(&self, other: &Site<'_>) -> usize {
        self.loops.iter().zip(&other.loops).take_while(|(a, b)| a.var == b.var).count()
    }
}

/// A use of a buffer by a block.
#[derive(Clone, Copy)]
struct Touch<'p> {
    site: usize,
    buffer: BufId,
    indices: &'p [Expr],
    writes: bool,
    /// Whether a select decides that it happens at all.
    guarded: bool,
}

/// A program with what all checks want to know of it.
struct Subject<'p> {
    program: &'p Program,
    extents: Extents,
    /// The blocks that run at all, in program order.
    sites: Vec<Site<'p>>,
    /// In program order; of a block, what it reads before what it writes.
    touches: Vec<Touch<'p>>,
    /// How many loops all accesses to a buffer share, and a block under them.
    homes: Vec<Option<(usize, usize)>>,
    report: Report,
}

impl<'p> Subject<'p> {
    fn of(program: &'p Program) -> Subject<'p> {
        Subject::of_stmts(program, &program.body)
    }

    /// One of the statements of the root, with what is used elsewhere too.
    fn of_root(program: &'p Program, root: usize) -> Subject<'p> {
        let mut subject = Subject::of_stmts(program, &program.body[root..=root]);
        let others = program.body[..root].iter().chain(&program.body[root + 1..]);
        others.for_each(|stmt| {
            stmt.visit_blocks(&mut |block| {
                block.visit_buffers(&mut |buffer| {
                    if let Some((depth, _)) = &mut subject.homes[buffer.index()] {
                        *depth = 0;
                    }
                });
            });
        });
        subject
    }

    fn of_stmts(program: &'p Program, stmts: &'p [Stmt]) -> Subject<'p> {
        let mut subject = Subject {
            program,
            extents: Extents::of(program),
            sites: vec![],
            touches: vec![],
            homes: vec![None; program.buffers.len()],
            report: Report::default(),
        };
        subject.collect(stmts, &mut vec![]);
        let sites = subject.sites.iter().enumerate();
        subject.touches = sites.flat_map(|(at, site)| touches(at, site)).collect();
        for at in 0..subject.touches.len() {
            subject.find_home(subject.touches[at]);
        }
        subject
    }

    fn collect(&mut self, stmts: &'p [Stmt], loops: &mut Vec<&'p For>) {
        for stmt in stmts {
            match stmt {
                Stmt::For(l) => {
                    loops.push(l);
                    self.collect(&l.body, loops);
                    loops.pop();
                }
                Stmt::Block(block) => {
                    let mut empty = loops.iter().filter(|l| l.extent == 0).peekable();
                    let only_begins = empty.peek().is_some();
                    let of_terms = |l: &&For| serves(block, l.var, IterKind::Reduce);
                    if !only_begins || (block.has_init() && empty.all(of_terms)) {
                        self.sites.push(Site { block, loops: loops.clone(), only_begins });
                    }
                }
            }
        }
    }

    /// The innermost loops that contain all accesses to a buffer, given one more access.
    fn find_home(&mut self, touch: Touch<'p>) {
        let here = &self.sites[touch.site];
        let home = &mut self.homes[touch.buffer.index()];
        *home = Some(match *home {
            None => (here.loops.len(), touch.site),
            Some((depth, site)) => (depth.min(here.shared(&self.sites[site])), site),
        });
    }

    /// Loops around all accesses to the buffer.
    fn home(&self, buffer: BufId) -> &[&'p For] {
        self.homes[buffer.index()].map_or(&[], |(depth, site)| &self.sites[site].loops[..depth])
    }

    /// Sums are over the loops around the block from now on.
    fn bind(&mut self, site: usize) {
        self.extents.bind(&self.sites[site].block.iters);
    }

    fn block_name(&self, site: usize) -> String {
        self.sites[site].block.name.clone()
    }

    fn buffer_name(&self, buffer: BufId) -> String {
        self.program.buffer(buffer).name.clone()
    }

    fn var_name(&self, var: VarId) -> String {
        self.program.vars[var.index()].clone()
    }

    /// Counts an answer; a refuted one is an error.
    fn settle(&mut self, question: Question, answer: Answer) -> Result<(), Fault> {
        let count = &mut self.report.0[question as usize];
        match answer {
            Answer::Proven => count.proven += 1,
            Answer::Unknown => count.unknown += 1,
            Answer::Refuted(fault) => return Err(fault),
        }
        Ok(())
    }
}

/// Everything that a block reads and writes, in this order.
fn touches<'p>(site: usize, of: &Site<'p>) -> Vec<Touch<'p>> {
    let (block, mut all) = (of.block, vec![]);
    let mut read = |buffer, indices, guarded| {
        all.push(Touch { site, buffer, indices, writes: false, guarded });
    };
    let read_from = if of.only_begins { vec![] } else { block.exprs() };
    read_from.into_iter().for_each(|e| loads(e, false, &mut read));
    let writes = block.body.writes();
    if is_update(block) {
        writes.iter().for_each(|a| read(a.buffer, &a.indices, false));
    }
    let write = |a: &&'p Access| {
        let (buffer, indices) = (a.buffer, &a.indices[..]);
        Touch { site, buffer, indices, writes: true, guarded: false }
    };
    all.extend(writes.iter().map(write));
    all
}

/// Whether an iterator of a kind depends on a loop.
fn serves(block: &Block, var: VarId, kind: IterKind) -> bool {
    let is_it = &mut |e: &Expr| *e == Expr::Var(var);
    block.iters.iter().any(|iter| iter.kind == kind && iter.binding.any(is_it))
}

/// Whether the block changes what was written before.
fn is_update(block: &Block) -> bool {
    !matches!(block.body, Body::Assign { .. }) && !block.has_init()
}

/// Calls `f` on every load, and whether a select decides that it happens.
fn loads<'p>(e: &'p Expr, guarded: bool, f: &mut impl FnMut(BufId, &'p [Expr], bool)) {
    match e {
        Expr::Const(_) | Expr::Var(_) => {}
        Expr::Load(buffer, indices) => {
            indices.iter().for_each(|i| loads(i, guarded, f));
            f(*buffer, indices, guarded);
        }
        Expr::Unary(_, x) | Expr::Cast(_, x) => loads(x, guarded, f),
        Expr::Binary(_, a, b) => [a, b].into_iter().for_each(|x| loads(x, guarded, f)),
        Expr::Select(c, a, b) => {
            loads(c, guarded, f);
            [a, b].into_iter().for_each(|x| loads(x, true, f));
        }
    }
}
