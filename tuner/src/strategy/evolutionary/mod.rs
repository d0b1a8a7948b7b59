//! Evolution guided by a cost model, as Ansor and MetaSchedule search.
//!
//! A round: a population of random samples and of the best measured programs goes through a few
//! generations. In each, all are scored; parents are drawn in proportion to their scores and,
//! mostly, one of their decisions is changed (`mutation`) or those of two are mixed (`crossover`).
//! The best ever seen are measured, and a few random ones among them.
//!
//! A model that reads traces ([`Needs::Trace`]) is asked about traces whose programs were never
//! made: sampling and mutation draw decisions alone, and only what is proposed is replayed. What is
//! no program then is passed over for the next best.
//!
//! Replays are valid by construction: a trace that a changed decision makes invalid is dropped and
//! another parent drawn.
//!
//! By default every child takes its place in the next generation, as in both implementations. With
//! a temperature it must earn it, as MetaSchedule's paper describes: one that is less probable than
//! its parent, by `P(trace) exp(score / temperature)`, replaces it with the quotient of both as a
//! probability, which falls with the generations. `P(trace)` is how likely samples are to be it.

mod crossover;
mod mutation;
mod options;
mod point;
mod replays;
mod top;
mod wheel;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use super::SearchStrategy;
use crate::candidate::{Candidate, Search};
use crate::model::{Needs, SharedModel, View};
use mutation::mutate;
use point::Point;
use replays::Replays;
use top::Top;
use wheel::Wheel;

pub use mutation::MutationWeights;
pub use options::EvolutionOptions;

/// Tries of one place of a generation until it is given up.
const TRIES: usize = 10;
/// Passes over the initial population that may give nothing new.
const EMPTY_PASSES: usize = 5;
/// Samples that an initial population needs at least, before evolution makes sense.
const LEAST_POPULATION: usize = 50;
/// Generations as long as the model's scores are random, as in Ansor.
const UNINFORMED: usize = 2;
/// So many times as many traces as are proposed are kept, as some of them are no programs.
const SPARE: usize = 4;
/// Crossovers that may fail before a subgraph is known to be unfit for them.
const FAILED_CROSSOVERS: usize = 256;

/// The strategy that the module describes.
pub struct Evolutionary {
    options: EvolutionOptions,
    model: SharedModel,
    seed: u64,
    round: u64,
    crossovers: Crossovers,
    /// The needs of the model in this round.
    needs: Needs,
    /// The replays of this round.
    replays: Replays,
    /// Points that were measured before this round.
    seen: HashSet<u64>,
}

#[derive(Default)]
struct Crossovers {
    tried: AtomicUsize,
    made: AtomicUsize,
    /// Those that never succeed are not tried any more. Decided between generations, so that
    /// threads do not matter.
    useless: bool,
}

type Population = Vec<Arc<Point>>;

/// A candidate, and which of the last generation it came from.
struct Child {
    candidate: Arc<Point>,
    parent: usize,
}

impl Evolutionary {
    /// A search that begins with random samples.
    pub fn new(options: EvolutionOptions, model: SharedModel, seed: u64) -> Evolutionary {
        let (crossovers, replays) = (Crossovers::default(), Replays::new(Needs::Program));
        let (needs, seen) = (Needs::Program, HashSet::new());
        Evolutionary { options, model, seed, round: 0, crossovers, needs, replays, seen }
    }

    fn score(&self, search: &Search, population: &[Arc<Point>]) -> Vec<f32> {
        let views: Vec<View<'_>> = population.iter().map(|c| c.view(&search.subject)).collect();
        self.model.read().unwrap_or_else(PoisonError::into_inner).predict(&views)
    }

    /// A random number generator for one place of one generation, so that threads do not matter.
    fn random(&self, generation: usize, place: usize) -> StdRng {
        let mix = [self.seed, self.round, generation as u64, place as u64];
        let bytes: Vec<u8> = mix.iter().flat_map(|n| n.to_le_bytes()).collect();
        StdRng::from_seed(bytes.try_into().expect("four numbers of eight bytes"))
    }

    /// Random samples that were not measured, and are all different.
    fn samples(&self, search: &Search) -> Population {
        let measured = (self.options.measured * self.options.population as f64) as usize;
        let wanted = self.options.population - measured.min(search.measured.len());
        let mut known = HashSet::new();
        let mut samples = Population::new();
        let mut empty = 0;
        for pass in 0.. {
            let before = samples.len();
            let drawn: Population = (0..wanted)
                .into_par_iter()
                .filter_map(|place| {
                    let random = &mut self.random(usize::MAX - pass, place);
                    let sketch = &search.sketches[random.random_range(0..search.sketches.len())];
                    self.replays.of(search, &sketch.trace, random)
                })
                .collect();
            let fresh = |c: &Arc<Point>| !self.seen.contains(&c.id) && known.insert(c.id);
            samples.extend(drawn.into_iter().filter(fresh));
            empty = if samples.len() == before { empty + 1 } else { 0 };
            if samples.len() >= LEAST_POPULATION.min(wanted) || empty == EMPTY_PASSES {
                break;
            }
        }
        samples
    }

    fn best_measured(&self, search: &Search) -> Population {
        let mut timed: Vec<(f64, &Candidate)> =
            search.measured.iter().filter_map(|(c, o)| Some((o.seconds()?, c))).collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let most = (self.options.measured * self.options.population as f64) as usize;
        let point = |(_, c)| Arc::new(Point::of(c, self.needs));
        timed.into_iter().take(most).map(point).collect()
    }

    fn children(
        &self,
        search: &Search,
        parents: &[Arc<Point>],
        scores: &[f32],
        generation: usize,
    ) -> Vec<Child> {
        let wheel = Wheel::new(scores);
        let child = |place| {
            let random = &mut self.random(generation, place);
            for _ in 0..TRIES {
                let parent = wheel.draw(random);
                if let Some(candidate) = self.child(search, parents, parent, &wheel, random) {
                    return Child { candidate, parent };
                }
            }
            let parent = wheel.draw(random);
            Child { candidate: parents[parent].clone(), parent }
        };
        (0..self.options.population).into_par_iter().map(child).collect()
    }

    /// A copy, a mutation, or a cross with another parent; none if that is not valid.
    fn child(
        &self,
        search: &Search,
        parents: &[Arc<Point>],
        parent: usize,
        wheel: &Wheel,
        random: &mut StdRng,
    ) -> Option<Arc<Point>> {
        let drawn = random.random_range(0.0..1.0);
        let parent = &parents[parent];
        if drawn < self.options.mutation {
            let usual = || MutationWeights::ansor(search.task.gpu.is_some());
            let weights = self.options.weights.clone().unwrap_or_else(usual);
            let mutated = mutate(&parent.trace, &weights, random)?;
            return self.replays.of(search, &mutated, random);
        }
        let crosses = drawn < self.options.mutation + self.options.crossover;
        if !crosses || self.crossovers.useless {
            return Some(parent.clone());
        }
        let other = &parents[wheel.draw(random)];
        if other.id == parent.id {
            return Some(parent.clone());
        }
        self.cross(search, parent, other, random)
    }

    fn cross(
        &self,
        search: &Search,
        a: &Point,
        b: &Point,
        random: &mut StdRng,
    ) -> Option<Arc<Point>> {
        self.crossovers.tried.fetch_add(1, Ordering::Relaxed);
        let child = crossover::cross(search, a, b, self.needs, random)?;
        self.crossovers.made.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new(child))
    }

    /// The next generation: children, or their parents where these stay.
    fn accepted(
        &self,
        parents: &[Arc<Point>],
        parent_scores: &[f32],
        children: Vec<Child>,
        scores: &mut [f32],
        generation: usize,
    ) -> Population {
        let Some(first) = self.options.temperature else {
            return children.into_iter().map(|c| c.candidate).collect();
        };
        let temperature = first / (1u64 << generation.min(60)) as f64;
        let random = &mut self.random(generation, usize::MAX);
        let settle = |(child, score): (Child, &mut f32)| {
            let before = parent_scores[child.parent];
            let parent = &parents[child.parent];
            let likely = child.candidate.trace.log_prior() - parent.trace.log_prior();
            let gain = f64::from(*score - before) / temperature;
            if random.random_range(0.0..1.0) < (likely + gain).exp().min(1.0) {
                return child.candidate;
            }
            *score = before;
            parent.clone()
        };
        children.into_iter().zip(scores).map(settle).collect()
    }

    /// Evolution by random scores is no better than sampling: there is less of it.
    fn generations(&self) -> usize {
        let informed = self.model.read().unwrap_or_else(PoisonError::into_inner).is_informed();
        if informed { self.options.generations } else { self.options.generations.min(UNINFORMED) }
    }

    /// Evolves `population`, and keeps the `most` best that were not measured.
    fn evolve(&mut self, search: &Search, mut population: Population, most: usize) -> Top {
        let mut top = Top::new(most);
        let mut offer = |population: &[Arc<Point>], scores: &[f32]| {
            for (candidate, score) in population.iter().zip(scores) {
                if !self.seen.contains(&candidate.id) {
                    top.offer(candidate, *score);
                }
            }
        };
        let mut scores = self.score(search, &population);
        offer(&population, &scores);
        for generation in 0..self.generations() {
            if population.is_empty() {
                break;
            }
            let children = self.children(search, &population, &scores, generation);
            let candidates: Population = children.iter().map(|c| c.candidate.clone()).collect();
            let mut new = self.score(search, &candidates);
            offer(&candidates, &new);
            let next = self.accepted(&population, &scores, children, &mut new, generation);
            discard(std::mem::replace(&mut population, next));
            discard(candidates);
            scores = new;
            self.crossovers.judge();
        }
        discard(population);
        top
    }

    /// Mostly the best ones, and some random ones; each side fills up for the other.
    fn pick(&self, search: &Search, n: usize, top: Top, samples: &Population) -> Vec<Candidate> {
        let random = (self.options.epsilon * n as f64).round() as usize;
        let best = top.into_best();
        let (first, rest) = best.split_at(best.len().min(n - random.min(n)));
        let mut taken = HashSet::new();
        let all = first.iter().chain(samples).chain(rest);
        let mut distinct = all.filter(|c| taken.insert(c.id));
        let mut picked: Vec<Candidate> = vec![];
        let mut programs = HashSet::new();
        // A trace alone does not tell whether it is a program, and one that is new.
        while picked.len() < n {
            let next: Vec<&Arc<Point>> = distinct.by_ref().take(n - picked.len()).collect();
            if next.is_empty() {
                break;
            }
            let made: Vec<Candidate> =
                next.into_par_iter().filter_map(|point| point.candidate(search)).collect();
            picked.extend(
                made.into_iter().filter(|c| !search.is_seen(c) && programs.insert(c.program)),
            );
        }
        picked
    }
}

impl SearchStrategy for Evolutionary {
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        self.round += 1;
        self.needs = self.model.read().unwrap_or_else(PoisonError::into_inner).needs();
        self.replays = Replays::new(self.needs);
        let measured = search.measured.iter().map(|(c, _)| match self.needs {
            Needs::Program => c.program,
            Needs::Trace => point::id(&c.trace),
        });
        self.seen = measured.collect();
        let samples = self.samples(search);
        let population = [samples.clone(), self.best_measured(search)].concat();
        let spare = if self.needs == Needs::Trace { SPARE } else { 2 };
        let top = self.evolve(search, population, spare * n);
        let picked = self.pick(search, n, top, &samples);
        self.replays.forget();
        discard(samples);
        picked
    }
}

/// On all threads: it takes long.
fn discard(population: Population) {
    population.into_par_iter().for_each(drop);
}

impl Crossovers {
    fn judge(&mut self) {
        self.useless = *self.made.get_mut() == 0 && *self.tried.get_mut() >= FAILED_CROSSOVERS;
    }
}
