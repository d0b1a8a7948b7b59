//! OpEvo: evolution on the topology of the space, without a cost model.
//!
//! The fastest programs are parents. A child takes each decision from one of them, in proportion to
//! their throughput, and then every decision takes a random walk: mostly none or a short one, so
//! that children stay near what is known to be good. Nothing is measured twice.

use std::collections::HashSet;

use ansc_sketch::Trace;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use rayon::prelude::*;

use super::topology::walk;
use super::tried::Tried;
use super::{Random, SearchStrategy};
use crate::candidate::{Candidate, Search};

/// The numbers of the paper's experiments, but for generations that are as large as a round.
#[derive(Clone, Debug)]
pub struct OpEvoOptions {
    /// The fastest programs that children are made of.
    pub parents: usize,
    /// Children of a generation at most; more than are asked for are never made.
    pub children: usize,
    /// The probability to walk on.
    pub q: f64,
}

impl Default for OpEvoOptions {
    fn default() -> OpEvoOptions {
        OpEvoOptions { parents: 8, children: usize::MAX, q: 0.5 }
    }
}

impl OpEvoOptions {
    /// With as many children as parents, however many are asked for.
    pub fn published() -> OpEvoOptions {
        OpEvoOptions { children: 8, ..OpEvoOptions::default() }
    }
}

/// Children that are invalid or known already, one after another, before random samples take their
/// place.
const TRIES: usize = 200;

/// Walks of a child that was tried before another one takes its place.
const WALKS: usize = 8;

/// The strategy that the module describes.
pub struct OpEvo {
    options: OpEvoOptions,
    random: StdRng,
    fallback: Random,
    tried: Tried,
}

/// A trace and its throughput.
type Parent<'a> = (&'a Trace, f64);

impl OpEvo {
    /// A search that begins with random samples.
    pub fn new(options: OpEvoOptions, seed: u64) -> OpEvo {
        let (random, fallback) = (StdRng::seed_from_u64(seed), Random::new(seed));
        OpEvo { options, random, fallback, tried: Tried::default() }
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

    /// Every decision takes a walk.
    fn walked(&mut self, child: Trace) -> Trace {
        let steps = child.choices();
        steps.into_iter().fold(child, |t, step| walk(&t, step, self.options.q, &mut self.random))
    }

    /// So many children that were not tried before, or fewer if too many others come one after
    /// another; and how many came in all.
    fn children(&mut self, parents: &[Parent<'_>], n: usize) -> (Vec<Trace>, usize) {
        let mut children = vec![];
        let (mut drawn, mut last) = (0, 0);
        while children.len() < n && drawn - last < TRIES {
            // One that was tried walks on, as in the paper.
            let mut child = self.child(parents);
            drawn += 1;
            for _ in 0..WALKS {
                if self.tried.may_be_new(&child) {
                    break;
                }
                child = self.walked(child);
            }
            if self.tried.insert(&child) {
                children.push(child);
                last = drawn;
            }
        }
        (children, drawn)
    }

    /// The candidates that the children make. They are the same with any number of threads.
    fn made(&mut self, search: &Search, children: Vec<Trace>) -> Vec<Candidate> {
        let seeded: Vec<(Trace, u64)> =
            children.into_iter().map(|child| (child, self.random.random())).collect();
        let made = seeded
            .into_par_iter()
            .filter_map(|(child, seed)| search.replay(&child, &mut StdRng::seed_from_u64(seed)));
        made.collect()
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
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        let n = n.min(self.options.children);
        let parents = self.parents(search);
        if parents.len() < self.options.parents {
            return self.fallback.propose(search, n);
        }
        let mut known = HashSet::new();
        let mut proposed = vec![];
        let mut barren = 0;
        while proposed.len() < n && barren < TRIES {
            let (children, drawn) = self.children(&parents, n - proposed.len());
            let made = self.made(search, children).into_iter();
            let before = proposed.len();
            proposed.extend(made.filter(|c| !search.is_seen(c) && known.insert(c.program)));
            barren = if proposed.len() == before { barren + drawn } else { 0 };
        }
        let rest = self.fallback.propose(search, n - proposed.len());
        proposed.extend(rest.into_iter().filter(|c| known.insert(c.program)));
        proposed
    }
}
