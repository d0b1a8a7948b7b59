//! Every point of the space in a fixed order: sketch after sketch, the last decision changing
//! fastest.
//!
//! ```text
//! tile [1, 4] unroll 0, tile [1, 4] unroll 16, tile [2, 2] unroll 0, ...
//! ```
//!
//! For small spaces, where it ends and has seen everything. What a decision may be depends on those
//! before it, so the next point is found by replaying; points that are no valid program are skipped
//! with all that differ from them in later decisions only.

use std::collections::HashSet;
use std::sync::Arc;

use ansc_sketch::Task;
use ansc_sketch::trace::{Recorder, Trace};

use super::SearchStrategy;
use crate::candidate::{Candidate, Search};

/// Points that a proposal looks at. If none of so many is new and valid, the space counts as
/// exhausted.
const MOST_POINTS: usize = 100_000;

/// The strategy that the module describes.
#[derive(Debug, Default)]
pub struct Grid {
    sketch: usize,
    /// The next point of the sketch: the position of each decision among its options; zero where it
    /// is shorter.
    point: Vec<usize>,
}

impl Grid {
    /// A search at the first point of the space.
    pub fn new() -> Grid {
        Grid::default()
    }

    /// Goes on to the next point. None at the end of the space; the inner one if the point is no
    /// valid program.
    fn step(&mut self, search: &Search) -> Option<Option<Candidate>> {
        let sketch = search.sketches.get(self.sketch)?;
        let (trace, options) = self.decide(&search.task, &sketch.trace);
        self.point.resize(options.len(), 0);
        self.advance(&options);
        Some(trace.and_then(|t| search.replay_exactly(&t)))
    }

    /// The trace at the point if it is valid, and how many options each decision had that was
    /// reached.
    fn decide(&self, task: &Arc<Task>, sketch: &Trace) -> (Option<Trace>, Vec<usize>) {
        let mut counts = vec![];
        let decided = sketch.choose_on(Recorder::of_task(task.clone()), &mut |options| {
            let chosen = self.point.get(counts.len()).copied().unwrap_or(0);
            counts.push(options.len());
            chosen
        });
        (decided.ok().map(|recorder| recorder.into_parts().1), counts)
    }

    fn advance(&mut self, options: &[usize]) {
        while let Some(last) = self.point.pop() {
            if last + 1 < options[self.point.len()] {
                self.point.push(last + 1);
                return;
            }
        }
        self.sketch += 1;
    }
}

impl SearchStrategy for Grid {
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        let mut known = HashSet::new();
        let mut proposed = vec![];
        for _ in 0..MOST_POINTS {
            if proposed.len() == n {
                break;
            }
            let Some(point) = self.step(search) else { break };
            let fresh = point.filter(|c| !search.is_seen(c) && known.insert(c.program));
            proposed.extend(fresh);
        }
        proposed
    }
}

#[cfg(test)]
mod tests {
    use ansc_sketch::rules::Sketch;
    use ansc_sketch::trace::{Decision, Unfit};
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::measure::{Measurer, Simulated};
    use crate::testing::{matmul, task};

    /// Proposals of seven until there are none, each measured.
    fn enumerate(search: &mut Search) -> Vec<Candidate> {
        let mut grid = Grid::new();
        let mut all = vec![];
        loop {
            let proposed = grid.propose(search, 7);
            if proposed.is_empty() {
                return all;
            }
            let outcomes = Simulated::default().measure(&search.task, &proposed).unwrap();
            proposed.iter().zip(outcomes).for_each(|(c, o)| search.add(c, o));
            all.extend(proposed);
        }
    }

    fn count(trace: &Trace, step: usize) -> i64 {
        let step = serde_json::to_value(&trace.steps[step]).unwrap();
        step["candidates"].as_array().unwrap().len() as i64
    }

    /// All combinations of choices among few candidates, by brute force.
    fn combinations(task: &Arc<Task>, sketch: &Trace) -> HashSet<u64> {
        let mut programs = HashSet::new();
        let mut open = vec![sketch.clone()];
        for step in sketch.choices() {
            let each = |t: &Trace| {
                let t = t.clone();
                (0..count(&t, step)).map(move |i| t.clone().decide(step, Decision::Choice(i)))
            };
            open = open.iter().flat_map(each).collect();
        }
        let random = &mut StdRng::seed_from_u64(0);
        for trace in open {
            let sample = task.sample(&trace, Unfit::Refuse, random).ok();
            programs.extend(sample.map(|s| Candidate::new(task, s).program));
        }
        programs
    }

    #[test]
    fn the_whole_space_is_seen_once() {
        let task = task(matmul(6, 16, 5));
        let mut search = Search::new(task.clone());
        search.sketches.truncate(1);
        let expected = combinations(&task, &search.sketches[0].trace);
        let found = enumerate(&mut search);
        assert_eq!(found.len(), expected.len());
        assert_eq!(found.iter().map(|c| c.program).collect::<HashSet<_>>(), expected);
        assert_eq!(found[0].trace, task.untuned());
    }

    #[test]
    fn tiles_change_in_order_and_sketches_follow_each_other() {
        let mut search = Search::new(task(matmul(2, 3, 2)));
        let sampled = |s: &Sketch| s.trace.to_string().contains("_tile(");
        search.sketches.retain(sampled);
        search.sketches.truncate(2);
        let found = enumerate(&mut search);
        let sketch = |c: &Candidate| {
            let plain = c.trace.clone().undecided();
            search.sketches.iter().position(|s| s.trace == plain).unwrap()
        };
        let order: Vec<usize> = found.iter().map(sketch).collect();
        assert!(order.is_sorted() && order[order.len() - 1] == 1, "{order:?}");
        let decisions = |c: &Candidate| {
            let steps = c.trace.steps.iter();
            steps
                .filter_map(|s| match s.decision()? {
                    Decision::Tile(tile) => Some(tile.clone()),
                    Decision::Choice(_) => None,
                })
                .flatten()
                .collect::<Vec<usize>>()
        };
        let first: Vec<Vec<usize>> =
            found.iter().filter(|c| sketch(c) == 0).map(decisions).collect();
        assert!(first.is_sorted(), "{first:?}");
        assert!(found.len() > 40, "{}", found.len());
    }
}
