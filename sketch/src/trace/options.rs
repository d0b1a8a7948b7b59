//! Everything that a sampling instruction may decide, for searches that enumerate.
//!
//! ```text
//! sample_perfect_tile over 4 in two parts => [1, 4], [2, 2], [4, 1]
//! ```

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::instruction::Decision;
use super::near::near_extents;
use super::record::Recorder;
use super::sample::locations;
use super::table::{Instruction, decides_nothing};
use super::{StepError, Trace, TraceError, Unfit};

impl Trace {
    /// Applies the trace with each decision made by `choose`, which gets all that are possible at
    /// its place and gives the position of one of them. What was decided before does not count.
    pub fn choose_on(
        &self,
        mut recorder: Recorder,
        choose: &mut dyn FnMut(&[Decision]) -> usize,
    ) -> Result<Recorder, TraceError> {
        for (step, instruction) in self.steps.iter().enumerate() {
            recorder.choose_step(instruction, choose).map_err(|cause| TraceError {
                step,
                instruction: instruction.to_string(),
                cause: Box::new(cause),
            })?;
        }
        Ok(recorder)
    }
}

impl Recorder {
    fn choose_step(
        &mut self,
        instruction: &Instruction,
        choose: &mut dyn FnMut(&[Decision]) -> usize,
    ) -> Result<(), StepError> {
        let mut instruction = instruction.clone();
        if instruction.is_sampling() {
            let mut options = self.options(&instruction)?;
            let chosen = choose(&options);
            if chosen >= options.len() {
                return Err(StepError::NoChoice);
            }
            instruction.set_decision(Some(options.swap_remove(chosen)));
        }
        // Nothing is drawn: every decision is made, and fits.
        self.step(instruction, Unfit::Refuse, &mut StdRng::seed_from_u64(0))
    }

    /// In a fixed order: tiles by their outermost lengths, candidates as they are listed, places
    /// from the outermost loop inwards after inlining and staying.
    fn options(&self, instruction: &Instruction) -> Result<Vec<Decision>, StepError> {
        use Instruction::*;
        Ok(match instruction {
            SamplePerfectTile { target, max_innermost, out, .. } => {
                let extent = self.schedule.extent(self.loop_ref(*target)?)?;
                tiles(extent, out.len(), *max_innermost).into_iter().map(Decision::Tile).collect()
            }
            SampleTile { target, max_innermost, out, .. } => {
                let extent = self.schedule.extent(self.loop_ref(*target)?)?;
                let covered = near_extents(extent).into_iter();
                let mut all: Vec<Vec<usize>> =
                    covered.flat_map(|n| tiles(n, out.len(), *max_innermost)).collect();
                all.sort_unstable();
                all.into_iter().map(Decision::Tile).collect()
            }
            SampleCategorical { candidates, .. } => {
                (0..candidates.len() as i64).map(Decision::Choice).collect()
            }
            SampleComputeLocation { block, .. } => {
                let loops = locations(&self.schedule, self.block_name(*block)?).count() as i64;
                let inline = self.can_inline(*block)?.then_some(Decision::INLINE);
                let places = inline.into_iter().chain([Decision::ROOT]).chain(0..loops);
                places.map(Decision::Choice).collect()
            }
            decides_nothing!() => vec![],
        })
    }
}

/// All tuples of `parts` lengths with the product `extent` and a last length of at most
/// `max_innermost`, in lexicographic order.
pub(super) fn tiles(extent: usize, parts: usize, max_innermost: usize) -> Vec<Vec<usize>> {
    match parts {
        0 if extent == 1 => vec![vec![]],
        0 => vec![],
        1 if extent > max_innermost => vec![],
        1 => vec![vec![extent]],
        _ => {
            let first = (1..=extent).filter(|&length| extent.is_multiple_of(length));
            let rest = |first: usize| {
                let rest = tiles(extent / first, parts - 1, max_innermost).into_iter();
                rest.map(move |rest| [vec![first], rest].concat())
            };
            first.flat_map(rest).collect()
        }
    }
}
