//! How a product is cut into blocks of warps of fragments, and which cut takes the fewest cycles.
//!
//! ```text
//! 4096 x 4096 x 4096   ->   2 x 4 warps of 4 x 4 fragments: 128 x 256 sums of a block
//! 49 x 512 x 4608      ->   4 x 1 warps of 1 x 2 fragments: 64 x 32 sums
//! ```
//! An estimate for comparing cuts of one product.

use super::gpu::LAUNCH;
use crate::gpu::GpuLimits;
use crate::intrinsic::mma::{LANES, LOADED, ROWS};
use crate::lowering::THREAD_BYTES;
use crate::machine::NOT_HIDDEN;

pub(crate) const WARPS: [usize; 3] = [1, 2, 4];
pub(crate) const FRAGMENTS: [usize; 3] = [1, 2, 4];
pub(crate) const STEPS: [usize; 3] = [1, 2, 4];
/// Fragments of sums of a warp, in pairs of columns: 128 registers.
const MOST_FRAGMENTS: usize = 16;
/// Registers of a multiprocessor, for all threads that are there.
const REGISTERS: usize = 64 << 10;
/// Rounds that copies are begun early.
pub(crate) const AHEAD: [usize; 4] = [0, 1, 2, 3];
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
/// Parts of a sum, at most.
const MOST_PARTS: usize = 16;
/// Warps of a multiprocessor that keep its tensor cores busy.
const BUSY: f64 = 8.0;

/// A cut.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Shape {
    /// Along rows, and along columns.
    pub(crate) warps: [usize; 2],
    /// Fragments of a warp along both sides, those of columns in pairs.
    pub(crate) fragments: [usize; 2],
    /// Steps that are copied together.
    pub(crate) steps: usize,
    /// Rounds that copies are begun early.
    pub(crate) ahead: usize,
}

/// A product of matrices.
#[derive(Clone, Copy)]
pub(crate) struct Estimate<'l> {
    pub(crate) batches: usize,
    /// Rows and columns.
    pub(crate) sides: [usize; 2],
    /// Steps of all terms.
    pub(crate) steps: usize,
    /// Bytes of an element of both factors.
    pub(crate) bytes: usize,
    pub(crate) limits: &'l GpuLimits,
}

impl Estimate<'_> {
    pub(crate) fn best(&self) -> Option<Shape> {
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
    pub(crate) fn cycles(&self, shape: &Shape) -> Option<f64> {
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
            && shared <= self.limits.shared_bytes
            && ahead <= turns;
        fits.then_some(())?;
        let blocks: usize =
            self.batches * self.sides[0].div_ceil(tile[0]) * self.sides[1].div_ceil(tile[1]);
        let warps = (wi * wj) as f64;
        let resident = (self.limits.threads_of_processor / LANES / (wi * wj))
            .min(REGISTERS / (registers * LANES * wi * wj))
            .min(self.limits.shared_of_processor / shared)
            .max(1);
        let rounds = blocks.div_ceil(self.limits.processors);
        let together = resident.min(rounds);
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
        Some(rounds as f64 * of_block)
    }

    /// Into how many parts to cut all sums, whose blocks of threads are too few otherwise. Another
    /// kernel adds the parts up.
    pub(crate) fn parts(&self) -> usize {
        let cycles = |parts: usize| {
            let part =
                Estimate { batches: self.batches * parts, steps: self.steps / parts, ..*self };
            let results = (self.batches * self.sides[0] * self.sides[1]) as f64;
            // Written once, and read by the other kernel, which stores as many results again.
            let bytes = 4.0 * results * (2 * parts + 1) as f64;
            let sums = match parts {
                1 => 0.0,
                _ => LAUNCH + bytes / (FETCHED * self.limits.processors as f64),
            };
            Some(part.cycles(&part.best()?)? + sums)
        };
        let possible = (1..=MOST_PARTS).filter(|n| self.steps.is_multiple_of(*n));
        let priced = possible.filter_map(|n| Some((cycles(n)?, n)));
        priced.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(1, |(_, n)| n)
    }

    fn terms(&self) -> usize {
        32 / self.bytes
    }

    fn vector(&self) -> usize {
        THREAD_BYTES / self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(limits: &GpuLimits, sides: [usize; 2], steps: usize) -> Estimate<'_> {
        Estimate { batches: 1, sides, steps, bytes: 2, limits }
    }

    fn best(rows: usize, columns: usize, terms: usize) -> Shape {
        let limits = GpuLimits::of(&[80]);
        estimate(&limits, [rows, columns], terms / 16).best().unwrap()
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

    #[test]
    fn few_results_of_long_sums_are_in_parts() {
        let limits = GpuLimits::of(&[80]);
        let parts = |rows: usize, columns: usize, terms: usize| {
            estimate(&limits, [rows, columns], terms / 16).parts()
        };
        assert!(parts(49, 512, 4608) > 3 && parts(128, 768, 3072) > 1);
        assert_eq!(parts(4096, 4096, 4096), 1);
        assert_eq!(parts(3136, 256, 64), 1);
    }
}
