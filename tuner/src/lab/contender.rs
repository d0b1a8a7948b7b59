//! A contender of a comparison: a strategy, and what it does not share with the others.
//!
//! ```text
//! evolutionary                     the comparison's cost model and space
//! evolutionary/random              another cost model
//! beam@SSRSRS+unroll               another space
//! ```
//!
//! Contenders take turns on one machine, so a comparison tells what each part of a search is worth.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use super::space::{Space, SpaceError};
use crate::{model, strategy};

/// A strategy, and the cost model and the space that it has instead of those of the comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contender {
    /// The strategy, with its numbers.
    pub strategy: strategy::Kind,
    /// The cost model, if it is not that of the comparison.
    pub cost_model: Option<model::Kind>,
    /// The schedules that it searches.
    pub space: Option<Space>,
}

/// Why a text names no contender.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContenderError {
    /// No strategy has this name.
    #[error(transparent)]
    Strategy(#[from] strategy::UnknownKind),
    /// No cost model has this name.
    #[error(transparent)]
    CostModel(#[from] model::UnknownKind),
    /// No space has this name.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

impl FromStr for Contender {
    type Err = ContenderError;

    fn from_str(text: &str) -> Result<Contender, ContenderError> {
        let (searched, space) = split(text, '@');
        let (strategy, cost_model) = split(searched, '/');
        Ok(Contender {
            strategy: strategy.parse()?,
            cost_model: cost_model.map(str::parse).transpose()?,
            space: space.map(str::parse).transpose()?,
        })
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

impl Display for Contender {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.strategy.fmt(f)?;
        self.cost_model.iter().try_for_each(|name| write!(f, "/{name}"))?;
        self.space.iter().try_for_each(|space| write!(f, "@{space}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for text in [
            "evolutionary",
            "evolutionary:epsilon=0.1/gbdt",
            "beam@rules:no-rfactor",
            "evolutionary/random@SSRSRS+unroll",
        ] {
            assert_eq!(text.parse::<Contender>().unwrap().to_string(), text);
        }
        for (text, cause) in [
            ("guess", "there is no strategy `guess`"),
            ("random/oracle", "there is no cost model `oracle`"),
            ("random@", "`` is not a space"),
            ("", "there is no strategy ``"),
        ] {
            let error = text.parse::<Contender>().unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }
}
