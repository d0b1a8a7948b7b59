//! `Draw`: where random numbers begin.
//!
//! In: which sequence it is, and the run of the session. Out: a number of 32 bits. Kernels make as
//! many random numbers of it as they need, by mixing it with the indices of elements.
//!
//! ```text
//! draw(stream 0), run 0 -> 1753845952        draw(stream 0), run 1 -> 3507691905
//! ```
//!
//! No operator of ONNX.

/// Decides random numbers, together with the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Chance {
    /// Tells the sequences of sessions apart.
    pub(crate) seed: u64,
    /// How many runs went before.
    pub(crate) run: u64,
}

/// The number that a sequence gives. One with a seed of its own does not depend on the session's.
pub(crate) fn key(stream: u32, seed: Option<u32>, chance: Chance) -> i64 {
    let own = match seed {
        Some(seed) => u64::from(seed) | 1 << 32,
        None => mixed(chance.seed ^ mixed(stream.into())),
    };
    (mixed(own ^ mixed(chance.run.wrapping_add(1 << 40))) >> 32) as i64
}

/// The finish of SplitMix64: each bit depends on all bits.
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn whatever_differs_makes_another_number() {
        let mut keys = BTreeSet::new();
        for n in 0..10_u64 {
            let chance = |seed, run| Chance { seed, run };
            keys.insert(key(n as u32, None, chance(0, 0)));
            keys.insert(key(0, None, chance(n + 1, 0)));
            keys.insert(key(0, None, chance(0, n + 1)));
            keys.insert(key(0, Some(n as u32), chance(0, 0)));
        }
        assert_eq!(keys.len(), 40);
        assert!(keys.iter().all(|key| (0..1 << 32).contains(key)));
    }

    #[test]
    fn a_seed_of_its_own_is_all_that_counts() {
        let of = |stream, seed| key(stream, Some(5), Chance { seed, run: 2 });
        assert_eq!(of(0, 0), of(7, 9));
        assert_ne!(of(0, 0), key(0, Some(5), Chance { seed: 0, run: 3 }));
    }
}
