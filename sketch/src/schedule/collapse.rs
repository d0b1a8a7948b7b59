//! collapse: axes that everything walks as one become one.
//!
//! ```text
//! x: f32[4, 1, 6]
//! for i in 0..4 { for j in 0..1 { for k in 0..6 { y[i, j, k] = exp(x[i, j, k]) } } }
//! => collapse()
//! x: f32[24]
//! for i_k in 0..24 { y[i_k] = exp(x[i_k]) }
//! ```
//! Elements lie in memory as before: two neighbouring axes of a buffer are one where every block
//! that touches it uses two neighbouring iterators of its own there, and nowhere else one without
//! the other; or the quotient and the rest of one index. Axes of one element vanish.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::{BinOp, BufId, Expr, VarId};

use super::error::{Cause, Failure};
use super::{Result, Schedule};
use crate::program::{Block, For, ForKind, Iter, Program, Stmt};
use crate::tree;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Nothing was done to the program yet but inlining: each block has a nest of serial loops of
    /// its own, which are its iterators.
    pub fn collapse(&mut self) -> Result<()> {
        self.apply("collapse", collapse)
    }
}

fn collapse(program: &mut Program) -> Checked<()> {
    program.body.iter().try_for_each(|nest| own_block(nest).map(drop))?;
    drop_unit_axes(program);
    while let Some(walk) = Walks::of(program).into_iter().next() {
        merge(program, &walk);
    }
    Ok(())
}

/// The block of a nest whose loops are its iterators.
pub(super) fn own_block(nest: &Stmt) -> Checked<&Block> {
    let (mut loops, mut at) = (vec![], nest);
    loop {
        match at {
            Stmt::Block(block) => {
                let is_own = |(l, iter): (&&For, &Iter)| {
                    l.kind == ForKind::Serial && iter.binding == Expr::Var(l.var)
                };
                let plain = block.predicate.is_none() && loops.len() == block.iters.len();
                let fits = plain && loops.iter().zip(&block.iters).all(is_own);
                let refused = || Cause::BindingNotPlain.at_block(&block.name);
                return fits.then_some(&**block).ok_or_else(refused);
            }
            Stmt::For(l) => match l.body.as_slice() {
                [only] => {
                    loops.push(&**l);
                    at = only;
                }
                _ => return Err(Cause::NotAChain.at_loop(super::LoopRef(l.var))),
            },
        }
    }
}

fn drop_unit_axes(program: &mut Program) {
    let shapes: Vec<Vec<usize>> = program.buffers.iter().map(|b| b.ty.shape.clone()).collect();
    let kept = |buffer: BufId, indices: &[Expr]| -> Vec<Expr> {
        let axes = indices.iter().zip(&shapes[buffer.index()]);
        axes.filter(|(_, extent)| **extent != 1).map(|(index, _)| index.clone()).collect()
    };
    rebuild(program, &|_, loops, block| {
        let is_unit = |iter: &Iter| iter.extent == 1;
        let units: BTreeSet<VarId> =
            block.iters.iter().filter(|i| is_unit(i)).map(|i| i.var).collect();
        let zero = |v: VarId| units.contains(&v).then(|| Expr::int(0));
        block.visit_exprs_mut(&mut |e| *e = e.substitute(&zero));
        index_by(block, &kept);
        block.iters.retain(|iter| !is_unit(iter));
        loops.retain(|l| l.extent != 1);
    });
    for buffer in program.buffers.iter_mut() {
        buffer.ty.shape.retain(|extent| *extent != 1);
    }
}

/// Pairs of axes of buffers, by the first one, and pairs of iterators of blocks, which all are one
/// or none is.
#[derive(Default)]
struct Walks {
    axes: BTreeSet<(BufId, usize)>,
    /// The nest, and the place of the first iterator of its block.
    iters: BTreeSet<(usize, usize)>,
}

/// A pair of axes, or of iterators.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pair {
    Axes(BufId, usize),
    Iters(usize, usize),
}

impl Walks {
    /// All that there are.
    fn of(program: &Program) -> Vec<Walks> {
        let mut links: BTreeMap<Pair, BTreeSet<Pair>> = BTreeMap::new();
        let mut broken: BTreeSet<Pair> = BTreeSet::new();
        for (nest, block) in program.blocks().into_iter().enumerate() {
            let mut used: BTreeMap<usize, usize> = BTreeMap::new();
            for (buffer, indices) in touched(block) {
                for axis in 1..indices.len() {
                    let axes = Pair::Axes(buffer, axis - 1);
                    let extent = program.buffer(buffer).ty.shape[axis];
                    if parted(&indices[axis - 1..=axis], extent).is_some() {
                        links.entry(axes).or_default();
                        continue;
                    }
                    match pair_at(block, &indices[axis - 1..=axis], extent) {
                        Some(first) => {
                            let iters = Pair::Iters(nest, first);
                            links.entry(axes).or_default().insert(iters);
                            links.entry(iters).or_default().insert(axes);
                            *used.entry(first).or_default() += 1;
                        }
                        None => drop(broken.insert(axes)),
                    }
                }
            }
            for (first, paired) in used {
                let mentions = |at: usize| mentions(block, block.iters[at].var);
                if mentions(first) != paired || mentions(first + 1) != paired {
                    broken.insert(Pair::Iters(nest, first));
                }
            }
        }
        connected(&links)
            .into_iter()
            .filter(|all| all.is_disjoint(&broken))
            .map(Walks::new)
            .collect()
    }

    fn new(pairs: BTreeSet<Pair>) -> Walks {
        let mut walks = Walks::default();
        for pair in pairs {
            match pair {
                Pair::Axes(buffer, axis) => drop(walks.axes.insert((buffer, axis))),
                Pair::Iters(nest, first) => drop(walks.iters.insert((nest, first))),
            }
        }
        walks
    }
}

/// The place of the iterator that is the first of these two indices, if the next one is the other.
fn pair_at(block: &Block, pair: &[Expr], extent: usize) -> Option<usize> {
    let place = |e: &Expr| block.iters.iter().position(|iter| *e == Expr::Var(iter.var));
    let (first, second) = (place(&pair[0])?, place(&pair[1])?);
    let (outer, inner) = (&block.iters[first], &block.iters[second]);
    (second == first + 1 && outer.kind == inner.kind && inner.extent == extent).then_some(first)
}

/// The index of which these two are the quotient and the rest.
fn parted(pair: &[Expr], extent: usize) -> Option<&Expr> {
    let (Expr::Binary(BinOp::FloorDiv, whole, by), Expr::Binary(BinOp::FloorMod, same, modulus)) =
        (&pair[0], &pair[1])
    else {
        return None;
    };
    let by_extent = **by == Expr::index(extent) && **modulus == Expr::index(extent);
    (whole == same && by_extent).then_some(whole)
}

/// All accesses of a block, each as often as it is there.
fn touched(block: &Block) -> Vec<(BufId, &[Expr])> {
    let writes = block.body.writes().into_iter().map(|a| (a.buffer, a.indices.as_slice()));
    block.exprs().into_iter().flat_map(|e| e.loads()).chain(writes).collect()
}

fn mentions(block: &Block, var: VarId) -> usize {
    let mut n = 0;
    let count = &mut |e: &Expr| n += usize::from(*e == Expr::Var(var));
    block.exprs().into_iter().for_each(|e| e.visit(count));
    n
}

fn connected(links: &BTreeMap<Pair, BTreeSet<Pair>>) -> Vec<BTreeSet<Pair>> {
    let mut left: BTreeSet<Pair> = links.keys().copied().collect();
    let mut all = vec![];
    while let Some(first) = left.pop_first() {
        let (mut found, mut open) = (BTreeSet::from([first]), vec![first]);
        while let Some(pair) = open.pop() {
            open.extend(links[&pair].iter().filter(|next| found.insert(**next)));
        }
        left.retain(|pair| !found.contains(pair));
        // A pair that overlaps another one is merged after that.
        all.push(found);
    }
    all
}

/// Both axes, and both iterators, of each pair become one.
fn merge(program: &mut Program, walk: &Walks) {
    let shapes: Vec<Vec<usize>> = program.buffers.iter().map(|b| b.ty.shape.clone()).collect();
    let joined = |buffer: BufId, indices: &[Expr]| -> Vec<Expr> {
        let is_first = |axis: usize| walk.axes.contains(&(buffer, axis));
        let is_second = |axis: &usize| *axis > 0 && is_first(axis - 1);
        let one = |axis: usize| {
            let pair = is_first(axis).then(|| &indices[axis..=axis + 1]);
            let whole = pair.and_then(|pair| parted(pair, shapes[buffer.index()][axis + 1]));
            whole.unwrap_or(&indices[axis]).clone()
        };
        (0..indices.len()).filter(|axis| !is_second(axis)).map(one).collect()
    };
    rebuild(program, &|nest, loops, block| {
        index_by(block, &joined);
        for &(_, first) in walk.iters.iter().rev().filter(|(n, _)| *n == nest) {
            let (inner, l) = (block.iters.remove(first + 1), loops.remove(first + 1));
            block.iters[first].extent *= inner.extent;
            loops[first].extent *= l.extent;
        }
    });
    for &(buffer, axis) in walk.axes.iter().rev() {
        let shape = &mut program.buffers[buffer.index()].ty.shape;
        shape[axis] *= shape.remove(axis + 1);
    }
}

/// Makes each nest anew of its loops and its block.
fn rebuild(program: &mut Program, change: &dyn Fn(usize, &mut Vec<For>, &mut Block)) {
    let nests = std::mem::take(&mut program.body).into_iter().enumerate();
    let anew = |(number, mut at): (usize, Stmt)| {
        let mut loops = vec![];
        loop {
            match at {
                Stmt::For(mut l) => {
                    at = l.body.remove(0);
                    loops.push(l.into_inner());
                }
                Stmt::Block(mut block) => {
                    change(number, &mut loops, &mut block);
                    return tree::nest(loops, vec![Stmt::Block(block)]);
                }
            }
        }
    };
    program.body = nests.flat_map(anew).collect();
}

/// Replaces the indices of every access of the block.
fn index_by(block: &mut Block, f: &dyn Fn(BufId, &[Expr]) -> Vec<Expr>) {
    block.visit_accesses_mut(&mut |buffer, indices| *indices = f(*buffer, indices));
}
