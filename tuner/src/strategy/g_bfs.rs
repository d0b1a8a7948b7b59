//! Greedy best-first search: from the fastest program that was not expanded yet to its neighbours.
//!
//! The queue holds what was measured, the fastest first. The head is taken out, and some of its neighbours
//! that were not measured yet are. It begins with the programs that are not tiled at all.

use std::collections::HashSet;

use ansc_sketch::Trace;
use ansc_sketch::trace::{Decision, Instruction, Recorder};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::SearchStrategy;
use super::topology::neighbours;
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

    /// The first option of every decision, which for a tile is the one that has all iterations outermost.
    fn starts(&mut self, search: &Search) -> Vec<Candidate> {
        let start = |sketch: &Trace| {
            let recorder = Recorder::of_task(search.task.clone());
            let decided = sketch.choose_on(recorder, &mut |options| untiled(options)).ok()?;
            Some(decided.into_parts().1)
        };
        let starts: Vec<Trace> = search
            .sketches
            .iter()
            .filter_map(|s| start(&s.trace).or(Some(s.trace.clone())))
            .collect();
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
        let mut all: Vec<Trace> = vec![];
        for step in trace.choices() {
            if matches!(trace.steps[step], Instruction::SampleComputeLocation { .. }) {
                all.push(trace.clone().undecide(step));
            }
            let near = neighbours(&trace.steps[step]);
            all.extend(near.into_iter().map(|d| trace.clone().decide(step, d)));
        }
        for i in (1..all.len()).rev() {
            all.swap(i, self.random.random_range(0..=i));
        }
        all
    }
}

/// The position of the tile that is `[extent, 1, .., 1]`; of anything else the first option.
fn untiled(options: &[Decision]) -> usize {
    let whole = |d: &Decision| matches!(d, Decision::Tile(t) if t[1..].iter().all(|&n| n == 1));
    options.iter().position(whole).unwrap_or(0)
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
    use crate::measure::{Measurer, Simulated};
    use crate::strategy::Grid;
    use crate::testing::{matmul, task};

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
        let space = || {
            let mut search = Search::new(task(matmul(6, 16, 5)));
            search.sketches.truncate(1);
            search
        };
        let (mut all, mut found) = (space(), space());
        exhaust(Grid::new(), &mut all);
        exhaust(GBfs::new(usize::MAX, 0), &mut found);
        assert_eq!(found.measured.len(), all.measured.len());
        assert_eq!(found.best().unwrap().1, all.best().unwrap().1);
    }
}
