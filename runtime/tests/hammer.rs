//! Eight sessions at once for a while. A process of its own: what other tests allocate would
//! disturb the measurement of memory.

mod common;
#[path = "../examples/hammer.rs"]
mod hammer;

use std::time::Duration;

use common::Builder;

/// Seconds of hammering: 2, or what the environment says.
fn seconds() -> f64 {
    std::env::var("ANSC_HAMMER_SECONDS").map_or(2.0, |n| n.parse().expect("a number"))
}

#[test]
fn eight_threads_get_right_outputs_in_flat_memory() {
    let mut b = common::sample();
    let middle = ansc_runtime::manifest::BufferId(2);
    b.expose("middle", middle);
    let report = hammer::hammer(&b.load(), 8, Duration::from_secs_f64(seconds()), 2 << 20).unwrap();
    assert!(report.runs >= 16 && report.resident_before > 0 && report.resident_after > 0);
}

#[test]
fn wrong_outputs_are_noticed() {
    let mut b = Builder::new();
    let y = b.output("y", ansc_runtime::DType::I64, &[]);
    b.step("count", 1, &[y], "static int64_t n; *(int64_t *)b[0] = n++;");
    let error = hammer::hammer(&b.load(), 2, Duration::from_millis(20), 2 << 20).err().unwrap();
    assert!(error.starts_with("wrong output in run 0"), "{error}");
}
