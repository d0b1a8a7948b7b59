//! Small changes to decisions.

use rand::{Rng, RngExt};

use super::Trace;
use super::instruction::Decision;
use super::table::Instruction;

impl Trace {
    /// The trace with the decision of one sampling instruction changed a little: a factor moved
    /// from one loop of a tile to another, another candidate, another place. None if there is
    /// nothing else to decide.
    pub fn mutated(&self, step: usize, random: &mut dyn Rng) -> Option<Trace> {
        let instruction = self.steps.get(step)?;
        let other = match (instruction, instruction.decision()?) {
            (Instruction::SamplePerfectTile { max_innermost, .. }, Decision::Tile(tile)) => {
                Some(Decision::Tile(mutate_tile(tile, *max_innermost, random)?))
            }
            // One time in five drawn again when it is replayed, so that it may cover more or less.
            (Instruction::SampleTile { max_innermost, .. }, Decision::Tile(tile)) => {
                let moved = random.random_range(0..5) > 0;
                let tile = moved.then(|| mutate_tile(tile, *max_innermost, random)).flatten();
                tile.map(Decision::Tile)
            }
            (Instruction::SampleCategorical { candidates, .. }, Decision::Choice(chosen)) => {
                Some(Decision::Choice(other_choice(candidates.len(), *chosen, random)?))
            }
            // Drawn again when it is replayed: where a block may go depends on what comes before.
            (Instruction::SampleComputeLocation { .. }, _) => None,
            _ => return None,
        };
        let mut trace = self.clone();
        trace.steps[step].set_decision(other);
        Some(trace)
    }
}

fn other_choice(candidates: usize, chosen: i64, random: &mut dyn Rng) -> Option<i64> {
    if candidates < 2 {
        return None;
    }
    let drawn = random.random_range(0..candidates as i64 - 1);
    Some(if drawn >= chosen { drawn + 1 } else { drawn })
}

/// Moves a factor from one loop of a tile to another, as Ansor does: through a random order of the
/// loops, each gives a divisor of its length to the next, until one can.
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
        let fits = |d: usize| match tile[to].checked_mul(d) {
            Some(length) => to != n - 1 || length <= max_innermost,
            None => false,
        };
        let divisors: Vec<usize> = divisors(tile[from]).filter(|&d| d > 1 && fits(d)).collect();
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

/// In ascending order; none of a length that no loop has.
fn divisors(n: usize) -> impl Iterator<Item = usize> {
    const LONGEST: usize = 1 << 40;
    let root = if n <= LONGEST { n.isqrt() } else { 0 };
    let small = move || (1..=root).filter(move |&d| n.is_multiple_of(d));
    small().chain(small().rev().map(move |d| n / d).filter(move |&d| d > root))
}

fn shuffled(n: usize, random: &mut dyn Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, random.random_range(0..=i));
    }
    order
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
    fn divisors_are_all_and_in_order() {
        for n in 1..200 {
            let all: Vec<usize> = (1..=n).filter(|&d| n % d == 0).collect();
            assert_eq!(divisors(n).collect::<Vec<_>>(), all, "{n}");
        }
        // The divisors of a length that no loop has are not counted; that would take years.
        assert_eq!(mutate_tile(&[1 << 62, 1], 64, &mut StdRng::seed_from_u64(0)), None);
    }

    #[test]
    fn every_choice_of_every_sketch_can_change() {
        let program = || crate::lower("k", &matmul_bias_relu(24, 18, 37));
        for sketch in Space::cpu(2).sketches(program()) {
            let random = &mut StdRng::seed_from_u64(1);
            let trace =
                sketch.trace.replay(program(), Unfit::Refuse, random).unwrap().into_parts().1;
            for step in trace.choices() {
                let changes = |_| {
                    let changed = trace.mutated(step, random)?;
                    let again = changed.replay(program(), Unfit::Resample, random).ok()?;
                    (again.trace().steps[step] != trace.steps[step]).then_some(())
                };
                assert!((0..40).find_map(changes).is_some(), "{}", trace.steps[step]);
            }
        }
    }
}
