//! Greedy best-first search: from the fastest program that was not expanded yet to its neighbours.
//!
//! The queue holds what was measured, the fastest first. The head is taken out, and some of its neighbours
//! that were not measured yet are. It begins with the programs that are not tiled at all.

use std::collections::HashSet;

use ansc_sketch::Trace;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::SearchStrategy;
use super::topology::{moved, moves, untiled};
use crate::candidate::{Candidate, Search};

pub struct GBfs {
    /// Neighbours of a program that are measured at most; the paper's rho.
    width: usize,
    random: StdRng,
    expanded: HashSet<u64>,
}

/// The paper's.
pub const WIDTH: usize = 5;

impl GBfs {
    pub fn new(width: usize, seed: u64) -> GBfs {
        GBfs { width, random: StdRng::seed_from_u64(seed), expanded: HashSet::new() }
    }

    fn starts(&mut self, search: &Search) -> Vec<Candidate> {
        let starts = untiled(search);
        starts.iter().filter_map(|t| Candidate::of(&search.task, t, &mut self.random)).collect()
    }

    /// What was measured and not expanded, the fastest first.
    fn queue<'a>(&self, search: &'a Search) -> Vec<&'a Candidate> {
        let open = search.measured.iter().filter(|(c, _)| !self.expanded.contains(&c.program));
        let mut timed: Vec<_> = open.filter_map(|(c, o)| Some((o.seconds()?, c))).collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        timed.into_iter().map(|(_, c)| c).collect()
    }

    /// All traces that differ from this one in one step of one decision, in random order.
    fn neighbours(&mut self, trace: &Trace) -> Vec<Trace> {
        let mut all: Vec<Trace> = moves(trace).into_iter().map(|m| moved(trace, m)).collect();
        for i in (1..all.len()).rev() {
            all.swap(i, self.random.random_range(0..=i));
        }
        all
    }
}

impl SearchStrategy for GBfs {
    fn name(&self) -> &'static str {
        "g-bfs"
    }

    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        let mut known = HashSet::new();
        let mut proposed = vec![];
        let mut take = |made: Option<Candidate>, proposed: &mut Vec<Candidate>| {
            let new = made.filter(|c| !search.is_seen(c) && known.insert(c.program));
            let is_new = new.is_some();
            proposed.extend(new);
            is_new
        };
        for start in self.starts(search) {
            take(Some(start), &mut proposed);
        }
        proposed.truncate(n);
        for head in self.queue(search) {
            if proposed.len() >= n {
                break;
            }
            let mut taken = 0;
            for near in self.neighbours(&head.trace) {
                if taken == self.width || proposed.len() == n {
                    break;
                }
                let made = Candidate::of(&search.task, &near, &mut self.random);
                taken += usize::from(take(made, &mut proposed));
            }
            // Only a program all of whose share of neighbours was taken is done with.
            if proposed.len() < n || taken == self.width {
                self.expanded.insert(head.program);
            }
        }
        proposed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Space;
    use crate::measure::{Measurer, Simulated};
    use crate::strategy::Grid;
    use crate::testing::{matmul, product, task};

    fn exhaust(mut strategy: impl SearchStrategy, search: &mut Search) {
        loop {
            let proposed = strategy.propose(search, 16);
            if proposed.is_empty() {
                return;
            }
            let outcomes = Simulated::default().measure(&search.task, &proposed).unwrap();
            proposed.iter().zip(outcomes).for_each(|(c, o)| search.add(c, o));
        }
    }

    #[test]
    fn with_all_neighbours_it_visits_all_and_finds_the_best() {
        let knobs = || {
            let mut search = Search::new(task(matmul(6, 16, 5)));
            search.sketches.truncate(1);
            search
        };
        let tiles = || {
            let mut search = Search::new(task(product(8, 12, 4)));
            search.sketches = "SRSRS".parse::<Space>().unwrap().sketches(&search.task).unwrap();
            search
        };
        for (mut all, mut found) in [(knobs(), knobs()), (tiles(), tiles())] {
            exhaust(Grid::new(), &mut all);
            exhaust(GBfs::new(usize::MAX, 0), &mut found);
            let programs = |s: &Search| -> HashSet<u64> {
                s.measured.iter().map(|(c, _)| c.program).collect()
            };
            assert!(programs(&all).len() > 10);
            assert_eq!(programs(&found), programs(&all));
            assert_eq!(found.best().unwrap().1, all.best().unwrap().1);
        }
    }
}
