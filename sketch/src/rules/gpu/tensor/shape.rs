//! How a product is cut into blocks of warps of fragments, and which cut takes the fewest cycles.
//!
//! ```text
//! 4096 x 4096 x 4096   ->   2 x 2 warps of 4 x 4 fragments: 128 x 128 sums of a block
//! 49 x 512 x 4608      ->   4 x 1 warps of 1 x 2 fragments: 64 x 32 sums
//! ```
//! An estimate for comparing cuts of one product, on a device like an A100.

use crate::algorithm::matrices::Matrices;
use crate::gpu::GpuLimits;
use crate::intrinsic::mma::{self, LANES, LOADED, ROWS};

/// Bytes that a thread copies at once, at most.
pub(super) const VECTOR: usize = 16;
const WARPS: [usize; 3] = [1, 2, 4];
const FRAGMENTS: [usize; 3] = [1, 2, 4];
const STEPS: [usize; 3] = [1, 2, 4];
/// Fragments of sums of a warp, in pairs of columns: 128 registers.
const MOST_FRAGMENTS: usize = 16;
/// Multiprocessors of a device.
const PROCESSORS: usize = 108;
/// Registers of each, for all threads that are there.
const REGISTERS: usize = 64 << 10;
/// Shared memory of each, for all blocks that are there.
const SHARED_BYTES: usize = 164 << 10;
/// Rounds that copies are begun early.
const AHEAD: [usize; 4] = [0, 1, 2, 3];
/// Bytes that a multiprocessor gets from the last cache in a cycle.
const FETCHED: f64 = 24.0;
/// Cycles until what is fetched is there.
const ARRIVAL: f64 = 900.0;
/// Bytes that it gets from shared memory.
const SHARED: f64 = 128.0;
/// Cycles of its tensor cores for a pair of fragments of sums and one step.
const PRODUCT: f64 = 4.0;
/// Cycles of a block of threads for each of its turns, in which warps wait for one another.
const TURN: f64 = 60.0;
/// Cycles until a block of threads has its first elements, and until its last results are stored.
const ENDS: f64 = 1500.0;
/// How much of the shorter parts of a turn the longest one does not hide.
const NOT_HIDDEN: f64 = 0.25;
/// Warps of a multiprocessor that keep its tensor cores busy.
const BUSY: f64 = 8.0;

/// Candidates of each decision, the best first.
pub(super) struct Choices {
    pub(super) warps: [Vec<i64>; 2],
    pub(super) tiles: [Vec<i64>; 2],
    pub(super) steps: Vec<i64>,
    pub(super) vectors: [Vec<i64>; 2],
    pub(super) ahead: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Shape {
    warps: [usize; 2],
    fragments: [usize; 2],
    steps: usize,
    ahead: usize,
}

struct Estimate {
    batches: usize,
    sides: [usize; 2],
    /// Steps of all terms.
    steps: usize,
    /// Bytes of an element of both factors.
    bytes: usize,
    shared: usize,
}

impl Choices {
    /// None where no cut fits the device.
    pub(super) fn of(matrices: &Matrices, limits: &GpuLimits) -> Option<Choices> {
        let [batches, rows, columns, _] = matrices.extents();
        let factors = matrices.factors;
        let estimate = Estimate {
            batches,
            sides: [rows, columns],
            steps: matrices.padded_terms() / mma::terms(factors[0]),
            bytes: factors[0].size(),
            shared: limits.shared_bytes,
        };
        let best = estimate.best()?;
        let with = |choices: &[usize], set: &dyn Fn(&mut Shape, usize)| -> Vec<i64> {
            let mut priced: Vec<(f64, usize)> = choices
                .iter()
                .filter_map(|&value| {
                    let mut shape = best;
                    set(&mut shape, value);
                    Some((estimate.cycles(&shape)?, value))
                })
                .collect();
            priced.sort_by(|a, b| a.0.total_cmp(&b.0));
            priced.into_iter().map(|(_, value)| value as i64).collect()
        };
        let vectors = [0, 1].map(|side| {
            let most = VECTOR / factors[side].size();
            let mut lengths: Vec<usize> = (0..).map(|n| most >> n).take_while(|n| *n > 0).collect();
            let together = matrices.together(side);
            lengths.sort_by_key(|n| (!together.is_multiple_of(*n), std::cmp::Reverse(*n)));
            lengths.into_iter().map(|n| n as i64).collect()
        });
        Some(Choices {
            warps: [
                with(&WARPS, &|shape, n| shape.warps[0] = n),
                with(&WARPS, &|shape, n| shape.warps[1] = n),
            ],
            tiles: [
                with(&FRAGMENTS.map(|n| n * ROWS), &|shape, n| shape.fragments[0] = n / ROWS),
                with(&FRAGMENTS.map(|n| n * LOADED), &|shape, n| shape.fragments[1] = n / LOADED),
            ],
            steps: with(&STEPS, &|shape, n| shape.steps = n),
            vectors,
            ahead: with(&AHEAD, &|shape, n| shape.ahead = n),
        })
    }
}

impl Estimate {
    fn best(&self) -> Option<Shape> {
        let pairs = |of: [usize; 3]| of.into_iter().flat_map(move |a| of.map(|b| [a, b]));
        let all = pairs(WARPS).flat_map(|warps| {
            pairs(FRAGMENTS).flat_map(move |fragments| {
                STEPS.into_iter().flat_map(move |steps| {
                    AHEAD.map(|ahead| Shape { warps, fragments, steps, ahead })
                })
            })
        });
        let priced = all.filter_map(|shape| Some((self.cycles(&shape)?, shape)));
        priced.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, shape)| shape)
    }

    /// None where the shape does not fit.
    fn cycles(&self, shape: &Shape) -> Option<f64> {
        let Shape { warps: [wi, wj], fragments: [fi, fj], steps, ahead } = *shape;
        let tile = [wi * fi * ROWS, wj * fj * LOADED];
        let step = steps * self.terms();
        // A place for each round that is on its way, and what keeps rows apart.
        let elements = tile[0] * (step + self.vector()) + (tile[1] + self.vector()) * step;
        let shared = (1 + ahead) * elements * self.bytes;
        let turns = self.steps / steps;
        let registers = 8 * fi * fj + 4 * fi + 4 * fj + 50;
        let fits = fi * fj <= MOST_FRAGMENTS
            && registers * LANES * wi * wj <= REGISTERS
            && self.steps.is_multiple_of(steps)
            && shared <= self.shared
            && ahead <= turns;
        fits.then_some(())?;
        let blocks: usize =
            self.batches * self.sides[0].div_ceil(tile[0]) * self.sides[1].div_ceil(tile[1]);
        let warps = (wi * wj) as f64;
        let resident = (2048 / LANES / (wi * wj))
            .min(REGISTERS / (registers * LANES * wi * wj))
            .min(SHARED_BYTES.max(self.shared) / shared)
            .max(1);
        let together = resident.min(blocks.div_ceil(PROCESSORS));
        let products = warps * (fi * fj * steps) as f64 * PRODUCT;
        let busy = (warps * together as f64 / BUSY).min(1.0);
        let loads = warps * ((fi + fj) * steps * 512) as f64 / SHARED;
        let fetched = ((tile[0] + tile[1]) * step * self.bytes) as f64 / FETCHED;
        let products = products / busy;
        let longest = products.max(loads).max(fetched);
        let others = products + loads + fetched - longest;
        let busy = longest + NOT_HIDDEN * others + TURN / together as f64;
        // Copies that are begun early have `ahead` turns of all resident blocks to arrive.
        let waits = match ahead {
            0 => busy + ARRIVAL / together as f64,
            _ => ARRIVAL / (ahead * together) as f64,
        };
        let of_block = turns as f64 * busy.max(waits) + ENDS / together as f64;
        Some(blocks.div_ceil(PROCESSORS) as f64 * of_block)
    }

    fn terms(&self) -> usize {
        32 / self.bytes
    }

    fn vector(&self) -> usize {
        VECTOR / self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(rows: usize, columns: usize, terms: usize) -> Shape {
        let (sides, steps) = ([rows, columns], terms / 16);
        let shared = GpuLimits::of(&[80]).shared_bytes;
        Estimate { batches: 1, sides, steps, bytes: 2, shared }.best().unwrap()
    }

    #[test]
    fn large_products_have_large_tiles_and_small_ones_many() {
        let sums = |shape: Shape| -> usize {
            let [wi, wj] = shape.warps;
            let [fi, fj] = shape.fragments;
            wi * wj * fi * fj * ROWS * LOADED
        };
        // Threads have the registers that their sums take.
        let Shape { warps: [wi, wj], fragments: [fi, fj], .. } = best(324 * 1024, 512, 256);
        assert!(8 * fi * fj * LANES * wi * wj < REGISTERS);
        let (large, small) = (best(4096, 4096, 4096), best(49, 512, 4608));
        assert!(sums(large) >= 128 * 128, "{large:?}");
        assert!(sums(small) <= 32 * 64, "{small:?}");
    }
}
