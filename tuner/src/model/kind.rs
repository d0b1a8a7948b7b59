//! The kinds of cost models: what each is called, how one is made, and how a file holds one.

use std::fmt::{self, Debug, Display, Formatter};
use std::str::FromStr;

use super::file::{ModelFileError, Parts};
use super::{Corrected, CostModel, Gbdt, Hist, Mlp, Needs, Price, Random, Tlp, mlp, tlp};

/// A kind of cost model.
#[derive(Clone, Copy)]
pub struct Kind {
    name: &'static str,
    /// An untrained one, of a seed.
    new: fn(u64) -> Box<dyn CostModel>,
    /// One that has learned; none of a kind that files do not hold.
    load: Option<Load>,
}

type Load = fn(&Parts) -> Result<Box<dyn CostModel>, ModelFileError>;

/// No kind of cost model has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no cost model `{0}`; there are {names}", names = Kind::names().join(", "))]
pub struct UnknownKind(pub String);

impl Kind {
    /// Boosted trees over histograms.
    pub const HIST: Kind = Kind {
        name: "hist",
        new: |_| Box::new(Hist::default()),
        load: Some(|parts| Ok(Box::new(Hist::from_parts(parts)?))),
    };
    /// Boosted trees of the crate `gbdt`.
    pub const GBDT: Kind = Kind { name: "gbdt", new: |_| Box::new(Gbdt::default()), load: None };
    /// The network of TenSet.
    pub const MLP: Kind = Kind {
        name: "mlp",
        new: |seed| Box::new(Mlp::new(mlp::Config { seed, ..mlp::Config::default() })),
        load: Some(|parts| Ok(Box::new(Mlp::from_parts(parts).map_err(ModelFileError::Unfit)?))),
    };
    /// TLP, for one platform.
    pub const TLP: Kind = Kind {
        name: "tlp",
        new: |seed| Box::new(Tlp::new(tlp::Config { seed, ..tlp::Config::default() })),
        load: Some(|parts| load_tlp(Kind::TLP, parts)),
    };
    /// TLP with a head for each platform.
    pub const MTL_TLP: Kind = Kind {
        name: "mtl-tlp",
        new: |seed| Box::new(Tlp::of_platforms(tlp::Config { seed, ..tlp::Config::default() })),
        load: Some(|parts| load_tlp(Kind::MTL_TLP, parts)),
    };
    /// TLP with the sizes, the rates and the loss of its paper.
    pub const TLP_PUBLISHED: Kind = Kind {
        name: "tlp-published",
        new: |seed| Box::new(Tlp::published(seed)),
        load: Some(|parts| load_tlp(Kind::TLP_PUBLISHED, parts)),
    };
    /// The analytic price.
    pub const PRICE: Kind = Kind { name: "price", new: |_| Box::new(Price), load: None };
    /// Trees that correct the analytic price.
    pub const CORRECTED: Kind = Kind {
        name: "corrected",
        new: |_| Box::new(Corrected::default()),
        load: Some(|parts| Ok(Box::new(Corrected::from_parts(parts)?))),
    };
    /// Random numbers.
    pub const RANDOM: Kind =
        Kind { name: "random", new: |seed| Box::new(Random { seed }), load: None };

    /// Every kind, in the order in which people read them.
    pub const ALL: [Kind; 9] = [
        Kind::HIST,
        Kind::GBDT,
        Kind::MLP,
        Kind::TLP,
        Kind::MTL_TLP,
        Kind::TLP_PUBLISHED,
        Kind::PRICE,
        Kind::CORRECTED,
        Kind::RANDOM,
    ];

    /// The names of all kinds.
    pub fn names() -> [&'static str; Kind::ALL.len()] {
        Kind::ALL.map(Kind::name)
    }

    /// As on the command line and in files.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// An untrained model.
    pub fn create(self, seed: u64) -> Box<dyn CostModel> {
        (self.new)(seed)
    }

    /// The parts of a candidate that models of the kind read.
    pub fn needs(self) -> Needs {
        self.create(0).needs()
    }

    /// A model with all that it has learned.
    pub fn load(self, parts: &Parts) -> Result<Box<dyn CostModel>, ModelFileError> {
        match self.load {
            Some(load) => load(parts),
            None => Err(ModelFileError::Kind(self.name.into())),
        }
    }
}

fn load_tlp(kind: Kind, parts: &Parts) -> Result<Box<dyn CostModel>, ModelFileError> {
    Ok(Box::new(Tlp::from_parts(kind, parts).map_err(ModelFileError::Unfit)?))
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

impl Debug for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        let known = Kind::ALL.into_iter().find(|kind| kind.name == name);
        known.ok_or_else(|| UnknownKind(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_go_by_their_names() {
        for kind in Kind::ALL {
            assert_eq!(kind.create(0).name(), kind.name());
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let unknown = "oracle".parse::<Kind>().unwrap_err().to_string();
        assert!(unknown.starts_with("there is no cost model `oracle`; there are hist, gbdt"));
    }
}
