//! Evolution guided by a cost model, as Ansor and MetaSchedule search.
//!
//! A round: a population of random samples and of the best measured programs goes through a few generations.
//! In each, all are scored; parents are drawn in proportion to their scores and, mostly, one of their
//! decisions is changed. The best ever seen are measured, and a few random ones among them.
//!
//! Replays are valid by construction: a trace that a changed decision makes invalid is dropped and another
//! parent drawn.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, PoisonError};

use ansc_sketch::trace::Instruction;
use ansc_sketch::{Features, Trace};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use rayon::prelude::*;

use super::SearchStrategy;
use crate::candidate::{Candidate, Search};
use crate::model::SharedModel;

/// The numbers of Ansor and MetaSchedule.
#[derive(Clone, Debug)]
pub struct EvolutionOptions {
    pub population: usize,
    pub generations: usize,
    /// Share of the population that are the best measured.
    pub measured: f64,
    /// How often a child differs from its parent.
    pub mutation: f64,
    /// Share of the proposals that are random samples.
    pub epsilon: f64,
    /// How often a tile, a place or another choice is what changes, where a trace has several of them.
    pub weights: MutationWeights,
}

#[derive(Clone, Debug)]
pub struct MutationWeights {
    pub tile: f64,
    pub location: f64,
    pub choice: f64,
}

impl Default for EvolutionOptions {
    fn default() -> EvolutionOptions {
        EvolutionOptions {
            population: 512,
            generations: 4,
            measured: 0.2,
            mutation: 0.85,
            epsilon: 0.05,
            weights: MutationWeights { tile: 0.9, location: 0.05, choice: 0.05 },
        }
    }
}

/// Tries of one place of a generation until it is given up.
const TRIES: usize = 10;
/// Passes over the initial population that may give nothing new.
const EMPTY_PASSES: usize = 5;
/// Samples that an initial population needs at least, before evolution makes sense.
const LEAST_POPULATION: usize = 50;

pub struct Evolutionary {
    options: EvolutionOptions,
    model: SharedModel,
    seed: u64,
    round: u64,
}

type Population = Vec<Arc<Candidate>>;

impl Evolutionary {
    pub fn new(options: EvolutionOptions, model: SharedModel, seed: u64) -> Evolutionary {
        Evolutionary { options, model, seed, round: 0 }
    }

    fn score(&self, population: &[Arc<Candidate>]) -> Vec<f32> {
        let features: Vec<&Features> = population.iter().map(|c| c.features.as_ref()).collect();
        self.model.read().unwrap_or_else(PoisonError::into_inner).predict(&features)
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
                    Candidate::of(&search.task, &sketch.trace, random).map(Arc::new)
                })
                .collect();
            let fresh = |c: &Arc<Candidate>| !search.is_seen(c) && known.insert(c.program);
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
        timed.into_iter().take(most).map(|(_, c)| Arc::new(c.clone())).collect()
    }

    fn children(
        &self,
        search: &Search,
        parents: &[Arc<Candidate>],
        scores: &[f32],
        generation: usize,
    ) -> Population {
        let wheel = Wheel::new(scores);
        let child = |place| {
            let random = &mut self.random(generation, place);
            for _ in 0..TRIES {
                let parent = &parents[wheel.draw(random)];
                if !random.random_bool(self.options.mutation) {
                    return parent.clone();
                }
                let mutated = mutate(&parent.trace, &self.options.weights, random);
                let made = mutated.and_then(|trace| Candidate::of(&search.task, &trace, random));
                if let Some(made) = made {
                    return Arc::new(made);
                }
            }
            parents[wheel.draw(random)].clone()
        };
        (0..self.options.population).into_par_iter().map(child).collect()
    }

    /// Mostly the best ones, and some random ones; each side fills up for the other.
    fn pick(&self, n: usize, top: Top, samples: Population) -> Vec<Candidate> {
        let random = (self.options.epsilon * n as f64).round() as usize;
        let best = top.into_best();
        let (first, rest) = best.split_at(best.len().min(n - random.min(n)));
        let mut taken = HashSet::new();
        let all = first.iter().chain(&samples).chain(rest);
        let distinct = all.filter(|c| taken.insert(c.program)).take(n);
        distinct.map(|c| c.as_ref().clone()).collect()
    }
}

/// Changes one decision of the trace.
fn mutate(trace: &Trace, weights: &MutationWeights, random: &mut dyn Rng) -> Option<Trace> {
    let kinds = |wanted: Kind| -> Vec<usize> {
        trace.choices().into_iter().filter(|&i| kind(&trace.steps[i]) == wanted).collect()
    };
    let all = [
        (weights.tile, kinds(Kind::Tile)),
        (weights.location, kinds(Kind::Location)),
        (weights.choice, kinds(Kind::Choice)),
    ];
    let total: f64 = all.iter().filter(|(_, steps)| !steps.is_empty()).map(|(w, _)| w).sum();
    let mut at = random.random_range(0.0..1.0) * total;
    for (weight, steps) in all.iter().filter(|(_, steps)| !steps.is_empty()) {
        if at < *weight {
            return trace.mutated(steps[random.random_range(0..steps.len())], random);
        }
        at -= weight;
    }
    None
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tile,
    Location,
    Choice,
}

fn kind(step: &Instruction) -> Kind {
    match step {
        Instruction::SampleComputeLocation { .. } => Kind::Location,
        Instruction::SampleCategorical { .. } => Kind::Choice,
        _ => Kind::Tile,
    }
}

/// Draws in proportion to scores; where no score is positive, uniformly.
struct Wheel {
    sums: Vec<f64>,
}

impl Wheel {
    fn new(scores: &[f32]) -> Wheel {
        let positive = |s: f32| if s > 0.0 { f64::from(s) } else { 0.0 };
        let uniform = scores.iter().all(|&s| positive(s) == 0.0);
        let weights = scores.iter().map(|&s| if uniform { 1.0 } else { positive(s) });
        let sums = weights.scan(0.0, |sum, w| {
            *sum += w;
            Some(*sum)
        });
        Wheel { sums: sums.collect() }
    }

    fn draw(&self, random: &mut dyn Rng) -> usize {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let at = random.random_range(0.0..1.0) * total;
        self.sums.partition_point(|&sum| sum <= at).min(self.sums.len() - 1)
    }
}

/// The candidates of the highest scores, each program once.
struct Top {
    most: usize,
    /// By score, then by program, so that the order is the same every time.
    kept: BTreeMap<(OrderedScore, u64), Arc<Candidate>>,
    programs: HashSet<u64>,
}

#[derive(Clone, Copy, PartialEq)]
struct OrderedScore(f32);

impl Eq for OrderedScore {}

impl PartialOrd for OrderedScore {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedScore {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Top {
    fn new(most: usize) -> Top {
        Top { most, kept: BTreeMap::new(), programs: HashSet::new() }
    }

    fn offer(&mut self, candidate: &Arc<Candidate>, score: f32) {
        if !self.programs.insert(candidate.program) {
            return;
        }
        self.kept.insert((OrderedScore(score), candidate.program), candidate.clone());
        if self.kept.len() > self.most {
            self.kept.pop_first();
        }
    }

    fn into_best(self) -> Vec<Arc<Candidate>> {
        self.kept.into_values().rev().collect()
    }
}

impl SearchStrategy for Evolutionary {
    fn name(&self) -> &'static str {
        "evolutionary"
    }

    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        self.round += 1;
        let samples = self.samples(search);
        let mut population = [samples.clone(), self.best_measured(search)].concat();
        let mut top = Top::new(2 * n);
        for generation in 0..=self.options.generations {
            if population.is_empty() {
                break;
            }
            let scores = self.score(&population);
            for (candidate, score) in population.iter().zip(&scores) {
                if !search.is_seen(candidate) {
                    top.offer(candidate, *score);
                }
            }
            if generation < self.options.generations {
                population = self.children(search, &population, &scores, generation);
            }
        }
        self.pick(n, top, samples)
    }
}
