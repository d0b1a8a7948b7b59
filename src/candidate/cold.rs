//! Taking memory out of the caches.

/// Bytes that a line of every cache of such a processor has at least.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Afterwards the bytes are in memory, and in no cache.
#[cfg(target_arch = "x86_64")]
pub(super) fn evict(bytes: &[u8]) {
    use std::arch::x86_64::{_mm_clflush, _mm_mfence};
    for line in bytes.chunks(LINE) {
        // SAFETY: SSE2 is part of x86-64, and the address is of memory that is borrowed here.
        unsafe { _mm_clflush(line.as_ptr()) };
    }
    // SAFETY: as above. The last line of a slice that does not begin with one is missed by the loop.
    unsafe {
        bytes.last().into_iter().for_each(|last| _mm_clflush(last));
        _mm_mfence();
    }
}

/// Afterwards the caches are full of something else.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn evict(_: &[u8]) {
    use std::cell::RefCell;
    use std::hint::black_box;

    thread_local! {
        static TRASH: RefCell<Vec<u8>> = RefCell::new(vec![0; super::timing::FLUSH_BYTES]);
    }
    TRASH.with_borrow_mut(|trash| {
        trash.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
        black_box(trash);
    });
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Each line says which one to read next, so that no two reads overlap and nobody can guess.
    #[test]
    fn bytes_stay_what_they_are_and_come_from_memory() {
        const LINES: usize = 1 << 14;
        const STEP: usize = 7919;
        let mut bytes = vec![0u8; 64 * LINES];
        for line in 0..LINES {
            let next = ((line + STEP) % LINES) as u16;
            bytes[64 * line..][..2].copy_from_slice(&next.to_le_bytes());
        }
        let walk = || {
            let (start, mut at) = (Instant::now(), 0);
            for _ in 0..1000 {
                at = usize::from(u16::from_le_bytes([bytes[64 * at], bytes[64 * at + 1]]));
            }
            assert_eq!(at, 1000 * STEP % LINES);
            start.elapsed()
        };
        let fastest = |prepare: &dyn Fn()| {
            let one = |_| {
                prepare();
                walk()
            };
            (0..30).map(one).min().unwrap()
        };
        let warm = fastest(&|| {});
        let cold = fastest(&|| evict(&bytes));
        assert!(cold > warm * 2, "{cold:?} and {warm:?}");
    }
}
