//! The graph that the reference interpreter computes.
//!
//! In: a model and values for its inputs. Out: its graph for the sizes that these give it. If only
//! the data decides a size, the interpreter finds it: the graph for the most elements tells the
//! sizes that depend on no others, and the graph with these tells the next ones.
//!
//! ```text
//! nonzero(x) of at most 50 -> 7       nms(..) of these 7 boxes -> 3      the graph for 7 and 3
//! ```

use ansc_frontend::import::{Fold, ImportOptions, Source};
use ansc_graph::sizes::next_counts;
use ansc_graph::{Graph, interp};
use ansc_runtime::Tensor;

use crate::Error;

/// The graph with all sizes that these inputs give it.
pub fn decided(
    source: &Source,
    options: &ImportOptions,
    in_order: impl Fn(&Graph) -> Result<Vec<Tensor>, Error>,
) -> Result<Graph, Error> {
    let import = source.alike(Fold::All);
    let mut known = vec![];
    loop {
        let graph = import(options, &known)?;
        let Some(next) = next_counts(&graph, known.len()) else { return Ok(graph) };
        for count in interp::run(&next, &in_order(&next)?)? {
            known.push(usize::try_from(count.as_slice::<i64>()[0]).unwrap_or(0));
        }
    }
}
