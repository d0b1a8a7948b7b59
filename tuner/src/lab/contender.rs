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
    /// The name of a strategy, as [`crate::strategy::NAMES`] has them, with its numbers.
    pub strategy: String,
    /// The name of a cost model, as [`crate::model::NAMES`] has them.
    pub cost_model: Option<String>,
    /// The schedules that it searches.
    pub space: Option<Space>,
}

/// Why a text names no contender.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ContenderError {
    /// No strategy has this name.
    #[error(
        "there is no strategy `{0}`; there are {names}, and `evolutionary:NUMBER=VALUE:..` with the numbers that docs/src/strategies.md lists",
        names = strategy::NAMES.join(", ")
    )]
    Strategy(String),
    /// No cost model has this name.
    #[error("there is no cost model `{0}`; there are {names}", names = model::NAMES.join(", "))]
    CostModel(String),
    /// No space has this name.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

impl FromStr for Contender {
    type Err = ContenderError;

    fn from_str(text: &str) -> Result<Contender, ContenderError> {
        let (searched, space) = split(text, '@');
        let (strategy, cost_model) = split(searched, '/');
        if !strategy::is_known(strategy) {
            return Err(ContenderError::Strategy(strategy.to_owned()));
        }
        if let Some(name) = cost_model
            && !model::NAMES.contains(&name)
        {
            return Err(ContenderError::CostModel(name.to_owned()));
        }
        let space = space.map(str::parse).transpose()?;
        let (strategy, cost_model) = (strategy.to_owned(), cost_model.map(str::to_owned));
        Ok(Contender { strategy, cost_model, space })
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

impl Display for Contender {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.strategy)?;
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
