//! Integers that are ordered as the elements of a tensor are.
//!
//! `-0.0` and `0.0` have one key, all NaNs have the largest.

use std::ops::BitXor;

use half::{bf16, f16};

use crate::dtype::Element;

/// The place of an element in its lane.
pub(super) type Index = u32;

/// An element with a key.
pub(super) trait Keyed: Element {
    /// Signed, for vector units compare signed integers.
    type Key: Key;

    /// `a < b` if and only if `a.key() < b.key()`, with NaN above all numbers.
    fn key(self) -> Self::Key;
}

pub(super) trait Key: Copy + Ord + Default + BitXor<Output = Self> + Send + Sync {
    const MAX: Self;
    const MIN: Self;

    /// A key and an index.
    type Packed: Copy + Ord + Default + Send + Sync;

    /// A number that turns the order of keys around, if asked to, where it is xored to all of them.
    fn turn(around: bool) -> Self;

    /// The next key below, and the least one for itself.
    fn below(self) -> Self;

    /// One number that orders keys, and equal keys by the index.
    fn pack(self, index: Index) -> Self::Packed;

    fn unpack(packed: Self::Packed) -> Self;

    fn index_of(packed: Self::Packed) -> Index;
}

macro_rules! keys {
    ($($t:ty as $unsigned:ty, $packed:ty;)*) => {$(
        impl Key for $t {
            const MAX: $t = <$t>::MAX;
            const MIN: $t = <$t>::MIN;

            type Packed = $packed;

            #[inline(always)]
            fn turn(around: bool) -> $t {
                if around { -1 } else { 0 }
            }

            #[inline(always)]
            fn below(self) -> $t {
                self.saturating_sub(1)
            }

            #[inline(always)]
            fn pack(self, index: Index) -> $packed {
                let key = (self ^ <$t>::MIN) as $unsigned;
                <$packed>::from(key) << Index::BITS | <$packed>::from(index)
            }

            #[inline(always)]
            fn unpack(packed: $packed) -> $t {
                (packed >> Index::BITS) as $t ^ <$t>::MIN
            }

            #[inline(always)]
            fn index_of(packed: $packed) -> Index {
                packed as Index
            }
        }
    )*};
}

keys! {
    i32 as u32, u64;
    i64 as u64, u128;
}

macro_rules! keyed {
    ($($t:ty => $key:ty, $x:ident => $e:expr;)*) => {$(
        impl Keyed for $t {
            type Key = $key;

            #[inline(always)]
            fn key(self) -> $key {
                let $x = self;
                $e
            }
        }
    )*};
}

/// The key of a float with these bits, as many as `$key` has. `$infinity` are the bits of infinity.
macro_rules! float_key {
    ($key:ty, $bits:expr, $infinity:expr) => {{
        let bits = $bits as $key;
        let size = bits & <$key>::MAX;
        let key = if bits < 0 { size.wrapping_neg() } else { size };
        if size > $infinity { <$key>::MAX } else { key }
    }};
}

keyed! {
    bool => i32, x => x.into();
    u8 => i32, x => x.into();
    i8 => i32, x => x.into();
    u16 => i32, x => x.into();
    i16 => i32, x => x.into();
    i32 => i32, x => x;
    u32 => i32, x => (x ^ 1 << 31) as i32;
    i64 => i64, x => x;
    u64 => i64, x => (x ^ 1 << 63) as i64;
    f16 => i32, x => float_key!(i16, x.to_bits(), f16::INFINITY.to_bits() as i16).into();
    bf16 => i32, x => float_key!(i16, x.to_bits(), bf16::INFINITY.to_bits() as i16).into();
    f32 => i32, x => float_key!(i32, x.to_bits(), f32::INFINITY.to_bits() as i32);
    f64 => i64, x => float_key!(i64, x.to_bits(), f64::INFINITY.to_bits() as i64);
}

#[cfg(test)]
mod tests {
    use super::super::super::number::Number;
    use super::*;

    /// The order of keys against that of numbers, which compares floats as such.
    fn same_order<T: Keyed + Number>(values: &[T]) {
        for &a in values {
            for &b in values {
                let (x, y) = (a.key(), b.key());
                assert_eq!(x.cmp(&y), a.order(b), "{a:?} and {b:?}");
                let turn = T::Key::turn(true);
                assert_eq!((x ^ turn).cmp(&(y ^ turn)), b.order(a), "{a:?} and {b:?}");
                assert_eq!(x.pack(3).cmp(&y.pack(3)), a.order(b), "{a:?} and {b:?}");
            }
            let packed = a.key().pack(Index::MAX);
            assert!(T::Key::unpack(packed) == a.key() && T::Key::index_of(packed) == Index::MAX);
            assert!(a.key().pack(1) < a.key().pack(2));
        }
    }

    #[test]
    fn keys_are_ordered_as_elements_are() {
        same_order(&[false, true]);
        same_order(&[0u8, 1, 127, 128, 255]);
        same_order(&[0i8, 1, -1, i8::MIN, i8::MAX]);
        same_order(&[0u16, 1, 1 << 15, u16::MAX]);
        same_order(&[0i16, -1, i16::MIN, i16::MAX]);
        same_order(&[0u32, 1, 1 << 31, u32::MAX]);
        same_order(&[0i32, -1, i32::MIN, i32::MAX]);
        same_order(&[0u64, 1, 1 << 63, u64::MAX]);
        same_order(&[0i64, -1, i64::MIN, i64::MAX]);
        let floats = [0.0, 1e-7, 1.0, 1.5, 3e4, f64::INFINITY, f64::NAN, 5e-324, 1e-45, 1e300];
        let floats: Vec<f64> = floats.iter().flat_map(|&x| [x, -x]).collect();
        same_order(&floats);
        same_order(&floats.iter().map(|&x| x as f32).collect::<Vec<_>>());
        same_order(&floats.iter().map(|&x| f16::from_f64(x)).collect::<Vec<_>>());
        same_order(&floats.iter().map(|&x| bf16::from_f64(x)).collect::<Vec<_>>());
    }
}
