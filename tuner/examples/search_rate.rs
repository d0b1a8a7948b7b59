//! How long a round of evolution takes, without any measuring: `search_rate [ROUNDS]`.
//!
//! ```text
//! mm 1024: 5 rounds of 64, 1.03 s each; 2458 candidates made in each, 2386 a second
//! ```

use std::sync::{Arc, RwLock};
use std::time::Instant;

use ansc_graph::Compute;
use ansc_sketch::Machine;
use ansc_sketch::Task;
use ansc_tuner::Search;
use ansc_tuner::measure::{Measurer, Simulated};
use ansc_tuner::model::{self, Sample, SharedModel};
use ansc_tuner::strategy::{EvolutionOptions, Evolutionary, SearchStrategy};

const MM: &str = "compute(in0: f32[1024, 1024], in1: f32[1024, 1024], in2: f32[1024]) -> y {
  mm: f32[1024, 1024] = sum{r0: 1024} mul(in0[i0, r0], in1[r0, i1])
  y: f32[1024, 1024] = max(add(mm[i0, i1], in2[i1]), 0.0_f32)
}";
const CONV: &str = "compute(in0: f32[1, 30, 30, 128], in1: f32[3, 3, 128, 128], in2: f32[128]) -> y {
  c: f32[1, 28, 28, 128] = sum{r0: 3, r1: 3, r2: 128} mul(in0[i0, add(i1, r0), add(i2, r1), r2], in1[r0, r1, r2, i3])
  y: f32[1, 28, 28, 128] = max(add(c[i0, i1, i2, i3], in2[i3]), 0.0_f32)
}";
const PER_ROUND: usize = 64;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    run("mm 1024", MM, rounds);
    run("conv 3x3 128", CONV, rounds);
}

fn run(name: &str, text: &str, rounds: usize) {
    let compute = Compute::parse(text).expect("the text is right");
    let machine = Machine::new(32, 16);
    let constant = vec![false, true, true];
    let task = Arc::new(Task { cores: 2, ..Task::on_cpu("k", &compute, &constant, &machine) });
    let model: SharedModel =
        Arc::new(RwLock::new(model::create("hist", 0).expect("there is such a model")));
    let options = EvolutionOptions::default();
    let made = options.population * (options.generations + 1);
    let mut strategy = Evolutionary::new(options, model.clone(), 0);
    let mut search = Search::new(task.clone());
    let (mut proposing, mut learning) = (0.0, 0.0);
    for _ in 0..rounds {
        let start = Instant::now();
        let candidates = strategy.propose(&search, PER_ROUND);
        proposing += start.elapsed().as_secs_f64();
        let outcomes =
            Simulated::default().measure(&task, &candidates).expect("nothing can go wrong");
        let start = Instant::now();
        candidates.iter().zip(outcomes).for_each(|(c, o)| search.add(c, o));
        let mut model = model.write().expect("no thread panics");
        let samples: Vec<Sample> = search.samples(0, model.needs()).collect();
        model.train(&samples);
        learning += start.elapsed().as_secs_f64();
    }
    let each = proposing / rounds as f64;
    println!(
        "{name}: {rounds} rounds of {PER_ROUND}, {each:.2} s each; {made} candidates made in each, {:.0} a second; \
         learning {:.2} s each",
        made as f64 / each,
        learning / rounds as f64
    );
}
