//! A search strategy of one's own, and how good it is beside the built-in ones.
//! `docs/src/strategies.md` explains it.
//!
//! ```text
//! cargo run --release -p ansc-tuner --example own_strategy
//! ```

use std::collections::HashSet;
use std::sync::{Arc, RwLock};

use ansc_graph::Compute;
use ansc_sketch::Machine;
use ansc_sketch::Task;
use ansc_tuner::measure::{Measurer, Simulated};
use ansc_tuner::model::{self, SharedModel};
use ansc_tuner::strategy::topology::{moved, moves};
use ansc_tuner::strategy::{self, Random};
use ansc_tuner::{Candidate, Search, SearchStrategy};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Goes from the fastest program to random neighbours of it.
struct Climb {
    random: StdRng,
    /// Where there is nothing to climb from, and where all neighbours are known.
    fallback: Random,
}

/// Neighbours that may be known or invalid, one after another, before the hill counts as climbed.
const TRIES: usize = 50;

impl Climb {
    fn new(seed: u64) -> Climb {
        Climb { random: StdRng::seed_from_u64(seed), fallback: Random::new(seed) }
    }
}

impl SearchStrategy for Climb {
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        let mut known = HashSet::new();
        let mut proposed = vec![];
        let mut tries = 0;
        if let Some((best, _)) = search.best() {
            let moves = moves(&best.trace);
            while proposed.len() < n && tries < TRIES && !moves.is_empty() {
                tries += 1;
                let chosen = moves[self.random.random_range(0..moves.len())].clone();
                let next =
                    Candidate::of(&search.task, &moved(&best.trace, chosen), &mut self.random);
                if let Some(new) = next.filter(|c| !search.is_seen(c) && known.insert(c.program)) {
                    proposed.push(new);
                    tries = 0;
                }
            }
        }
        let rest = self.fallback.propose(search, n - proposed.len());
        proposed.extend(rest.into_iter().filter(|c| known.insert(c.program)));
        proposed
    }
}

/// A matrix product, for two cores with vectors of 32 bytes.
fn task() -> Arc<Task> {
    let text = "compute(in0: f32[512, 512], in1: f32[512, 512]) -> mm {
        mm: f32[512, 512] = sum{r0: 512} mul(in0[i0, r0], in1[r0, i1])
    }";
    let machine = Machine::new(32, 16);
    let compute = Compute::parse(text).expect("a subgraph");
    Arc::new(Task { cores: 2, ..Task::on_cpu("mm", &compute, &[false; 2], &machine) })
}

/// The best time after so many trials.
fn run(mut strategy: Box<dyn SearchStrategy>, trials: usize) -> f64 {
    let mut search = Search::new(task());
    let mut device = Simulated::default();
    while search.measured.len() < trials {
        let proposed = strategy.propose(&search, 16);
        let outcomes = device.measure(&search.task, &proposed).expect("it is only computed");
        proposed.iter().zip(outcomes).for_each(|(c, o)| search.add(c, o));
    }
    search.best().map_or(f64::INFINITY, |(_, seconds)| seconds)
}

fn main() {
    let model: SharedModel =
        Arc::new(RwLock::new(model::create("hist", 0).expect("one of the names")));
    let built_in = |name| strategy::create(name, &model, 0).expect("one of the names");
    let strategies: [(&str, Box<dyn SearchStrategy>); 3] = [
        ("climb", Box::new(Climb::new(0))),
        ("random", built_in("random")),
        ("opevo", built_in("opevo")),
    ];
    for (name, strategy) in strategies {
        println!("{name:8} {:.3} ms", run(strategy, 256) * 1e3);
    }
}

#[test]
fn climbing_beats_random_samples() {
    let median = |create: &dyn Fn(u64) -> Box<dyn SearchStrategy>| {
        let mut all: Vec<f64> = (0..5).map(|seed| run(create(seed), 160)).collect();
        all.sort_by(f64::total_cmp);
        all[2]
    };
    let climbed = median(&|seed| Box::new(Climb::new(seed)));
    assert!(climbed < median(&|seed| Box::new(Random::new(seed))));
}
