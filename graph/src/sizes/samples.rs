//! The sizes at which a model is looked at.
//!
//! In: the range of each size. Out: tuples of sizes, the largest ones first: all corners; each size
//! by itself from one end of its range to the other, with the others smallest, and here and there
//! largest, where tensors take longest to make; and some from anywhere between. Sizes that only the
//! data decides may be many, and are looked at all together.
//!
//! ```text
//! a in 1..=2, b in 1..=3   ->   (2, 3) (1, 3) (2, 1) (1, 1) (2, 2) (1, 2)
//! ```

use std::collections::BTreeSet;

use super::Range;

/// A range of at most so many sizes is looked at in full.
const ALL: usize = 48;
/// Sizes next to each end of a longer range.
const ENDS: usize = 6;
/// One of so many sizes of a longer range is also looked at with the others largest.
const RARELY: usize = 4;
/// Sizes from anywhere in a longer range.
const ANYWHERE: usize = 16;

/// Tuples with sizes from anywhere in all ranges, where the data decides some of them.
const TOGETHER: usize = 64;

/// Tuples of sizes and then of counts, without repetition; the first one is the largest.
pub(super) fn samples(ranges: &[Range], counts: &[Range]) -> Vec<Vec<usize>> {
    let most = counts.iter().map(|range| range.high);
    let with_most = |mut sizes: Vec<usize>| {
        sizes.extend(most.clone());
        sizes
    };
    let mut all = Distinct::default();
    of_sizes(ranges).into_iter().for_each(|sizes| all.add(with_most(sizes)));
    if counts.is_empty() {
        return all.order;
    }
    let both = || ranges.iter().chain(counts);
    all.add(both().map(|range| range.low));
    let mut random = Random::new();
    for _ in 0..TOGETHER {
        all.add(both().map(|range| random.anywhere(range)).collect::<Vec<usize>>());
    }
    all.order
}

fn of_sizes(ranges: &[Range]) -> Vec<Vec<usize>> {
    let mut all = Distinct::default();
    let largest: Vec<usize> = ranges.iter().map(|r| r.high).collect();
    let smallest: Vec<usize> = ranges.iter().map(|r| r.low).collect();
    all.add(largest.clone());
    for corner in 0..1_usize << ranges.len().min(6) {
        let is_low = |i: usize| corner >> i & 1 == 1;
        all.add((0..ranges.len()).map(|i| if is_low(i) { smallest[i] } else { largest[i] }));
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (i, range) in ranges.iter().enumerate() {
        for (n, size) in along(range, &mut random).into_iter().enumerate() {
            let mut add = |others: &[usize]| {
                all.add(others.iter().enumerate().map(|(k, o)| if k == i { size } else { *o }));
            };
            add(&smallest);
            if n % RARELY == 0 || range.high - range.low < ALL {
                add(&largest);
            }
        }
    }
    for _ in 0..if ranges.len() > 1 { ANYWHERE } else { 0 } {
        all.add(ranges.iter().map(|range| random.within(range)).collect::<Vec<usize>>());
    }
    all.order
}

/// Sizes from one end of a range to the other.
fn along(range: &Range, random: &mut Random) -> BTreeSet<usize> {
    if range.high - range.low < ALL {
        return (range.low..=range.high).collect();
    }
    let mut sizes: BTreeSet<usize> = (range.low..range.low + ENDS).collect();
    sizes.extend(range.high - ENDS..range.high);
    let powers = (0..usize::BITS - 1).map(|bit| 1 << bit);
    let inside = |size: &usize| (range.low..=range.high).contains(size);
    sizes.extend(powers.flat_map(|p: usize| [p - 1, p, p + 1]).filter(inside));
    sizes.extend((0..ANYWHERE).map(|_| random.within(range)));
    sizes
}

#[derive(Default)]
struct Distinct {
    order: Vec<Vec<usize>>,
    known: BTreeSet<Vec<usize>>,
}

impl Distinct {
    fn add(&mut self, sizes: impl IntoIterator<Item = usize>) {
        let sizes: Vec<usize> = sizes.into_iter().collect();
        if self.known.insert(sizes.clone()) {
            self.order.push(sizes);
        }
    }
}

/// The same numbers in each compilation: Marsaglia's shifts.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new() -> Random {
        Random(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn within(&mut self, range: &Range) -> usize {
        range.low + (self.next() % (range.high - range.low + 1) as u64) as usize
    }

    /// A size of any magnitude: small ones are as likely as large ones.
    fn anywhere(&mut self, range: &Range) -> usize {
        let magnitudes = u64::from((range.high - range.low + 1).ilog2()) + 1;
        let most = range.low.saturating_add(1 << (self.next() % magnitudes + 1));
        self.within(&Range { high: most.min(range.high), ..range.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranges: &[(usize, usize)]) -> Vec<Vec<usize>> {
        let range = |&(low, high): &(usize, usize)| Range { name: "n".into(), low, high };
        samples(&ranges.iter().map(range).collect::<Vec<_>>(), &[])
    }

    #[test]
    fn short_ranges_are_looked_at_in_full() {
        assert_eq!(of(&[(3, 3)]), [[3]]);
        assert_eq!(of(&[(1, 2), (1, 3)])[0], [2, 3]);
        assert_eq!(of(&[(1, 2), (1, 3)]).len(), 6);
        assert_eq!(of(&[(1, ALL)]).len(), ALL);
    }

    #[test]
    fn long_ranges_are_looked_at_in_many_places() {
        let all = of(&[(1, 4096), (0, 7)]);
        assert!((60..200).contains(&all.len()), "{}", all.len());
        for at in [[4096, 7], [1, 0], [1, 7], [1025, 0], [4096, 3]] {
            assert!(all.contains(&at.to_vec()), "{at:?}");
        }
    }

    #[test]
    fn counts_are_looked_at_together() {
        let range = |high| Range { name: "n".into(), low: 1, high };
        let counts: Vec<Range> = (0..100).map(|i| range(10 + i * 7)).collect();
        let all = samples(&[range(3)], &counts);
        assert_eq!((all[0][0], all[0][100]), (3, 703));
        assert!(all.iter().any(|sizes| sizes.iter().all(|&size| size == 1)));
        assert!(all.len() <= 3 + 1 + TOGETHER);
        for (k, count) in counts.iter().enumerate() {
            let distinct: BTreeSet<usize> = all.iter().map(|sizes| sizes[k + 1]).collect();
            assert!(distinct.len() >= 8.min(count.high), "{distinct:?}");
            assert!(distinct.iter().all(|size| (1..=count.high).contains(size)));
        }
    }
}
