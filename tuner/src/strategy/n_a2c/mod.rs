//! N-A2C: an actor and a critic learn which steps through the space lead to fast programs.
//!
//! An episode starts from the best program that is known, at first from one that is not tiled, and
//! takes a few steps to neighbours: mostly those that the actor proposes, sometimes random ones.
//! The walk measures each program that it comes by and that was not measured yet. Every step to a
//! measured program is kept in a memory of fixed size, from which both networks learn. Episodes
//! become shorter as the search goes on.
//!
//! Each sketch has its own networks and its own best program; an episode takes the sketch of a fast
//! one more often.

mod actor_critic;
mod encoding;

use std::collections::{BTreeMap, HashSet, VecDeque};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::topology::{moved, untiled};
use super::{Random, SearchStrategy};
use crate::candidate::{Candidate, Search};
use crate::nn::{Adam, Rates, draw};
use actor_critic::{ActorCritic, Transition, Weights};
use encoding::{Encoding, Way, state};

/// The paper tells the number of steps at the end; the others follow its authors' successors.
#[derive(Clone, Debug)]
pub struct NA2cOptions {
    /// How often a step follows the actor.
    pub follow: f64,
    /// Steps of an episode in the first round, and in late ones.
    pub steps: [usize; 2],
    /// The factor by which the difference between the two numbers of steps shrinks in each round.
    pub decay: f64,
    /// Neurons of a hidden layer.
    pub hidden: usize,
    /// The step of the optimiser Adam.
    pub learning_rate: f32,
    /// Steps that are remembered for each sketch.
    pub memory: usize,
    /// Steps that networks learn from at once, and how often they do in a round.
    pub batch: usize,
    /// As `batch` says.
    pub lessons: usize,
    /// How much what comes after a step counts.
    pub discount: f32,
    /// Whether all steps that lead to a program are remembered, and not only the one taken.
    pub all_steps: bool,
    /// The weight of the actor's entropy, which keeps it from being sure too early.
    pub entropy: f32,
}

impl Default for NA2cOptions {
    fn default() -> NA2cOptions {
        NA2cOptions {
            follow: 0.9,
            steps: [12, 3],
            decay: 0.8,
            hidden: 128,
            learning_rate: 1e-3,
            memory: 1024,
            batch: 64,
            lessons: 40,
            discount: 0.5,
            all_steps: false,
            entropy: 0.02,
        }
    }
}

impl NA2cOptions {
    /// Episodes of three steps throughout, and a memory of all steps to what was measured.
    pub fn published() -> NA2cOptions {
        NA2cOptions { steps: [3, 3], all_steps: true, ..NA2cOptions::default() }
    }
}

/// Episodes that may find nothing new, one after another, before random samples take their place.
const TRIES: usize = 50;

/// The strategy that the module describes.
pub struct NA2c {
    options: NA2cOptions,
    random: StdRng,
    fallback: Random,
    round: i32,
    /// Programs that are not tiled.
    starts: Vec<Candidate>,
    /// By the sketch, if it leaves something to decide.
    arms: Vec<Arm>,
}

/// The search in one sketch.
struct Arm {
    start: Candidate,
    encoding: Encoding,
    network: ActorCritic,
    adam: Adam,
    memory: VecDeque<Step>,
}

/// A step of an episode.
struct Step {
    state: Vec<f32>,
    possible: Vec<usize>,
    action: usize,
    next: Vec<f32>,
    /// Where it led; the reward is what became of it.
    program: u64,
}

impl NA2c {
    /// A search that has learned nothing.
    pub fn new(options: NA2cOptions, seed: u64) -> NA2c {
        let random = StdRng::seed_from_u64(seed);
        NA2c {
            options,
            random,
            fallback: Random::new(seed),
            round: 0,
            starts: vec![],
            arms: vec![],
        }
    }

    fn begin(&mut self, search: &Search) {
        for trace in untiled(search) {
            let Some(start) = search.replay(&trace, &mut self.random) else {
                continue;
            };
            self.starts.push(start.clone());
            let encoding = Encoding::of(&start.trace);
            if encoding.actions() == 0 {
                continue;
            }
            let (inputs, hidden) = (state(&start.trace).len(), self.options.hidden);
            let network = ActorCritic::random(inputs, hidden, encoding.actions(), &mut self.random);
            let rates = Rates { step: self.options.learning_rate, decay: 0.0, clip: 0.5 };
            let adam = Adam::new(&network, rates);
            self.arms.push(Arm { start, encoding, network, adam, memory: VecDeque::new() });
        }
    }

    /// The best program of each sketch and its throughput; 0 where none is known.
    fn bases(&self, search: &Search) -> Vec<(Candidate, f64)> {
        let mut best: BTreeMap<String, (&Candidate, f64)> = BTreeMap::new();
        for (candidate, outcome) in &search.measured {
            let Some(seconds) = outcome.seconds() else { continue };
            let sketch = candidate.trace.clone().undecided().to_string();
            let known = best.entry(sketch).or_insert((candidate, 1.0 / seconds));
            if 1.0 / seconds > known.1 {
                *known = (candidate, 1.0 / seconds);
            }
        }
        let base = |arm: &Arm| {
            let sketch = arm.start.trace.clone().undecided().to_string();
            let known = best.get(&sketch).map(|(c, throughput)| ((*c).clone(), *throughput));
            known.unwrap_or_else(|| (arm.start.clone(), 0.0))
        };
        self.arms.iter().map(base).collect()
    }

    fn steps(&self) -> usize {
        let [first, last] = self.options.steps.map(|n| n as f64);
        (last + (first - last) * self.options.decay.powi(self.round)).round() as usize
    }

    /// One episode from a base: every program it comes by.
    fn episode(&mut self, search: &Search, arm: usize, base: &Candidate) -> Vec<Candidate> {
        let mut at = base.clone();
        let mut passed = vec![];
        for _ in 0..self.steps() {
            let ways = self.arms[arm].encoding.ways(&at.trace);
            if ways.is_empty() {
                break;
            }
            let chosen = self.choose(arm, &at, &ways);
            let next = moved(&at.trace, ways[chosen].0.clone());
            // A step to what is no program leads nowhere.
            let Some(next) = search.replay(&next, &mut self.random) else { continue };
            let step = Step {
                state: state(&at.trace),
                possible: ways.iter().map(|(_, action)| *action).collect(),
                action: ways[chosen].1,
                next: state(&next.trace),
                program: next.program,
            };
            if self.options.all_steps {
                self.arms[arm].remember_all(&next, self.options.memory);
            } else {
                self.arms[arm].remember(step, self.options.memory);
            }
            passed.push(next.clone());
            at = next;
        }
        passed
    }

    fn choose(&mut self, arm: usize, at: &Candidate, ways: &[Way]) -> usize {
        if !self.random.random_bool(self.options.follow) {
            return self.random.random_range(0..ways.len());
        }
        let possible: Vec<usize> = ways.iter().map(|(_, action)| *action).collect();
        let policy = self.arms[arm].network.policy(&state(&at.trace), &possible);
        draw(&policy, &mut self.random)
    }

    fn learn(&mut self, search: &Search) {
        let Some((_, best)) = search.best() else { return };
        let rewards: BTreeMap<u64, f32> = search
            .measured
            .iter()
            .map(|(c, o)| (c.program, o.seconds().map_or(0.0, |s| (best / s) as f32)))
            .collect();
        for arm in &mut self.arms {
            arm.learn(&rewards, &self.options, &mut self.random);
        }
    }
}

impl Arm {
    fn remember(&mut self, step: Step, most: usize) {
        self.memory.push_back(step);
        if self.memory.len() > most {
            self.memory.pop_front();
        }
    }

    /// Every step from a neighbour to this program: ways back are ways, too.
    fn remember_all(&mut self, to: &Candidate, most: usize) {
        for (back, _) in self.encoding.ways(&to.trace) {
            let from = moved(&to.trace, back);
            let ways = self.encoding.ways(&from);
            let leads = |(way, _): &&Way| moved(&from, way.clone()) == to.trace;
            let Some((_, action)) = ways.iter().find(leads) else { continue };
            let step = Step {
                state: state(&from),
                possible: ways.iter().map(|(_, action)| *action).collect(),
                action: *action,
                next: state(&to.trace),
                program: to.program,
            };
            self.remember(step, most);
        }
    }

    /// From random steps of the memory. Those that led to what was not measured are forgotten.
    fn learn(&mut self, rewards: &BTreeMap<u64, f32>, options: &NA2cOptions, random: &mut StdRng) {
        self.memory.retain(|step| rewards.contains_key(&step.program));
        if self.memory.is_empty() {
            return;
        }
        let weights = Weights { discount: options.discount, entropy: options.entropy };
        for _ in 0..options.lessons {
            let drawn = (0..options.batch).map(|_| {
                let step = &self.memory[random.random_range(0..self.memory.len())];
                Transition {
                    state: &step.state,
                    possible: &step.possible,
                    action: step.action,
                    reward: rewards[&step.program],
                    next: &step.next,
                }
            });
            let gradient = self.network.gradient(&drawn.collect::<Vec<_>>(), weights);
            self.adam.step(&mut self.network, &gradient);
        }
    }
}

/// How often an episode takes each sketch. One of which nothing is known counts like the mean of
/// the others.
fn chances(bases: &[(Candidate, f64)]) -> Vec<f32> {
    let total: f64 = bases.iter().map(|(_, throughput)| throughput).sum();
    let known = bases.iter().filter(|(_, throughput)| *throughput > 0.0).count().max(1);
    let mean = if total > 0.0 { total / known as f64 } else { 1.0 };
    let weight = |throughput: f64| if throughput > 0.0 { throughput } else { mean };
    let sum: f64 = bases.iter().map(|(_, throughput)| weight(*throughput)).sum();
    bases.iter().map(|(_, throughput)| (weight(*throughput) / sum) as f32).collect()
}

impl SearchStrategy for NA2c {
    fn propose(&mut self, search: &Search, n: usize) -> Vec<Candidate> {
        if self.round == 0 {
            self.begin(search);
        }
        self.learn(search);
        let bases = self.bases(search);
        let chances = chances(&bases);
        let mut known = HashSet::new();
        let mut proposed: Vec<Candidate> = vec![];
        let starts = self.starts.iter().filter(|c| !search.is_seen(c) && known.insert(c.program));
        proposed.extend(starts.take(n).cloned());
        let mut tries = 0;
        while proposed.len() < n && tries < TRIES && !bases.is_empty() {
            let arm = draw(&chances, &mut self.random);
            let passed = self.episode(search, arm, &bases[arm].0);
            let fresh =
                passed.into_iter().filter(|c| !search.is_seen(c) && known.insert(c.program));
            let before = proposed.len();
            proposed.extend(fresh.take(n - before));
            tries = if proposed.len() == before { tries + 1 } else { 0 };
        }
        self.round += 1;
        let rest = self.fallback.propose(search, n - proposed.len());
        proposed.extend(rest.into_iter().filter(|c| known.insert(c.program)));
        proposed
    }
}
