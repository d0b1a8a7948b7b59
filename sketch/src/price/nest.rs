//! A block, the loops around it, and what it reaches of its buffers.

use ansc_graph::{BufId, Expr, TensorType, VarId, arith};

use crate::program::{Block, Body, For, ForKind, Program, Stmt};

pub struct Nest<'a> {
    program: &'a Program,
    /// Outermost first.
    pub loops: Vec<&'a For>,
    pub block: &'a Block,
    pub accesses: Vec<Reach<'a>>,
}

/// An element that the block reads or writes.
pub struct Reach<'a> {
    pub buffer: BufId,
    pub indices: &'a [Expr],
    pub is_written: bool,
}

/// How an access moves from one turn of a loop to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stride {
    Same,
    Next,
    Far,
}

/// The first and the last place along each axis of a buffer.
pub type Part = Vec<(i64, i64)>;

/// Bytes of a line of a cache.
pub(crate) const LINE: f64 = 64.0;

/// Bytes of a part of a buffer, in whole pieces of 64 bytes.
pub(super) fn part_bytes(program: &Program, buffer: BufId, part: &Part) -> f64 {
    let buffer = program.buffer(buffer);
    bytes_of(&buffer.ty, if buffer.scope.is_private() { 1.0 } else { LINE }, part)
}

/// Bytes of a part of a tensor, in whole pieces of `line` bytes.
pub(crate) fn bytes_of(ty: &TensorType, line: f64, part: &Part) -> f64 {
    let shape = &ty.shape;
    let length =
        |(&(low, high), &n): (&(i64, i64), &usize)| ((high - low + 1).max(1) as f64).min(n as f64);
    let extents: Vec<f64> = part.iter().zip(shape).map(length).collect();
    // Whole rows lie side by side, and are one.
    let whole = extents.iter().zip(shape).rev().take_while(|(e, n)| **e >= **n as f64).count();
    let (rows, row) = extents.split_at(extents.len().saturating_sub(whole + 1));
    let (rows, row) = (rows.iter().product::<f64>(), row.iter().product::<f64>());
    rows * (row * ty.dtype.size() as f64 / line).ceil() * line
}

/// Every block below a statement.
pub fn nests<'a>(program: &'a Program, stmt: &'a Stmt) -> Vec<Nest<'a>> {
    let mut found = vec![];
    collect(program, stmt, &mut vec![], &mut found);
    found
}

fn collect<'a>(
    program: &'a Program,
    stmt: &'a Stmt,
    loops: &mut Vec<&'a For>,
    found: &mut Vec<Nest<'a>>,
) {
    match stmt {
        Stmt::Block(block) => {
            let (loops, accesses) = (loops.clone(), accesses(block));
            found.push(Nest { program, loops, block, accesses });
        }
        Stmt::For(l) => {
            loops.push(l);
            l.body.iter().for_each(|s| collect(program, s, loops, found));
            loops.pop();
        }
    }
}

fn accesses(block: &Block) -> Vec<Reach<'_>> {
    let reads = block.body.value().loads().into_iter();
    let reads = reads.map(|(buffer, indices)| Reach { buffer, indices, is_written: false });
    let writes = block.body.writes().into_iter();
    let writes = writes.map(|a| Reach { buffer: a.buffer, indices: &a.indices, is_written: true });
    reads.chain(writes).collect()
}

impl Nest<'_> {
    pub fn is_reduction(&self) -> bool {
        !matches!(self.block.body, Body::Assign { .. })
    }

    /// How often the loops outside of `depth` run what is inside.
    pub fn turns(&self, depth: usize) -> f64 {
        self.loops[..depth].iter().map(|l| l.extent as f64).product()
    }

    pub fn element_bytes(&self, reach: &Reach<'_>) -> f64 {
        self.program.buffer(reach.buffer).ty.dtype.size() as f64
    }

    /// Bytes that an access touches while the loops from `depth` on run: whole pieces of 64 bytes.
    pub fn bytes(&self, reach: &Reach<'_>, depth: usize) -> f64 {
        part_bytes(self.program, reach.buffer, &self.part(reach, depth))
    }

    /// The first and the last place along each axis that an access touches meanwhile.
    pub fn part(&self, reach: &Reach<'_>, depth: usize) -> Part {
        let shape = &self.program.buffer(reach.buffer).ty.shape;
        let inside = &self.loops[depth..];
        let ranges = |v: VarId| {
            let running = inside.iter().find(|l| l.var == v);
            Some((0, running.map_or(0, |l| l.extent as i64 - 1)))
        };
        let places = |(index, length): (&Expr, &usize)| {
            arith::bounds(index, &ranges).unwrap_or((0, *length as i64 - 1))
        };
        reach.indices.iter().zip(shape).map(places).collect()
    }

    pub fn stride(&self, reach: &Reach<'_>, var: VarId) -> Stride {
        let shape = &self.program.buffer(reach.buffer).ty.shape;
        let steps = |index: &Expr| {
            let ranges = |v: VarId| Some((0, i64::from(v == var)));
            arith::bounds(index, &ranges).map_or(2, |(low, high)| high - low)
        };
        let Some((last, outer)) = reach.indices.split_last() else { return Stride::Same };
        let outer_moves = outer.iter().zip(shape).any(|(i, n)| *n > 1 && steps(i) != 0);
        match steps(last) {
            _ if outer_moves => Stride::Far,
            0 => Stride::Same,
            1 => Stride::Next,
            _ => Stride::Far,
        }
    }
}

pub fn is_written_out(l: &For) -> bool {
    matches!(l.kind, ForKind::Unrolled | ForKind::Vectorized)
}
