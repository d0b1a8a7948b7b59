//! Simulated annealing on a cost model, as AutoTVM searches.
//!
//! Many points walk at once. A step decides one thing of a point anew. Where the model likes the
//! new point better it is taken, else by a chance that falls as the search cools. The best points
//! that any walk came by are the plan: it is measured from its top down, its last share by random
//! samples, and then there is a new plan. The walks of one plan go on in the next. Until there is
//! something to learn from, samples are random.
//!
//! ```text
//! measured --model--> scores of 128 walks, up to 100 steps each --best 64--> plan --> measured
//! ```

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use rayon::prelude::*;

use super::random::random_at;
use super::{Random, SearchStrategy};
use crate::candidate::{Candidate, Search};
use crate::model::{SharedModel, View};

/// The numbers of AutoTVM, but that walks end after a fifth of its steps: here each costs the
/// replay of a trace.
#[derive(Clone, Debug)]
pub struct AnnealingOptions {
    /// Candidates of a plan.
    pub plan: usize,
    /// Points that walk at once.
    pub points: usize,
    /// Steps of each at most.
    pub steps: usize,
    /// Steps without a better plan after which the walks end.
    pub patience: usize,
    /// At the beginning, in units of the spread of the scores then; at the last step it is 0.
    pub temperature: f64,
    /// Share of a plan that is random samples.
    pub epsilon: f64,
}

impl Default for AnnealingOptions {
    fn default() -> AnnealingOptions {
        AnnealingOptions {
            plan: 64,
            points: 128,
            steps: 100,
            patience: 50,
            temperature: 1.0,
            epsilon: 0.05,
        }
    }
}

/// Steps that may lead to no valid program, one after another, before a point stays where it is.
const TRIES: usize = 10;
/// Steps of a plan are numbered from here on in the seeds of random numbers; before it are those of
/// new points.
const FIRST_STEP: u64 = 1;

/// The strategy that the module describes.
pub struct Annealing {
    options: AnnealingOptions,
    model: SharedModel,
    seed: u64,
    plans: u64,
    /// How many measurements were known when the last plan was made.
    learned: usize,
    points: Vec<Arc<Candidate>>,
    /// The best first.
    plan: VecDeque<Arc<Candidate>>,
    fallback: Random,
}

impl Annealing {
    /// A search that begins with random samples.
    pub fn new(options: AnnealingOptions, model: SharedModel, seed: u64) -> Annealing {
        let fallback = Random::new(seed);
        let (points, plan) = (vec![], VecDeque::new());
        Annealing { options, model, seed, plans: 0, learned: 0, points, plan, fallback }
    }

    /// Programs are looked into only for a model that needs them.
    fn score(&self, search: &Search, points: &[Arc<Candidate>]) -> Vec<f32> {
        let model = self.model.read().unwrap_or_else(PoisonError::into_inner);
        let views: Vec<View<'_>> =
            points.par_iter().map(|c| c.view(&search.subject, model.needs())).collect();
        model.predict(&views)
    }

    fn random(&self, step: u64, place: usize) -> StdRng {
        random_at([self.seed, self.plans, step, place as u64])
    }

    /// Random points for the places that have none yet.
    fn fill(&mut self, search: &Search) {
        let places = self.points.len()..self.options.points;
        let drawn = places.into_par_iter().filter_map(|place| {
            let random = &mut self.random(0, place);
            (0..TRIES).find_map(|_| sample(search, random)).map(Arc::new)
        });
        let drawn: Vec<_> = drawn.collect();
        self.points.extend(drawn);
    }

    /// Lets the points walk, and keeps the best that were not measured.
    fn make_plan(&mut self, search: &Search) {
        self.plans += 1;
        self.learned = search.measured.len();
        self.fill(search);
        let mut scores = self.score(search, &self.points);
        let mut plan = Plan::new(self.options.plan);
        plan.offer(search, &self.points, &scores);
        let hot = self.options.temperature * spread(&scores);
        let mut changed = 0;
        for step in 0..self.options.steps {
            if step - changed >= self.options.patience || self.points.is_empty() {
                break;
            }
            let temperature = hot * (1.0 - step as f64 / self.options.steps as f64);
            let next = self.neighbours(search, FIRST_STEP + step as u64);
            let next_scores = self.score(search, &next);
            if plan.offer(search, &next, &next_scores) {
                changed = step;
            }
            let random = &mut self.random(FIRST_STEP + step as u64, usize::MAX);
            for (place, (point, score)) in next.into_iter().zip(next_scores).enumerate() {
                let gain = f64::from(score) - f64::from(scores[place]);
                if random.random_range(0.0..1.0) < (gain / (temperature + 1e-9)).min(0.0).exp() {
                    (self.points[place], scores[place]) = (point, score);
                }
            }
        }
        self.plan = plan.into_best();
    }

    /// One step of every point.
    fn neighbours(&self, search: &Search, step: u64) -> Vec<Arc<Candidate>> {
        let walk = |(place, point): (usize, &Arc<Candidate>)| {
            let random = &mut self.random(step, place);
            let next = (0..TRIES).find_map(|_| neighbour(search, point, random));
            next.map_or_else(|| point.clone(), Arc::new)
        };
        self.points.par_iter().enumerate().map(walk).collect()
    }

    /// The next of the plan; none in its last share, which is for random samples.
    fn planned(&mut self) -> Option<Arc<Candidate>> {
        let random = (self.options.epsilon * self.options.plan as f64) as usize;
        (self.plan.len() > random).then(|| self.plan.pop_front()).flatten()
    }
}

fn sample(search: &Search, random: &mut dyn Rng) -> Option<Candidate> {
    let sketch = &search.sketches.get(random.random_range(0..search.sketches.len().max(1)))?;
    search.replay(&sketch.trace, random)
}

/// Differs in one decision, drawn anew. Which sketch it is counts as one of the decisions.
fn neighbour(search: &Search, point: &Candidate, random: &mut dyn Rng) -> Option<Candidate> {
    let choices = point.trace.choices();
    let sketches = usize::from(search.sketches.len() > 1);
    let at = random.random_range(0..(choices.len() + sketches).max(1));
    let next = match choices.get(at) {
        Some(&step) => search.replay(&point.trace.clone().undecide(step), random),
        None => sample(search, random),
    };
    next.filter(|c| c.program != point.program)
}

fn spread(scores: &[f32]) -> f64 {
    let n = scores.len().max(1) as f64;
    let mean = scores.iter().map(|s| f64::from(*s)).sum::<f64>() / n;
    (scores.iter().map(|s| (f64::from(*s) - mean).powi(2)).sum::<f64>() / n).sqrt()
}

/// The points of the highest scores, each program once.
struct Plan {
    most: usize,
    /// By score, then by program, so that the order is the same every time.
    kept: BTreeMap<(i64, u64), Arc<Candidate>>,
    programs: HashSet<u64>,
}

impl Plan {
    fn new(most: usize) -> Plan {
        Plan { most, kept: BTreeMap::new(), programs: HashSet::new() }
    }

    /// Whether one of them is new among the best.
    fn offer(&mut self, search: &Search, points: &[Arc<Candidate>], scores: &[f32]) -> bool {
        let mut changed = false;
        for (point, score) in points.iter().zip(scores) {
            let key = (ordered(*score), point.program);
            let low = self.kept.len() == self.most
                && self.kept.first_key_value().is_none_or(|(least, _)| key <= *least);
            if low || search.is_seen(point) || !self.programs.insert(point.program) {
                continue;
            }
            self.kept.insert(key, point.clone());
            if self.kept.len() > self.most
                && let Some((_, last)) = self.kept.pop_first()
            {
                self.programs.remove(&last.program);
            }
            changed = true;
        }
        changed
    }

    fn into_best(self) -> VecDeque<Arc<Candidate>> {
        self.kept.into_values().rev().collect()
    }
}

/// A whole number that is larger for a larger score.
fn ordered(score: f32) -> i64 {
    let bits = i64::from(score.abs().to_bits());
    if score < 0.0 { -bits } else { bits }
}

impl SearchStrategy for Annealing {
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        if search.measured.len() >= self.learned + self.options.plan {
            self.make_plan(search);
        }
        let mut known = HashSet::new();
        let mut proposed = vec![];
        while proposed.len() < n
            && let Some(next) = self.planned()
        {
            if !search.is_seen(&next) && known.insert(next.program) {
                proposed.push(next.as_ref().clone());
            }
        }
        let rest = self.fallback.propose(search, n - proposed.len());
        proposed.extend(rest.into_iter().filter(|c| known.insert(c.program)));
        proposed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_ordered_by_whole_numbers() {
        let scores = [f32::NEG_INFINITY, -2.0, -0.5, 0.0, 1e-30, 0.5, 2.0];
        assert!(scores.map(ordered).is_sorted());
        assert_eq!(ordered(-0.0), ordered(0.0));
    }

    #[test]
    fn the_spread_is_the_standard_deviation() {
        assert_eq!(spread(&[1.0, 3.0]), 1.0);
        assert_eq!(spread(&[]), 0.0);
    }
}
