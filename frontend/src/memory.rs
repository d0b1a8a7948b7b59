//! How much memory an import may take: in proportion to the files that it reads.
//!
//! A constant of the file is decoded once (`walk::constants`), but what an import makes of it is
//! not bounded by the file: constants are folded, bodies are copied. All of that is counted here
//! before it is allocated.

use std::cell::Cell;

/// The bytes that an import of an empty file may take.
const BASE: u64 = 1 << 30;
/// The bytes that an import may take for each byte of the files. A stored number takes up to eight
/// times its size in memory, and a constant may be folded into another one a few times.
const PER_BYTE: u64 = 16;
/// The bytes that a node of the graph takes, roughly and without its names.
pub(crate) const NODE: usize = 512;

pub(crate) struct Memory {
    used: Cell<u64>,
    limit: Cell<u64>,
}

impl Memory {
    /// For a model file of `bytes`.
    pub(crate) fn for_file(bytes: usize) -> Memory {
        let memory = Memory { used: Cell::new(0), limit: Cell::new(BASE) };
        memory.add_source(bytes as u64);
        memory
    }

    /// Another file holds data of the model.
    pub(crate) fn add_source(&self, bytes: u64) {
        self.limit.set(self.limit.get().saturating_add(bytes.saturating_mul(PER_BYTE)));
    }

    /// Whether half of what is left would hold `bytes`: for what may as well be left undone.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        (bytes as u64) <= (self.limit.get() - self.used.get()) / 2
    }

    /// Counts `bytes` that are about to be allocated.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), String> {
        let (used, limit) = (self.used.get().saturating_add(bytes as u64), self.limit.get());
        if used > limit {
            return Err(format!(
                "the model's constants and functions unfold to more than {limit} bytes, out of \
                 proportion to its files"
            ));
        }
        self.used.set(used);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_not_counted() {
        let memory = Memory::for_file(1000);
        assert!(memory.take(BASE as usize).is_ok());
        assert!(memory.take(16_001).is_err());
        assert!(memory.take(16_000).is_ok());
        assert!(memory.take(1).is_err());
        memory.add_source(1);
        assert!(memory.take(16).is_ok() && memory.take(usize::MAX).is_err());
    }
}
