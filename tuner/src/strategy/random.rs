//! Random samples of the space: what every other strategy must beat.
//!
//! Each sketch is as likely as the others, however large; its decisions are drawn by their own
//! probabilities.

use std::collections::HashSet;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use super::SearchStrategy;
use super::tried::Tried;
use crate::candidate::{Candidate, Search};

/// Passes that may give nothing new before the space counts as exhausted.
const EMPTY_PASSES: usize = 5;

/// Random numbers for one place of a search, so that threads do not matter.
pub(super) fn random_at(place: [u64; 4]) -> StdRng {
    let bytes: Vec<u8> = place.iter().flat_map(|n| n.to_le_bytes()).collect();
    StdRng::from_seed(bytes.try_into().expect("four numbers of eight bytes"))
}

/// The strategy that the module describes.
pub struct Random {
    seed: u64,
    round: u64,
    tried: Tried,
}

impl Random {
    /// A search whose samples depend on the seed alone.
    pub fn new(seed: u64) -> Random {
        Random { seed, round: 0, tried: Tried::default() }
    }

    /// Those that are invalid or were drawn before are left out. The same whatever the number of
    /// threads.
    fn draw(&self, search: &Search, n: usize, pass: usize) -> Vec<Candidate> {
        let drawn = (0..n).into_par_iter().filter_map(|place| {
            let random = &mut random_at([self.seed, self.round, pass as u64, place as u64]);
            let sketch = &search.sketches[random.random_range(0..search.sketches.len())].trace;
            let drawn = sketch.drawn(random);
            let trace = drawn.as_ref().unwrap_or(sketch);
            let made = || search.replay(trace, random);
            self.tried.may_be_new(trace).then(made).flatten()
        });
        drawn.collect()
    }
}

impl SearchStrategy for Random {
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        let mut known = HashSet::new();
        let mut proposed: Vec<Candidate> = vec![];
        let mut empty = 0;
        for pass in 0.. {
            if proposed.len() == n || empty == EMPTY_PASSES || search.sketches.is_empty() {
                break;
            }
            let before = proposed.len();
            for drawn in self.draw(search, n, pass) {
                if proposed.len() == n {
                    break;
                }
                self.tried.insert(&drawn.trace);
                if !search.is_seen(&drawn) && known.insert(drawn.program) {
                    proposed.push(drawn);
                }
            }
            empty = if proposed.len() == before { empty + 1 } else { 0 };
        }
        self.round += 1;
        proposed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Measurer, Simulated};
    use crate::testing::{elementwise, matmul, task};

    fn programs(proposed: &[Candidate]) -> Vec<u64> {
        proposed.iter().map(|c| c.program).collect()
    }

    #[test]
    fn samples_are_new_and_reproducible() {
        let mut search = Search::new(task(matmul(64, 64, 64)));
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        let mut all = HashSet::new();
        for _ in 0..3 {
            let proposed = a.propose(&search, 50);
            assert_eq!(programs(&proposed), programs(&b.propose(&search, 50)));
            assert_eq!(proposed.len(), 50);
            assert!(proposed.iter().all(|c| all.insert(c.program)));
            let outcomes = Simulated::default().measure(&search.task, &proposed).unwrap();
            proposed.iter().zip(outcomes).for_each(|(c, o)| search.add(c, o));
        }
        assert_ne!(programs(&Random::new(8).propose(&search, 9)), programs(&a.propose(&search, 9)));
    }

    #[test]
    fn sketches_are_drawn_evenly() {
        let search = Search::new(task(matmul(512, 512, 512)));
        assert!(search.sketches.len() > 1);
        let proposed = Random::new(1).propose(&search, 600);
        let of = |sketch: &ansc_sketch::rules::Sketch| {
            let same = |c: &&Candidate| c.trace.clone().undecided() == sketch.trace;
            proposed.iter().filter(same).count()
        };
        let counts: Vec<usize> = search.sketches.iter().map(of).collect();
        let expected = 600 / search.sketches.len();
        assert!(counts.iter().all(|&n| (expected / 3..expected * 3).contains(&n)), "{counts:?}");
    }

    #[test]
    fn a_small_space_ends() {
        let mut search = Search::new(task(elementwise(2, 8)));
        search.sketches.truncate(1);
        let mut random = Random::new(3);
        let all = random.propose(&search, 100);
        assert!(!all.is_empty() && all.len() < 10);
        let outcomes = Simulated::default().measure(&search.task, &all).unwrap();
        all.iter().zip(outcomes).for_each(|(c, o)| search.add(c, o));
        assert!(random.propose(&search, 100).is_empty());
    }
}
