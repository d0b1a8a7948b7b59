//! The decisions of a product by tensor cores: the best cut by its price first.

use crate::algorithm::matrices::Matrices;
use crate::gpu::GpuLimits;
use crate::intrinsic::mma::{LOADED, ROWS};
use crate::lowering::THREAD_BYTES;
use crate::price::mma::{AHEAD, FRAGMENTS, STEPS, Shape, WARPS};

/// Candidates of each decision, the best first.
pub(super) struct Choices {
    pub(super) warps: [Vec<i64>; 2],
    pub(super) tiles: [Vec<i64>; 2],
    pub(super) steps: Vec<i64>,
    pub(super) vectors: [Vec<i64>; 2],
    pub(super) ahead: Vec<i64>,
}

impl Choices {
    /// None where no cut fits the device.
    pub(super) fn of(matrices: &Matrices, limits: &GpuLimits) -> Option<Choices> {
        let estimate = matrices.estimate(limits);
        let factors = matrices.factors;
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
            let most = THREAD_BYTES / factors[side].size();
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
