//! Small changes to decisions.

use rand::{Rng, RngExt};

/// Moves a factor from one loop of a tile to another, as Ansor does: through a random order of the loops,
/// each gives a divisor of its length to the next, until one can.
///
/// ```text
/// [8, 4, 2, 16] => [8, 2, 4, 16]
/// ```
pub fn mutate_tile(
    tile: &[usize],
    max_innermost: usize,
    random: &mut dyn Rng,
) -> Option<Vec<usize>> {
    let n = tile.len();
    let order = shuffled(n, random);
    for i in 0..n {
        let (from, to) = (order[i], order[(i + 1) % n]);
        let fits = |d: usize| to != n - 1 || d * tile[to] <= max_innermost;
        let divisors: Vec<usize> = (2..=tile[from])
            .filter(|&d| tile[from].is_multiple_of(d))
            .filter(|&d| fits(d))
            .collect();
        if from != to && !divisors.is_empty() {
            let divisor = divisors[random.random_range(0..divisors.len())];
            let mut tile = tile.to_vec();
            tile[from] /= divisor;
            tile[to] *= divisor;
            return Some(tile);
        }
    }
    None
}

fn shuffled(n: usize, random: &mut dyn Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, random.random_range(0..=i));
    }
    order
}
