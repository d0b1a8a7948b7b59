//! The numbers of an evolution, and their names in the laboratory.
//!
//! ```text
//! evolutionary:crossover=0:epsilon=0.1      the default, but for two numbers
//! ```

use super::MutationWeights;

/// A population, or generations of it, that end in a day.
const MOST: usize = 1 << 20;

/// The numbers of Ansor and MetaSchedule.
#[derive(Clone, PartialEq, Debug)]
pub struct EvolutionOptions {
    /// Programs of a generation.
    pub population: usize,
    /// Generations of a round.
    pub generations: usize,
    /// Share of the population that are the best measured.
    pub measured: f64,
    /// How often a child has a changed decision of its parent.
    pub mutation: f64,
    /// How often it has two parents.
    pub crossover: f64,
    /// Share of the proposals that are random samples.
    pub epsilon: f64,
    /// How often each kind of decision is changed; without, as in TVM's auto-scheduler.
    pub weights: Option<MutationWeights>,
    /// The temperature of the first generation; each further one has half of it. Without one, every
    /// child is accepted.
    pub temperature: Option<f64>,
}

impl Default for EvolutionOptions {
    fn default() -> EvolutionOptions {
        EvolutionOptions {
            population: 512,
            generations: 4,
            measured: 0.2,
            mutation: 0.85,
            crossover: 0.05,
            epsilon: 0.05,
            weights: None,
            temperature: None,
        }
    }
}

impl EvolutionOptions {
    /// Scores are shares of the best throughput: at first a child may be a tenth slower in one case
    /// of three.
    pub fn annealed() -> EvolutionOptions {
        EvolutionOptions { temperature: Some(0.1), ..EvolutionOptions::default() }
    }

    /// With some of the numbers changed: `name=number`, with a colon between each two. None if one
    /// of them is not the name of a number, or not in its range.
    pub fn with(mut self, changes: &str) -> Option<EvolutionOptions> {
        for change in changes.split(':') {
            let (name, value) = change.split_once('=')?;
            let share = || value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
            let count = || value.parse().ok().filter(|&count| (1..=MOST).contains(&count));
            match name {
                "population" => self.population = count()?,
                "generations" => self.generations = count()?,
                "measured" => self.measured = share()?,
                "mutation" => self.mutation = share()?,
                "crossover" => self.crossover = share()?,
                "epsilon" => self.epsilon = share()?,
                "temperature" => {
                    self.temperature = value.parse().ok().filter(|t| (1e-9..=1e9).contains(t));
                    self.temperature?;
                }
                "weights" => self.weights = Some(MutationWeights::named(value)?),
                _ => return None,
            }
        }
        (self.mutation + self.crossover <= 1.0).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_change_by_name() {
        let default = EvolutionOptions::default();
        let changed = default.clone().with("crossover=0:population=2048:weights=meta-schedule");
        let expected = EvolutionOptions {
            crossover: 0.0,
            population: 2048,
            weights: Some(MutationWeights::META_SCHEDULE),
            ..default.clone()
        };
        assert_eq!(changed, Some(expected));
        let wrong = [
            "",
            "crossover",
            "crossover=x",
            "crossover=1.5",
            "mutation=NaN",
            "population=0",
            "mutation=0.9:crossover=0.2",
            "weights=mine",
            "colour=1",
            "temperature=0",
        ];
        for changes in wrong {
            assert_eq!(default.clone().with(changes), None, "{changes}");
        }
    }
}
