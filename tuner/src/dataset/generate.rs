//! The traces of a task: random samples of its sketches, and one generation of their mutations.
//!
//! As TenSet's: scores are random, so that evolution adds neighbours of samples and no preference.
//! The untuned schedules come first, each with those among which it was chosen by price, since a
//! model is to choose among them, too: of the reference machine, and of others with another number
//! of threads and narrower vectors. Traces differ in the code that they become for the reference
//! machine.
//!
//! Each draw has a random number generator of its own, from the seed, the task and its number, so
//! that neither threads nor machines matter.

use std::collections::HashSet;
use std::sync::Arc;

use ansc_sketch::rules::Sketch;
use ansc_sketch::{Machine, Task, Trace};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use crate::candidate::Candidate;

/// How many traces, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The seed of all draws.
    pub seed: u64,
    /// Traces of a task at most.
    pub per_task: usize,
}

/// Draws of one pass at least and at most.
const PASS: (usize, usize) = (32, 256);
/// Draws for each trace that is wanted: some fail, and some are known.
const DRAWS: usize = 2;
/// Passes that find next to nothing, after which the space counts as exhausted.
const EMPTY_PASSES: usize = 3;
/// A pass that finds less than this share of its draws counts as empty.
const LITTLE: usize = 50;
/// The share of the traces that are mutations of others.
const MUTATED: f64 = 0.4;
/// At most this share of the traces are the untuned schedules, and those that they were chosen
/// among.
const UNTUNED: f64 = 0.5;
/// Bytes and number of the vectors of other machines whose untuned schedules are there, too.
const NARROW: (usize, usize) = (32, 16);

/// The traces of a task, which is that of the reference machine.
pub fn traces(task: &Arc<Task>, options: &Options) -> Vec<Trace> {
    let sketches = task.sketches();
    let mut found = Found::default();
    let most = (options.per_task as f64 * UNTUNED).ceil().max(1.0) as usize;
    for machine in machines(task) {
        for rival in machine.rivals() {
            if found.traces.len() < most {
                found.add(Some(Candidate::of_choice(&machine, rival)));
            }
        }
    }
    let key = xxh3_64(task.key().as_bytes());
    let samples = (options.per_task as f64 * (1.0 - MUTATED)).ceil().max(1.0) as usize;
    let draw = |_: &[Trace], random: &mut StdRng| sample(task, &sketches, random);
    if !found.fill(samples, options.seed ^ key, &draw) {
        return found.traces;
    }
    let change = |known: &[Trace], random: &mut StdRng| mutation(task, known, random);
    found.fill(options.per_task, options.seed ^ key ^ 1, &change);
    // Where there is little to mutate, or little came of it.
    found.fill(options.per_task, options.seed ^ key ^ 2, &draw);
    found.traces
}

/// The task as other machines have it, too.
fn machines(task: &Arc<Task>) -> [Arc<Task>; 4] {
    let on = |machine: &Machine, cores| {
        Arc::new(Task { machine: machine.clone(), cores, ..Task::clone(task) })
    };
    let narrow = Machine::new(NARROW.0, NARROW.1);
    [task.clone(), on(&task.machine, 1), on(&narrow, task.cores), on(&narrow, 1)]
}

fn sample(task: &Arc<Task>, sketches: &[Sketch], random: &mut StdRng) -> Option<Candidate> {
    let sketch = sketches.get(random.random_range(0..sketches.len().max(1)))?;
    Candidate::of(task, &sketch.trace, random)
}

fn mutation(task: &Arc<Task>, known: &[Trace], random: &mut StdRng) -> Option<Candidate> {
    let parent = known.get(random.random_range(0..known.len().max(1)))?;
    let choices = parent.choices();
    let step = *choices.get(random.random_range(0..choices.len().max(1)))?;
    Candidate::of(task, &parent.mutated(step, random)?, random)
}

#[derive(Default)]
struct Found {
    traces: Vec<Trace>,
    programs: HashSet<u64>,
}

impl Found {
    fn add(&mut self, candidate: Option<Candidate>) {
        let new = candidate.filter(|c| self.programs.insert(c.program));
        self.traces.extend(new.map(|c| c.trace));
    }

    /// Draws until there are so many; false if nothing new came before that.
    fn fill(
        &mut self,
        wanted: usize,
        seed: u64,
        draw: &(dyn Fn(&[Trace], &mut StdRng) -> Option<Candidate> + Sync),
    ) -> bool {
        let (mut empty, mut pass) = (0, 0u64);
        while self.traces.len() < wanted && empty < EMPTY_PASSES {
            let known = &self.traces;
            let one = |place: usize| {
                let mix = [seed, pass, place as u64, 0];
                let bytes: Vec<u8> = mix.iter().flat_map(|n| n.to_le_bytes()).collect();
                let bytes = bytes.try_into().expect("four numbers of eight bytes");
                draw(known, &mut StdRng::from_seed(bytes))
            };
            let before = self.traces.len();
            let count = ((wanted - before) * DRAWS).clamp(PASS.0, PASS.1);
            let drawn: Vec<Option<Candidate>> = (0..count).into_par_iter().map(one).collect();
            for candidate in drawn {
                if self.traces.len() < wanted {
                    self.add(candidate);
                }
            }
            let new = self.traces.len() - before;
            empty = if new * LITTLE < count { empty + 1 } else { 0 };
            pass += 1;
        }
        self.traces.len() >= wanted
    }
}
