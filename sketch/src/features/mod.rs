//! The numbers of a program that a cost model sees: 164 for each buffer that is stored to.
//!
//! In: a finished program (see [`finish`](crate::finish())): expressions are over loop variables
//! only. Out: one row per stored buffer, in the order of the first stores. The numbers are those of
//! Ansor's per-store features, in its layout:
//!
//! | offset | numbers | group |
//! |---|---|---|
//! | 0 | 16 | operations of the stored value, by kind (`ops`) |
//! | 16 | 3 x 11 + 8 | vectorised, unrolled, parallel loops; lengths of GPU axes (`loops`) |
//! | 57 | 5 x 18 | accessed buffers: sizes, cache lines, reuse (`access`) |
//! | 147 | 10 | arithmetic intensity over the loop levels (`intensity`) |
//! | 157 | 4 | allocation of the stored buffer (`allocation`) |
//! | 161 | 3 | surroundings of the store (`loops`) |
//!
//! A number `v` is stored as `log2(v + 1)`, which leaves one-hot entries as they are. A buffer with
//! several stores (the first value and the update of a reduction) has one row: operations add up,
//! all other numbers are those of the last store.
//!
//! ```text
//! for i in 0..64 { block (vi) { y[i] = x[i] * 2 } }
//! => one row: float_mul = log2(64 + 1), B0.bytes = log2(64 * 4 + 1), num_loops = log2(1 + 1), ..
//! ```

mod access;
mod allocation;
mod intensity;
mod loops;
mod names;
mod nest;
mod ops;
mod reach;
mod store;
mod stride;

#[cfg(test)]
mod tests;

use ansc_graph::BufId;

use crate::machine::{Machine, Parts};
use crate::program::{Block, Program, Stmt};
use allocation::Allocations;
use nest::Nest;
use store::Store;

pub use access::SLOTS;
pub use names::names;

/// Numbers per row.
pub const LEN: usize = 164;

const OPS: usize = 0;
const LOOPS: usize = OPS + ops::LEN;
const ACCESS: usize = LOOPS + loops::LEN;
const INTENSITY: usize = ACCESS + SLOTS * access::LEN;
const ALLOCATION: usize = INTENSITY + intensity::LEN;
const SURROUNDINGS: usize = ALLOCATION + allocation::LEN;
const _: () = assert!(SURROUNDINGS + loops::SURROUNDINGS == LEN);

/// A program as a cost model sees it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Features {
    /// One row for each stored buffer, in the order of the first stores.
    pub rows: Vec<[f32; LEN]>,
    /// The parts of the price; nothing costs anything if nobody asked for it.
    pub parts: Parts,
}

/// The parameters that the numbers depend on, besides the program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Bytes.
    pub cache_line: usize,
    /// Accessed buffers that a row describes: at most [`SLOTS`].
    pub max_buffers: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { cache_line: 64, max_buffers: SLOTS }
    }
}

/// The features of a finished program, for cache lines of 64 bytes.
pub fn features(program: &Program) -> Features {
    features_with(program, &Config::default())
}

/// The same with the price on a machine.
pub fn features_on(program: &Program, machine: &Machine) -> Features {
    Features { parts: Parts::of(program, machine), ..features(program) }
}

/// The features of a finished program under other assumptions about the machine.
pub fn features_with(program: &Program, config: &Config) -> Features {
    let mut extractor = Extractor {
        program,
        config,
        nest: Nest::new(program),
        allocations: Allocations::new(program),
        rows: vec![],
    };
    program.body.iter().for_each(|s| extractor.stmt(s));
    extractor.finish()
}

/// The buffers that the rows are about, in their order.
pub fn stored(program: &Program) -> Vec<BufId> {
    let mut buffers = vec![];
    for stmt in &program.body {
        stmt.visit_blocks(&mut |block| {
            for access in block.body.writes() {
                if !buffers.contains(&access.buffer) {
                    buffers.push(access.buffer);
                }
            }
        });
    }
    buffers
}

/// Numbers before they are scaled.
type Raw = [f64; LEN];

struct Extractor<'a> {
    program: &'a Program,
    config: &'a Config,
    nest: Nest<'a>,
    allocations: Allocations,
    rows: Vec<(BufId, Raw)>,
}

impl<'a> Extractor<'a> {
    fn stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Block(block) => self.block(block),
            Stmt::For(l) => {
                self.nest.enter(l);
                l.body.iter().for_each(|s| self.stmt(s));
                self.nest.leave();
            }
        }
    }

    fn block(&mut self, block: &'a Block) {
        for store in store::stores(self.program, block) {
            self.allocations.record(&self.nest, &store);
            self.store(&store);
        }
    }

    fn store(&mut self, store: &Store<'_>) {
        let bytes = self.nest.touch(self.program, store);
        let slots = access::slots(self.program, self.config, &self.nest, store);
        let index = self.row_of(store.buffer);
        let row = &mut self.rows[index].1;
        store.counts.add_to(self.nest.iterations(), &mut row[OPS..LOOPS]);
        loops::annotations(&self.nest, &mut row[LOOPS..ACCESS]);
        access::write(&slots, &mut row[ACCESS..INTENSITY]);
        let curve = &mut row[INTENSITY..ALLOCATION];
        intensity::write(&self.nest, store.counts.floats(), &bytes, curve);
        loops::surroundings(&self.nest, &mut row[SURROUNDINGS..]);
    }

    fn row_of(&mut self, buffer: BufId) -> usize {
        let known = self.rows.iter().position(|(b, _)| *b == buffer);
        known.unwrap_or_else(|| {
            self.rows.push((buffer, [0.0; LEN]));
            self.rows.len() - 1
        })
    }

    fn finish(mut self) -> Features {
        for (buffer, row) in &mut self.rows {
            let (before, surroundings) = row.split_at_mut(SURROUNDINGS);
            let out = &mut before[ALLOCATION..];
            self.allocations.write(self.program, *buffer, surroundings[0], out);
        }
        let rows = self.rows.iter().map(|(_, row)| row.map(scale)).collect();
        Features { rows, parts: Parts::default() }
    }
}

/// Zero stays zero, and so does the sign.
fn scale(v: f64) -> f32 {
    match v {
        0.0 => 0.0,
        v if v < 0.0 => -(1.0 - v).log2() as f32,
        v => (1.0 + v).log2() as f32,
    }
}
