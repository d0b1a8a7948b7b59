//! Facts of a processor that schedules need.

/// A processor, for schedules.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Machine {
    /// Bytes of a vector register.
    pub vector_bytes: usize,
    /// Architectural vector registers.
    pub registers: usize,
    /// Units for matrices.
    pub units: Units,
}

/// Units of a processor that multiply small matrices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Units {
    /// AMX for pairs of `bf16`.
    pub amx_bf16: bool,
    /// AMX for bytes, four at a time.
    pub amx_int8: bool,
    /// `mma.sync` of a GPU.
    pub mma: bool,
}

impl Machine {
    /// A processor with vectors alone.
    pub const fn new(vector_bytes: usize, registers: usize) -> Machine {
        let units = Units { amx_bf16: false, amx_int8: false, mma: false };
        Machine { vector_bytes, registers, units }
    }
}
