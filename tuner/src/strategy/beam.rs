//! Beam search, as schedulers did before Ansor: one decision after another, and only the best
//! beginnings go on.
//!
//! ```text
//! tile ?, unroll ?   =>   tile [4, 8] | tile [2, 16] | ..
//! the best of them   =>   tile [4, 8], unroll 0 | tile [4, 8], unroll 16 | ..
//! ```
//!
//! A beginning is judged by the program that its steps make up to the next open decision. That is
//! what the method suffers from: a cost model cannot tell what becomes of a program that is half
//! done.

use std::collections::HashSet;
use std::sync::PoisonError;

use ansc_sketch::Trace;
use ansc_sketch::trace::Decision;
use rayon::prelude::*;

use super::SearchStrategy;
use super::random::random_at;
use super::tried::key;
use crate::candidate::{Candidate, Search};
use crate::model::{SharedModel, View};

/// Beginnings that go on, for each program that is wanted, and at the least.
const SPARE: usize = 2;
const LEAST_WIDTH: usize = 32;
/// Options of a decision that are tried for each beginning.
const OPTIONS: usize = 4;
/// Searches from the start that may give nothing new before the space counts as exhausted.
const EMPTY_PASSES: usize = 3;

/// The strategy that the module describes.
pub struct Beam {
    model: SharedModel,
    seed: u64,
    pass: u64,
}

/// A sketch whose first decisions are made.
struct Beginning {
    trace: Trace,
    decided: usize,
    /// The program of the steps up to the next open decision, if they make one.
    program: Option<Candidate>,
    score: f32,
}

impl Beam {
    /// A search that asks `model`; its samples depend on the seed alone.
    pub fn new(model: SharedModel, seed: u64) -> Beam {
        Beam { model, seed, pass: 0 }
    }

    /// From the sketches to complete programs, the highest scores first.
    fn descend(&self, search: &Search, width: usize) -> Vec<Candidate> {
        let start = |trace: &Trace| Beginning {
            trace: trace.clone().undecided(),
            decided: 0,
            program: None,
            score: 0.0,
        };
        let mut open: Vec<Beginning> = search.sketches.iter().map(|s| start(&s.trace)).collect();
        let mut complete: Vec<Beginning> = vec![];
        for level in 0.. {
            let mut next = self.extended(search, &open, level);
            self.judge(search, &mut next);
            next.sort_by(|a, b| b.score.total_cmp(&a.score));
            let is_complete = |b: &Beginning| b.decided >= b.trace.choices().len();
            let (done, rest): (Vec<_>, Vec<_>) = next.into_iter().partition(is_complete);
            complete.extend(done);
            open = rest.into_iter().take(width).collect();
            if open.is_empty() {
                break;
            }
        }
        complete.sort_by(|a, b| b.score.total_cmp(&a.score));
        complete.into_iter().filter_map(|b| b.program).collect()
    }

    /// Each beginning with several options of its next decision, drawn as a sample draws them.
    fn extended(&self, search: &Search, open: &[Beginning], level: u64) -> Vec<Beginning> {
        let places = (0..open.len() * OPTIONS).into_par_iter();
        let extend = |place: usize| {
            let random = &mut random_at([self.seed, self.pass, level, place as u64]);
            let before = &open[place / OPTIONS];
            let drawn = search.replay(&before.trace, random)?;
            extend(search, before, drawn)
        };
        let all: Vec<Beginning> = places.filter_map(extend).collect();
        let mut known = HashSet::new();
        all.into_iter().filter(|beginning| known.insert(key(&beginning.trace))).collect()
    }

    /// A beginning that makes no program goes on only where there is room.
    fn judge(&self, search: &Search, all: &mut [Beginning]) {
        let model = self.model.read().unwrap_or_else(PoisonError::into_inner);
        let programs = all.iter().filter_map(|b| b.program.as_ref());
        let views: Vec<View<'_>> =
            programs.map(|p| p.view(&search.subject, model.needs())).collect();
        let mut scores = model.predict(&views).into_iter();
        for beginning in all {
            let score = beginning.program.as_ref().and_then(|_| scores.next());
            beginning.score = score.unwrap_or(f32::MIN);
        }
    }
}

/// A beginning with its next decision as it was drawn. One without further decisions is complete.
fn extend(search: &Search, before: &Beginning, drawn: Candidate) -> Option<Beginning> {
    let choices = before.trace.choices();
    let mut trace = before.trace.clone();
    if let Some(&step) = choices.get(before.decided) {
        let decision: Decision = drawn.trace.steps.get(step)?.decision()?.clone();
        trace = trace.decide(step, decision);
    }
    let decided = before.decided + 1;
    let program = match choices.get(decided) {
        Some(&next) => {
            let steps = trace.steps[..next].to_vec();
            search.replay_exactly(&Trace { steps })
        }
        None => Some(drawn),
    };
    Some(Beginning { trace, decided, program, score: 0.0 })
}

impl SearchStrategy for Beam {
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        let mut known = HashSet::new();
        let mut proposed: Vec<Candidate> = vec![];
        let mut empty = 0;
        while proposed.len() < n && empty < EMPTY_PASSES && !search.sketches.is_empty() {
            let before = proposed.len();
            let found = self.descend(search, LEAST_WIDTH.max(SPARE * n));
            self.pass += 1;
            let is_new = |c: &Candidate| !search.is_seen(c) && known.insert(c.program);
            proposed.extend(found.into_iter().filter(is_new).take(n - before));
            empty = if proposed.len() == before { empty + 1 } else { 0 };
        }
        proposed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, RwLock};

    use super::*;
    use crate::measure::{Measurer, Simulated};
    use crate::model;
    use crate::testing::{elementwise, matmul, task};

    fn shared(name: &str) -> SharedModel {
        Arc::new(RwLock::new(model::create(name, 0).unwrap()))
    }

    #[test]
    fn proposals_are_complete_new_and_reproducible() {
        let mut search = Search::new(task(matmul(64, 64, 64)));
        let (mut a, mut b) = (Beam::new(shared("price"), 7), Beam::new(shared("price"), 7));
        let mut all = HashSet::new();
        for _ in 0..3 {
            let proposed = a.propose(&search, 20);
            let programs = |all: &[Candidate]| all.iter().map(|c| c.program).collect::<Vec<_>>();
            assert_eq!(programs(&proposed), programs(&b.propose(&search, 20)));
            assert_eq!(proposed.len(), 20);
            assert!(proposed.iter().all(|c| c.trace.is_decided() && all.insert(c.program)));
            let outcomes = Simulated::default().measure(&search.task, &proposed).unwrap();
            proposed.iter().zip(outcomes).for_each(|(c, o)| search.add(c, o));
        }
    }

    #[test]
    fn what_the_model_prefers_comes_first() {
        let search = Search::new(task(matmul(256, 256, 256)));
        let mean = |name: &str| {
            let proposed = Beam::new(shared(name), 1).propose(&search, 16);
            let price = model::create("price", 0).unwrap();
            let views: Vec<View<'_>> =
                proposed.iter().map(|c| c.view(&search.subject, price.needs())).collect();
            price.predict(&views).iter().sum::<f32>() / views.len() as f32
        };
        let (by_price, by_chance) = (mean("price"), mean("random"));
        assert!(by_price > by_chance, "{by_price} {by_chance}");
    }

    #[test]
    fn a_small_space_ends() {
        let mut search = Search::new(task(elementwise(2, 8)));
        search.sketches.truncate(1);
        let mut beam = Beam::new(shared("random"), 3);
        let all = beam.propose(&search, 100);
        assert!(!all.is_empty() && all.len() < 10);
        let outcomes = Simulated::default().measure(&search.task, &all).unwrap();
        all.iter().zip(outcomes).for_each(|(c, o)| search.add(c, o));
        assert!(beam.propose(&search, 100).is_empty());
    }
}
