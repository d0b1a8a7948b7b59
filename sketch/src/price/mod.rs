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
//! Where an iteration of a loop touches no more than a cache holds, what the loop touches comes
//! once; where it touches more, each iteration fetches for itself.
//!
//! The model leaves out latencies, in the shadow of which other instructions run; threads;
//! alignment. Prices are for comparing programs of one subgraph, and not for saying how long one
//! takes.

pub mod gpu;
pub mod nest;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ansc_graph::BufId;

use crate::budget;
use crate::default::Machine;
use crate::program::{Program, Stmt};
use nest::{Nest, Part, nests, part_bytes};

/// How much of the smaller part the larger one does not hide.
const NOT_HIDDEN: f64 = 0.25;

/// Bytes that fit, and bytes that come from the next level in a cycle.
struct Cache {
    bytes: f64,
    per_cycle: f64,
}

/// Levels as processors have them, each core's share of the last one; what is beyond is memory.
const CACHES: [Cache; 3] = [
    Cache { bytes: 32e3, per_cycle: 32.0 },
    Cache { bytes: 768e3, per_cycle: 12.0 },
    Cache { bytes: 8e6, per_cycle: 4.0 },
];

/// Cycles of a run of a finished program on one core.
pub fn cycles(program: &Program, machine: &Machine) -> f64 {
    let issue = budget::issued(program, machine) as f64 / budget::ISSUED;
    let traffic = program.body.iter().map(|stmt| traffic(program, stmt)).sum();
    issue.max(traffic) + NOT_HIDDEN * issue.min(traffic)
}

fn traffic(program: &Program, stmt: &Stmt) -> f64 {
    CACHES.iter().map(|cache| fetched(program, stmt, cache.bytes) / cache.per_cycle).sum()
}

/// Bytes that come from beyond a cache while a statement runs. If all that it touches fits, that
/// was there before.
fn fetched(program: &Program, stmt: &Stmt, cache: f64) -> f64 {
    let nests = nests(program, stmt);
    let total = |touched: &Touched| touched.values().sum::<f64>();
    let whole = touched(program, &nests, 0);
    if total(&whole) <= cache {
        return 0.0;
    }
    let Stmt::For(l) = stmt else { return total(&whole) };
    // Data that neighbouring iterations share stay; the rest comes once.
    if total(&touched(program, &nests, 1)) <= cache {
        return total(&whole);
    }
    let inside = |stmt| fetched(program, stmt, cache).max(0.0);
    l.extent as f64 * l.body.iter().map(inside).sum::<f64>()
}

type Touched = BTreeMap<BufId, f64>;

/// Bytes of each buffer that are touched while the loops from `depth` on run. Accesses of a buffer
/// share what lies between the first and the last of their places.
fn touched(program: &Program, nests: &[Nest<'_>], depth: usize) -> Touched {
    let mut all: BTreeMap<BufId, Part> = BTreeMap::new();
    for nest in nests {
        for access in &nest.accesses {
            let part = nest.part(access, depth.min(nest.loops.len()));
            match all.entry(access.buffer) {
                Entry::Vacant(entry) => _ = entry.insert(part),
                Entry::Occupied(mut entry) => {
                    for (axis, (low, high)) in entry.get_mut().iter_mut().zip(part) {
                        *axis = (axis.0.min(low), axis.1.max(high));
                    }
                }
            }
        }
    }
    all.into_iter().map(|(buffer, part)| (buffer, part_bytes(program, buffer, &part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Blocks that each copy a part of a row touch the row together.
    #[test]
    fn parts_of_one_buffer_are_added_up() {
        let part = |k: usize, length: usize| {
            let at = format!("a{k}, add(b{k}, {})", k * length);
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
