//! The range of a tensor's values that integers are made for.
//!
//! A wider range cuts off less and rounds more. [`Calibration`] says where to stop: at the
//! extremes, at a percentile, or where the distribution loses least (the divergence of Kullback and
//! Leibler).

use std::fmt;

/// How a range is chosen from the values that were seen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Calibration {
    /// From the least to the largest.
    MinMax,
    /// The range whose integers tell most of the distribution.
    Entropy,
    /// This share of the values, as in 0.99999, and an equal part of the others at either end.
    Percentile(f64),
}

impl Calibration {
    /// Whether values are counted, in a second run over the samples.
    pub fn counts(self) -> bool {
        self != Calibration::MinMax
    }

    /// As the command line takes it.
    pub fn option(self) -> String {
        match self {
            Calibration::Percentile(share) => format!("percentile={}", share * 100.0),
            other => other.to_string(),
        }
    }
}

/// Bins of a histogram, as many below zero as above.
const BINS: usize = 4096;
/// The integers of one sign, and of both together.
const ONE_SIGN: usize = 128;
const BOTH_SIGNS: usize = 256;

/// The values that were seen of one tensor.
#[derive(Clone, Debug)]
pub struct Seen {
    low: f32,
    high: f32,
    /// Elements by value, from minus the largest magnitude to that; empty until values are counted.
    bins: Vec<u64>,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen { low: f32::INFINITY, high: f32::NEG_INFINITY, bins: vec![] }
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Calibration::MinMax => f.write_str("minmax"),
            Calibration::Entropy => f.write_str("entropy"),
            Calibration::Percentile(share) => write!(f, "percentile {}", share * 100.0),
        }
    }
}

impl Seen {
    /// Values that are not finite have no place in a range.
    pub fn extremes(&mut self, values: &[f32]) {
        for value in values.iter().filter(|v| v.is_finite()) {
            self.low = self.low.min(*value);
            self.high = self.high.max(*value);
        }
    }

    /// Counts values, of which the extremes are known.
    pub fn count(&mut self, values: &[f32]) {
        self.bins.resize(BINS, 0);
        let per_unit = BINS as f64 / 2.0 / self.largest();
        for value in values.iter().filter(|v| v.is_finite()) {
            let bin = (f64::from(*value) * per_unit + BINS as f64 / 2.0) as usize;
            self.bins[bin.min(BINS - 1)] += 1;
        }
    }

    fn largest(&self) -> f64 {
        f64::from(self.low.abs().max(self.high.abs())).max(f64::from(f32::MIN_POSITIVE))
    }

    /// The least and the largest number that shall have an integer.
    pub fn range(&self, calibration: Calibration) -> (f32, f32) {
        if self.low > self.high {
            return (0.0, 0.0);
        }
        let (low, high) = match calibration {
            Calibration::MinMax => (f64::from(self.low), f64::from(self.high)),
            Calibration::Percentile(share) => self.percentile(share),
            Calibration::Entropy => {
                let bound = self.least_divergence();
                (-bound, bound)
            }
        };
        ((low as f32).max(self.low), (high as f32).min(self.high))
    }

    /// The border below a bin.
    fn border(&self, bin: usize) -> f64 {
        (bin as f64 / (BINS as f64 / 2.0) - 1.0) * self.largest()
    }

    fn percentile(&self, share: f64) -> (f64, f64) {
        let total: u64 = self.bins.iter().sum();
        // How many may lie outside at either end.
        let outside = ((1.0 - share) / 2.0 * total as f64) as u64;
        let first = |bins: &mut dyn Iterator<Item = &u64>| {
            let mut sum = 0;
            bins.take_while(|bin| {
                sum += **bin;
                sum <= outside
            })
            .count()
        };
        let below = first(&mut self.bins.iter());
        let above = first(&mut self.bins.iter().rev());
        (self.border(below), self.border(BINS - above))
    }

    /// The magnitude to cut off at.
    fn least_divergence(&self) -> f64 {
        let (below, above) = self.bins.split_at(BINS / 2);
        let magnitudes: Vec<f64> =
            above.iter().zip(below.iter().rev()).map(|(a, b)| (a + b) as f64).collect();
        let levels = if self.low < 0.0 { ONE_SIGN } else { BOTH_SIGNS };
        let cuts = (levels..=magnitudes.len()).step_by(16);
        let divergence = |cut: &usize| divergence(&magnitudes, *cut, levels);
        let best = cuts.min_by(|a, b| divergence(a).total_cmp(&divergence(b)));
        self.border(BINS / 2 + best.unwrap_or(magnitudes.len()))
    }
}

/// How much is lost of a distribution that is cut off after `cut` bins and told by `levels`
/// numbers.
fn divergence(bins: &[f64], cut: usize, levels: usize) -> f64 {
    let total: f64 = bins.iter().sum();
    if total == 0.0 {
        return 0.0;
    }
    // The values that are cut off go to the last bin of the distribution. The integers do not know
    // of them.
    let outside: f64 = bins[cut..].iter().sum();
    let inside: f64 = total - outside;
    if inside == 0.0 {
        return f64::INFINITY;
    }
    let mut sum = 0.0;
    for level in 0..levels {
        let (from, to) = (level * cut / levels, (level + 1) * cut / levels);
        let filled = bins[from..to].iter().filter(|b| **b > 0.0).count();
        let mass: f64 = bins[from..to].iter().sum();
        for (i, bin) in bins[from..to].iter().enumerate() {
            let last = from + i + 1 == cut;
            let p = (bin + if last { outside } else { 0.0 }) / total;
            let q = if *bin > 0.0 { mass / filled as f64 / inside } else { 0.0 };
            sum += match (p > 0.0, q > 0.0) {
                (false, _) => 0.0,
                (true, true) => p * (p / q).ln(),
                // As if there were one element of that kind in a million.
                (true, false) => p * (p / 1e-6).ln(),
            };
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(values: &[f32]) -> Seen {
        let mut seen = Seen::default();
        seen.extremes(values);
        seen.count(values);
        seen
    }

    /// The sums of twelve uniform numbers are nearly normal; one is far off.
    fn with_an_outlier() -> Vec<f32> {
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        let mut values: Vec<f32> =
            (0..20_000).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect();
        values.push(100.0);
        values
    }

    #[test]
    fn the_extremes_are_those_of_all_finite_values() {
        let s = seen(&[3.0, -1.0, f32::NAN, f32::INFINITY, 0.5]);
        assert_eq!(s.range(Calibration::MinMax), (-1.0, 3.0));
        assert_eq!(Seen::default().range(Calibration::Entropy), (0.0, 0.0));
    }

    #[test]
    fn an_outlier_is_cut_off() {
        let values = with_an_outlier();
        let s = seen(&values);
        assert_eq!(s.range(Calibration::MinMax).1, 100.0);
        for calibration in [Calibration::Percentile(0.9998), Calibration::Entropy] {
            let (low, high) = s.range(calibration);
            assert!(low < -3.0 && (3.0..25.0).contains(&high), "{calibration}: {low} {high}");
        }
    }

    #[test]
    fn a_percentile_leaves_out_what_it_says() {
        let values: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        let (low, high) = seen(&values).range(Calibration::Percentile(0.9));
        assert!((low - 50.0).abs() < 2.0 && (high - 950.0).abs() < 2.0, "{low} {high}");
        let (low, high) = seen(&values).range(Calibration::Percentile(1.0));
        assert!(low == 0.0 && high >= 998.0, "{low} {high}");
    }

    #[test]
    fn a_uniform_distribution_is_kept_whole() {
        let values: Vec<f32> = (0..100_000).map(|i| i as f32 / 50_000.0 - 1.0).collect();
        let (low, high) = seen(&values).range(Calibration::Entropy);
        assert!(low < -0.9 && high > 0.9, "{low} {high}");
    }
}
