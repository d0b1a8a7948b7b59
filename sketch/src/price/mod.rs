//! The price of a program, told without running it.
//!
//! # The model
//! A core issues a few instructions in a cycle, of those that [`budget`] counts; and it waits for
//! what does not come from the first cache. The longer of the two hides most of the other:
//!
//! ```text
//! cycles = max(issue, traffic) + a share of the smaller
//! traffic = for each level of cache, the bytes that come from the next one / bytes in a cycle
//! ```
//! If a cache holds all that the program touches, nothing comes: it was there before. Otherwise, if
//! it holds what an iteration of a loop touches, or what neighbouring statements touch, that comes
//! once; where they touch more, each iteration and each statement fetches for itself.
//!
//! The model leaves out latencies, in the shadow of which other instructions run; threads;
//! alignment. Prices are for comparing programs of one subgraph, and not for saying how long one
//! takes.

pub(crate) mod amx;
pub mod gpu;
pub(crate) mod mma;
pub mod nest;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::slice;

use ansc_graph::BufId;

use crate::budget;
use crate::machine::{CACHES, Machine, Parts};
use crate::program::{Program, Stmt};
use nest::{Nest, Part, nests, part_bytes};

/// Cycles of a run of a finished program on one core, as measurements correct them.
pub fn cycles(program: &Program, machine: &Machine) -> f64 {
    corrected(program, machine, Parts::of(program, machine))
}

/// The same of a program whose analytic price is known.
pub(crate) fn corrected(program: &Program, machine: &Machine, parts: Parts) -> f64 {
    match &machine.correction.0 {
        Some(learned) => parts.cycles() * learned.correction(program, parts).exp(),
        None => parts.cycles(),
    }
}

impl Parts {
    /// Those of a run of a finished program on one core.
    pub fn of(program: &Program, machine: &Machine) -> Parts {
        Parts {
            issue: budget::issued(program, machine) as f64 / budget::ISSUED,
            missed: CACHES.map(|cache| missed(program, cache.bytes)),
        }
    }
}

/// Bytes that come from beyond a cache while the program runs. If all that it touches fits, that
/// was there before.
fn missed(program: &Program, cache: f64) -> f64 {
    if touched(program, &program.body).bytes(program) <= cache {
        return 0.0;
    }
    fetched(program, &program.body, cache)
}

/// Bytes that come while statements run after one another: if some fit together, all that these
/// touch comes once.
fn fetched(program: &Program, stmts: &[Stmt], cache: f64) -> f64 {
    let (mut before, mut together) = (0.0, Touched::default());
    for stmt in stmts {
        let alone = touched(program, slice::from_ref(stmt));
        let more = together.clone().and(alone.clone());
        together = if more.bytes(program) <= cache {
            more
        } else {
            before += together.bytes(program);
            alone
        };
        if together.bytes(program) > cache {
            before += by_turns(program, stmt, cache);
            together = Touched::default();
        }
    }
    before + together.bytes(program)
}

/// The same for a statement that touches more than fits.
fn by_turns(program: &Program, stmt: &Stmt, cache: f64) -> f64 {
    match stmt {
        // Each turn fetches for itself.
        Stmt::For(l) if touched(program, &l.body).bytes(program) > cache => {
            l.extent as f64 * fetched(program, &l.body, cache)
        }
        // Data that neighbouring turns share stay; the rest comes once.
        _ => touched(program, slice::from_ref(stmt)).bytes(program),
    }
}

/// The part of each buffer that statements touch. Accesses of a buffer share what lies between the
/// first and the last of their places.
#[derive(Clone, Default)]
struct Touched(BTreeMap<BufId, Part>);

/// The parts that statements touch while the loops around them stand still.
fn touched(program: &Program, stmts: &[Stmt]) -> Touched {
    let nests = stmts.iter().flat_map(|stmt| nests(program, stmt));
    let of_nest = |all: Touched, nest: Nest<'_>| {
        let parts = nest.accesses.iter().map(|a| (a.buffer, nest.part(a, 0)));
        all.with(parts)
    };
    nests.fold(Touched::default(), of_nest)
}

impl Touched {
    fn with(mut self, parts: impl Iterator<Item = (BufId, Part)>) -> Touched {
        for (buffer, part) in parts {
            match self.0.entry(buffer) {
                Entry::Vacant(entry) => _ = entry.insert(part),
                Entry::Occupied(mut entry) => {
                    for (axis, (low, high)) in entry.get_mut().iter_mut().zip(part) {
                        *axis = (axis.0.min(low), axis.1.max(high));
                    }
                }
            }
        }
        self
    }

    fn and(self, other: Touched) -> Touched {
        self.with(other.0.into_iter())
    }

    fn bytes(&self, program: &Program) -> f64 {
        self.0.iter().map(|(&buffer, part)| part_bytes(program, buffer, part)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::machine::{Correction, Corrects};

    const MACHINE: Machine = Machine::new(64, 32);

    fn price(body: &str) -> f64 {
        let text = format!(
            "program k\nx: f32[4096, 4096] input\ny: f32[4096, 4096] output\nparams x, y\n{body}"
        );
        cycles(&Program::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), &MACHINE)
    }

    /// A copy of what the last of `rows` loops runs over in vectors, from `at` of `x` to `to` of
    /// `y`.
    fn copy(rows: usize, at: &str, to: &str) -> f64 {
        price(&format!(
            "for i in 0..{rows} {{\n  for j in 0..256 {{\n    for l in 0..16 vectorized {{\n      block s (a: spatial {rows} = i, b: spatial 256 = j, c: spatial 16 = l) {{\n        y[{to}] = x[{at}]\n      }}\n    }}\n  }}\n}}\n"
        ))
    }

    /// Says that everything takes twice as long as its price.
    struct Twice;

    impl Corrects for Twice {
        fn correction(&self, _: &Program, parts: Parts) -> f64 {
            assert!(parts.cycles() > 0.0);
            2f64.ln()
        }
    }

    #[test]
    fn measurements_correct_prices() {
        let text = "program k\nx: f32[64] input\ny: f32[64] output\nparams x, y\nfor i in 0..64 {\n  block s (a: spatial 64 = i) {\n    y[a] = x[a]\n  }\n}\n";
        let program = Program::parse(text).unwrap();
        let machine = Machine { correction: Correction(Some(Arc::new(Twice))), ..MACHINE };
        let (known, plain) = (Parts::of(&program, &machine), cycles(&program, &MACHINE));
        assert_eq!(known.cycles(), plain);
        assert!((cycles(&program, &machine) / plain - 2.0).abs() < 1e-9);
    }

    #[test]
    fn elements_side_by_side_cost_less_than_those_far_apart() {
        let own = "i, add(mul(j, 16), l)";
        let (straight, crossed) = (copy(16, own, own), copy(16, "add(mul(j, 16), l), i", own));
        assert!(4.0 * straight < crossed, "{straight} {crossed}");
    }

    #[test]
    fn what_a_cache_holds_costs_less() {
        let (same, moving) = ("0, add(mul(j, 16), l)", "i, add(mul(j, 16), l)");
        let (kept, fetched) = (copy(4096, same, same), copy(4096, moving, moving));
        assert!(1.5 * kept < fetched, "{kept} {fetched}");
    }

    /// Each of two statements fits into the last cache: both do only if they touch the same.
    #[test]
    fn a_program_fits_if_all_of_it_fits() {
        let copy = |k: usize, first: usize| {
            let at = format!("add(i{k}, {first}), j{k}");
            let iters = format!("a{k}: spatial 150 = i{k}, b{k}: spatial 4096 = j{k}");
            let block = format!("    block s{k} ({iters}) {{\n      y[{at}] = x[{at}]\n    }}\n");
            format!("for i{k} in 0..150 {{\n  for j{k} in 0..4096 {{\n{block}  }}\n}}\n")
        };
        let program = |second: usize| {
            let text = format!(
                "program k\nx: f32[4096, 4096] input\ny: f32[4096, 4096] output\nparams x, y\n{}{}",
                copy(0, 0),
                copy(1, second)
            );
            Program::parse(&text).unwrap()
        };
        let (same, other) = (program(0), program(150));
        let (last, bytes) = (CACHES[2].bytes, 2.0 * 150.0 * 4096.0 * 4.0);
        assert!(bytes < last && last < 2.0 * bytes);
        assert_eq!(missed(&same, last), 0.0);
        assert_eq!(missed(&other, last), 2.0 * bytes);
        assert_eq!(missed(&same, last / 4.0), 2.0 * bytes);
    }

    /// Blocks that each copy a part of a row touch the row together.
    #[test]
    fn parts_of_one_buffer_are_added_up() {
        let part = |k: usize, length: usize| {
            let at = format!("i, add(j{k}, {})", k * length);
            let iters = format!("a{k}: spatial 4096 = i, b{k}: spatial {length} = j{k}");
            let block = format!("    block s{k} ({iters}) {{\n      y[{at}] = x[{at}]\n    }}\n");
            format!("  for j{k} in 0..{length} {{\n{block}  }}\n")
        };
        let rows = |parts: String| price(&format!("for i in 0..4096 {{\n{parts}}}\n"));
        let (whole, quarters) =
            (rows(part(0, 4096)), rows((0..4).map(|k| part(k, 1024)).collect()));
        assert!((quarters / whole - 1.0).abs() < 0.05, "{quarters} {whole}");
    }
}
