//! Greedy best-first search: from the fastest program that was not expanded yet to its neighbours.
//!
//! The queue holds what was measured, the fastest first and what failed last. The head is taken
//! out, and some of its neighbours that were not measured yet are. It begins with the programs that
//! are not tiled at all.
//!
//! As published, a round is the neighbours of one head: what they take decides which is the next.
//! By default heads follow one another until there are as many neighbours as a round has room for.
//!
//! Traces that make the same program are one measurement, but have neighbours of their own: each is
//! expanded.

use std::collections::{HashMap, HashSet};

use ansc_sketch::Trace;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::SearchStrategy;
use super::topology::{moved, moves, untiled};
use super::tried::key;
use crate::candidate::{Candidate, Search};
use crate::outcome::Outcome;

/// The strategy that the module describes.
pub struct GBfs {
    /// Neighbours of a program that are measured at most; the paper's rho.
    width: usize,
    /// Heads of a round at most.
    heads: usize,
    random: StdRng,
    /// Traces that are done with.
    expanded: HashSet<u128>,
    /// Other traces of programs that were proposed before, and the programs.
    twins: Vec<(Trace, u64)>,
    met: HashSet<u128>,
}

/// The paper's.
pub const WIDTH: usize = 5;

impl GBfs {
    /// A search that measures at most `width` neighbours of a program.
    pub fn new(width: usize, seed: u64) -> GBfs {
        let random = StdRng::seed_from_u64(seed);
        let heads = usize::MAX;
        GBfs { width, heads, random, expanded: HashSet::new(), twins: vec![], met: HashSet::new() }
    }

    /// The same with one head in a round.
    pub fn published(seed: u64) -> GBfs {
        GBfs { heads: 1, ..GBfs::new(WIDTH, seed) }
    }

    fn starts(&mut self, search: &Search) -> Vec<Candidate> {
        let starts = untiled(search);
        starts.iter().filter_map(|t| search.replay(t, &mut self.random)).collect()
    }

    /// The points that were measured and not expanded, the fastest first. Those that failed come
    /// last, the latest of them first: the search walks away from a start that takes too long.
    fn queue(&self, search: &Search) -> Vec<Trace> {
        let seconds = |o: &Outcome| o.seconds().unwrap_or(f64::INFINITY);
        let latest = || search.measured.iter().rev();
        let seconds: HashMap<u64, f64> = latest().map(|(c, o)| (c.program, seconds(o))).collect();
        let measured = latest().map(|(c, _)| (&c.trace, c.program));
        let all = measured.chain(self.twins.iter().map(|(trace, program)| (trace, *program)));
        let mut open: Vec<(f64, &Trace)> =
            all.filter_map(|(trace, program)| Some((*seconds.get(&program)?, trace))).collect();
        let mut listed = HashSet::new();
        open.retain(|(_, t)| !self.expanded.contains(&key(t)) && listed.insert(key(t)));
        open.sort_by(|a, b| a.0.total_cmp(&b.0));
        open.into_iter().map(|(_, trace)| trace.clone()).collect()
    }

    /// All traces that differ from this one in one step of one decision, in random order.
    fn neighbours(&mut self, trace: &Trace) -> Vec<Trace> {
        let mut all: Vec<Trace> = moves(trace).into_iter().map(|m| moved(trace, m)).collect();
        for i in (1..all.len()).rev() {
            all.swap(i, self.random.random_range(0..=i));
        }
        all
    }

    /// Proposes a candidate, unless its program is known.
    fn take(&mut self, search: &Search, made: Candidate, round: &mut Round) -> bool {
        let is_new = !search.is_seen(&made) && round.known.insert(made.program);
        if is_new {
            round.proposed.push(made);
        } else if self.met.insert(key(&made.trace)) {
            self.twins.push((made.trace, made.program));
        }
        is_new
    }

    /// Takes neighbours of a trace until there are enough.
    fn expand(&mut self, search: &Search, head: &Trace, n: usize, round: &mut Round) {
        let mut taken = 0;
        for near in self.neighbours(head) {
            if taken == self.width || round.proposed.len() == n {
                break;
            }
            let made = search.replay(&near, &mut self.random);
            let is_new = made.is_some_and(|made| self.take(search, made, round));
            taken += usize::from(is_new);
        }
        // Only a program all of whose share of neighbours was taken is done with.
        if round.proposed.len() < n || taken == self.width {
            self.expanded.insert(key(head));
        }
    }
}

/// The candidates that a round proposes, and the hashes of their programs.
#[derive(Default)]
struct Round {
    proposed: Vec<Candidate>,
    known: HashSet<u64>,
}

impl SearchStrategy for GBfs {
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        let mut round = Round::default();
        for start in self.starts(search) {
            self.take(search, start, &mut round);
        }
        round.proposed.truncate(n);
        // Where all neighbours are known, their twins may have others.
        loop {
            let queue = self.queue(search);
            let before = round.proposed.len();
            let mut heads = 0;
            for head in &queue {
                if round.proposed.len() >= n || heads == self.heads {
                    break;
                }
                self.expand(search, head, n, &mut round);
                // A head without new neighbours is none.
                heads = usize::from(round.proposed.len() > before);
            }
            if queue.is_empty() || !round.proposed.is_empty() || n == 0 {
                return round.proposed;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Space;
    use crate::measure::{Measurer, Simulated};
    use crate::outcome::Failure;
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
    fn what_failed_is_left_by_its_neighbours() {
        let mut search = Search::new(task(product(64, 64, 64)));
        search.sketches = "SSRSRS".parse::<Space>().unwrap().sketches(&search.task).unwrap();
        let mut strategy = GBfs::new(WIDTH, 0);
        for _ in 0..20 {
            let proposed = strategy.propose(&search, 4);
            assert!(!proposed.is_empty());
            proposed.iter().for_each(|c| search.add(c, Outcome::Failed(Failure::Timeout)));
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
