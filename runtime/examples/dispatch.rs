//! How long the pool needs to hand out an empty parallel loop: `dispatch [THREADS]`.

use std::time::{Duration, Instant};

use ansc_runtime::pool::{Pool, PoolError, PoolOptions};

fn main() -> Result<(), PoolError> {
    let threads = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let pool = Pool::new(&PoolOptions { threads, ..PoolOptions::default() })?;
    for (name, pause) in [("back to back", 0), ("after 20 us", 20), ("after 1 ms", 1000)] {
        let mut times: Vec<Duration> = (0..5000).map(|_| launch(&pool, pause)).collect();
        times.sort();
        println!(
            "{} threads, {name}: p10 {:?}, p50 {:?}, p90 {:?}",
            pool.threads(),
            times[times.len() / 10],
            times[times.len() / 2],
            times[times.len() * 9 / 10],
        );
    }
    Ok(())
}

/// The time of one empty loop, `pause` microseconds of other work after the last one.
fn launch(pool: &Pool, pause: u64) -> Duration {
    let idle = Instant::now();
    while idle.elapsed() < Duration::from_micros(pause) {
        std::hint::spin_loop();
    }
    let began = Instant::now();
    pool.run(pool.threads() as u64, &|_, range| {
        std::hint::black_box(range);
    });
    began.elapsed()
}
