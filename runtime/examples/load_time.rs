//! How long it takes from a path to a session that can run: `load_time MODEL.ansc [RUNS] [--cold]`.
//!
//! Each measurement is `Model::load` and `Model::session`; a first run is timed beside it. With
//! `--cold` the file's pages are dropped from the system's cache before each; what the disk or the
//! hypervisor cache, stays.

use std::error::Error;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use ansc_runtime::{Model, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let (flags, args): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let path = args.first().ok_or("usage: load_time MODEL.ansc [RUNS] [--cold]")?;
    let runs = args.get(1).map_or(Ok(21), |n| n.parse::<usize>())?.max(1);
    let cold = flags.iter().any(|flag| flag == "--cold");
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..runs {
        if cold {
            drop_pages(path)?;
        }
        let began = Instant::now();
        let model = Model::load(path)?;
        let loaded = Instant::now();
        let mut session = model.session()?;
        let ready = Instant::now();
        let free = || model.inputs().iter().filter(|port| port.bound.is_none());
        let inputs: Vec<_> = free().map(|port| Tensor::zeros(port.dtype, &port.shape)).collect();
        let named: Vec<_> = free().map(|port| port.name.as_str()).zip(&inputs).collect();
        let before_run = Instant::now();
        session.run(&named)?;
        times[0].push(loaded - began);
        times[1].push(ready - began);
        times[2].push(before_run.elapsed());
    }
    println!(
        "{path}: {} bytes, {runs} times, cache {}",
        std::fs::metadata(path)?.len(),
        if cold { "cold" } else { "warm" }
    );
    for (name, times) in ["load", "load + session", "first run"].iter().zip(&mut times) {
        times.sort();
        println!(
            "{name:15} min {:8.3} ms, median {:8.3} ms, max {:8.3} ms",
            millis(times[0]),
            millis(times[times.len() / 2]),
            millis(times[times.len() - 1])
        );
    }
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn drop_pages(path: &str) -> std::io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    // SAFETY: the descriptor is open; the call changes nothing but the system's cache.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        code => Err(std::io::Error::from_raw_os_error(code)),
    }
}
