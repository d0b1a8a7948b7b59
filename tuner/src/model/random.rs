//! No model: each program has a number of its own, uniform between 0 and 1. Where no program was
//! made, each trace has.

use xxhash_rust::xxh3::Xxh3;

use super::{CostModel, Kind, Sample, View};

/// A model that knows nothing: scores depend on the seed and the program alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Random {
    /// The seed of all scores.
    pub seed: u64,
}

impl CostModel for Random {
    fn name(&self) -> &'static str {
        Kind::RANDOM.name()
    }

    fn train(&mut self, _: &[Sample]) {}

    fn is_informed(&self) -> bool {
        false
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        candidates.iter().map(|candidate| self.draw(candidate)).collect()
    }
}

impl Random {
    fn draw(&self, program: &View<'_>) -> f32 {
        let mut hash = Xxh3::with_seed(self.seed);
        match program.features {
            Some(features) => {
                features.rows.iter().flatten().for_each(|value| hash.update(&value.to_le_bytes()))
            }
            None => hash.update(&serde_json::to_vec(program.trace).expect("traces are data")),
        }
        // As many bits as a float holds.
        (hash.digest() >> 40) as f32 / (1u64 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use ansc_sketch::Features;
    use ansc_sketch::features::LEN;

    use super::*;

    #[test]
    fn numbers_are_uniform_and_follow_from_seed_and_features() {
        let programs: Vec<Features> = (0..1000)
            .map(|i| Features { rows: vec![[i as f32; LEN]], ..Features::default() })
            .collect();
        let programs: Vec<View<'_>> = programs.iter().map(View::of_program).collect();
        let drawn = Random { seed: 1 }.predict(&programs);
        assert_eq!(drawn, Random { seed: 1 }.predict(&programs));
        assert_ne!(drawn, Random { seed: 2 }.predict(&programs));
        assert!(drawn.iter().all(|x| (0.0..1.0).contains(x)));
        for quarter in [0.0, 0.25, 0.5, 0.75] {
            let inside = drawn.iter().filter(|&&x| (quarter..quarter + 0.25).contains(&x)).count();
            assert!((200..300).contains(&inside), "{inside} of 1000 in the quarter at {quarter}");
        }
    }
}
