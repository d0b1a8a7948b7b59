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

    #[test]
    fn bytes_stay_what_they_are_and_take_longer_to_read() {
        let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| i as u8).collect();
        let read = || {
            let start = Instant::now();
            let sum: u64 = bytes.iter().map(|&b| u64::from(b)).sum();
            (sum, start.elapsed())
        };
        let (expected, _) = read();
        let fastest = |cold: bool| {
            let one = |_| {
                if cold {
                    evict(&bytes);
                }
                let (sum, time) = read();
                assert_eq!(sum, expected);
                time
            };
            (0..30).map(one).min().unwrap()
        };
        assert!(fastest(true) > fastest(false));
    }
}
