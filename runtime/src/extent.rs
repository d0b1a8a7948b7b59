//! Numbers that follow from the sizes of a run.
//!
//! ```text
//! sizes: batch = 2, sequence = 5      batch * sequence -> 10      floor((sequence + 1) / 2) -> 3
//! ```

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// An extent, or another number, as a function of the sizes that a run may choose.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// The same for all sizes.
    Constant(i64),
    /// The size of this number.
    Size(u32),
    /// The sum of all.
    Sum(Vec<Extent>),
    /// The product of all.
    Product(Vec<Extent>),
    /// The quotient by a positive number, rounded to minus infinity.
    Floor(Box<Extent>, i64),
    /// The smallest of all, of which there is one at least.
    Min(Vec<Extent>),
}

impl Extent {
    /// The number for these sizes; `None` if it does not fit `i64`, or a size is not among them.
    pub fn at(&self, sizes: &[i64]) -> Option<i64> {
        let all = |parts: &[Extent], first: i64, join: fn(i64, i64) -> Option<i64>| {
            parts.iter().try_fold(first, |sum, part| join(sum, part.at(sizes)?))
        };
        match self {
            Extent::Constant(value) => Some(*value),
            Extent::Size(index) => sizes.get(*index as usize).copied(),
            Extent::Sum(parts) => all(parts, 0, i64::checked_add),
            Extent::Product(parts) => all(parts, 1, i64::checked_mul),
            Extent::Floor(of, by) => of.at(sizes)?.checked_div_euclid(*by).filter(|_| *by > 0),
            Extent::Min(parts) => {
                let (first, others) = parts.split_first()?;
                others.iter().try_fold(first.at(sizes)?, |min, part| Some(min.min(part.at(sizes)?)))
            }
        }
    }

    /// The sizes that extents are functions of, by their numbers, each once and in order.
    pub fn used<'e>(extents: impl IntoIterator<Item = &'e Extent>) -> Vec<usize> {
        let mut all = BTreeSet::new();
        extents.into_iter().for_each(|extent| extent.add_used(&mut all));
        all.into_iter().collect()
    }

    fn add_used(&self, all: &mut BTreeSet<usize>) {
        match self {
            Extent::Constant(_) => {}
            Extent::Size(i) => {
                all.insert(*i as usize);
            }
            Extent::Sum(parts) | Extent::Product(parts) | Extent::Min(parts) => {
                parts.iter().for_each(|part| part.add_used(all));
            }
            Extent::Floor(of, _) => of.add_used(all),
        }
    }

    /// Whether it is the same for all sizes.
    pub fn is_constant(&self) -> bool {
        match self {
            Extent::Constant(_) => true,
            Extent::Size(_) => false,
            Extent::Sum(parts) | Extent::Product(parts) | Extent::Min(parts) => {
                parts.iter().all(Extent::is_constant)
            }
            Extent::Floor(of, _) => of.is_constant(),
        }
    }
}

/// `s0 * 2 + 1`, with `s0` for the first size.
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Extent], by: &str| {
            parts.iter().enumerate().try_for_each(|(i, part)| {
                let between = if i > 0 { by } else { "" };
                write!(f, "{between}{part}")
            })
        };
        match self {
            Extent::Constant(value) => write!(f, "{value}"),
            Extent::Size(index) => write!(f, "s{index}"),
            Extent::Sum(parts) => {
                f.write_str("(")?;
                joined(f, parts, " + ")?;
                f.write_str(")")
            }
            Extent::Product(parts) => joined(f, parts, " * "),
            Extent::Floor(of, by) => write!(f, "floor({of} / {by})"),
            Extent::Min(parts) => {
                f.write_str("min(")?;
                joined(f, parts, ", ")?;
                f.write_str(")")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_follow_from_sizes() {
        let half =
            Extent::Floor(Box::new(Extent::Sum(vec![Extent::Size(1), Extent::Constant(1)])), 2);
        let both = Extent::Product(vec![Extent::Size(0), half.clone()]);
        assert_eq!(both.at(&[3, 5]), Some(9));
        assert_eq!(half.at(&[3, -4]), Some(-2));
        assert_eq!(half.at(&[3]), None);
        assert_eq!(Extent::Product(vec![Extent::Size(0); 2]).at(&[i64::MAX]), None);
        assert_eq!(Extent::Floor(Box::new(Extent::Size(0)), 0).at(&[1]), None);
        let most = Extent::Min(vec![Extent::Size(0), Extent::Constant(4)]);
        assert_eq!((most.at(&[3]), most.at(&[5]), most.at(&[])), (Some(3), Some(4), None));
        assert_eq!(Extent::Min(vec![]).at(&[3]), None);
        assert_eq!(most.to_string(), "min(s0, 4)");
        assert!(!most.is_constant() && Extent::Min(vec![Extent::Constant(1)]).is_constant());
        assert_eq!(both.to_string(), "s0 * floor((s1 + 1) / 2)");
        assert!(!both.is_constant() && Extent::Sum(vec![Extent::Constant(1)]).is_constant());
    }
}
