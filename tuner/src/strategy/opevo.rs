//! OpEvo: evolution on the topology of the space, without a cost model.
//!
//! The fastest programs are parents. A child takes each decision from one of them, in proportion to their
//! throughput, and then every decision takes a random walk: mostly none or a short one, so that children stay
//! near what is known to be good. Nothing is measured twice.

use std::collections::HashSet;

use ansc_sketch::Trace;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::topology::walk;
use super::{Random, SearchStrategy};
use crate::candidate::{Candidate, Search};

/// The numbers of the paper's experiments.
#[derive(Clone, Debug)]
pub struct OpEvoOptions {
    pub parents: usize,
    /// The probability to walk on.
    pub q: f64,
}

impl Default for OpEvoOptions {
    fn default() -> OpEvoOptions {
        OpEvoOptions { parents: 8, q: 0.5 }
    }
}

/// Children that are invalid or known already, one after another, before random samples take their place.
const TRIES: usize = 200;

pub struct OpEvo {
    options: OpEvoOptions,
    random: StdRng,
    fallback: Random,
}

/// A trace and its throughput.
type Parent<'a> = (&'a Trace, f64);

impl OpEvo {
    pub fn new(options: OpEvoOptions, seed: u64) -> OpEvo {
        OpEvo { options, random: StdRng::seed_from_u64(seed), fallback: Random::new(seed) }
    }

    fn parents<'a>(&self, search: &'a Search) -> Vec<Parent<'a>> {
        let timed =
            search.measured.iter().filter_map(|(c, o)| Some((&c.trace, 1.0 / o.seconds()?)));
        let mut parents: Vec<Parent<'a>> = timed.collect();
        parents.sort_by(|a, b| b.1.total_cmp(&a.1));
        parents.truncate(self.options.parents);
        parents
    }

    /// Decisions of parents of one sketch, mixed, then moved.
    fn child(&mut self, parents: &[Parent<'_>]) -> Trace {
        let random = &mut self.random;
        let first = draw(parents, random).0;
        let sketch = first.clone().undecided();
        let kin: Vec<Parent<'_>> =
            parents.iter().filter(|(t, _)| (*t).clone().undecided() == sketch).copied().collect();
        let mut child = first.clone();
        for step in first.choices() {
            if let Some(decision) = draw(&kin, random).0.steps[step].decision() {
                child = child.decide(step, decision.clone());
            }
            child = walk(&child, step, self.options.q, random);
        }
        child
    }
}

/// One of the parents, in proportion to their throughput.
fn draw<'a>(parents: &[Parent<'a>], random: &mut dyn Rng) -> Parent<'a> {
    let total: f64 = parents.iter().map(|(_, fitness)| fitness).sum();
    let mut at = random.random_range(0.0..1.0) * total;
    for parent in parents {
        if at < parent.1 {
            return *parent;
        }
        at -= parent.1;
    }
    *parents.last().expect("there are parents")
}

impl SearchStrategy for OpEvo {
    fn name(&self) -> &'static str {
        "opevo"
    }

    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        let parents = self.parents(search);
        if parents.len() < self.options.parents {
            return self.fallback.propose(search, n);
        }
        let mut known = HashSet::new();
        let mut proposed = vec![];
        let mut tries = 0;
        while proposed.len() < n && tries < TRIES {
            let child = self.child(&parents);
            tries += 1;
            let made = Candidate::of(&search.task, &child, &mut self.random);
            if let Some(new) = made.filter(|c| !search.is_seen(c) && known.insert(c.program)) {
                proposed.push(new);
                tries = 0;
            }
        }
        let rest = self.fallback.propose(search, n - proposed.len());
        proposed.extend(rest.into_iter().filter(|c| known.insert(c.program)));
        proposed
    }
}
