//! Tiles that cover a little more than the extent.
//!
//! The divisors of an extent may be few, of a prime there are none. A near tile of it is a perfect
//! tile of the extent or of its next multiple of one of the [`UNITS`]: 197 is tiled like 200 = 25 *
//! 8 or 208 = 13 * 16, too, and what is too much is cut off (see `peel` among the postprocessors).

use rand::{Rng, RngExt};

use super::sample::{count_tiles, sample_tile};

/// Lengths that registers and vectors come in.
const UNITS: [usize; 9] = [4, 6, 8, 12, 16, 24, 32, 48, 64];

/// The extents of which a near tile is a perfect one: the extent itself, then larger ones.
pub fn near_extents(extent: usize) -> Vec<usize> {
    let units = UNITS.iter().filter(|&&unit| unit <= extent);
    let mut all: Vec<usize> = units.filter_map(|&u| extent.checked_next_multiple_of(u)).collect();
    // One iteration is not divided: no iterator tells those beyond it apart.
    all.push(extent);
    all.sort_unstable();
    all.dedup();
    all
}

/// How many near tiles of `parts` lengths there are with a last length of at most `max_innermost`.
pub fn count_near_tiles(extent: usize, parts: usize, max_innermost: usize) -> u128 {
    near_extents(extent).into_iter().map(|n| count_tiles(n, parts, max_innermost)).sum()
}

/// One of the near tiles: in one case of two a perfect one, else any for any of the larger extents.
pub(super) fn sample_near_tile(
    extent: usize,
    parts: usize,
    max_innermost: usize,
    random: &mut dyn Rng,
) -> Option<Vec<usize>> {
    let larger = &near_extents(extent)[1..];
    let perfect = larger.is_empty() || random.random_range(0..2) == 0;
    let covered = if perfect { extent } else { larger[random.random_range(0..larger.len())] };
    sample_tile(covered, parts, max_innermost, random)
}

pub(super) fn is_near_tile(tile: &[usize], extent: usize, max_innermost: usize) -> bool {
    let product = tile.iter().try_fold(1usize, |n, &length| n.checked_mul(length));
    product.is_some_and(|n| near_extents(extent).contains(&n))
        && tile.last().is_some_and(|&inner| inner <= max_innermost)
}
