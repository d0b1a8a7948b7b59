//! How sampling instructions decide.

use rand::{Rng, RngExt};

use crate::program::{ForKind, IterKind};
use crate::schedule::{LoopRef, Schedule};

/// How many tuples of `parts` lengths have the product `extent` and a last length of at most
/// `max_innermost`; `u128::MAX` stands for that many and more.
pub fn count_tiles(extent: usize, parts: usize, max_innermost: usize) -> u128 {
    match parts {
        0 => u128::from(extent == 1),
        _ => innermost_lengths(extent, max_innermost)
            .map(|inner| count_products(extent / inner, parts - 1))
            .fold(0, u128::saturating_add),
    }
}

/// One of the tuples that [`count_tiles`] counts, each as likely as the others. None if there is
/// none, or more than can be counted.
pub fn sample_tile(
    extent: usize,
    parts: usize,
    max_innermost: usize,
    random: &mut dyn Rng,
) -> Option<Vec<usize>> {
    let total = count_tiles(extent, parts, max_innermost);
    if matches!(total, 0 | u128::MAX) || parts == 0 {
        return (total == 1 && parts == 0).then(Vec::new);
    }
    let mut left = random.random_range(0..total);
    for inner in innermost_lengths(extent, max_innermost) {
        let count = count_products(extent / inner, parts - 1);
        if left < count {
            let mut tile = sample_product(extent / inner, parts - 1, random);
            tile.push(inner);
            return Some(tile);
        }
        left -= count;
    }
    unreachable!("the counts add up to the total")
}

fn innermost_lengths(extent: usize, most: usize) -> impl Iterator<Item = usize> {
    (1..=most.min(extent)).filter(move |&length| extent.is_multiple_of(length))
}

/// Ordered ways to write `n` as a product of `parts` numbers: each prime's exponent is spread
/// independently.
fn count_products(n: usize, parts: usize) -> u128 {
    if parts == 0 {
        return u128::from(n == 1);
    }
    let ways = primes(n).into_iter().map(|(_, exponent)| compositions(exponent, parts));
    ways.fold(1, u128::saturating_mul)
}

/// Ways to spread `n` equal things over `parts` places, of which there is at least one.
fn compositions(n: u32, parts: usize) -> u128 {
    let more = |ways: u128, i: u128| ways.checked_mul(parts as u128 - 1 + i).map(|ways| ways / i);
    (1..=u128::from(n)).try_fold(1, more).unwrap_or(u128::MAX)
}

/// A uniformly drawn ordered factorisation.
fn sample_product(n: usize, parts: usize, random: &mut dyn Rng) -> Vec<usize> {
    let mut lengths = vec![1; parts];
    for (prime, exponent) in primes(n) {
        let mut left = exponent;
        for (place, length) in lengths.iter_mut().enumerate() {
            let here = sample_first(left, parts - place, random);
            *length *= prime.pow(here);
            left -= here;
        }
    }
    lengths
}

/// How many of `n` things the first of `parts` places gets, every spreading being equally likely.
fn sample_first(n: u32, parts: usize, random: &mut dyn Rng) -> u32 {
    if parts == 1 {
        return n;
    }
    let mut left = random.random_range(0..compositions(n, parts));
    for here in 0..n {
        let ways = compositions(n - here, parts - 1);
        if left < ways {
            return here;
        }
        left -= ways;
    }
    n
}

/// Prime factors with their exponents.
fn primes(mut n: usize) -> Vec<(usize, u32)> {
    let mut factors = vec![];
    let mut divisor = 2;
    while divisor * divisor <= n {
        let mut exponent = 0;
        while n.is_multiple_of(divisor) {
            n /= divisor;
            exponent += 1;
        }
        if exponent > 0 {
            factors.push((divisor, exponent));
        }
        divisor += 1;
    }
    if n > 1 {
        factors.push((n, 1));
    }
    factors
}

/// An index with a probability proportional to its weight; any index if no weight is positive.
pub(super) fn sample_index(weights: &[f64], random: &mut dyn Rng) -> Option<usize> {
    let weights: Vec<f64> =
        weights.iter().map(|w| if w.is_finite() { w.max(0.0) } else { 0.0 }).collect();
    let total: f64 = weights.iter().sum();
    if total <= 0.0 {
        return (!weights.is_empty()).then(|| random.random_range(0..weights.len()));
    }
    let mut left = random.random::<f64>() * total;
    let last = weights.iter().rposition(|&w| w > 0.0);
    weights
        .iter()
        .position(|&w| {
            left -= w;
            left < 0.0
        })
        .or(last)
}

/// Loops of the only consumer at which the block may be computed, outermost first; each is tried
/// when it is asked for.
pub(super) fn locations<'a>(
    schedule: &'a Schedule,
    block: &'a str,
) -> impl Iterator<Item = LoopRef> + 'a {
    let consumers = schedule.consumers(block).unwrap_or_default();
    let loops = match &consumers[..] {
        [consumer] => schedule.loops(consumer).expect("the consumer is a block of the program"),
        _ => vec![],
    };
    let within = within_reach(schedule, &loops);
    loops
        .into_iter()
        .take(within)
        .filter(|&l| schedule.extent(l).is_ok_and(|extent| extent > 1))
        .filter(move |&l| schedule.clone().compute_at(block, l).is_ok())
}

/// How many of the loops around a consumer may have something computed in them, as in Ansor: those
/// of a tiled one up to the end of its first level of reduction, those of others up to the first
/// reduction. In unrolled or vectorised loops nothing is computed.
///
/// ```text
/// tiled: i0 j0 k0 | i1 j1 k1 i2 j2        not tiled: i j | k
/// ```
fn within_reach(schedule: &Schedule, loops: &[LoopRef]) -> usize {
    let reduces =
        |l: &LoopRef| schedule.loop_serves(*l, IterKind::Reduce).expect("a loop of the program");
    let first = loops.iter().position(reduces).unwrap_or(loops.len());
    let level = loops[first..].iter().position(|l| !reduces(l));
    let reached = first + level.unwrap_or(0);
    let written_out = |l: &LoopRef| {
        let kind = schedule.for_loop(*l).expect("a loop of the program").kind;
        matches!(kind, ForKind::Unrolled | ForKind::Vectorized)
    };
    loops[..reached].iter().position(written_out).unwrap_or(reached)
}

#[cfg(test)]
mod tests {
    use ansc_graph::Compute;

    use super::*;

    /// A product of what another stage makes.
    fn product_of_positive() -> Schedule {
        let text = "compute(in0: f32[8, 64], in1: f32[64, 8]) -> y {
           p: f32[8, 64] = max(in0[i0, i1], 0.0_f32)
           y: f32[8, 8] = sum{r0: 64} mul(p[i0, r0], in1[r0, i1])
         }";
        Schedule::new(crate::lower("k", &Compute::parse(text).unwrap()))
    }

    /// An operand of a product may be made inside of its first loops over terms, where few of its
    /// elements are needed at once.
    #[test]
    fn locations_reach_to_the_end_of_the_first_level_of_reduction() {
        let mut schedule = product_of_positive();
        let loops = schedule.loops("y").unwrap();
        assert_eq!(locations(&schedule, "p").collect::<Vec<_>>(), loops[..2]);
        let parts: Vec<Vec<LoopRef>> =
            loops.iter().map(|&l| schedule.split(l, &[0, 2, 2]).unwrap()).collect();
        let of = |level: usize| parts.iter().map(move |parts| parts[level]);
        let order: Vec<LoopRef> = of(0).chain(of(1)).chain(of(2)).collect();
        schedule.reorder(&order).unwrap();
        assert_eq!(locations(&schedule, "p").collect::<Vec<_>>(), order[..3]);
        schedule.unroll(order[1]).unwrap();
        assert_eq!(locations(&schedule, "p").collect::<Vec<_>>(), order[..1]);
    }
}
