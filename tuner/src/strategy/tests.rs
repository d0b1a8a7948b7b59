//! Tests of the properties that every strategy must have, and of how good each is on the simulated
//! device.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use ansc_sketch::Trace;
use xxhash_rust::xxh3::xxh3_64;

use super::{Annealing, AnnealingOptions, Kind, SearchStrategy, create};
use crate::candidate::{Candidate, Search};
use crate::lab::Space;
use crate::measure::{Measurer, Simulated};
use crate::model::{self, CostModel, Needs, Sample, SharedModel, View};
use crate::outcome::median;
use crate::testing::{matmul, product, task};

/// A search, its strategy, and the model that both teach.
struct Trial {
    name: String,
    search: Search,
    strategy: Box<dyn SearchStrategy>,
    model: SharedModel,
}

impl Trial {
    fn new(name: &str, space: &str, compute: ansc_graph::Compute, seed: u64) -> Trial {
        let mut search = Search::new(task(compute));
        search.sketches = space.parse::<Space>().unwrap().sketches(&search.task).unwrap();
        let model: SharedModel = Arc::new(RwLock::new(model::create("hist", seed).unwrap()));
        let strategy = match name {
            // Fewer walks, so that the test is not long.
            "annealing" => {
                let options = AnnealingOptions { points: 32, ..AnnealingOptions::default() };
                Box::new(Annealing::new(options, model.clone(), seed))
            }
            _ => create(name, &model, seed).unwrap(),
        };
        Trial { name: name.into(), search, strategy, model }
    }

    /// Measures what the strategy proposes; it must be new.
    fn round(&mut self, n: usize) -> Vec<Candidate> {
        let proposed = self.strategy.propose(&self.search, n);
        let name = &self.name;
        let programs: HashSet<u64> = proposed.iter().map(|c| c.program).collect();
        assert!(proposed.len() <= n && programs.len() == proposed.len(), "{name}");
        assert!(!proposed.iter().any(|c| self.search.is_seen(c)), "{name} repeats itself");
        let outcomes = Simulated::default().measure(&self.search.task, &proposed).unwrap();
        proposed.iter().zip(outcomes).for_each(|(c, o)| self.search.add(c, o));
        let mut model = self.model.write().unwrap_or_else(PoisonError::into_inner);
        let samples: Vec<Sample> = self.search.samples(0, model.needs()).collect();
        model.train(&samples);
        proposed
    }

    fn best(&self) -> f64 {
        self.search.best().unwrap().1
    }
}

/// Reads traces, and is never shown a program. What it likes is arbitrary.
struct Blind;

impl CostModel for Blind {
    fn name(&self) -> &'static str {
        "blind"
    }

    fn needs(&self) -> Needs {
        Needs::Trace
    }

    fn train(&mut self, samples: &[Sample]) {
        assert!(samples.iter().all(|s| s.features.is_none()));
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        let liked = |trace: &Trace| (xxh3_64(trace.to_string().as_bytes()) % 1000) as f32;
        let score = |c: &View<'_>| {
            assert!(c.features.is_none() && c.trace.is_decided());
            liked(c.trace)
        };
        candidates.iter().map(score).collect()
    }
}

#[test]
fn models_of_traces_are_shown_no_program() {
    for name in ["evolutionary", "annealed-evolution", "annealing"] {
        for space in ["all", "rules"] {
            let trial = |seed| {
                let mut trial = Trial::new(name, space, matmul(48, 32, 40), seed);
                *trial.model.write().unwrap() = Box::new(Blind);
                // The strategy keeps the promises that `round` checks.
                (0..3).flat_map(|_| trial.round(12)).map(|c| c.program).collect::<Vec<u64>>()
            };
            let proposed = trial(1);
            assert!(proposed.len() > 24, "{name}, {space}: {}", proposed.len());
            assert_eq!(proposed, trial(1), "{name}, {space}");
            assert_ne!(proposed, trial(2), "{name}, {space}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_proposals() {
    for name in Kind::names() {
        let run = |seed| -> Vec<u64> {
            let mut trial = Trial::new(name, "all", matmul(48, 32, 40), seed);
            // The third round of 40 is the first that annealing plans.
            let rounds = if name == "annealing" { 3 } else { 2 };
            let mut proposed: Vec<u64> = vec![];
            // As published, some strategies take no more than a few candidates in a round.
            for round in 0..12 {
                if round >= rounds && proposed.len() > 40 {
                    break;
                }
                proposed.extend(trial.round(40).iter().map(|c| c.program));
            }
            proposed
        };
        let (first, again) = (run(5), run(5));
        assert_eq!(first, again, "{name}");
        assert!(first.len() > 40, "{name}");
        assert!(name == "grid" || run(6) != first, "{name}");
    }
}

#[test]
fn the_optimum_of_a_small_space_is_found() {
    let space = || ("SRSR", product(8, 16, 4));
    let all = {
        let mut grid = Trial::new("grid", space().0, space().1, 0);
        while !grid.round(100).is_empty() {}
        grid
    };
    let size = all.search.measured.len();
    assert!(size > 50, "{size}");
    for name in Kind::names() {
        let mut trial = Trial::new(name, space().0, space().1, 1);
        while trial.search.measured.len() < size && !trial.round(16).is_empty() {}
        assert_eq!(trial.best(), all.best(), "{name}");
    }
}

/// In the space of the paper on G-BFS and N-A2C, of which so many trials are 0.1%.
#[test]
fn strategies_beat_random_samples() {
    const TRIALS: usize = 320;
    const SEEDS: u64 = 3;
    let best = |name: &str| {
        // Strategies that ask a model search for long in each round, so their rounds are larger.
        let per_round = if ["evolutionary", "annealing"].contains(&name) { 64 } else { 8 };
        let run = |seed| {
            let mut trial = Trial::new(name, "SSRSRS", product(512, 512, 512), seed);
            while trial.search.measured.len() < TRIALS && !trial.round(per_round).is_empty() {}
            trial.best()
        };
        let all: Vec<f64> = (0..SEEDS).map(run).collect();
        median(&all)
    };
    let random = best("random");
    println!("random: {:.3} ms", random * 1e3);
    // Those that learn a network first need more trials than a test has time for.
    for name in ["evolutionary", "opevo"] {
        let start = std::time::Instant::now();
        let found = best(name);
        println!(
            "{name}: {:.3} ms, {:.2} of random, {:.1} s",
            found * 1e3,
            found / random,
            start.elapsed().as_secs_f64()
        );
        assert!(found < random, "{name}: {found} and {random}");
    }
}
