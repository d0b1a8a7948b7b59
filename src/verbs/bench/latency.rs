//! Summarises a list of times.

use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Latency {
    pub(super) runs: usize,
    pub(super) threads: usize,
    pub(super) min_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p90_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
    pub(super) mean_ms: f64,
    /// The standard deviation.
    pub(super) std_ms: f64,
    /// None if nobody knows how much was computed.
    pub(super) gflops: Option<f64>,
}

/// Takes the times of at least one run, in milliseconds.
pub(super) fn summarise(times: &[f64], threads: usize, flops: Option<u64>) -> Latency {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let variance = times.iter().map(|t| (t - mean) * (t - mean)).sum::<f64>() / count;
    Latency {
        runs: times.len(),
        threads,
        min_ms: at(0.0),
        p50_ms: at(0.5),
        p90_ms: at(0.9),
        p95_ms: at(0.95),
        p99_ms: at(0.99),
        max_ms: at(1.0),
        mean_ms: mean,
        std_ms: variance.sqrt(),
        gflops: flops.map(|flops| flops as f64 / at(0.5) / 1e6),
    }
}

impl Latency {
    /// The rate in parentheses, after a space.
    pub(super) fn rate(&self) -> String {
        self.gflops.map_or_else(String::new, |rate| format!(" ({rate:.1} GFLOP/s)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_four_runs() {
        let latency = summarise(&[4.0, 1.0, 3.0, 2.0], 2, Some(3_000_000));
        assert_eq!((latency.min_ms, latency.max_ms, latency.mean_ms), (1.0, 4.0, 2.5));
        assert_eq!((latency.p50_ms, latency.p95_ms), (3.0, 4.0));
        assert!((latency.std_ms - 1.25f64.sqrt()).abs() < 1e-12);
        assert_eq!(latency.gflops, Some(1.0));
    }
}
