//! Kinds of machines do not mix, and what somebody makes up is refused.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use ansc_tuner::fleet::{
    Answer, FleetError, FleetMeasurer, How, Identity, Job, Kind, MOST_BYTES, Served, Station,
    TaskText, Wanted, What, serve, status,
};
use ansc_tuner::measure::{MeasureError, Measurer, Place, Simulated};
use ansc_tuner::outcome::Outcome;
use ansc_tuner::records::{InMemory, Key, Record};
use ansc_tuner::strategy::Random;
use ansc_tuner::tune::{Options, Silent, Tuner};
use ansc_tuner::{Candidate, Records, model};

use super::harm::candidates;
use super::roles::{
    Ends, TARGET, VERSION, connect, kind, measurer, options, station, task, wanted, weighted,
};
use super::server::Server;

fn simulated(_: &How) -> Result<Box<dyn Measurer>, MeasureError> {
    Ok(Box::new(Simulated::default()))
}

/// Keeps what is told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn tell(&self) -> ansc_tuner::fleet::Tell {
        let own = self.0.clone();
        Arc::new(move |line| own.lock().unwrap().push(line.to_owned()))
    }

    fn has(&self, part: &str) -> bool {
        self.0.lock().unwrap().iter().any(|line| line.contains(part))
    }

    /// Waits for a line with this part.
    fn wait_for(&self, part: &str) {
        let found = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            self.has(part)
        });
        assert!(found, "no `{part}` in {:?}", self.0.lock().unwrap());
    }
}

/// Two kinds, which differ in threads, with a worker and a tuner each, on one server.
#[test]
fn no_record_crosses_from_one_kind_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("server"));
    let end = AtomicBool::new(false);
    let tune = |threads: usize| {
        let road = connect(&server.url());
        let mut records = InMemory::default();
        let mut fleet = measurer(&road, &dir.path().join(format!("{threads}.db")), threads);
        let tuner = Tuner {
            strategy: &|_| Box::new(Random::new(0)),
            model: Arc::new(RwLock::new(model::create("random", 0).unwrap())),
            measurer: &mut fleet,
            records: &mut records,
            watch: &Silent,
            interrupted: &AtomicBool::new(false),
        };
        let options = Options { threads, ..options(96) };
        tuner.tune(&[weighted(task(64, threads))], &options).unwrap();
        let keys = records.keys().unwrap();
        keys.iter().flat_map(|key| records.of(key).unwrap()).collect::<Vec<Record>>()
    };
    std::thread::scope(|scope| {
        let _ends = Ends(&end);
        for threads in [1, 2] {
            let (end, url) = (&end, server.url());
            let station = station(&format!("with {threads}"), threads);
            scope.spawn(move || serve(&connect(&url), &station, &simulated, end).unwrap());
        }
        let both = [1, 2].map(|threads| scope.spawn(move || (threads, tune(threads))));
        for tuned in both {
            let (threads, records) = tuned.join().unwrap();
            assert!(records.len() >= 96);
            let machines: HashSet<_> = records.iter().map(|r| r.machine.clone().unwrap()).collect();
            assert_eq!(machines, HashSet::from([format!("with {threads}")]));
            assert!(records.iter().all(|r| r.key.threads == threads));
        }
        end.store(true, Ordering::Relaxed);
    });
}

/// Answers that a run did not live to write down are taken by the next one, also if that asks for
/// another kind; and they stay what they are.
#[test]
fn answers_wait_for_the_next_run_and_keep_their_kind() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("server"));
    let (end, path) = (AtomicBool::new(false), dir.path().join("r.db"));
    let all = candidates(&task(64, 1), 8, 0);
    std::thread::scope(|scope| {
        let _ends = Ends(&end);
        let (end, road) = (&end, connect(&server.url()));
        let own = road.clone();
        scope.spawn(move || serve(&own, &station("here", 1), &simulated, end).unwrap());
        // It has its outcomes, and never says that they are written.
        drop(measurer(&road, &path, 1).measure(&task(64, 1), &all).unwrap());
        let mut next = measurer(&road, &path, 2);
        let mut strays = next.strays();
        strays.sort_by_key(|record| record.program);
        let mut programs: Vec<u64> = all.iter().map(|c| c.program).collect();
        programs.sort_unstable();
        assert_eq!(strays.iter().map(|r| r.program).collect::<Vec<_>>(), programs);
        assert!(strays.iter().all(|r| r.key.threads == 1 && r.machine.as_deref() == Some("here")));
        // Still nobody has written them.
        drop(next);
        let mut last = measurer(&road, &path, 1);
        assert_eq!(last.strays().len(), all.len());
        last.recorded().unwrap();
        drop(last);
        assert_eq!(measurer(&road, &path, 1).strays(), []);
        end.store(true, Ordering::Relaxed);
    });
}

/// A tuner that no worker is of a kind with says in what they differ.
#[test]
fn workers_of_another_kind_are_named_with_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("server"));
    let end = AtomicBool::new(false);
    let others = [
        Kind { version: "9.9".into(), ..kind(1) },
        Kind { target: "simulated-machine other".into(), ..kind(1) },
    ];
    std::thread::scope(|scope| {
        let _ends = Ends(&end);
        for (n, kind) in others.into_iter().enumerate() {
            let (end, url) = (&end, server.url());
            let station = Station { kind, ..station(&format!("worker-{n}"), 1) };
            scope.spawn(move || serve(&connect(&url), &station, &simulated, end).unwrap());
        }
        let identity = Identity::take(&dir.path().join("r.db")).unwrap();
        let wanted = Wanted { patience: Duration::from_secs(7), ..wanted(1) };
        let mut fleet = FleetMeasurer::new(&connect(&server.url()), identity, wanted).unwrap();
        let error = fleet.measure(&task(64, 1), &candidates(&task(64, 1), 4, 0)).unwrap_err();
        end.store(true, Ordering::Relaxed);
        assert!(matches!(error, MeasureError::Fleet(FleetError::NoWorker { .. })), "{error}");
        let text = error.to_string();
        assert!(text.contains("worker worker-0: ansc test here and 9.9 there"), "{text}");
        let target = format!("machine {TARGET} here and simulated-machine other there");
        assert!(text.contains(&target), "{text}");
    });
}

/// A job as a tuner makes it, but for its seal.
fn job(candidate: &Candidate) -> Job {
    let task = task(64, 1);
    Job {
        kind: kind(1),
        tuner: "0123456789abcdef".into(),
        id: "00112233445566778899aabbccddeeff".into(),
        salt: "1".into(),
        target: TARGET.into(),
        task: TaskText::from(&*task),
        key: task.key(),
        trace: candidate.trace.clone(),
        program: format!("{:016x}", candidate.program),
        baseline: None,
        how: wanted(1).how,
        workers: 1,
    }
}

/// Jobs that must be refused, each with a part of the reason.
fn hostile_jobs() -> Vec<(Vec<u8>, &'static str)> {
    let all = candidates(&task(64, 1), 2, 0);
    let good = job(&all[0]);
    let how = |f: &dyn Fn(&mut How)| {
        let mut job = good.clone();
        f(&mut job.how);
        job
    };
    let text = |compute: String| {
        let mut job = good.clone();
        job.task.compute = compute;
        job
    };
    let of_task = |f: &dyn Fn(&mut TaskText)| {
        let mut job = good.clone();
        f(&mut job.task);
        job
    };
    let other = Kind { version: "0.0.1".into(), ..kind(1) };
    let deep = format!("compute(in0: f32[1]) -> y {{ y: f32[1] = {}", "neg(".repeat(100_000));
    let jobs = [
        (Job { kind: other, ..good.clone() }, "ansc test here and 0.0.1 there"),
        (Job { target: "another machine".into(), ..good.clone() }, "filed under another machine"),
        (Job { program: format!("{:016x}", all[1].program), ..good.clone() }, "makes the program"),
        (Job { program: "x".into(), ..good.clone() }, "is no hash"),
        (Job { key: "k".into(), ..good.clone() }, "its subgraph is"),
        (how(&|h| h.run_seconds = 1e9), "are the most"),
        (how(&|h| h.seconds = -1.0), "are the most"),
        (text(deep), "its subgraph"),
        (text("compute(in0: f32[4]) -> y { y: f32[4] = in0[add(i0, 1)] }".into()), "hold together"),
        (text("compute(in0: f32[1]) -> y { y: f32[9000000000] = in0[0] }".into()), "bytes"),
        (text("rm -rf /".into()), "its subgraph"),
        (of_task(&|t| t.constant.clear()), "number of inputs"),
        (of_task(&|t| t.vector_bytes = 1 << 40), "its schedule is for"),
        (of_task(&|t| t.cores = 4000), "its schedule is for 4000 threads"),
        (of_task(&|t| t.gpu = Some(48 << 10)), "of a GPU"),
    ];
    let mut all: Vec<(Vec<u8>, &str)> =
        jobs.into_iter().map(|(job, reason)| (serde_json::to_vec(&job).unwrap(), reason)).collect();
    let tuner = Job { tuner: "x.>".into(), ..good };
    all.push((serde_json::to_vec(&tuner).unwrap(), "is no word"));
    all.push((b"\xff\x00".to_vec(), "not a message of a fleet"));
    all.push(("[".repeat(MOST_BYTES).into_bytes(), "not a message of a fleet"));
    all
}

#[test]
fn hostile_jobs_are_refused_and_the_fleet_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("server"));
    let (end, told) = (AtomicBool::new(false), Told::default());
    let jobs = hostile_jobs();
    let count = jobs.len() as u64;
    let served = std::thread::scope(|scope| {
        let _ends = Ends(&end);
        let station = Station { tell: told.tell(), ..station("here", 1) };
        let road = connect(&server.url());
        let (end, own) = (&end, road.clone());
        let worker = scope.spawn(move || serve(&own, &station, &simulated, end).unwrap());
        let subject = format!("ansc.jobs.{}.0123456789abcdef", kind(1).digest());
        for (message, reason) in jobs {
            server.publish(&subject, &message);
            told.wait_for(reason);
            told.0.lock().unwrap().clear();
        }
        let mut fleet = measurer(&road, &dir.path().join("r.db"), 1);
        let all = candidates(&task(64, 1), 8, 0);
        let outcomes = fleet.measure(&task(64, 1), &all).unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.seconds().is_some()));
        fleet.recorded().unwrap();
        end.store(true, Ordering::Relaxed);
        worker.join().unwrap()
    });
    assert_eq!(
        served,
        Served { jobs: 8, refused: count, seconds: served.seconds.clone(), ..Served::default() }
    );
    // They are kept, for those who want to know who that was.
    assert_eq!(status(&connect(&server.url())).unwrap().dead, count);
}

/// An answer that looks right in everything that is known without the tuner's secret.
fn answer(candidate: &Candidate, seconds: f64) -> Answer {
    let key = Key { task: task(64, 1).key(), target: TARGET.into(), threads: 1 };
    Answer {
        id: "00112233445566778899aabbccddeeff".into(),
        salt: "1".into(),
        kind: kind(1).digest(),
        key,
        trace: candidate.trace.clone(),
        program: format!("{:016x}", candidate.program),
        version: VERSION.into(),
        place: Place::now("somebody"),
        what: What::Outcome(Outcome::Seconds(vec![seconds])),
    }
}

#[test]
fn hostile_answers_are_refused_and_never_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("server"));
    let end = AtomicBool::new(false);
    let told = Told::default();
    let all = candidates(&task(64, 1), 8, 0);
    let good = answer(&all[1], 1e-9);
    let named = Answer { place: Place::now(&"x".repeat(1000)), ..good.clone() };
    let other = Answer { kind: kind(2).digest(), ..good.clone() };
    let older = Answer { version: "0.0.1".into(), ..good.clone() };
    let slow = answer(&all[1], 1e9);
    let answers = [
        (serde_json::to_vec(&good).unwrap(), "never asked for that"),
        (serde_json::to_vec(&named).unwrap(), "the name of the machine"),
        (serde_json::to_vec(&other).unwrap(), "on the kind"),
        (serde_json::to_vec(&older).unwrap(), "with ansc 0.0.1"),
        (serde_json::to_vec(&answer(&all[1], -1.0)).unwrap(), "between 0 and an hour"),
        (serde_json::to_vec(&slow).unwrap(), "between 0 and an hour"),
        (b"{}".to_vec(), "not a message of a fleet"),
        (b"\x00".repeat(MOST_BYTES), "not a message of a fleet"),
    ];
    std::thread::scope(|scope| {
        let _ends = Ends(&end);
        let road = connect(&server.url());
        let (end, own) = (&end, road.clone());
        let worker =
            scope.spawn(move || serve(&own, &station("here", 1), &simulated, end).unwrap());
        let identity = Identity::take(&dir.path().join("r.db")).unwrap();
        let subject = format!("ansc.answers.{}", identity.name);
        let wanted = Wanted { tell: told.tell(), ..wanted(1) };
        let mut fleet = FleetMeasurer::new(&road, identity, wanted).unwrap();
        for (message, reason) in &answers {
            server.publish(&subject, message);
            let outcomes = fleet.measure(&task(64, 1), &all).unwrap();
            let is_sane = |o: &Outcome| o.seconds().is_some_and(|s| s > 1e-9 && s < 1.0);
            assert!(outcomes.iter().all(is_sane), "{outcomes:?}");
            fleet.recorded().unwrap();
            told.wait_for(reason);
            assert_eq!(fleet.strays(), []);
        }
        end.store(true, Ordering::Relaxed);
        worker.join().unwrap()
    });
}
