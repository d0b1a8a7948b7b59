//! How many bits the operands of sums of products have.
//!
//! A model declares `f32`. With another precision, convolutions and matrix products read operands
//! that were rounded, and sum in `f32` all the same.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;

/// The type that operands are rounded to.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// As the model says: nothing is rounded.
    #[default]
    F32,
    /// 11 bits of significand and the range of `f32`, in which it is stored. Tensor cores of GPUs
    /// read no more of it.
    Tf32,
    /// 8 bits of significand and the range of `f32`.
    Bf16,
    /// 11 bits of significand, but nothing beyond 65504.
    F16,
    /// Integers of 8 bits, in steps that are chosen by values that were seen
    /// ([`Quantization`](crate::Quantization)).
    Int8,
}

impl Precision {
    /// Every precision once, the model's own first.
    pub const ALL: [Precision; 5] =
        [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16, Precision::Int8];

    /// The type of floats that operands are stored as once they are rounded; `None` if they stay
    /// `f32`, or become integers.
    pub const fn operands(self) -> Option<DType> {
        match self {
            Precision::F32 | Precision::Tf32 | Precision::Int8 => None,
            Precision::Bf16 => Some(DType::BF16),
            Precision::F16 => Some(DType::F16),
        }
    }

    /// Whether only GPUs gain by it: nothing is stored in fewer bits, but their tensor cores read
    /// no more of them.
    pub const fn is_of_gpus(self) -> bool {
        matches!(self, Precision::Tf32)
    }

    /// The precision whose operands have this type.
    pub fn with_operands(dtype: DType) -> Option<Precision> {
        Precision::ALL.into_iter().find(|p| p.operands() == Some(dtype))
    }

    /// As on the command line and in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
            Precision::Int8 => "int8",
        }
    }

    /// The most that rounding adds to a number, as a part of it: half the distance from 1 to the
    /// next larger number. Of integers it is half a step, as a part of the largest of them.
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            Precision::F32 => 1.0 / (1u64 << 24) as f64,
            Precision::Bf16 => 1.0 / (1u64 << 8) as f64,
            Precision::F16 | Precision::Tf32 => 1.0 / (1u64 << 11) as f64,
            Precision::Int8 => 0.5 / 127.0,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Precision, String> {
        let named = |p: &Precision| p.name() == text;
        Precision::ALL.into_iter().find(named).ok_or_else(|| {
            let names = Precision::ALL.map(Precision::name).join(", ");
            format!("`{text}` is not a precision; they are {names}")
        })
    }
}

/// A precision for the model, and others for some of its nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Precisions {
    /// The precision of all nodes that are not listed.
    pub model: Precision,
    /// By the name of the ONNX node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, Precision>,
}

impl Precisions {
    /// The precision of the node of this name.
    pub fn of(&self, node: &str) -> Precision {
        self.nodes.get(node).copied().unwrap_or(self.model)
    }

    /// That of the model, and those of nodes.
    pub fn all(&self) -> impl Iterator<Item = Precision> {
        std::iter::once(self.model).chain(self.nodes.values().copied())
    }

    /// Whether everything is as the model says.
    pub fn is_full(&self) -> bool {
        self.all().all(|p| p == Precision::F32)
    }

    /// The one that rounds most of those that are asked for.
    pub fn coarsest(&self) -> Precision {
        let coarser = |a: Precision, b: Precision| {
            if b.unit_roundoff() > a.unit_roundoff() { b } else { a }
        };
        self.all().fold(self.model, coarser)
    }
}

/// As the options of the command line say it: `bf16, stem=f32`.
impl fmt::Display for Precisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.model.fmt(f)?;
        self.nodes.iter().try_for_each(|(node, precision)| write!(f, ", {node}={precision}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for precision in Precision::ALL {
            assert_eq!(precision.name().parse(), Ok(precision));
        }
        let error = "bf61".parse::<Precision>().unwrap_err();
        assert_eq!(error, "`bf61` is not a precision; they are f32, tf32, bf16, f16, int8");
    }

    #[test]
    fn nodes_go_before_the_model() {
        let nodes = BTreeMap::from([("stem".to_owned(), Precision::F32)]);
        let some = Precisions { model: Precision::F16, nodes };
        assert_eq!((some.of("stem"), some.of("head")), (Precision::F32, Precision::F16));
        assert_eq!(some.to_string(), "f16, stem=f32");
        assert!(!some.is_full() && Precisions::default().is_full());
    }

    #[test]
    fn the_coarsest_is_the_one_with_the_fewest_bits() {
        let nodes = BTreeMap::from([("stem".to_owned(), Precision::Bf16)]);
        let some = Precisions { model: Precision::F16, nodes };
        assert_eq!(some.coarsest(), Precision::Bf16);
        assert_eq!(Precisions::default().coarsest(), Precision::F32);
    }
}
