//! Convolutions without taps that meet padding alone.
//!
//! ```text
//! x: [n, c, h, 1], padded by 5 on both sides of the last axis;  w: [m, c, 3, 11]
//! conv(x, w)  ->  conv(x, w[.., 5..6]), without that padding
//! ```
//!
//! Where a window is larger than its input, its first and its last taps may lie outside of the
//! input for each result: they multiply zeros. Those between the taps that are left stay.

use super::rewrite::{add, built, set_op};
use super::{Options, PassError};
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{Channels, ConvAttrs, Kind};
use crate::ops::conv::widened_conv;
use crate::ops::slice::narrow;

pub(crate) fn run(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let mut changed = false;
    for node in graph.topological() {
        let Some(Kind::Conv(attrs)) = graph.compute_of(node).map(|op| &op.kind) else { continue };
        let attrs = attrs.clone();
        if [attrs.channels, attrs.input] == [Channels::First; 2] {
            changed |= narrowed(graph, node, attrs)?;
        }
    }
    Ok(changed)
}

fn narrowed(graph: &mut Graph, node: NodeId, mut attrs: ConvAttrs) -> Result<bool, PassError> {
    let [x, mut w] = graph.operands(node)[..] else { return Ok(false) };
    let (inputs, results) = (graph.ty(x).clone(), graph.ty(ValueId { node, out: 0 }).clone());
    if results.is_empty() || inputs.is_empty() {
        return Ok(false);
    }
    let name = graph.node(node).name.clone();
    let mut changed = false;
    for axis in 0..attrs.kernel.len() {
        let [first, last] = idle(&attrs, axis, inputs.shape[axis + 2], results.shape[axis + 2]);
        if first + last == 0 {
            continue;
        }
        attrs.kernel[axis] -= first + last;
        attrs.pads_begin[axis] -= first * attrs.dilations[axis];
        attrs.pads_end[axis] -= last * attrs.dilations[axis];
        let part = built(&name, narrow(graph.ty(w), axis + 2, first, attrs.kernel[axis]))?;
        w = add(graph, &name, part, &[w]);
        changed = true;
    }
    if changed {
        let op = built(&name, widened_conv(attrs, graph.ty(x), graph.ty(w)))?;
        set_op(graph, node, op, &[x, w]);
    }
    Ok(changed)
}

/// How many taps at the beginning and at the end of a window never meet the input. One is left, and
/// none whose padding is not wholly there.
fn idle(attrs: &ConvAttrs, axis: usize, extent: usize, results: usize) -> [usize; 2] {
    let (dilation, begin) = (attrs.dilations[axis], attrs.pads_begin[axis]);
    let furthest = (results - 1) * attrs.strides[axis];
    let taps = || 0..attrs.kernel[axis];
    let first = taps().take_while(|tap| tap * dilation + furthest < begin).count();
    let last = taps().rev().take_while(|tap| tap * dilation >= begin + extent).count();
    if first + last >= attrs.kernel[axis] {
        return [0, 0];
    }
    [first.min(begin / dilation), last.min(attrs.pads_end[axis] / dilation)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::conv::conv;
    use crate::passes::testing::{Builder, check};

    /// The window that is left of a convolution of `[2, 3, 9, extent]`, whose results stay the
    /// same.
    fn left(extent: usize, kernel: usize, pads: [usize; 2], by: [usize; 2]) -> Vec<usize> {
        let mut b = Builder::new(31);
        let x = b.input(&[2, 3, 9, extent]);
        let w = b.constant(&[4, 3, 3, kernel]);
        let attrs = ConvAttrs {
            channels: Channels::First,
            input: Channels::First,
            kernel: vec![3, kernel],
            strides: vec![2, by[0]],
            dilations: vec![1, by[1]],
            pads_begin: vec![1, pads[0]],
            pads_end: vec![1, pads[1]],
            groups: 1,
        };
        let op = conv(attrs, b.graph.ty(x), b.graph.ty(w)).unwrap();
        let y = b.emit(op, &[x, w]);
        let after = check(b.finish(&[y]), run);
        let kinds = after.topological().into_iter().filter_map(|node| after.compute_of(node));
        let mut windows = kinds.filter_map(|op| match &op.kind {
            Kind::Conv(attrs) => Some(attrs.kernel.clone()),
            _ => None,
        });
        windows.next().unwrap()
    }

    #[test]
    fn taps_that_meet_padding_alone_vanish() {
        // Of one column only one tap meets the input.
        assert_eq!(left(1, 11, [5, 5], [1, 1]), [3, 1]);
        // Two results of one column, and of two columns.
        assert_eq!(left(1, 11, [5, 6], [1, 1]), [3, 2]);
        assert_eq!(left(2, 11, [5, 5], [1, 1]), [3, 3]);
        // At one end, with strides and with gaps.
        assert_eq!(left(3, 7, [0, 6], [3, 1]), [3, 3]);
        assert_eq!(left(2, 5, [6, 6], [1, 3]), [3, 1]);
        // As many places as taps, and a window that the input fills.
        assert_eq!(left(9, 3, [1, 1], [1, 1]), [3, 3]);
        assert_eq!(left(4, 4, [0, 0], [1, 1]), [3, 4]);
    }
}
