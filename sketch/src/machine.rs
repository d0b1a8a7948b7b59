//! Facts of a processor that schedules need.

use std::sync::Arc;

use crate::features::Features;

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

/// Has learned from measurements how far prices are from times.
pub trait Corrects: Send + Sync {
    /// The natural logarithm of what the price of a program is to be multiplied by.
    fn correction(&self, features: &Features) -> f64;
}

/// The model that corrects prices, or nothing where nobody has measured. Machines that differ in
/// this alone are equal only if they share it.
#[derive(Clone, Default)]
pub struct Correction(pub Option<Arc<dyn Corrects>>);

impl PartialEq for Correction {
    fn eq(&self, other: &Correction) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl Eq for Correction {}

impl std::hash::Hash for Correction {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.is_some().hash(state);
    }
}

impl std::fmt::Debug for Correction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "learned" } else { "none" })
    }
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
