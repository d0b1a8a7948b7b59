//! Functions that the standard library does not have.

use half::bf16;

macro_rules! float_functions {
    ($($t:ident),*) => {$(
        pub(super) mod $t {
            /// NaN gives NaN.
            pub(in super::super) fn sign(x: $t) -> $t {
                if x > 0.0 {
                    1.0
                } else if x < 0.0 {
                    -1.0
                } else {
                    x
                }
            }

            /// `1 / (1 + exp(-x))`, without overflow on either side.
            pub(in super::super) fn sigmoid(x: $t) -> $t {
                let e = (-x.abs()).exp();
                if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
            }

            /// The remainder with the sign of `b`.
            pub(in super::super) fn floor_mod(a: $t, b: $t) -> $t {
                let r = a % b;
                if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
            }
        }
    )*};
}

float_functions!(f32, f64);

/// The sum of the products of the four bytes of `a`, without a sign, and those of `b`, with one:
/// less than 2^18.
pub(super) fn dot4(a: i32, b: i32) -> i32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes().map(|b| b as i8));
    a.into_iter().zip(b).map(|(a, b)| i32::from(a) * i32::from(b)).sum()
}

/// Two numbers as one, each bit of which depends on all of theirs.
pub(super) fn mix(a: u32, b: u32) -> u32 {
    let x = a.wrapping_add(b.wrapping_mul(0x9e37_79b1));
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// The sum of the products of the halves of `a` and `b`, modulo 2^32: the square of the least
/// number twice is 2^31.
pub(super) fn dot2(a: i32, b: i32) -> i32 {
    let halves = |x: i32| [x as i16, (x >> 16) as i16].map(i32::from);
    let ([a, c], [b, d]) = (halves(a), halves(b));
    (a * b).wrapping_add(c * d)
}

/// The bits of the significand that tensor cores read of an `f32`, halves rounded away from zero.
pub(super) fn tf32(x: f32) -> f32 {
    const LAST: u32 = 1 << 13;
    if x.is_nan() { x } else { f32::from_bits((x.to_bits() + LAST / 2) & !(LAST - 1)) }
}

/// Both numbers rounded to `bf16`, the first one in the lower half.
pub(super) fn pair_bf16(a: f32, b: f32) -> i32 {
    let bits = |x| u32::from(bf16::from_f32(x).to_bits());
    (bits(a) | bits(b) << 16) as i32
}

/// The sum of the products of the halves of `a` and `b`, each of which is a `bf16`.
pub(super) fn dot_bf16(a: i32, b: i32) -> f32 {
    let halves = |x: i32| [x << 16, x & 0xffff_0000_u32 as i32].map(|x| f32::from_bits(x as u32));
    let ([a, c], [b, d]) = (halves(a), halves(b));
    a * b + c * d
}

/// The error function, within about 1e-15 relative to the result.
///
/// Below 3 the series `2/sqrt(pi) * exp(-x^2) * sum (2x^2)^n x / (2n+1)!!`, all of whose terms are
/// positive; above it the continued fraction of the complement.
pub(super) fn erf(x: f64) -> f64 {
    let magnitude = x.abs();
    if magnitude.is_nan() {
        x
    } else if magnitude < 3.0 {
        series(x)
    } else if magnitude < 6.0 {
        (1.0 - complement(magnitude)).copysign(x)
    } else {
        1f64.copysign(x)
    }
}

fn series(x: f64) -> f64 {
    let square = x * x;
    let (mut term, mut sum) = (x, x);
    let mut odd = 1.0;
    while term.abs() > sum.abs() * 1e-17 {
        odd += 2.0;
        term *= 2.0 * square / odd;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-square).exp() * sum
}

/// `erfc(x)` for `x >= 3`, by the continued fraction `exp(-x^2)/sqrt(pi) / (x + (1/2)/(x + 1/(x +
/// ..)))` evaluated from the far end; 60 levels are exact to double precision from 3 on.
fn complement(x: f64) -> f64 {
    let tail = (1..=60).rev().fold(0.0, |tail, k| f64::from(k) * 0.5 / (x + tail));
    (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI * 0.5 / (x + tail)
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn erf_matches_tables() {
        // Abramowitz and Stegun, and Python's math.erf.
        let table = [
            (0.0, 0.0),
            (1e-10, 1.1283791670955126e-10),
            (0.1, 0.1124629160182849),
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.0, 0.9953222650189527),
            (2.9, 0.9999589021219005),
            (3.1, 0.9999883513426328),
            (4.0, 0.9999999845827421),
            (7.0, 1.0),
        ];
        for (x, expected) in table {
            for (x, expected) in [(x, expected), (-x, -expected)] {
                let found: f64 = erf(x);
                assert!((found - expected).abs() <= expected.abs() * 2e-15, "erf({x}) = {found}");
            }
        }
        assert!(erf(f64::NAN).is_nan());
        assert_eq!(erf(f64::INFINITY), 1.0);
    }
}
