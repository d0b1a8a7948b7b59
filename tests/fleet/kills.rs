//! Workers, the tuner and the server are killed at random moments, again and again.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use ansc_tuner::Records;
use ansc_tuner::fleet::{Answer, What, status};
use ansc_tuner::records::{Record, Sqlite};

use super::roles::{self, connect, measurer};
use super::server::Server;
use super::whole;

const WORKERS: [&str; 3] = ["one", "two", "three"];

/// Processes that run, and are killed.
struct Scene<'a> {
    server: Server,
    folder: &'a Path,
    workers: Vec<Child>,
    tuner: Child,
}

impl Scene<'_> {
    /// Kills one of them, and starts it again after a moment.
    fn kill(&mut self, victim: usize, pause: Duration) {
        let url = self.server.url();
        match victim {
            0 => {
                self.server.kill();
                std::thread::sleep(pause);
                self.server.start_again();
            }
            1 => {
                end(&mut self.tuner);
                std::thread::sleep(pause);
                self.tuner = roles::start("tuner", &url, self.folder, "-");
            }
            n => {
                let worker = n % WORKERS.len();
                end(&mut self.workers[worker]);
                std::thread::sleep(pause);
                self.workers[worker] = roles::start("worker", &url, self.folder, WORKERS[worker]);
            }
        }
    }

    /// Nobody dies but by our hand.
    fn check(&mut self) {
        assert!(self.tuner.try_wait().unwrap().is_none(), "the tuner ended by itself");
        for worker in &mut self.workers {
            assert!(worker.try_wait().unwrap().is_none(), "a worker ended by itself");
        }
    }
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn records(path: &Path) -> Vec<Record> {
    let Ok(file) = Sqlite::open_existing(path) else { return vec![] };
    let keys = file.keys().unwrap();
    keys.iter().flat_map(|key| file.of(key).unwrap()).collect()
}

/// Every measurement that the server ever kept an answer of is in the records, once.
#[test]
fn nothing_is_lost_and_nothing_counts_twice_whoever_is_killed() {
    let (candidates, kills) = if whole() { (2000, 100) } else { (200, 12) };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let server = Server::start(&folder.join("server"));
    let url = server.url();
    let mut scene = Scene {
        workers: WORKERS.map(|name| roles::start("worker", &url, folder, name)).into(),
        tuner: roles::start("tuner", &url, folder, "-"),
        server,
        folder,
    };
    let start = Instant::now();
    let mut killed = [0; 3];
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(rand::random_range(50..1200)));
        scene.check();
        // As often the server, the tuner, and one of the workers.
        let victim = rand::random_range(0..3);
        killed[victim] += 1;
        let victim = if victim == 2 { 2 + rand::random_range(0..3) } else { victim };
        scene.kill(victim, Duration::from_millis(rand::random_range(0..500)));
    }
    loop {
        let written = records(&folder.join("r.db"));
        // A worker that was killed often may have measured nothing until now, and must go on.
        if written.len() >= candidates && machines(&written) == HashSet::from(WORKERS) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(1200), "{:?} go on", machines(&written));
        std::thread::sleep(Duration::from_millis(500));
        scene.check();
    }
    std::fs::write(folder.join("stop-tuner"), "").unwrap();
    assert!(scene.tuner.wait().unwrap().success());
    take_the_rest(&url, folder);
    std::fs::write(folder.join("stop"), "").unwrap();
    scene.workers.iter_mut().for_each(|worker| assert!(worker.wait().unwrap().success()));
    take_the_rest(&url, folder);
    let (kept, found) = compare(folder);
    println!(
        "{found} records of {kept} answers that were kept; killed: server {}, tuner {}, workers {}; {:.0} s",
        killed[0],
        killed[1],
        killed[2],
        start.elapsed().as_secs_f64()
    );
}

/// Who measured them.
fn machines(records: &[Record]) -> HashSet<&str> {
    records.iter().filter_map(|record| record.machine.as_deref()).collect()
}

/// Answers that the tuner of these records did not live to write down.
fn take_the_rest(url: &str, folder: &Path) {
    use ansc_tuner::Measurer;
    let path = folder.join("r.db");
    let road = connect(url);
    let start = Instant::now();
    loop {
        let mut records = Sqlite::open(&path).unwrap();
        let mut measurer = measurer(&road, &path, 1);
        records.merge(&measurer.strays()).unwrap();
        measurer.recorded().unwrap();
        let left = status(&road).unwrap();
        if left.answers == 0 && left.queues.is_empty() {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{left:?}");
    }
}

/// By what the workers noted; how many answers were kept, and how many records there are.
///
/// A worker may be killed between the moment when the server keeps its answer and its note of it.
/// The server then drops the answer of the next worker as the second one of that name, and this
/// worker notes an answer that nobody has. So a candidate whose noted measurements are not in the
/// records has another one there, which nobody noted.
fn compare(folder: &Path) -> (usize, usize) {
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    let mut kept: HashMap<String, Vec<Record>> = HashMap::new();
    for line in log.lines() {
        // A worker that is killed while it writes leaves half a line.
        let Ok(answer) = Answer::parse(line.as_bytes()) else { continue };
        assert!(matches!(answer.what, What::Outcome(_)), "{line}");
        kept.entry(answer.id.clone()).or_default().push(answer.record().unwrap());
    }
    let all = records(&folder.join("r.db"));
    let digests: HashSet<String> = all.iter().map(Record::digest).collect();
    assert_eq!(digests.len(), all.len(), "a measurement is in the records twice");
    let mut unnoted = unnoted(&all, kept.values().flatten());
    for (id, measured) in &kept {
        // Two that fail in one second are the same record.
        let written: HashSet<String> = measured.iter().map(Record::digest).collect();
        let written = written.intersection(&digests).count();
        assert!(written <= 1, "{id}: {written} are written of {measured:?}");
        if written == 0 {
            let others = unnoted.get_mut(&candidate(&measured[0]));
            let others = others.filter(|others| **others > 0);
            *others.unwrap_or_else(|| panic!("{id}: nothing is written")) -= 1;
        }
    }
    // Each record is a measurement, at least as far as workers lived to note it.
    assert!(all.len() >= kept.len(), "{} records, {} answers", all.len(), kept.len());
    (kept.len(), all.len())
}

fn candidate(record: &Record) -> (String, u64) {
    (record.key.task.clone(), record.program)
}

/// How many records of each candidate no worker noted.
fn unnoted<'a>(
    all: &[Record],
    noted: impl Iterator<Item = &'a Record>,
) -> HashMap<(String, u64), usize> {
    let noted: HashSet<String> = noted.map(Record::digest).collect();
    let mut unnoted = HashMap::new();
    for record in all.iter().filter(|record| !noted.contains(&record.digest())) {
        *unnoted.entry(candidate(record)).or_default() += 1;
    }
    unnoted
}
