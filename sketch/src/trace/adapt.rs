//! Decisions that were made for another shape, made to fit this one.
//!
//! ```text
//! [8, 4, 2, 16] of 1024    on an extent of 96    =>    [1, 3, 2, 16]
//! ```
//! A tile keeps its inner lengths as far as they divide what is left, or takes the next smaller
//! ones that do; the outermost loop gets the rest. A place becomes the nearest one outwards.

use super::StepError;
use super::instruction::Decision;
use super::record::Recorder;
use super::sample::locations;
use super::table::Instruction;

impl Recorder {
    /// None if nothing like the decision fits.
    pub(super) fn adapt(
        &self,
        instruction: &Instruction,
        decision: &Decision,
    ) -> Result<Option<Decision>, StepError> {
        use Instruction::*;
        Ok(match (instruction, decision) {
            (
                SamplePerfectTile { target, max_innermost, out, .. }
                | SampleTile { target, max_innermost, out, .. },
                Decision::Tile(tile),
            ) if tile.len() == out.len() => {
                let extent = self.schedule().extent(self.loop_ref(*target)?)?;
                adapt_tile(tile, extent, *max_innermost).map(Decision::Tile)
            }
            (SampleComputeLocation { block, .. }, Decision::Choice(choice)) => {
                let places = locations(self.schedule(), self.block_name(*block)?).count();
                let above = usize::try_from(*choice).ok().map(|choice| choice.min(places));
                let nearest = above.and_then(|above| above.checked_sub(1));
                Some(Decision::Choice(nearest.map_or(Decision::ROOT, |place| place as i64)))
            }
            _ => None,
        })
    }
}

fn adapt_tile(tile: &[usize], extent: usize, max_innermost: usize) -> Option<Vec<usize>> {
    let mut rest = extent;
    let mut adapted = tile.to_vec();
    for (place, length) in adapted.iter_mut().enumerate().rev() {
        let most = if place + 1 == tile.len() { (*length).min(max_innermost) } else { *length };
        *length = match place {
            0 => rest,
            _ => (1..=most.min(rest)).rev().find(|&d| rest.is_multiple_of(d))?,
        };
        rest = rest.checked_div(*length)?;
    }
    (adapted.len() > 1 || extent <= max_innermost).then_some(adapted)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::rules::Space;
    use crate::testing::matmul_bias_relu;
    use crate::trace::Unfit;

    #[test]
    fn tiles_keep_what_divides() {
        type Row = (&'static [usize], usize, usize, Option<&'static [usize]>);
        let table: [Row; 5] = [
            (&[8, 4, 2, 16], 96, 64, Some(&[1, 3, 2, 16])),
            (&[8, 4, 2, 16], 1024, 64, Some(&[8, 4, 2, 16])),
            (&[1, 1, 1, 64], 96, 16, Some(&[6, 1, 1, 16])),
            (&[2, 4], 7, 64, Some(&[7, 1])),
            (&[4], 128, 64, None),
        ];
        for (tile, extent, most, expected) in table {
            assert_eq!(adapt_tile(tile, extent, most).as_deref(), expected, "{tile:?} {extent}");
        }
    }

    #[test]
    fn a_schedule_of_another_shape_replays() {
        let large = || crate::lower("k", &matmul_bias_relu(96, 64, 128));
        let small = || crate::lower("k", &matmul_bias_relu(24, 18, 37));
        for sketch in Space::cpu(2).sketches(large()) {
            let random = &mut StdRng::seed_from_u64(7);
            let trace = sketch.trace.replay(large(), Unfit::Refuse, random).unwrap().into_parts().1;
            let adapted = trace.replay(small(), Unfit::Adapt, random).unwrap().into_parts().1;
            assert!(adapted.replay(small(), Unfit::Refuse, random).is_ok(), "{adapted}");
            // A trace that needs no change is not changed.
            let same = trace.replay(large(), Unfit::Adapt, random).unwrap().into_parts().1;
            assert_eq!(same, trace);
        }
    }
}
