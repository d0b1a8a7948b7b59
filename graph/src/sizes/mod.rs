//! One graph for a range of sizes.
//!
//! In: the range of each size, and a way to import the model for given sizes. Out: a [`Ranged`]: a
//! graph with static shapes, those for the largest sizes, which computes the model for every size
//! in the ranges. The sizes are further inputs of it.
//!
//! ```text
//! at s = 8: y: f32[8] = x[i0] + 1  ;  m: f32[] = max{r0: 8} y[r0]
//! at s = 5: y: f32[5] = x[i0] + 1  ;  m: f32[] = max{r0: 5} y[r0]
//! 1..=8:    y: f32[8] = x[i0] + 1  ;  m: f32[] = max{r0: 8} select(r0 < s, y[r0], -inf)
//! ```
//!
//! Elements keep their indices: what has `e` elements along an axis at some sizes are the first `e`
//! along the axis here, and the others hold anything. No element of a result depends on those.
//!
//! How a model depends on sizes is seen from outside: it is imported at many of them (`samples`),
//! and what differs must be numbers that follow a rule (`fit`). So no operator has to know about
//! sizes. Each rule holds at all places that were looked at; a model that deviates from it at a
//! size between them, for that size alone, would be taken wrongly.
//!
//! Sizes that only the data decides are counted by nodes of the graph (`counts`). They have a
//! range, too: an import takes as many elements as it is told.
//!
//! Branches and loops are compared body by body. Their bodies get the sizes as further captures,
//! and a loop over an axis that varies makes as many trips as the axis has elements (`control`).

mod build;
mod check;
mod compute;
mod constants;
mod control;
mod counts;
mod dense;
mod fit;
mod formula;
mod look;
mod numbers;
mod samples;
mod sums;
#[cfg(test)]
mod tests;
mod zero;

use ansc_runtime::{DType, Extent};
use rayon::prelude::*;

pub use counts::next_counts;
pub use dense::read_dense;
pub(crate) use formula::renumbered;
pub use formula::{expression, used};

use crate::graph::{Graph, ValueId};
use crate::op::{Kind, PoolAttrs, PoolMode};
use crate::scalar::Scalar;

/// The sizes that one dimension may have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The name of the dimension.
    pub name: String,
    /// The smallest size.
    pub low: usize,
    /// The largest size.
    pub high: usize,
}

/// A graph for a range of sizes.
#[derive(Debug)]
pub struct Ranged {
    /// The inputs of the model, then an `i64` scalar for each size. Behind the outputs of the model
    /// come the sizes that the graph computes.
    pub graph: Graph,
    /// For each input of the model, the extent of each axis.
    pub inputs: Vec<Vec<Extent>>,
    /// For each output, likewise. What has a shape that only the data decides is dynamic.
    pub outputs: Vec<Vec<Extent>>,
    /// The smallest of each size that the graph computes.
    pub counts: Vec<i64>,
}

impl Ranged {
    /// There is nothing to choose.
    fn of_one(graph: Graph) -> Ranged {
        let extents = |value: ValueId| {
            graph.ty(value).shape.iter().map(|&extent| Extent::Constant(extent as i64)).collect()
        };
        let inputs = graph.inputs().iter().map(|&node| extents(ValueId { node, out: 0 })).collect();
        let outputs = graph.outputs.iter().map(|(_, value)| extents(*value)).collect();
        Ranged { inputs, outputs, counts: vec![], graph }
    }
}

/// Why one graph does not do for a range of sizes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("node `{node}`: {reason}")]
pub struct Unfit {
    /// The node that depends on sizes in a way that is not known here.
    pub node: String,
    /// How.
    pub reason: String,
}

/// Why there is no graph for a range of sizes.
#[derive(Debug)]
pub enum RangeError<E> {
    /// The model cannot be imported at some sizes.
    Import(E),
    /// It can, but one graph does not do for all of them.
    Unfit(Unfit),
}

/// The number that an operator of windows reads beyond its operand. Such an operator needs no other
/// expression at other sizes, if it finds the same beyond the end of a smaller operand.
fn beyond(kind: &Kind) -> Option<fn(DType) -> Scalar> {
    match kind {
        Kind::Conv(_) => Some(Scalar::zero),
        Kind::Pool(PoolAttrs { mode: PoolMode::Max, .. }) => Some(Scalar::lowest),
        _ => None,
    }
}

/// After so many sizes it is seen whether constants can follow a rule at all: it saves to look at
/// the others.
const FEW: usize = 8;
/// Graphs that are in memory at once, beside the first one.
const AT_ONCE: usize = 16;

/// One graph for all sizes in these ranges. `import` gives that for a tuple of sizes, which may go
/// on with counts, in the order of their numbers. It is called once for the largest sizes, without
/// counts, of which it then takes the most that there may be; and then on many threads.
pub fn ranged<E: Send>(
    ranges: &[Range],
    import: impl Fn(&[usize]) -> Result<Graph, E> + Sync,
) -> Result<Ranged, RangeError<E>> {
    let made = |sizes: &[usize]| import(sizes).map(look::cleaned).map_err(RangeError::Import);
    let largest: Vec<usize> = ranges.iter().map(|range| range.high).collect();
    let first = made(&largest)?;
    let mut counts = counts::ranges(&first);
    if ranges.is_empty() && counts.is_empty() {
        return Ok(Ranged::of_one(first));
    }
    counts::begin(&mut counts, &largest, |sizes| made(sizes).is_ok());
    let samples = samples::samples(ranges, &counts);
    let mut look = look::Look::new(first);
    let (early, others) = samples[1..].split_at(samples.len().min(FEW) - 1);
    for (n, some) in [early].into_iter().chain(others.chunks(AT_ONCE)).enumerate() {
        let find = |sizes: &Vec<usize>| look.find(&made(sizes)?).map_err(RangeError::Unfit);
        let found: Vec<Result<Vec<look::Found>, RangeError<E>>> =
            some.par_iter().map(find).collect();
        found.into_iter().try_for_each(|found| found.map(|found| look.add(found)))?;
        if n == 0 {
            look.check_constants().map_err(RangeError::Unfit)?;
        }
    }
    let zero = |sizes: &[usize]| made(sizes).ok();
    build::build(look, &samples, [ranges, &counts], &zero).map_err(RangeError::Unfit)
}
