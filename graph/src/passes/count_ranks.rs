//! The best elements along an axis are found by counting, where results of other kernels would have
//! to leave the device for a host's function.
//!
//! ```text
//! values, indices = host top_k(x)
//! ->
//! indices = positions(x);  values = gather_elements(x, indices)
//! ```
//!
//! Counting compares all pairs of a lane. Longer lanes than [`Options::count_ranks`] stay with the
//! host, which looks at each element once or twice. The best element alone is an `ArgMax`, however
//! long lanes are.

use ansc_runtime::host::HostOp;

use super::rewrite::{add, built, supersede};
use super::{Options, PassError};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::Op;
use crate::ops::arg_extreme::{ArgExtreme, arg_extreme};
use crate::ops::{gather, top_k};

pub(crate) fn run(graph: &mut Graph, options: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        changed |= rewrite(graph, node, options.count_ranks)?;
    }
    Ok(changed)
}

fn rewrite(graph: &mut Graph, node: NodeId, most: usize) -> Result<bool, PassError> {
    let Op::Host(HostOp::TopK { axis, k, largest, .. }) = graph.node(node).op else {
        return Ok(false);
    };
    let x = graph.operands(node)[0];
    let ty = graph.ty(x).clone();
    // NaN is the largest, and `ArgMin` would take it for the smallest.
    let is_extreme = k == 1 && (largest || !ty.dtype.is_float());
    let is_long = ty.shape[axis] > most && !is_extreme;
    if is_long || k == 0 || ty.is_empty() || graph.value(x).dynamic {
        return Ok(false);
    }
    let name = graph.node(node).name.clone();
    let op = match is_extreme {
        true => arg_extreme(ArgExtreme { axis, largest, keep: true, last: false }, &ty),
        false => top_k::positions(axis, k, largest, &ty),
    };
    let op = built(&name, op)?;
    let indices = add(graph, &name, op, &[x]);
    let op = built(&name, gather::gather_elements(graph.ty(x), graph.ty(indices), axis))?;
    let values = add(graph, &name, op, &[x, indices]);
    supersede(graph, ValueId { node, out: 0 }, values);
    supersede(graph, ValueId { node, out: 1 }, indices);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;
    use crate::compute::TensorType;
    use crate::graph::Value;
    use crate::passes::testing::{Builder, check_all};

    fn with_top_k() -> Graph {
        with(1, 4, true)
    }

    fn with(axis: usize, k: usize, largest: bool) -> Graph {
        let mut b = Builder::new(91);
        let x = b.input(&[3, 20]);
        let mut shape = [3, 20];
        shape[axis] = k;
        let values = [("values", DType::F32), ("indices", DType::I64)]
            .map(|(name, dtype)| Value::new(name, TensorType::new(dtype, &shape[..])));
        let op = HostOp::TopK { axis, k, at_most: false, largest, sorted: true };
        let node = b.graph.add("best", Op::Host(op), &[x], values.to_vec());
        b.finish(&[0, 1].map(|out| ValueId { node, out }))
    }

    fn hosts(graph: &Graph) -> usize {
        let is_host = |n: &NodeId| matches!(graph.node(*n).op, Op::Host(_));
        graph.topological().iter().filter(|n| is_host(n)).count()
    }

    #[test]
    fn lanes_that_are_short_enough_are_counted() {
        let counting = Options { count_ranks: 20, ..Options::default() };
        let after = check_all(with_top_k(), |graph| {
            run(graph, &counting)?;
            super::super::dce::run(graph, &counting).map(drop)
        });
        assert_eq!(hosts(&after), 0);
        let mut graph = with_top_k();
        assert!(!run(&mut graph, &Options { count_ranks: 19, ..counting }).unwrap());
        assert!(!run(&mut graph, &Options::default()).unwrap());
    }

    #[test]
    fn one_element_is_an_extreme() {
        for axis in [0, 1] {
            let after = check_all(with(axis, 1, true), |graph| {
                run(graph, &Options::default())?;
                super::super::dce::run(graph, &Options::default()).map(drop)
            });
            assert_eq!(hosts(&after), 0);
            assert!(!run(&mut with(axis, 1, false), &Options::default()).unwrap());
        }
    }
}
