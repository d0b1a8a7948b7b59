//! The whole loop on the simulated machine, where everything is exact.

use std::collections::HashSet;
use std::sync::RwLock;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::measure::Simulated;
use crate::model::{self, WarmUp};
use crate::records::{InMemory, Key, Record, untuned_program};
use crate::strategy::{EvolutionOptions, Evolutionary, Random};
use crate::testing::{elementwise, matmul, task};

fn options(trials: usize) -> Options {
    Options {
        trials,
        per_round: 16,
        time: None,
        scheduler: scheduler::Options::default(),
        models: vec!["m.onnx".into()],
        target: "simulated".into(),
        version: "test".into(),
        threads: 2,
    }
}

fn weighted(compute: ansc_graph::Compute) -> Weighted {
    let flops = ansc_graph::cost::flops(&compute);
    let uses = vec![Use { network: 0, weight: 1.0 }];
    Weighted { task: task(compute), uses, flops, places: vec![], known: None }
}

fn shared_model() -> SharedModel {
    let model = model::create("hist", 0).unwrap();
    Arc::new(RwLock::new(Box::new(WarmUp::new(model, 16, 0))))
}

/// Small populations, so that tests are quick.
fn evolution() -> EvolutionOptions {
    EvolutionOptions { population: 96, generations: 3, ..EvolutionOptions::default() }
}

fn run(
    tasks: &[Weighted],
    strategy: &str,
    seed: u64,
    records: &mut InMemory,
    options: &Options,
) -> Report {
    let model = shared_model();
    let make = |i: usize| -> Box<dyn SearchStrategy> {
        let seed = seed + 1000 * i as u64;
        match strategy {
            "random" => Box::new(Random::new(seed)),
            _ => Box::new(Evolutionary::new(evolution(), model.clone(), seed)),
        }
    };
    let tuner = Tuner {
        strategy: &make,
        model: model.clone(),
        measurer: &mut Simulated::default(),
        records,
        watch: &Silent,
        interrupted: &AtomicBool::new(false),
    };
    tuner.tune(tasks, options).unwrap()
}

fn all(records: &InMemory) -> Vec<Record> {
    let of = |key: &Key| records.of(key).unwrap();
    records.keys().unwrap().iter().flat_map(of).collect()
}

#[test]
fn the_same_seed_measures_the_same() {
    let tasks = [weighted(matmul(64, 64, 64)), weighted(elementwise(64, 64))];
    let twice = [0, 1].map(|_| {
        let mut records = InMemory::default();
        let report = run(&tasks, "evolutionary", 5, &mut records, &options(96));
        let programs: Vec<u64> = all(&records).iter().map(|r| r.program).collect();
        (programs, report.latency().1)
    });
    assert_eq!(twice[0], twice[1]);
}

#[test]
fn kernels_that_several_models_have_are_searched_once() {
    let models = vec![
        vec![weighted(matmul(64, 64, 64)), weighted(elementwise(64, 64))],
        vec![weighted(elementwise(24, 36)), weighted(matmul(64, 64, 64))],
    ];
    let tasks = Weighted::together(models);
    let uses = |network: usize| {
        let own = tasks.iter().filter(|t| t.uses.iter().any(|u| u.network == network));
        own.map(|t| t.task.key()).collect::<HashSet<String>>()
    };
    assert_eq!((tasks.len(), tasks[0].weight()), (3, 2.0));
    assert_eq!((uses(0).len(), uses(1).len()), (2, 2));
    let mut records = InMemory::default();
    let names = vec!["a.onnx".to_owned(), "b.onnx".to_owned()];
    let how = Options { models: names.clone(), ..options(96) };
    let report = run(&tasks, "random", 5, &mut records, &how);
    assert_eq!(report.tasks.len(), 3);
    // Each model is known by its own kernels.
    for (network, name) in names.iter().enumerate() {
        let of_model = records.models().unwrap().into_iter().find(|m| m.name == *name).unwrap();
        let keys: HashSet<String> = of_model.tasks.into_iter().map(|o| o.task).collect();
        assert_eq!(keys, uses(network));
    }
}

#[test]
fn patience_ends_a_run() {
    let mut records = InMemory::default();
    let patient = scheduler::Options { patience: Some(32), ..scheduler::Options::default() };
    let how = Options { scheduler: patient, ..options(100_000) };
    let report = run(&[weighted(matmul(64, 96, 64))], "random", 1, &mut records, &how);
    assert_eq!(report.stop, StopReason::NoImprovement);
    assert!((33..100_000).contains(&report.trials), "{}", report.trials);
}

#[test]
fn nothing_is_worse_than_untuned_and_no_program_is_proposed_twice() {
    let mut records = InMemory::default();
    let report =
        run(&[weighted(matmul(96, 64, 80))], "evolutionary", 1, &mut records, &options(80));
    let task = &report.tasks[0];
    assert!(task.best.unwrap() <= task.untuned.unwrap());
    assert_eq!((report.trials, report.stop), (80, StopReason::Trials));
    let mut proposed: Vec<u64> = all(&records)[..80].iter().map(|r| r.program).collect();
    proposed.sort_unstable();
    proposed.dedup();
    assert_eq!(proposed.len(), 80);
}

#[test]
fn a_second_run_goes_on_where_the_first_ended() {
    let tasks = [weighted(matmul(64, 96, 64))];
    let mut records = InMemory::default();
    let first = run(&tasks, "evolutionary", 1, &mut records, &options(48));
    let known = all(&records);
    let second = run(&tasks, "evolutionary", 2, &mut records, &options(48));
    assert!(second.latency().1 <= first.latency().1 * (1.0 + 1e-9));
    let fresh = &all(&records)[known.len()..];
    // The untuned schedule is measured again, to compare the rest with.
    let again = fresh[1..48].iter().filter(|r| known.iter().any(|k| k.program == r.program));
    assert_eq!(again.count(), 0);
}

#[test]
fn a_similar_shape_gives_starting_points() {
    let known = [weighted(matmul(200, 512, 200))];
    let new = [weighted(matmul(180, 512, 180))];
    let few = options(12);
    let mut records = InMemory::default();
    let cold = run(&new, "random", 1, &mut records, &few).latency().1;
    let mut records = InMemory::default();
    run(&known, "evolutionary", 1, &mut records, &options(128));
    let before = all(&records).len();
    let warm = run(&new, "random", 1, &mut records, &few).latency().1;
    assert!(warm < cold, "{warm:e} s with starting points, {cold:e} s without");
    // A task that has records needs none.
    let key = Key { task: new[0].task.key(), target: few.target.clone(), threads: few.threads };
    assert!(all(&records).len() > before);
    assert!(hints::hints(&new[0], &key, &records).unwrap().is_empty());
}

#[test]
fn what_is_known_from_elsewhere_is_measured_first() {
    let tuned = [weighted(matmul(64, 96, 64))];
    let mut records = InMemory::default();
    run(&tuned, "evolutionary", 1, &mut records, &options(48));
    let key = &records.keys().unwrap()[0];
    let untuned = untuned_program(&records.of(key).unwrap());
    let (trace, seconds) = records.best(key, untuned).unwrap().unwrap();
    let known = [Weighted { known: Some(trace), ..tuned[0].clone() }];
    let report = run(&known, "random", 1, &mut InMemory::default(), &options(2));
    assert_eq!(report.latency().1, seconds);
}

#[test]
fn what_needs_no_search_is_measured_before_anything_else() {
    let means = "compute(in0: f32[2, 8, 20, 30]) -> y {
        s: f32[2, 8, 9, 14] = sum{r0: 3, r1: 3} in0[i0, i1, add(mul(i2, 2), r0), add(mul(i3, 2), r1)]
        y: f32[2, 8, 9, 14] = mul(s[i0, i1, i2, i3], 0.125_f32)
    }";
    let tasks = [weighted(ansc_graph::Compute::parse(means).unwrap())];
    let task = &tasks[0].task;
    let rivals = task.rivals().into_iter().map(|rival| Candidate::of_choice(task, rival).program);
    let rivals: HashSet<u64> = rivals.collect();
    assert!(rivals.len() > 1);
    let mut records = InMemory::default();
    // More than a round.
    let few = Options { per_round: 2, ..options(rivals.len() + 2) };
    run(&tasks, "random", 0, &mut records, &few);
    let measured: Vec<u64> = all(&records).iter().map(|r| r.program).collect();
    assert_eq!(HashSet::from_iter(measured[..rivals.len()].iter().copied()), rivals);
}

#[test]
fn evolution_beats_random_sampling() {
    let tasks = [weighted(matmul(512, 512, 512))];
    let best = |strategy: &str| {
        let each = |seed| {
            let report = run(&tasks, strategy, seed, &mut InMemory::default(), &options(128));
            report.latency().1
        };
        // Half of the runs end in the same local optimum: a median would be a throw of a coin.
        (0..5).map(each).sum::<f64>() / 5.0
    };
    let (evolved, random) = (best("evolutionary"), best("random"));
    assert!(evolved < random, "evolution {evolved:e} s, random {random:e} s");
}

/// On which nothing runs.
struct Unfit;

impl Measurer for Unfit {
    fn measure(&mut self, _: &Arc<Task>, all: &[Candidate]) -> Result<Vec<Outcome>, MeasureError> {
        Ok(all.iter().map(|_| Outcome::Failed(Failure::Build)).collect())
    }
}

/// A run in which nothing ran is an error, and leaves nothing that a later one would believe.
#[test]
fn where_nothing_runs_nothing_is_recorded() {
    let tasks = [weighted(matmul(64, 96, 64)), weighted(elementwise(64, 64))];
    let mut records = InMemory::default();
    let tuner = Tuner {
        strategy: &|seed| Box::new(Random::new(seed as u64)),
        model: shared_model(),
        measurer: &mut Unfit,
        records: &mut records,
        watch: &Silent,
        interrupted: &AtomicBool::new(false),
    };
    let error = tuner.tune(&tasks, &options(48)).unwrap_err();
    let expected = matches!(error, TuneError::NothingRan { failure: Failure::Build, .. });
    assert!(expected && error.to_string().contains("does not build"), "{error}");
    assert_eq!(all(&records), []);
    let report = run(&tasks, "random", 0, &mut records, &options(48));
    assert_eq!((report.trials, report.stop), (48, StopReason::Trials));
    assert!(report.tasks.iter().all(|task| task.best.is_some()));
}

/// Takes a while for each candidate, and counts those that begin when the time is up.
struct Slow {
    end: Instant,
    late: usize,
}

const PAUSE: Duration = Duration::from_millis(20);

impl Measurer for Slow {
    fn measure(
        &mut self,
        task: &Arc<Task>,
        all: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError> {
        self.late += if Instant::now() < self.end { 0 } else { all.len() };
        std::thread::sleep(PAUSE * all.len() as u32);
        Simulated::default().measure(task, all)
    }
}

/// The leaders are measured within it: 42 candidates here.
#[test]
fn the_time_is_kept() {
    let tasks = [weighted(matmul(64, 96, 64)), weighted(matmul(48, 96, 64))];
    let limit = 120 * PAUSE;
    let mut measurer = Slow { end: Instant::now() + limit, late: 0 };
    let tuner = Tuner {
        strategy: &|seed| Box::new(Random::new(seed as u64)),
        model: Arc::new(RwLock::new(model::create("random", 0).unwrap())),
        measurer: &mut measurer,
        records: &mut InMemory::default(),
        watch: &Silent,
        interrupted: &AtomicBool::new(false),
    };
    let options = Options { time: Some(limit), per_round: 8, ..options(100_000) };
    let report = tuner.tune(&tasks, &options).unwrap();
    assert_eq!(report.stop, StopReason::Time);
    assert!(report.trials >= 16, "{}", report.trials);
    // The processor may be busy with something else.
    assert!(measurer.late <= 21, "{} candidates came late", measurer.late);
}

#[test]
fn a_small_space_ends_and_an_interrupt_stops() {
    let small = [weighted(elementwise(2, 4))];
    let report = run(&small, "random", 0, &mut InMemory::default(), &options(10_000));
    assert_eq!(report.stop, StopReason::Exhausted);

    let model = shared_model();
    let tuner = Tuner {
        strategy: &|_| Box::new(Random::new(0)),
        model,
        measurer: &mut Simulated::default(),
        records: &mut InMemory::default(),
        watch: &Silent,
        interrupted: &AtomicBool::new(true),
    };
    let report = tuner.tune(&small, &options(10)).unwrap();
    assert_eq!((report.stop, report.trials), (StopReason::Interrupted, 0));
}
