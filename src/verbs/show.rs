//! Numbers and lists for people.

/// `1234567` as `1.2 MB`.
pub(super) fn human_bytes(bytes: u64) -> String {
    scaled(bytes, &["B", "kB", "MB", "GB"], 1)
}

/// `1234567` as `1.23 MFLOP`: operations of floats and integers.
pub(super) fn human_ops(operations: u64) -> String {
    scaled(operations, &["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], 2)
}

fn scaled(number: u64, units: &[&str], decimals: usize) -> String {
    let mut value = number as f64;
    let mut unit = 0;
    // A number that would round to a thousand is shown as one of the next unit.
    while value + 0.5 * 0.1f64.powi(decimals as i32) >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{number} {}", units[0])
    } else {
        format!("{value:.decimals$} {}", units[unit])
    }
}

/// `1 thread`, `2 threads`
pub(super) fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_rounded_away() {
        assert_eq!(human_ops(0), "0 FLOP");
        assert_eq!(human_ops(999), "999 FLOP");
        assert_eq!(human_ops(1500), "1.50 kFLOP");
        assert_eq!(human_ops(999_999), "1.00 MFLOP");
        assert_eq!(human_ops(3_640_000_000), "3.64 GFLOP");
        assert_eq!((human_bytes(12), human_bytes(1_234_567)), ("12 B".into(), "1.2 MB".into()));
        assert_eq!((counted(1, "run"), counted(0, "run")), ("1 run".into(), "0 runs".into()));
    }
}
