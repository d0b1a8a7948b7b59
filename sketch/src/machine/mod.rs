//! Facts of a processor that schedules need.

mod correction;
mod parts;

pub use correction::{Correction, Corrects};
pub use parts::Parts;
pub(crate) use parts::{CACHES, NOT_HIDDEN, again};

/// A processor, for schedules.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Machine {
    /// Bytes of a vector register.
    pub vector_bytes: usize,
    /// Architectural vector registers.
    pub registers: usize,
    /// Units for matrices.
    pub units: Units,
    /// Corrects prices by measurements.
    pub correction: Correction,
}

/// Units of a processor that multiply small matrices, or add up products in vectors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Units {
    /// AMX for pairs of `bf16`.
    pub amx_bf16: bool,
    /// AMX for bytes, four at a time.
    pub amx_int8: bool,
    /// `mma.sync` of a GPU.
    pub mma: bool,
    /// Vectors of bytes, four at a time: `vpdpbusd`, or `sdot`.
    pub bytes: bool,
    /// Vectors of pairs of words, where there are none of bytes: `pmaddwd` without `vpdpbusd`.
    pub pairs: bool,
    /// Vectors of pairs of `bf16`, which take no longer than those of floats.
    pub bf16: bool,
}

impl Units {
    /// Vectors of floats and of integers, one element at a time.
    pub const NONE: Units = Units {
        amx_bf16: false,
        amx_int8: false,
        mma: false,
        bytes: false,
        pairs: false,
        bf16: false,
    };
}

impl Machine {
    /// A processor with vectors alone.
    pub const fn new(vector_bytes: usize, registers: usize) -> Machine {
        Machine { vector_bytes, registers, units: Units::NONE, correction: Correction(None) }
    }

    /// Bytes of the cache that a core has for itself, at least: processors with vectors of 64 bytes
    /// have larger ones.
    pub(crate) fn own_cache(&self) -> usize {
        if self.vector_bytes >= 64 { 1 << 20 } else { 256 << 10 }
    }
}
