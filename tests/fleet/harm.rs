//! Candidates that do harm: to their process, and to the worker itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ansc_graph::Compute;
use ansc_sketch::{Program, Task};
use ansc_tuner::Candidate;
use ansc_tuner::fleet::{FleetMeasurer, Identity};
use ansc_tuner::fleet::{How, Station, serve, status};
use ansc_tuner::measure::{
    Batch, Each, LocalMeasurer, LocalOptions, MeasureError, Measurer, Simulated, WorkerCommand,
};
use ansc_tuner::outcome::{Failure, Outcome};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::roles::{self, Ends, connect, measurer, station, task, wanted};
use super::server::Server;

/// Different programs of a task, the untuned one first.
pub(crate) fn candidates(task: &Arc<Task>, n: usize, seed: u64) -> Vec<Candidate> {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut all: Vec<Candidate> = Candidate::exactly(task, &task.untuned()).into_iter().collect();
    let sketches = task.sketches();
    for sketch in sketches.iter().cycle().take(10_000) {
        if all.len() >= n {
            break;
        }
        let made = Candidate::of(task, &sketch.trace, random);
        let is_timed =
            |c: &Candidate| Simulated::default().outcome(&c.scheduled.program).seconds().is_some();
        let is_new = |c: &Candidate| all.iter().all(|other| other.program != c.program);
        all.extend(made.filter(|c| is_new(c) && is_timed(c)));
    }
    assert_eq!(all.len(), n);
    all
}

/// A candidate that ends two workers is not tried again, and all others are measured. The second
/// time it is alone, so that nothing else can count for what it does.
#[test]
fn what_ends_its_workers_is_tried_twice() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("server"));
    let url = server.url();
    let task = task(64, 1);
    let is_poison = |c: &Candidate| c.program % 16 == 3;
    let mut all = candidates(&task, 160, 0);
    all.truncate(all.iter().position(|c| !is_poison(c)).unwrap() + 1);
    let more = candidates(&task, 160, 0).into_iter().skip(all.len());
    let (poison, good): (Vec<_>, Vec<_>) = more.partition(is_poison);
    all.extend(good.into_iter().take(20));
    all.extend(poison.into_iter().take(2));
    let expected = all.iter().filter(|c| is_poison(c)).count();
    assert_eq!((expected, is_poison(&all[0])), (2, false));
    let end = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        let _ends = Ends(&end);
        scope.spawn(|| supervise(&url, dir.path(), &end));
        let mut fleet = measurer(&connect(&url), &dir.path().join("r.db"), 1);
        let outcomes = fleet.measure(&task, &all);
        fleet.recorded().unwrap();
        end.store(true, Ordering::Relaxed);
        outcomes.unwrap()
    });
    let begun = std::fs::read_to_string(dir.path().join("begun")).unwrap();
    let mut tries: HashMap<&str, Vec<&str>> = HashMap::new();
    for (program, together) in begun.lines().filter_map(|line| line.split_once(' ')) {
        tries.entry(program).or_default().push(together);
    }
    for (candidate, outcome) in all.iter().zip(&outcomes) {
        if is_poison(candidate) {
            assert_eq!(*outcome, Outcome::Failed(Failure::Poison));
            let tries = &tries[format!("{:016x}", candidate.program).as_str()];
            assert!(tries.len() == 2 && tries[1] == "1", "{tries:?}");
        } else {
            assert!(outcome.seconds().is_some(), "{outcome:?}");
        }
    }
    assert_eq!(status(&connect(&url)).unwrap().dead, 2);
}

/// Two workers that are started again whenever they end.
fn supervise(url: &str, folder: &std::path::Path, end: &AtomicBool) {
    let start = |name: &str| roles::start("poisoned", url, folder, name);
    let mut workers = ["one", "two"].map(|name| (name, start(name)));
    while !end.load(Ordering::Relaxed) {
        for (name, worker) in &mut workers {
            if worker.try_wait().unwrap().is_some() {
                *worker = start(name);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    for (_, mut worker) in workers {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}

/// Measures here, and makes some programs write where they must not.
struct Wild(LocalMeasurer);

impl Wild {
    fn spoilt(candidate: &Candidate) -> Candidate {
        let text = candidate.scheduled.program.to_string();
        let mut candidate = candidate.clone();
        if text.contains("wild") {
            let at = text.find("y[").unwrap() + 2;
            let index = &text[at..at + text[at..].find(']').unwrap()];
            let (old, new) = (format!("y[{index}]"), format!("y[add({index}, 1000000000000)]"));
            candidate.scheduled.program = Program::parse(&text.replace(&old, &new)).unwrap();
        }
        candidate
    }
}

impl Measurer for Wild {
    fn measure(
        &mut self,
        task: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError> {
        let spoilt: Vec<Candidate> = candidates.iter().map(Wild::spoilt).collect();
        self.0.measure(task, &spoilt)
    }

    fn measure_each(
        &mut self,
        task: &Arc<Task>,
        batch: &dyn Batch,
        each: &mut dyn Each,
    ) -> Result<(), MeasureError> {
        let all = (0..batch.len()).map(|place| Wild::spoilt(batch.candidate(place).unwrap()));
        let spoilt: Vec<Candidate> = all.collect();
        self.0.measure_each(task, &&*spoilt, each)
    }
}

/// Bytes of address space of a candidate.
const MEMORY: &str = "4000000000";

fn real(how: &How) -> Result<Box<dyn Measurer>, MeasureError> {
    let args = ["candidates", "--target-cpu", "native", "--memory", MEMORY].map(String::from);
    let worker = WorkerCommand { program: env!("CARGO_BIN_EXE_ansc").into(), args: args.to_vec() };
    let options = LocalOptions {
        run_limit: Duration::from_secs_f64(how.run_seconds),
        ..LocalOptions::new(worker, 1)
    };
    Ok(Box::new(Wild(LocalMeasurer::new(options)?)))
}

fn named(name: &str, compute: &str) -> Arc<Task> {
    let compute = Compute::parse(compute).unwrap();
    let constant = vec![false; compute.inputs.len()];
    Arc::new(Task { name: name.into(), compute, constant, ..Task::clone(&task(8, 1)) })
}

/// A candidate that ends its own process has an outcome at once, and a dead letter; the worker
/// goes on.
#[test]
fn harm_ends_a_process_and_no_worker() {
    const DOUBLE: &str = "compute(in0: f32[64]) -> y { y: f32[64] = mul(in0[i0], 2.0_f32) }";
    const ENDLESS: &str =
        "compute(in0: f32[4]) -> y { y: f32[1] = sum{r0: 4000000000000} in0[sub(r0, r0)] }";
    // More than it may have; less than a job may ask for.
    const LARGE: &str = "compute(in0: f32[1]) -> y { y: f32[1500000000] = in0[0] }";
    let cases = [
        (named("wild", DOUBLE), Some(Failure::Crash)),
        (named("endless", ENDLESS), Some(Failure::Timeout)),
        (named("large", LARGE), Some(Failure::Crash)),
        (named("good", DOUBLE), None),
    ];
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("server"));
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&end);
        let station = Station { lease: Some(dir.path().join("lease")), ..station("here", 1) };
        let road = connect(&server.url());
        let (end, own) = (&end, road.clone());
        let worker = scope.spawn(move || serve(&own, &station, &real, end).unwrap());
        let identity = Identity::take(&dir.path().join("r.db")).unwrap();
        let mut wanted = wanted(1);
        wanted.how.run_seconds = 3.0;
        let mut fleet = FleetMeasurer::new(&road, identity, wanted).unwrap();
        for (task, expected) in &cases {
            let one = Candidate::exactly(task, &task.untuned()).unwrap();
            let outcomes = fleet.measure(task, &[one]).unwrap();
            assert_eq!(outcomes[0].failure(), *expected, "{}: {outcomes:?}", task.name);
        }
        fleet.recorded().unwrap();
        end.store(true, Ordering::Relaxed);
        let served = worker.join().unwrap();
        assert_eq!((served.jobs, served.failed, served.refused), (4, 3, 0));
    });
    assert_eq!(status(&connect(&server.url())).unwrap().dead, 3);
}
