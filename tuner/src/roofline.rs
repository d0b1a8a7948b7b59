//! Kernels under the roof of a machine.
//!
//! ```text
//! roof = min(flops_per_second, bytes_per_second * operations / bytes)
//! ```
//! Bytes are those that a kernel must move at least: every input and output once. A kernel that
//! moves them faster than memory does has them in a cache: its roof is how fast as many bytes are
//! copied there, where that was measured.

use serde::Serialize;

use crate::records::Limits;

/// The limit that keeps a kernel from being faster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Arithmetic: it does as many operations a second as the machine can.
    Compute,
    /// The bandwidth of the cache that holds its data.
    Caches,
    /// The bandwidth of memory.
    Memory,
}

/// How fast bytes are copied that lie in the nearest cache that holds them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Copying {
    /// Those that are read and those that are written, of all threads together.
    pub bytes: u64,
    /// Bytes that are read and written in a second.
    pub bytes_per_second: f64,
}

/// A kernel's place under the roofline of a machine.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Roofline {
    /// The limit that keeps it from being faster.
    pub bound: Bound,
    /// Operations for each byte.
    pub intensity: f64,
    /// Operations in a second that it reaches.
    pub flops_per_second: f64,
    /// The shortest time that the machine allows, as a share of the time that it takes.
    pub share: f64,
}

/// `work` are the operations of its program. None of a kernel that neither computes nor moves
/// anything. `copies` are in the order of their bytes, and may be none.
pub fn roofline(
    limits: &Limits,
    copies: &[Copying],
    work: u64,
    bytes: u64,
    seconds: f64,
) -> Option<Roofline> {
    let computing = work as f64 / limits.flops_per_second;
    let from_memory = bytes as f64 / limits.bytes_per_second;
    let cache = copies.iter().find(|c| c.bytes >= bytes).filter(|_| from_memory > seconds);
    let (moving, slope) = match cache {
        Some(cache) => (bytes as f64 / cache.bytes_per_second, Bound::Caches),
        None => (from_memory, Bound::Memory),
    };
    let least = computing.max(moving);
    (least > 0.0 && seconds > 0.0).then(|| Roofline {
        bound: if computing >= moving { Bound::Compute } else { slope },
        intensity: work as f64 / bytes.max(1) as f64,
        flops_per_second: work as f64 / seconds,
        share: least / seconds,
    })
}

impl Roofline {
    /// `computing, at 62% of what the machine can`
    pub fn in_words(&self) -> String {
        let of = match self.bound {
            Bound::Compute => "computing",
            Bound::Caches => "caches",
            Bound::Memory => "memory",
        };
        // The limits of the machine were measured, too. A few percent above them are noise, and are
        // not shown as a share.
        if self.share > 1.0 {
            return format!("{of}, as fast as the machine was measured to be");
        }
        format!("{of}, at {:.0}% of what the machine can", self.share * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_roof_counts() {
        let limits = Limits { flops_per_second: 100.0, bytes_per_second: 10.0 };
        let found = roofline(&limits, &[], 1000, 10, 20.0).unwrap();
        assert_eq!((found.bound, found.intensity, found.share), (Bound::Compute, 100.0, 0.5));
        assert_eq!(found.in_words(), "computing, at 50% of what the machine can");
        let found = roofline(&limits, &[], 10, 100, 40.0).unwrap();
        assert_eq!((found.bound, found.intensity, found.share), (Bound::Memory, 0.1, 0.25));
        assert_eq!(roofline(&limits, &[], 0, 0, 1.0), None);
        let found = roofline(&limits, &[], 1000, 10, 9.0).unwrap();
        assert_eq!(found.in_words(), "computing, as fast as the machine was measured to be");
    }

    #[test]
    fn what_is_faster_than_memory_is_in_the_nearest_cache_that_holds_it() {
        let limits = Limits { flops_per_second: 100.0, bytes_per_second: 10.0 };
        let copies = [(50, 80.0), (100, 40.0), (1000, 20.0)]
            .map(|(bytes, bytes_per_second)| Copying { bytes, bytes_per_second });
        let of = |flops, bytes, seconds| {
            let found = roofline(&limits, &copies, flops, bytes, seconds).unwrap();
            (found.bound, found.share)
        };
        assert_eq!(of(10, 100, 5.0), (Bound::Caches, 0.5));
        assert_eq!(of(10, 40, 1.0), (Bound::Caches, 0.5));
        // As slow as memory, larger than any cache, or busy with computing.
        assert_eq!(of(10, 100, 20.0), (Bound::Memory, 0.5));
        assert_eq!(of(10, 2000, 100.0), (Bound::Memory, 2.0));
        assert_eq!(of(400, 100, 5.0), (Bound::Compute, 0.8));
    }
}
