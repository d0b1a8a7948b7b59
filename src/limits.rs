//! The most that this machine can do: products and sums in a second, bytes from and to memory in a
//! second.
//!
//! Measured with vectors as wide as the processor has and with all of the threads at once, for a
//! fraction of a second; the best of several tries, since whatever else runs can only make it
//! slower.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::{Barrier, OnceLock};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use ansc_tuner::records::Limits;
use ansc_tuner::roofline::Copying;

use crate::Error;

/// Tries of each measurement.
const TRIES: usize = 5;
/// Operations of one thread and try: some milliseconds.
const ROUNDS: usize = 400_000;
/// Bytes that one thread copies: more than its share of any cache that we know.
const BYTES: usize = 48 << 20;
/// Powers of two: bytes of copies, from what the nearest cache holds to more than most of the last
/// ones do.
const COPIES: RangeInclusive<u32> = 14..=25;
/// Bytes that one thread moves in a try where what it copies is small: some hundred microseconds.
const MOVED: usize = 8 << 20;

/// The highest rates of computing and of memory that were measured.
pub fn measure(threads: usize) -> Result<Limits, Error> {
    let threads = at_most_cores(threads);
    let flops = best(threads, || (), |()| fused())?;
    let bytes = best(
        threads,
        || (vec![1u64; BYTES / 8], vec![0u64; BYTES / 8]),
        |(from, to)| {
            to.copy_from_slice(black_box(from));
            black_box(to);
            2.0 * BYTES as f64
        },
    )?;
    Ok(Limits { flops_per_second: flops, bytes_per_second: bytes })
}

/// The highest rate of the unit for matrices with products of `bf16`. None if there is no such
/// unit, or if code may not use it.
pub fn tiles(threads: usize) -> Result<Option<f64>, Error> {
    #[cfg(target_arch = "x86_64")]
    if ["amx-tile", "amx-bf16"].into_iter().all(|f| ansc_runtime::target::lacks(f).is_none()) {
        // SAFETY: the processor has these instructions, and the kernel has given permission.
        return best(at_most_cores(threads), || (), |()| unsafe { x86::tiles() }).map(Some);
    }
    let _ = threads;
    Ok(None)
}

/// More threads than cores make no machine faster, but take memory.
fn at_most_cores(threads: usize) -> usize {
    threads.clamp(1, ansc_runtime::pool::cores())
}

/// How fast copies are whose bytes the last ones have left in the caches.
pub fn copies(threads: usize) -> Result<Vec<Copying>, Error> {
    COPIES.map(|power| copying(at_most_cores(threads), 1 << power)).collect()
}

fn copying(threads: usize, bytes: usize) -> Result<Copying, Error> {
    let words = (bytes / 2 / size_of::<u64>() / threads).max(1);
    let moved = 2 * words * size_of::<u64>();
    let times = (MOVED / moved).max(1);
    let bytes_per_second = best(
        threads,
        || (vec![1u64; words], vec![0u64; words]),
        |(from, to)| {
            for _ in 0..times {
                to.copy_from_slice(black_box(&*from));
                black_box(&mut *to);
            }
            (times * moved) as f64
        },
    )?;
    Ok(Copying { bytes: bytes as u64, bytes_per_second })
}

/// How much all threads together do in a second, at best. `work` says how much it did.
fn best<T>(
    threads: usize,
    memory: impl Fn() -> T + Sync,
    work: impl Fn(&mut T) -> f64 + Sync,
) -> Result<f64, Error> {
    // Open once all threads have started, or one could not be.
    let gate: OnceLock<Option<Barrier>> = OnceLock::new();
    let each = || {
        let Some(barrier) = gate.wait() else { return vec![] };
        let mut memory = memory();
        let mut all = vec![];
        for _ in 0..TRIES {
            barrier.wait();
            let start = Instant::now();
            let done = work(&mut memory);
            all.push(done / start.elapsed().as_secs_f64());
        }
        all
    };
    let rates = std::thread::scope(|scope| -> std::io::Result<Vec<Vec<f64>>> {
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, each);
        let started: std::io::Result<Vec<_>> = (0..threads).map(spawn).collect();
        gate.get_or_init(|| started.is_ok().then(|| Barrier::new(threads)));
        let join = |handle: ScopedJoinHandle<'_, _>| handle.join().expect("no panic in there");
        Ok(started?.into_iter().map(join).collect())
    });
    let rates = rates.map_err(|e| {
        Error::Machine(format!("{threads} threads cannot be started: {e}; take fewer `--threads`"))
    })?;
    let together = |i: usize| rates.iter().map(|of_thread| of_thread[i]).sum::<f64>();
    Ok((0..TRIES).map(together).fold(0.0, f64::max))
}

/// Independent sums: enough for every unit to be busy while each waits for its last result.
const SUMS: usize = 12;

/// Each sum in a variable of its own, in a loop without calls: what stays in memory waits for a
/// store, also where this is compiled with few optimisations.
macro_rules! sums {
    ($first:expr, $next:expr) => {
        sums!($first, $next, s0 s1 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11)
    };
    ($first:expr, $next:expr, $($sum:ident)*) => {{
        $(let mut $sum = $first;)*
        let mut round = 0;
        while round < ROUNDS {
            $($sum = $next($sum);)*
            round += 1;
        }
        let all: [_; SUMS] = [$($sum),*];
        black_box(all);
    }};
}

#[cfg(target_arch = "x86_64")]
fn fused() -> f64 {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has these instructions.
        return unsafe { x86::fused_512() };
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has these instructions.
        return unsafe { x86::fused_256() };
    }
    portable()
}

#[cfg(not(target_arch = "x86_64"))]
fn fused() -> f64 {
    portable()
}

/// Vectors of four, which the compiler makes of whatever the target's lowest common instructions
/// are.
fn portable() -> f64 {
    const LANES: usize = 4;
    let (a, b) = (black_box(0.999f32), black_box(1e-3f32));
    sums!([0f32; LANES], |sum: [f32; LANES]| sum.map(|s| s * a + b));
    (2 * ROUNDS * SUMS * LANES) as f64
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::{ROUNDS, SUMS};

    /// Rounds of products of tiles: about as long as the others take.
    const TILE_ROUNDS: usize = 200_000;
    /// Bytes of a tile's row, and of the configuration of all tiles.
    const ROW: usize = 64;
    const ROWS: u8 = 16;

    #[repr(align(64))]
    struct Line<const N: usize>([u8; N]);

    /// Two tiles by two tiles, in registers: as many products at a time as kernels have. Zeros
    /// would be faster than numbers.
    ///
    /// # Safety
    /// The processor has AMX for `bf16`, and the process may use it.
    pub(super) unsafe fn tiles() -> f64 {
        let mut config = Line([0u8; ROW]);
        config.0[0] = 1;
        for tile in 0..8 {
            config.0[16 + 2 * tile] = ROW as u8;
            config.0[48 + tile] = ROWS;
        }
        let mut numbers = Line([0u8; ROW * ROWS as usize]);
        let mut state = 1u32;
        for number in numbers.0.chunks_exact_mut(2) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Numbers between a half and one, of both signs.
            let bits = 0x3f00 | (state >> 25) as u16 | ((state >> 24) as u16 & 1) << 15;
            number.copy_from_slice(&bits.to_le_bytes());
        }
        // SAFETY: the configuration and the numbers are as large as the instructions read, and no
        // other code uses tiles.
        unsafe {
            std::arch::asm!(
                "ldtilecfg [{config}]",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "tileloadd tmm4, [{numbers} + {row}*1]",
                "tileloadd tmm5, [{numbers} + {row}*1]",
                "tileloadd tmm6, [{numbers} + {row}*1]",
                "tileloadd tmm7, [{numbers} + {row}*1]",
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "dec {rounds}",
                "jnz 2b",
                "tilerelease",
                config = in(reg) config.0.as_ptr(),
                numbers = in(reg) numbers.0.as_ptr(),
                row = in(reg) ROW,
                rounds = inout(reg) TILE_ROUNDS => _,
                options(nostack),
            );
        }
        // Sixteen rows by sixteen columns by 32 terms each.
        (2 * TILE_ROUNDS * 4 * 16 * 16 * 32) as f64
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn fused_256() -> f64 {
        let (a, b) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(1e-3)));
        sums!(b, |sum| _mm256_fmadd_ps(sum, a, b));
        (2 * ROUNDS * SUMS * 8) as f64
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn fused_512() -> f64 {
        let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(1e-3)));
        sums!(b, |sum| _mm512_fmadd_ps(sum, a, b));
        (2 * ROUNDS * SUMS * 16) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_a_computer() {
        let limits = measure(1).unwrap();
        assert!((1e8..1e13).contains(&limits.flops_per_second), "{limits:?}");
        assert!((1e8..1e13).contains(&limits.bytes_per_second), "{limits:?}");
    }

    #[test]
    fn tiles_do_more_than_vectors() {
        if let Some(tiles) = tiles(1).unwrap() {
            let vectors = measure(1).unwrap().flops_per_second;
            assert!(tiles > 2.0 * vectors && tiles < 1e14, "{tiles} {vectors}");
        }
    }

    #[test]
    fn copies_of_all_sizes() {
        for threads in [1, 3] {
            let copies = copies(threads).unwrap();
            assert!(copies.is_sorted_by_key(|c| c.bytes) && copies.len() == COPIES.count());
            let sound = |c: &Copying| (1e8..1e14).contains(&c.bytes_per_second);
            assert!(copies.iter().all(sound), "{copies:?}");
        }
    }
}
