//! The price of the road: candidates that take no time, and real ones against measuring without it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ansc_sketch::Task;
use ansc_tuner::fleet::{How, Station, serve};
use ansc_tuner::measure::{MeasureError, Measurer};
use ansc_tuner::{Candidate, Outcome};

use super::harm::candidates;
use super::roles::{Ends, connect, measurer, station, task};
use super::server::Server;
use super::whole;

/// Every candidate takes a microsecond, which is known before it runs.
struct NoTime;

impl Measurer for NoTime {
    fn measure(
        &mut self,
        _: &Arc<Task>,
        candidates: &[Candidate],
    ) -> Result<Vec<Outcome>, MeasureError> {
        Ok(candidates.iter().map(|_| Outcome::Seconds(vec![1e-6])).collect())
    }
}

/// Candidates a second from a tuner to workers and back, with nothing to measure. The workers
/// replay and check each candidate as they always do.
#[test]
fn the_road_carries_a_thousand_candidates_a_second() {
    let (rounds, workers) = if whole() { (150, 2) } else { (10, 2) };
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("server"));
    let end = AtomicBool::new(false);
    let task = task(64, 1);
    let all = candidates(&task, 128, 3);
    let rate = std::thread::scope(|scope| {
        let _ends = Ends(&end);
        for n in 0..workers {
            let (end, url) = (&end, server.url());
            scope.spawn(move || {
                let station = Station { most: 64, ..station(&format!("worker-{n}"), 1) };
                let make =
                    |_: &How| -> Result<Box<dyn Measurer>, MeasureError> { Ok(Box::new(NoTime)) };
                serve(&connect(&url), &station, &make, end).unwrap()
            });
        }
        let mut fleet = measurer(&connect(&server.url()), &dir.path().join("r.db"), 1);
        fleet.measure(&task, &all).unwrap();
        let start = Instant::now();
        for _ in 0..rounds {
            let outcomes = fleet.measure(&task, &all).unwrap();
            assert!(outcomes.iter().all(|outcome| outcome.seconds().is_some()));
            fleet.recorded().unwrap();
        }
        let rate = (rounds * all.len()) as f64 / start.elapsed().as_secs_f64();
        end.store(true, Ordering::Relaxed);
        rate
    });
    println!("{rate:.0} candidates a second, {workers} workers, {rounds} rounds of {}", all.len());
    // Other tests run at the same time, except where whole measurements are asked for.
    let least = if whole() { 1000.0 } else { 100.0 };
    assert!(rate >= least, "{rate} candidates a second");
}

fn ansc(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ansc"));
    command.args(args).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The same search on this machine and through a fleet of one worker on it, in turns.
#[test]
fn a_fleet_of_one_is_nearly_as_fast_as_no_fleet() {
    if !whole() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let server = Server::start(&folder.join("server"));
    assert!(ansc(folder, &["models", "GMM", "C2D", "-o", "."]).status().unwrap().success());
    let worker = ["worker", "--fleet", &server.url(), "--threads", "1", "--lease", "lease"];
    let mut worker = ansc(folder, &worker).spawn().unwrap();
    let mut times = [vec![], vec![]];
    for round in 0..7 {
        for (kind, times) in times.iter_mut().enumerate() {
            let (records, url) = (format!("{kind}-{round}.db"), server.url());
            let seed = round.to_string();
            let mut tune = vec!["tune", "C2D.onnx", "--threads", "1", "--trials", "256", "--seed"];
            tune.extend([&*seed, "--records", &records, "--strategy", "random", "--quiet"]);
            if kind == 1 {
                tune.extend(["--fleet", &url]);
            }
            let start = Instant::now();
            assert!(ansc(folder, &tune).status().unwrap().success());
            times.push(start.elapsed().as_secs_f64());
        }
    }
    // SAFETY: no pointers; the process was not waited for.
    unsafe { libc::kill(worker.id() as i32, libc::SIGINT) };
    let start = Instant::now();
    while worker.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    // The rounds of a pair have the same candidates.
    let [here, fleet] = times;
    let mut ratios: Vec<f64> = fleet.iter().zip(&here).map(|(fleet, here)| fleet / here).collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    println!("256 candidates: {here:.1?} s here, {fleet:.1?} s through the fleet");
    println!("{ratio:.3} times as long: median of {ratios:.3?}");
    assert!(ratio <= 1.05);
}
