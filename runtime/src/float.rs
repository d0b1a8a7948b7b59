//! How the processor computes with denormal numbers while compiled code runs.
//!
//! In: a [`Denormals`]. Out: a [`FloatMode`], under which the calling thread computes in that way,
//! rounds to nearest and traps nothing, whatever its mode was; when it is dropped, the thread's
//! control register is what it was, flags of past operations included.
//!
//! Processors take a hundred times as long for a denormal number as for another, and a softmax with
//! a mask makes many: `exp(-100)` is `3.8e-44`. Half floats are not concerned: their denormal
//! numbers are normal ones of `f32`, in which they are computed, and conversions keep them in
//! either mode.

use std::marker::PhantomData;

/// How operations treat numbers below the smallest normal one of their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Denormals {
    /// Operands and results are zeros, of the same sign.
    #[default]
    Flush,
    /// As IEEE 754 has it.
    Keep,
}

/// The calling thread's mode, until it is dropped.
#[must_use = "dropping it ends the mode"]
pub(crate) struct FloatMode {
    before: register::Word,
    /// It must be dropped by the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl FloatMode {
    pub(crate) fn enter(denormals: Denormals) -> FloatMode {
        let before = register::read();
        register::write(match denormals {
            Denormals::Flush => register::FLUSH,
            Denormals::Keep => register::KEEP,
        });
        FloatMode { before, _thread: PhantomData }
    }
}

impl Drop for FloatMode {
    fn drop(&mut self) {
        register::write(self.before);
    }
}

/// The register of `x86_64`, MXCSR.
#[cfg(target_arch = "x86_64")]
mod register {
    use std::arch::asm;

    pub(super) type Word = u32;

    /// No exception traps; rounding is to nearest.
    pub(super) const KEEP: Word = 0x1f80;
    /// Flush to zero (results), and denormals are zeros (operands).
    pub(super) const FLUSH: Word = KEEP | 1 << 15 | 1 << 6;

    pub(super) fn read() -> Word {
        let mut word = 0;
        // SAFETY: it stores 4 bytes, which `word` has.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
        word
    }

    pub(super) fn write(word: Word) {
        // SAFETY: `word` sets no reserved bit, as it is one of the constants or was read. Between
        // two calls this crate runs nothing but compiled code, which expects either mode.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack)) };
    }
}

/// The register of `aarch64`, FPCR. The bit for half floats (FZ16) is never set.
#[cfg(target_arch = "aarch64")]
mod register {
    use std::arch::asm;

    pub(super) type Word = u64;

    /// No exception traps; rounding is to nearest.
    pub(super) const KEEP: Word = 0;
    /// Flush to zero (FZ), both operands and results.
    pub(super) const FLUSH: Word = 1 << 24;

    pub(super) fn read() -> Word {
        let word;
        // SAFETY: every program may read it.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
        word
    }

    pub(super) fn write(word: Word) {
        // SAFETY: `word` sets no reserved bit, as it is one of the constants or was read. Between
        // two calls this crate runs nothing but compiled code, which expects either mode.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nostack)) };
    }
}

/// No artifact is for another processor; see [`crate::target`].
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub(super) type Word = ();

    pub(super) const KEEP: Word = ();
    pub(super) const FLUSH: Word = ();

    pub(super) fn read() -> Word {}

    pub(super) fn write((): Word) {}
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn the_mode_ends_with_its_guard() {
        let before = register::read();
        {
            let _flush = FloatMode::enter(Denormals::Flush);
            assert_eq!(register::read(), register::FLUSH);
            {
                let _keep = FloatMode::enter(Denormals::Keep);
                assert_eq!(register::read(), register::KEEP);
            }
            assert_eq!(register::read(), register::FLUSH);
        }
        assert_eq!(register::read(), before);
    }

    #[test]
    fn the_mode_ends_with_a_panic() {
        let before = register::read();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _flush = FloatMode::enter(Denormals::Flush);
            panic!("in the mode");
        }));
        assert!(panicked.is_err());
        assert_eq!(register::read(), before);
    }
}
