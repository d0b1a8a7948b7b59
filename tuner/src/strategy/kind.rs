//! The kinds of strategies, by their names.
//!
//! ```text
//! opevo
//! evolutionary:crossover=0      numbers of an evolution may follow its name
//! ```

use std::fmt::{self, Debug, Display, Formatter};
use std::str::FromStr;

use super::{
    Annealing, AnnealingOptions, Beam, EvolutionOptions, Evolutionary, GBfs, Grid, NA2c,
    NA2cOptions, OpEvo, OpEvoOptions, Random, Rnn, RnnOptions, SearchStrategy, WIDTH,
};
use crate::model::SharedModel;

/// A kind of strategy.
#[derive(Clone)]
pub struct Kind {
    /// As it was asked for, numbers and all.
    text: String,
    make: Make,
}

#[derive(Clone)]
enum Make {
    /// With these numbers, which may be changed.
    Evolution(EvolutionOptions),
    By(fn(&SharedModel, u64) -> Box<dyn SearchStrategy>),
}

/// A name, and how a strategy of that name is made.
type Row = (&'static str, fn() -> Make);

/// Every strategy.
const ALL: [Row; 13] = [
    ("evolutionary", || Make::Evolution(EvolutionOptions::default())),
    ("annealed-evolution", || Make::Evolution(EvolutionOptions::annealed())),
    ("opevo", || Make::By(|_, seed| Box::new(OpEvo::new(OpEvoOptions::default(), seed)))),
    ("opevo-published", || {
        Make::By(|_, seed| Box::new(OpEvo::new(OpEvoOptions::published(), seed)))
    }),
    ("g-bfs", || Make::By(|_, seed| Box::new(GBfs::new(WIDTH, seed)))),
    ("g-bfs-published", || Make::By(|_, seed| Box::new(GBfs::published(seed)))),
    ("n-a2c", || Make::By(|_, seed| Box::new(NA2c::new(NA2cOptions::default(), seed)))),
    ("n-a2c-published", || Make::By(|_, seed| Box::new(NA2c::new(NA2cOptions::published(), seed)))),
    ("annealing", || Make::By(annealing)),
    ("beam", || Make::By(|model, seed| Box::new(Beam::new(model.clone(), seed)))),
    ("rnn", || Make::By(|_, seed| Box::new(Rnn::new(RnnOptions::default(), seed)))),
    ("random", || Make::By(|_, seed| Box::new(Random::new(seed)))),
    ("grid", || Make::By(|_, _| Box::new(Grid::default()))),
];

fn annealing(model: &SharedModel, seed: u64) -> Box<dyn SearchStrategy> {
    Box::new(Annealing::new(AnnealingOptions::default(), model.clone(), seed))
}

/// No strategy has this name, or it has no such numbers.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "there is no strategy `{0}`; there are {names}, and `evolutionary:NUMBER=VALUE:..` with the \
     numbers that docs/src/strategies.md lists",
    names = Kind::names().join(", ")
)]
pub struct UnknownKind(pub String);

impl Kind {
    /// The names of all strategies.
    pub fn names() -> [&'static str; ALL.len()] {
        ALL.map(|(name, _)| name)
    }

    /// A strategy for one task; those that rank candidates ask `model`.
    pub fn create(&self, model: &SharedModel, seed: u64) -> Box<dyn SearchStrategy> {
        match &self.make {
            Make::Evolution(options) => {
                Box::new(Evolutionary::new(options.clone(), model.clone(), seed))
            }
            Make::By(new) => new(model, seed),
        }
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Kind, UnknownKind> {
        let (name, changes) = text.split_once(':').map_or((text, None), |(n, c)| (n, Some(c)));
        let known = ALL.into_iter().find(|(known, _)| *known == name).map(|(_, make)| make());
        let make = match (known, changes) {
            (Some(Make::Evolution(options)), Some(changes)) => {
                options.with(changes).map(Make::Evolution)
            }
            (_, Some(_)) => None,
            (known, None) => known,
        };
        let text = text.to_owned();
        match make {
            Some(make) => Ok(Kind { text, make }),
            None => Err(UnknownKind(text)),
        }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.text == other.text
    }
}

impl Eq for Kind {}

impl Debug for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_go_by_their_names() {
        for name in Kind::names() {
            assert_eq!(name.parse::<Kind>().unwrap().to_string(), name);
        }
        for name in ["guess", "evolutionary:", "evolutionary:x=1", "random:epsilon=0", ""] {
            assert_eq!(name.parse::<Kind>(), Err(UnknownKind(name.into())));
        }
        let changed: Kind = "evolutionary:crossover=0".parse().unwrap();
        let Make::Evolution(options) = &changed.make else { panic!("{changed}") };
        assert_eq!(options.crossover, 0.0);
        assert_eq!(changed.to_string(), "evolutionary:crossover=0");
    }
}
