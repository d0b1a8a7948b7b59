//! Many workers, many tuners: each tuner gets its share of the workers' time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ansc_tuner::Candidate;
use ansc_tuner::fleet::{
    Access, FleetMeasurer, How, Identity, Road, Runtime, Station, serve, status,
};
use ansc_tuner::measure::{MeasureError, Measurer};

use super::harm::candidates;
use super::roles::{Ends, Slow, station, task, wanted};
use super::server::Server;
use super::whole;

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn equal_tuners_get_equal_shares() {
    let (workers, tuners, seconds) = if whole() { (100, 20, 60) } else { (16, 4, 10) };
    let all = candidates(&task(64, 1), 48, 7);
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("server"));
    let access = Access { url: server.url(), ..Access::default() };
    let (end, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let spent: Mutex<BTreeMap<String, f64>> = Mutex::default();
    let measured = AtomicUsize::new(0);
    let answered = AtomicUsize::new(0);
    let mut memory = vec![];
    std::thread::scope(|scope| {
        let _ends = (Ends(&over), Ends(&end));
        // Connections of their own, on one thread.
        let runtime = Runtime::new().unwrap();
        let roads: Vec<Road> =
            (0..workers + tuners).map(|_| Road::connect(&runtime, &access).unwrap()).collect();
        let mut working = roads;
        let asking = working.split_off(workers);
        for (n, road) in working.into_iter().enumerate() {
            let (end, spent, measured) = (&end, &spent, &measured);
            scope.spawn(move || {
                let station = Station {
                    patience: Duration::from_secs(20),
                    most: 4,
                    ..station(&format!("worker-{n}"), 1)
                };
                let make = |_: &How| -> Result<Box<dyn Measurer>, MeasureError> {
                    let pause = Duration::from_millis(200);
                    Ok(Box::new(Slow { pause, poison: |_| false, begun: None }))
                };
                let served = serve(&road, &station, &make, end).unwrap();
                measured.fetch_add(served.jobs as usize, Ordering::Relaxed);
                let mut spent = spent.lock().unwrap();
                for (tuner, seconds) in served.seconds {
                    *spent.entry(tuner).or_default() += seconds;
                }
            });
        }
        let asking: Vec<_> = asking
            .into_iter()
            .enumerate()
            .map(|(n, road)| {
                let (over, answered) = (&over, &answered);
                let beside = dir.path().join(format!("tuner-{n}"));
                let all = &all;
                scope.spawn(move || {
                    answered.fetch_add(ask(&road, &beside, all, over), Ordering::Relaxed)
                })
            })
            .collect();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(seconds) {
            std::thread::sleep(Duration::from_millis(500));
            memory.push(resident());
        }
        over.store(true, Ordering::Relaxed);
        asking.into_iter().for_each(|tuner| _ = tuner.join().unwrap());
        end.store(true, Ordering::Relaxed);
    });
    let (measured, answered) = (measured.into_inner(), answered.into_inner());
    let spent = spent.into_inner().unwrap();
    let total: f64 = spent.values().sum();
    let shares: Vec<f64> = spent.values().map(|seconds| seconds / total).collect();
    let (least, most) = (min(&shares), max(&shares));
    let (early, late) = (memory[memory.len() / 3], *memory.last().unwrap());
    println!(
        "{workers} workers, {tuners} tuners, {seconds} s: {measured} measured, {answered} answered; shares {:.2}% to \
         {:.2}%; all in one process of {} MiB after a third, {} MiB at the end",
        least * 100.0,
        most * 100.0,
        early >> 20,
        late >> 20
    );
    let fair = 1.0 / tuners as f64;
    assert_eq!(shares.len(), tuners);
    // The beginning and the end are a large part of the short form.
    let off = if whole() { 0.2 } else { 0.6 };
    assert!(least >= (1.0 - off) * fair && most <= (1.0 + off) * fair, "{shares:?}");
    assert_eq!(measured, answered);
    // Tests beside the short form take memory of the same process.
    assert!(!whole() || late < early + early / 4, "{early} bytes became {late}");
    let left = status(&Road::connect(&Runtime::new().unwrap(), &access).unwrap()).unwrap();
    assert_eq!((left.answers, left.queues.len()), (0, 0), "{left:?}");
}

fn min(all: &[f64]) -> f64 {
    all.iter().copied().fold(f64::INFINITY, f64::min)
}

fn max(all: &[f64]) -> f64 {
    all.iter().copied().fold(0.0, f64::max)
}

/// The same candidates again and again, so that nothing of a search takes memory; how many.
fn ask(road: &Road, beside: &Path, all: &[Candidate], over: &AtomicBool) -> usize {
    let task = task(64, 1);
    let identity = Identity::take(beside).unwrap();
    let mut fleet = FleetMeasurer::new(road, identity, wanted(1)).unwrap();
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        let outcomes = fleet.measure(&task, all).unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.seconds().is_some()));
        fleet.recorded().unwrap();
        count += outcomes.len();
    }
    count
}
