//! The parts that the price of a program is made of, and the caches that they are counted for.

/// How much of the shorter parts the longest one does not hide.
pub(crate) const NOT_HIDDEN: f64 = 0.25;

/// Bytes that fit, and bytes that come from the next level in a cycle.
#[derive(Clone, Copy)]
pub(crate) struct Cache {
    pub(crate) bytes: f64,
    per_cycle: f64,
}

/// Levels as processors have them, each core's share of the last one; what is beyond is memory.
pub(crate) const CACHES: [Cache; 3] = [
    Cache { bytes: 32e3, per_cycle: 32.0 },
    Cache { bytes: 768e3, per_cycle: 12.0 },
    Cache { bytes: 8e6, per_cycle: 4.0 },
];

/// Cycles in which a byte comes that was used before so many others.
pub(crate) fn again(others: f64) -> f64 {
    CACHES.iter().filter(|cache| others > cache.bytes).map(|cache| 1.0 / cache.per_cycle).sum()
}

/// The parts that the price of a program is made of.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Parts {
    /// Cycles in which a core issues all instructions.
    pub issue: f64,
    /// Bytes that come from beyond each level of cache.
    pub missed: [f64; Parts::LEVELS],
}

impl Parts {
    /// Levels of cache.
    pub const LEVELS: usize = CACHES.len();

    /// Cycles in which the bytes of each level come.
    pub fn traffic(&self) -> [f64; Parts::LEVELS] {
        std::array::from_fn(|level| self.missed[level] / CACHES[level].per_cycle)
    }

    /// The price by the model alone.
    pub fn cycles(&self) -> f64 {
        let traffic = self.traffic().iter().sum();
        self.issue.max(traffic) + NOT_HIDDEN * self.issue.min(traffic)
    }
}
