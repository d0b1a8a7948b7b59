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
    loops
        .into_iter()
        .take_while(|&l| !ends_search(schedule, l))
        .filter(|&l| schedule.extent(l).is_ok_and(|extent| extent > 1))
        .filter(move |&l| schedule.clone().compute_at(block, l).is_ok())
}

/// From reduction loops inwards, and in unrolled or vectorised ones, nothing is computed.
fn ends_search(schedule: &Schedule, l: LoopRef) -> bool {
    let kind = schedule.for_loop(l).expect("a loop of the program").kind;
    matches!(kind, ForKind::Unrolled | ForKind::Vectorized)
        || schedule.loop_serves(l, IterKind::Reduce).expect("a loop of the program")
}
