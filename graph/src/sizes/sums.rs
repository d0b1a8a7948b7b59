//! Sizes that are functions of others.
//!
//! In: the values of a number that depends on counts. Out: one more size, if the number depends on
//! several, or is a number that is known already and a function of one size. So the lengths of
//! lists that are joined, and the places where each begins, are a size each.
//!
//! ```text
//! s0, s1, s2: i64[] are counts          s3 = s0 + s1          s4 = s3 + s2
//! ```

use std::collections::HashMap;

use ansc_runtime::Extent;

use super::build::Build;
use super::formula::{used, wide};
use crate::graph::NodeId;

/// Numbers that are known as functions of sizes, by their values at all samples.
pub(super) type Known = HashMap<Vec<i64>, Extent>;

/// The numbers without their signs; `None` if one is above 0.
fn negated(values: &[i64]) -> Option<Vec<i64>> {
    values.iter().map(|value| value.checked_neg().filter(|value| *value >= 0)).collect()
}

fn less(extent: Extent) -> Extent {
    Extent::Product(vec![extent, Extent::Constant(-1)])
}

impl Build {
    /// The number with these values at all samples.
    pub(super) fn extent_of(&mut self, node: NodeId, values: &[i64]) -> Option<Extent> {
        if let Some(known) = self.known.get(values) {
            return Some(known.clone());
        }
        if values.iter().any(|value| *value < 0)
            && let Some(extent) = negated(values).and_then(|all| self.extent_of(node, &all))
        {
            return Some(less(extent));
        }
        let extent = self.fit().of(values)?;
        // A function of several is a size, so that others may be a function of it.
        let several = self.counted && used(std::iter::once(&extent)).len() > 1;
        if several && let Some(size) = self.size(node, values, &extent) {
            return Some(size);
        }
        self.known.insert(values.to_vec(), extent.clone());
        Some(extent)
    }

    /// Sizes, with those that are sums of others; `None` if one is none.
    pub(super) fn with_sums(&self, sizes: &[usize]) -> Option<Vec<usize>> {
        let mut sizes = sizes.to_vec();
        for sum in &self.sums {
            sizes.push(usize::try_from(sum.at(&wide(&sizes))?).ok()?);
        }
        Some(sizes)
    }

    /// A size with these values, as the sum of a function of one size and one of `bases`, of which
    /// the last ones come first.
    pub(super) fn sum(
        &mut self,
        node: NodeId,
        values: &[i64],
        bases: &[Vec<i64>],
    ) -> Option<Extent> {
        if values.iter().any(|value| *value < 0) {
            return self.sum(node, &negated(values)?, bases).map(less);
        }
        let extent = bases.iter().rev().find_map(|base| {
            let rest = values.iter().zip(base).map(|(value, base)| value.checked_sub(*base));
            let rest = self.fit().of_any(&rest.collect::<Option<Vec<i64>>>()?)?;
            Some(Extent::Sum(vec![self.known.get(base)?.clone(), rest]))
        })?;
        self.size(node, values, &extent)
    }

    /// A further size with these values, which is this function of others.
    fn size(&mut self, node: NodeId, values: &[i64], extent: &Extent) -> Option<Extent> {
        let sizes: Vec<usize> =
            values.iter().map(|v| usize::try_from(*v).ok()).collect::<Option<_>>()?;
        let low = extent.at(&self.lows)?;
        let value = self.count(node, extent);
        self.sums.push(extent.clone());
        let size = Extent::Size(self.sizes.len() as u32);
        self.samples.iter_mut().zip(sizes).for_each(|(sample, size)| sample.push(size));
        self.sizes.push(value);
        self.lows.push(low);
        self.known.insert(values.to_vec(), size.clone());
        Some(size)
    }
}
