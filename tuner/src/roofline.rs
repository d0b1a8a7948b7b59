//! Kernels under the roof of a machine.
//!
//! ```text
//! roof = min(flops_per_second, bytes_per_second * operations / bytes)
//! ```
//! Bytes are those that a kernel must move at least: every input and output once. Data that is in a cache
//! already may come faster than memory gives it; then a kernel stands above the slope.

use serde::Serialize;

use crate::records::Limits;

/// What keeps a kernel from being faster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    Compute,
    Memory,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Roofline {
    pub bound: Bound,
    /// Operations for each byte.
    pub intensity: f64,
    pub flops_per_second: f64,
    /// The shortest time that the machine allows, as a share of the time that it takes.
    pub share: f64,
}

/// None of a kernel that neither computes nor moves anything.
pub fn roofline(limits: &Limits, flops: u64, bytes: u64, seconds: f64) -> Option<Roofline> {
    let computing = flops as f64 / limits.flops_per_second;
    let moving = bytes as f64 / limits.bytes_per_second;
    let least = computing.max(moving);
    (least > 0.0 && seconds > 0.0).then(|| Roofline {
        bound: if computing >= moving { Bound::Compute } else { Bound::Memory },
        intensity: flops as f64 / bytes.max(1) as f64,
        flops_per_second: flops as f64 / seconds,
        share: least / seconds,
    })
}

impl Roofline {
    /// `compute, 62% of the peak`
    pub fn in_words(&self) -> String {
        let of = match self.bound {
            Bound::Compute => "computing, at",
            Bound::Memory => "memory, at",
        };
        format!("{of} {:.0}% of what the machine can", self.share * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_roof_counts() {
        let limits = Limits { flops_per_second: 100.0, bytes_per_second: 10.0 };
        let found = roofline(&limits, 1000, 10, 20.0).unwrap();
        assert_eq!((found.bound, found.intensity, found.share), (Bound::Compute, 100.0, 0.5));
        assert_eq!(found.in_words(), "computing, at 50% of what the machine can");
        let found = roofline(&limits, 10, 100, 40.0).unwrap();
        assert_eq!((found.bound, found.intensity, found.share), (Bound::Memory, 0.1, 0.25));
        assert_eq!(roofline(&limits, 0, 0, 1.0), None);
    }
}
