//! Workers and tuners as processes of their own, so that they can be killed: this test's program,
//! started again with a role.
//!
//! ```text
//! supervisor (a test) --starts, kills--> worker, worker, worker, tuner
//! ```

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use ansc_graph::Compute;
use ansc_sketch::Machine;
use ansc_sketch::Task;
use ansc_tuner::Candidate;
use ansc_tuner::fleet::{
    Access, FleetMeasurer, How, Identity, Kind, PROTOCOL, Road, Runtime, Served, Station, Wanted,
    serve,
};
use ansc_tuner::measure::{Batch, Caches, Each, MeasureError, Measurer, Simulated};
use ansc_tuner::model;
use ansc_tuner::outcome::Outcome;
use ansc_tuner::records::Sqlite;
use ansc_tuner::scheduler::Use;
use ansc_tuner::strategy::Random;
use ansc_tuner::tune::{Options, Silent, Tuner, Weighted};

pub(crate) const VERSION: &str = "test";
pub(crate) const TARGET: &str = "simulated-machine simulated one two";

pub(crate) fn kind(threads: usize) -> Kind {
    Kind {
        protocol: PROTOCOL,
        version: VERSION.into(),
        target: TARGET.into(),
        cores: 2,
        threads,
        gpu: None,
    }
}

pub(crate) fn machine() -> Machine {
    Machine::new(32, 16)
}

pub(crate) fn task(n: usize, threads: usize) -> Arc<Task> {
    let text = format!(
        "compute(in0: f32[{n}, 96], in1: f32[96, 64], in2: f32[64]) -> relu {{
           mm: f32[{n}, 64] = sum{{r0: 96}} mul(in0[i0, r0], in1[r0, i1])
           relu: f32[{n}, 64] = max(add(mm[i0, i1], in2[i1]), 0.0_f32)
         }}"
    );
    Arc::new(Task {
        cores: threads,
        ..Task::on_cpu("k", &Compute::parse(&text).unwrap(), &[false; 3], &machine())
    })
}

pub(crate) fn connect(url: &str) -> Road {
    let access = Access { url: url.into(), ..Access::default() };
    Road::connect(&Runtime::new().unwrap(), &access).unwrap()
}

pub(crate) fn wanted(threads: usize) -> Wanted {
    Wanted {
        kind: kind(threads),
        target: TARGET.into(),
        how: How { caches: Caches::Warm, build_seconds: 15.0, run_seconds: 10.0, seconds: 0.05 },
        machine: "tuner's".into(),
        patience: Duration::from_secs(120),
        tell: Arc::new(|_| {}),
    }
}

pub(crate) fn measurer(road: &Road, beside: &Path, threads: usize) -> FleetMeasurer {
    FleetMeasurer::new(road, Identity::take(beside).unwrap(), wanted(threads)).unwrap()
}

pub(crate) fn station(name: &str, threads: usize) -> Station {
    Station {
        kind: kind(threads),
        machine: machine(),
        name: name.into(),
        lease: None,
        patience: Duration::from_secs(2),
        most: 8,
        log: None,
        tell: Arc::new(|_| {}),
    }
}

/// A machine that is computed, takes its time, and never gives the same twice.
pub(crate) struct Slow {
    pub(crate) pause: Duration,
    /// Ends the process at these programs.
    pub(crate) poison: fn(u64) -> bool,
    /// Begun candidates are noted here, each with the number of those that it is measured with.
    pub(crate) begun: Option<PathBuf>,
}

impl Slow {
    fn note(&self, candidate: &Candidate, together: usize) {
        if let Some(path) = &self.begun {
            append(path, &format!("{:016x} {together}\n", candidate.program));
        }
        if (self.poison)(candidate.program) {
            std::process::abort();
        }
    }
}

impl Measurer for Slow {
    fn measure(
        &mut self,
        task: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError> {
        let mut outcomes = vec![];
        for candidate in candidates {
            std::thread::sleep(self.pause);
            let all = Simulated::default().measure(task, std::slice::from_ref(candidate))?;
            outcomes.extend(all.into_iter().map(|outcome| match outcome {
                Outcome::Seconds(times) => {
                    let noise = 1.0 + 1e-3 * rand::random::<f64>();
                    Outcome::Seconds(times.iter().map(|t| t * noise).collect())
                }
                failed => failed,
            }));
        }
        Ok(outcomes)
    }

    fn measure_each(
        &mut self,
        task: &Arc<Task>,
        batch: &dyn Batch,
        each: &mut dyn Each,
    ) -> Result<(), MeasureError> {
        for place in 0..batch.len() {
            let candidate = batch.candidate(place).unwrap();
            if !each.begins(place) {
                break;
            }
            self.note(candidate, batch.len());
            let outcomes = self.measure(task, std::slice::from_ref(candidate))?;
            outcomes.into_iter().for_each(|outcome| each.ends(place, outcome));
        }
        Ok(())
    }
}

/// A line at the end of a file that several processes write.
pub(crate) fn append(path: &Path, line: &str) {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

/// Ends what waits for it, also if a test fails before.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The orders that a process gets.
const ROLE: &str = "ANSC_FLEET_ROLE";

/// Starts a process of this role.
pub(crate) fn start(role: &str, url: &str, folder: &Path, word: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "role", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, [role, url, folder.to_str().unwrap(), word].join(" "));
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Becomes true when the file is there.
fn ends_with(path: PathBuf) -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let own = flag.clone();
    std::thread::spawn(move || {
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(50));
        }
        own.store(true, Ordering::Relaxed);
    });
    flag
}

/// The process of a role. Parents end it.
pub(crate) fn play() {
    let Ok(told) = std::env::var(ROLE) else { return };
    ansc_tuner::measure::end_with_parent();
    let words: Vec<&str> = told.split(' ').collect();
    let [role, url, folder, word] = words[..] else { panic!("{told}") };
    let folder = Path::new(folder);
    match role {
        "worker" => worker(url, folder, word, |_| false),
        "poisoned" => worker(url, folder, word, |program| program % 16 == 3),
        "tuner" => tuner(url, folder),
        _ => panic!("{told}"),
    }
}

fn worker(url: &str, folder: &Path, name: &str, poison: fn(u64) -> bool) {
    let end = ends_with(folder.join("stop"));
    let station = Station { log: Some(folder.join("log")), ..station(name, 1) };
    served(url, &station, &end, folder, poison);
}

fn served(
    url: &str,
    station: &Station,
    end: &AtomicBool,
    folder: &Path,
    poison: fn(u64) -> bool,
) -> Served {
    let begun = folder.join("begun");
    let make = |_: &How| -> Result<Box<dyn Measurer>, MeasureError> {
        let pause = Duration::from_millis(20);
        Ok(Box::new(Slow { pause, poison, begun: Some(begun.clone()) }))
    };
    serve(&connect(url), station, &make, end).unwrap()
}

pub(crate) fn options(trials: usize) -> Options {
    Options {
        trials,
        per_round: 24,
        time: None,
        scheduler: Default::default(),
        models: vec![],
        target: TARGET.into(),
        version: VERSION.into(),
        threads: 1,
    }
}

pub(crate) fn weighted(task: Arc<Task>) -> Weighted {
    let flops = ansc_graph::cost::flops(&task.compute);
    let uses = vec![Use { network: 0, weight: 1.0 }];
    Weighted { task, uses, flops, places: vec![], known: None }
}

fn tuner(url: &str, folder: &Path) {
    let end = ends_with(folder.join("stop-tuner"));
    let path = folder.join("r.db");
    let mut records = Sqlite::open(&path).unwrap();
    let mut measurer = measurer(&connect(url), &path, 1);
    let seed = rand::random::<u64>();
    let tuner = Tuner {
        strategy: &|task| Box::new(Random::new(seed ^ task as u64)),
        model: Arc::new(RwLock::new(model::create("random", 0).unwrap())),
        measurer: &mut measurer,
        records: &mut records,
        watch: &Silent,
        interrupted: &end,
    };
    let tasks = [weighted(task(64, 1)), weighted(task(80, 1))];
    tuner.tune(&tasks, &options(1_000_000)).unwrap();
}
