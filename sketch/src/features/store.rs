//! Blocks as store statements: what each writes, which buffers it accesses, what it calculates.
//!
//! ```text
//! c[i, j] sum= a[i, k] * b[k, j]
//! => c[i, j] = c[i, j] + a[i, k] * b[k, j]:  c read and written, a and b read, one addition, one product
//! ```

use ansc_graph::{BinOp, BufId, Combiner, Expr};
use ansc_runtime::DType;

use super::ops::Counts;
use crate::program::{Access, Block, Body, Program};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Read,
    Write,
    ReadWrite,
}

/// All that one statement does with one buffer.
#[derive(Debug)]
pub(super) struct Accesses<'a> {
    pub(super) buffer: BufId,
    pub(super) direction: Direction,
    pub(super) indices: Vec<&'a [Expr]>,
}

#[derive(Debug)]
pub(super) struct Store<'a> {
    pub(super) buffer: BufId,
    /// The stored buffer first, then the others in order of appearance.
    pub(super) accesses: Vec<Accesses<'a>>,
    /// For one execution.
    pub(super) counts: Counts,
}

pub(super) fn stores<'a>(program: &Program, block: &'a Block) -> Vec<Store<'a>> {
    match &block.body {
        Body::Assign { dst, value } => vec![Builder::new(program, dst).value(value).done()],
        Body::Reduce { combiner, dst, value, .. } => {
            vec![Builder::new(program, dst).value(value).read(dst).combine(*combiner, dst).done()]
        }
        // Either side is a choice by the same comparison.
        Body::ArgReduce { best, position, value, term, .. } => vec![
            Builder::new(program, best).value(value).read(best).choose(best).done(),
            Builder::new(program, position)
                .value(value)
                .value(term)
                .read(best)
                .read(position)
                .choose(best)
                .done(),
        ],
    }
}

struct Builder<'a, 'p> {
    program: &'p Program,
    store: Store<'a>,
}

impl<'a> Builder<'a, '_> {
    fn new<'p>(program: &'p Program, dst: &'a Access) -> Builder<'a, 'p> {
        let write = Accesses {
            buffer: dst.buffer,
            direction: Direction::Write,
            indices: vec![&dst.indices],
        };
        let counts = Counts::default();
        Builder { program, store: Store { buffer: dst.buffer, accesses: vec![write], counts } }
    }

    fn value(mut self, value: &'a Expr) -> Self {
        let program = self.program;
        self.store.counts.count(value, &|b| program.buffer(b).ty.dtype);
        value.visit(&mut |e| {
            if let Expr::Load(buffer, indices) = e {
                self.load(*buffer, indices);
            }
        });
        self
    }

    fn read(mut self, access: &'a Access) -> Self {
        for index in &access.indices {
            self = self.value(index);
        }
        self.load(access.buffer, &access.indices);
        self
    }

    fn load(&mut self, buffer: BufId, indices: &'a [Expr]) {
        let Some(known) = self.store.accesses.iter_mut().find(|a| a.buffer == buffer) else {
            let direction = Direction::Read;
            self.store.accesses.push(Accesses { buffer, direction, indices: vec![indices] });
            return;
        };
        if known.direction == Direction::Write {
            known.direction = Direction::ReadWrite;
        }
        if !known.indices.contains(&indices) {
            known.indices.push(indices);
        }
    }

    fn combine(mut self, combiner: Combiner, dst: &Access) -> Self {
        let op = match combiner {
            Combiner::Sum => BinOp::Add,
            Combiner::Prod => BinOp::Mul,
            Combiner::Max | Combiner::ArgMax { .. } => BinOp::Max,
            Combiner::Min | Combiner::ArgMin { .. } => BinOp::Min,
        };
        self.store.counts.binary(op, self.dtype(dst));
        self
    }

    fn choose(mut self, best: &Access) -> Self {
        self.store.counts.binary(BinOp::Lt, self.dtype(best));
        self.store.counts.select();
        self
    }

    fn dtype(&self, access: &Access) -> DType {
        self.program.buffer(access.buffer).ty.dtype
    }

    fn done(self) -> Store<'a> {
        self.store
    }
}
