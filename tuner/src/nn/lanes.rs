//! Vectors of floats of a processor, for products of matrices and for attention.
//!
//! ```text
//! sums = sums.plus_product(x, y)     sums[i] + x[i] * y[i], rounded twice
//! ```
//!
//! No product is fused with a sum, so that all processors give the same.

/// Does the work with the widest vectors that the processor has: what is inlined into `work` is
/// compiled for them. Sums stay in the order in which they are written.
pub(super) fn widest<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f")]
        fn avx512<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[target_feature(enable = "avx2")]
        fn avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the feature, as was just asked.
            return unsafe { avx512(work) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the feature, as was just asked.
            return unsafe { avx2(work) };
        }
    }
    work()
}

/// `e^x` to within two units in the last place, for `x` of at most 88; what is below -87 counts as
/// that. It has no branch, so that a loop of it becomes vectors.
///
/// `x = n ln 2 + r` with an integer `n`, and `e^r` by its series.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Adding it rounds to an integer, which is in the last bits then.
    const ROUND: f32 = 12_582_912.0;
    /// The first has few digits, so that its products with `n` are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    const SERIES: [f32; 7] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let rounded = x.max(-87.0) * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x.max(-87.0) - n * LN_2[0] - n * LN_2[1];
    let power = SERIES.into_iter().fold(0.0, |sum, factor| sum * r + factor);
    let bits = rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    power * f32::from_bits(bits)
}

/// A vector register, or an array in its place.
pub(super) trait Lanes: Copy {
    const COUNT: usize;

    /// # Safety
    /// The processor has the vectors.
    unsafe fn splat(x: f32) -> Self;

    /// # Safety
    /// The processor has the vectors, and so many floats are there.
    unsafe fn load(from: *const f32) -> Self;

    /// # Safety
    /// The processor has the vectors, and there is room for so many floats.
    unsafe fn store(self, to: *mut f32);

    /// # Safety
    /// The processor has the vectors.
    unsafe fn plus_product(self, x: Self, y: Self) -> Self;
}

impl Lanes for [f32; 4] {
    const COUNT: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; 4]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn plus_product(self, x: Self, y: Self) -> Self {
        std::array::from_fn(|i| self[i] + x[i] * y[i])
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Lanes;

    impl Lanes for __m512 {
        const COUNT: usize = 16;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            // SAFETY: the caller's promise.
            unsafe { _mm512_set1_ps(x) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller's promise.
            unsafe { _mm512_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_ps(to, self) }
        }

        #[inline(always)]
        unsafe fn plus_product(self, x: Self, y: Self) -> Self {
            // SAFETY: the caller's promise.
            unsafe { _mm512_add_ps(self, _mm512_mul_ps(x, y)) }
        }
    }

    impl Lanes for __m256 {
        const COUNT: usize = 8;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            // SAFETY: the caller's promise.
            unsafe { _mm256_set1_ps(x) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller's promise.
            unsafe { _mm256_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller's promise.
            unsafe { _mm256_storeu_ps(to, self) }
        }

        #[inline(always)]
        unsafe fn plus_product(self, x: Self, y: Self) -> Self {
            // SAFETY: the caller's promise.
            unsafe { _mm256_add_ps(self, _mm256_mul_ps(x, y)) }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn powers_are_those_of_the_library() {
        for i in -86_990..=88_000 {
            let x = i as f32 * 1e-3;
            let (found, expected) = (f64::from(super::exp(x)), f64::from(x).exp());
            assert!((found / expected - 1.0).abs() < 2.5e-7, "{x}: {found} {expected}");
        }
        assert_eq!(super::exp(0.0), 1.0);
        assert_eq!(super::exp(f32::NEG_INFINITY), super::exp(-87.0));
    }
}
