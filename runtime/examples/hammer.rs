//! Many threads, each with its own session of one model, at once: `hammer MODEL.ansc [SECONDS]
//! [THREADS] [MEGABYTES]`.
//!
//! Fails if any output differs by a bit from what one session computed alone, or if the memory of
//! the process grows by more than 2 MB (or MEGABYTES, for tools that keep books of their own) after
//! the warm-up. `ansc verify` says whether that one session is right.

use std::error::Error;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use ansc_runtime::{DType, Model, Session, SessionOptions, Tensor};

/// Different inputs, so that sessions that disturbed each other would be noticed.
const CASES: usize = 8;
#[allow(dead_code, reason = "tests include this file for `hammer`")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: hammer MODEL.ansc [SECONDS] [THREADS] [MEGABYTES]")?;
    let seconds = args.next().map_or(Ok(60.0), |n| n.parse())?;
    let threads = args.next().map_or(Ok(8), |n| n.parse())?;
    let growth = args.next().map_or(Ok(2), |n| n.parse::<u64>())? << 20;
    let report = hammer(&Model::load(path)?, threads, Duration::from_secs_f64(seconds), growth)?;
    println!(
        "{threads} threads, {} runs in {seconds} s, all outputs right; resident {} kB after the warm-up, {} kB at the end",
        report.runs,
        report.resident_before >> 10,
        report.resident_after >> 10
    );
    Ok(())
}

/// The runs and the resident memory of a hammering that found nothing wrong.
pub(crate) struct Report {
    pub(crate) runs: u64,
    pub(crate) resident_before: u64,
    pub(crate) resident_after: u64,
}

/// `growth`: allocators keep a little back; a leak of one small output per run is far more than 2
/// MB.
pub(crate) fn hammer(
    model: &Model,
    threads: usize,
    time: Duration,
    growth: u64,
) -> Result<Report, String> {
    let options = SessionOptions { threads: 1, ..SessionOptions::default() };
    let session = || model.session_with(&options).map_err(|e| e.to_string());
    let inputs: Vec<_> = (0..CASES).map(|case| made_up(model, case)).collect();
    let mut alone = session()?;
    let expected: Vec<_> = inputs.iter().map(|i| run(&mut alone, i)).collect::<Result<_, _>>()?;
    drop(alone);
    let sessions = (0..threads).map(|_| session()).collect::<Result<Vec<_>, _>>()?;
    let barrier = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let work = |thread: usize, mut session: Session| {
            let mut runs = 0;
            let mut until = |end: Instant| {
                while runs == 0 || Instant::now() < end {
                    let case = (thread + runs as usize) % CASES;
                    if run(&mut session, &inputs[case])? != expected[case] {
                        return Err(format!("wrong output in run {runs} of thread {thread}"));
                    }
                    runs += 1;
                }
                Ok(())
            };
            let began = Instant::now();
            // Both parts end at barriers even after an error: others wait there.
            let warm = until(began + time / 4);
            barrier.wait();
            barrier.wait();
            let rest = until(began + time);
            barrier.wait();
            barrier.wait();
            warm.and(rest).map(|()| runs)
        };
        let workers = sessions.into_iter().enumerate();
        let workers: Vec<_> = workers.map(|(t, s)| scope.spawn(move || work(t, s))).collect();
        barrier.wait();
        let resident_before = resident();
        barrier.wait();
        barrier.wait();
        let resident_after = resident();
        barrier.wait();
        let runs = workers.into_iter().map(|w| w.join().map_err(|_| "a thread panicked")?);
        let runs = runs.sum::<Result<u64, String>>()?;
        if resident_after > resident_before + growth {
            return Err(format!("resident memory grew from {resident_before} to {resident_after}"));
        }
        Ok(Report { runs, resident_before, resident_after })
    })
}

fn run(session: &mut Session, inputs: &[(String, Tensor)]) -> Result<Vec<Vec<u8>>, String> {
    let named: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let outputs = session.run(&named).map_err(|e| e.to_string())?;
    Ok(outputs.into_iter().map(|(_, tensor)| tensor.bytes().to_vec()).collect())
}

fn made_up(model: &Model, case: usize) -> Vec<(String, Tensor)> {
    let free = model.inputs().iter().filter(|port| port.bound.is_none());
    free.map(|port| {
        let mut tensor = Tensor::zeros(port.dtype, &port.shape);
        if port.dtype == DType::F32 {
            let value = |i: usize| ((i * 7 + case * 13) % 31) as f32 / 31.0 - 0.4;
            let values: Vec<f32> = (0..tensor.len()).map(value).collect();
            tensor = Tensor::from_slice(&port.shape, &values);
        }
        (port.name.clone(), tensor)
    })
    .collect()
}

/// Resident memory of this process in bytes; 0 where the system does not tell.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
