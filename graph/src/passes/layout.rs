//! Channels-last layout for convolutions, and for what lies between them.
//!
//! ```text
//! x -> conv -> relu -> conv -> y
//! ->  x -> transpose -> conv' -> relu -> conv' -> transpose -> y
//! ```
//!
//! Every channels-first convolution becomes a channels-last one between two transposes. Transposes
//! to channels-first are then pushed down through operators that work in either order, until they
//! meet their inverse or a border: an output of the graph, or an operator that needs its order. A
//! graph without convolutions stays as it is, and so does one whose convolutions are all products
//! of matrices, depthwise with rows that fill vectors, or to few channels: either order is as good
//! for them, or rows are better.
//!
//! At last a convolution of few channels, such as a network's first one, takes its input as it
//! comes:
//!
//! ```text
//! x -> transpose -> conv' -> y
//! ->  x -> conv'' -> y
//! ```

use super::permute::permuted_op;
use super::rewrite::{add, built, permuted, reshaped, supersede, sweep};
use super::{Options, PassError, conv_to_matmul, simplify};
use crate::compute::TensorType;
use crate::graph::{Graph, NodeId, ValueId};
use crate::op::{Channels, ComputeOp, ConvAttrs, Kind};
use crate::ops::conv;

/// Operands of up to this many bytes are transposed without counting the cost.
const SMALL: usize = 16 << 10;

pub(crate) fn run(graph: &mut Graph, options: &Options) -> Result<bool, PassError> {
    let mut converted = false;
    if options.channels_last && any_gains(graph) {
        for node in graph.topological() {
            converted |= convert(graph, node)?;
        }
    }
    if !converted {
        return Ok(false);
    }
    sweep(graph);
    loop {
        let mut changed = simplify::run(graph, options)?;
        for node in graph.topological() {
            changed |= sink(graph, node)?;
        }
        sweep(graph);
        if !changed {
            break;
        }
    }
    for node in graph.topological() {
        absorb(graph, node)?;
    }
    sweep(graph);
    Ok(true)
}

/// Whether any channels-first convolution gains by another order. Where there is none, what comes
/// and goes channels-first had to be transposed for nothing.
fn any_gains(graph: &Graph) -> bool {
    graph.topological().into_iter().any(|node| {
        let operands = graph.operands(node);
        let attrs = graph.compute_of(node).and_then(|op| channels_first(graph, op, &operands));
        attrs.is_some_and(|attrs| {
            let [x, w] = [0, 1].map(|i| graph.ty(operands[i]));
            let y = graph.ty(ValueId { node, out: 0 });
            match attrs.groups > 1 && w.shape[1] == 1 {
                true => has_narrow_rows(&attrs, x, y),
                false => {
                    !conv_to_matmul::is_product_as_it_stands(&attrs, x)
                        && !has_few_results(&attrs, w.shape[1], y)
                }
            }
        })
    })
}

/// Elements of the widest vectors, and of those that every processor has.
const LANES: [usize; 2] = [16, 8];

/// Whether rows of a depthwise convolution are cut into so many small vectors that channels, which
/// fill large ones, take less time although both sides are transposed.
fn has_narrow_rows(attrs: &ConvAttrs, x: &TensorType, y: &TensorType) -> bool {
    let [wide, usual] = LANES;
    let taps: usize = attrs.kernel.iter().product();
    let [before, after] = [x, y].map(|ty| ty.shape[2..].iter().product::<usize>());
    let columns = y.shape[y.rank() - 1];
    let pieces = columns / wide + (columns % wide).count_ones() as usize;
    let by_rows = taps * (after / columns.max(1)) * pieces;
    let by_channels = taps * after / usual + (before + after) / 2;
    y.shape[1] >= wide && 4 * by_channels < 3 * by_rows
}

/// Results of a group that fill less of a vector than columns do.
const FEW_RESULTS: usize = 4;
/// Windows of so many elements have terms enough for vectors along channels.
const LARGE_WINDOW: usize = 25;

/// Whether there are so few results at a place that vectors lie better along rows.
fn has_few_results(attrs: &ConvAttrs, channels: usize, y: &TensorType) -> bool {
    let is_dense = attrs.strides.last().is_none_or(|&stride| stride == 1);
    let results = y.shape[1] / attrs.groups.max(1);
    let window: usize = attrs.kernel.iter().product();
    let sums_along_channels = window >= LARGE_WINDOW && channels.is_multiple_of(LANES[0]);
    let has_rows = is_dense && y.shape[y.rank() - 1] >= LANES[0];
    has_rows && results <= FEW_RESULTS && !sums_along_channels
}

/// Channels of a group whose distance from each other does not matter.
const FEW_CHANNELS: usize = 16;
/// Results that share an element of the input: vectors of them.
const MANY_RESULTS: usize = 16;

/// Axis `i` of the channels-first tensor is this axis of the channels-last one.
fn to_first(rank: usize) -> Vec<usize> {
    let mut perm: Vec<usize> = (0..rank - 1).collect();
    perm.insert(1, rank - 1);
    perm
}

fn to_last(rank: usize) -> Vec<usize> {
    let mut perm: Vec<usize> = (0..rank).collect();
    let channels = perm.remove(1);
    perm.push(channels);
    perm
}

/// Makes a channels-first convolution a channels-last one between transposes.
fn convert(graph: &mut Graph, node: NodeId) -> Result<bool, PassError> {
    let operands = graph.operands(node);
    let Some(attrs) = graph.compute_of(node).and_then(|op| channels_first(graph, op, &operands))
    else {
        return Ok(false);
    };
    let rank = attrs.kernel.len() + 2;
    let name = graph.node(node).name.clone();
    let x = permuted(graph, &name, operands[0], &to_last(rank))?;
    // [m, c, kernel..] to [kernel.., c, m]
    let mut weight: Vec<usize> = (2..rank).collect();
    weight.extend([1, 0]);
    let w = permuted(graph, &name, operands[1], &weight)?;
    let attrs = ConvAttrs { channels: Channels::Last, input: Channels::Last, ..attrs };
    let op = built(&name, conv::conv(attrs, graph.ty(x), graph.ty(w)))?;
    let last = add(graph, &name, op, &[x, w]);
    let first = permuted(graph, &name, last, &to_first(rank))?;
    supersede(graph, ValueId { node, out: 0 }, first);
    Ok(true)
}

/// The attributes of a channels-first convolution whose expression they give.
fn channels_first(graph: &Graph, op: &ComputeOp, operands: &[ValueId]) -> Option<ConvAttrs> {
    let Kind::Conv(attrs) = &op.kind else { return None };
    if attrs.channels != Channels::First || operands.len() != 2 {
        return None;
    }
    let (x, w) = (graph.ty(operands[0]), graph.ty(operands[1]));
    let again = conv::conv(attrs.clone(), x, w).ok()?;
    (again.expr == op.expr).then(|| attrs.clone())
}

/// Lets a convolution read the channels-first tensor of which it reads the transpose, if an element
/// of its input is for many of its results: then it does not matter where the next channel is, and
/// copying all of the input does.
fn absorb(graph: &mut Graph, node: NodeId) -> Result<(), PassError> {
    let operands = graph.operands(node);
    let attrs = graph.compute_of(node).and_then(|op| of_few_channels(graph, op, &operands));
    let Some((attrs, x)) = attrs.zip(operands.first().and_then(|x| before_last(graph, *x))) else {
        return Ok(());
    };
    let name = graph.node(node).name.clone();
    let attrs = ConvAttrs { input: Channels::First, ..attrs };
    let op = built(&name, conv::conv(attrs, graph.ty(x), graph.ty(operands[1])))?;
    let reading = add(graph, &name, op, &[x, operands[1]]);
    supersede(graph, ValueId { node, out: 0 }, reading);
    Ok(())
}

/// The operand of a transpose to channels-last; `None` for other values.
fn before_last(graph: &Graph, value: ValueId) -> Option<ValueId> {
    match &graph.compute_of(value.node)?.kind {
        Kind::Transpose(perm) if *perm == to_last(perm.len()) => {
            Some(graph.operands(value.node)[0])
        }
        _ => None,
    }
}

/// The attributes of a channels-last convolution of floats that is no product of matrices, and has
/// few channels in a group but many results.
fn of_few_channels(graph: &Graph, op: &ComputeOp, operands: &[ValueId]) -> Option<ConvAttrs> {
    let Kind::Conv(attrs) = &op.kind else { return None };
    let (x, w) = (graph.ty(operands[0]), graph.ty(operands[1]));
    let [few, results] = [w.shape[w.rank() - 2], w.shape[w.rank() - 1] / attrs.groups.max(1)];
    let window: usize = attrs.kernel.iter().product();
    let wanted = [attrs.channels, attrs.input] == [Channels::Last; 2]
        && x.dtype.is_float()
        && window > 1
        && few <= FEW_CHANNELS
        && results >= MANY_RESULTS;
    let again = || conv::conv(attrs.clone(), x, w).ok();
    (wanted && again().is_some_and(|again| again.expr == op.expr)).then(|| attrs.clone())
}

/// How an operand changes when the transpose above a node moves below it.
enum Operand {
    /// It is the transpose of this value, which replaces it.
    Transposed(ValueId),
    /// A constant or a small tensor: permuted at no cost worth counting.
    Cheap,
    /// Needs a transpose of its own.
    Costly,
    /// Does not follow the order of axes.
    Kept,
}

/// Moves the transpose to channels-first from the operands of a node to its result.
fn sink(graph: &mut Graph, node: NodeId) -> Result<bool, PassError> {
    let operands = graph.operands(node);
    let rank = operands.iter().find_map(|v| transposed_source(graph, *v)).map(|(_, rank)| rank);
    let (Some(op), Some(rank)) = (graph.compute_of(node).cloned(), rank) else {
        return Ok(false);
    };
    let perm = to_first(rank);
    let roles: Vec<Operand> =
        operands.iter().map(|v| role(graph, *v, rank, op.kind == Kind::Map)).collect();
    if !pays(graph, &operands, &roles) || graph.node(node).outputs[0].ty.rank() > rank {
        return Ok(false);
    }
    // Broadcast operands of a map get all axes, so that they can be permuted with the others.
    let aligned = aligned_op(graph, &op, &operands, &roles, rank);
    let Some((op, result_perm)) = aligned.and_then(|op| permuted_op(&op, &perm)) else {
        return Ok(false);
    };
    let name = graph.node(node).name.clone();
    let mut inputs = Vec::with_capacity(operands.len());
    for (operand, role) in operands.iter().zip(&roles) {
        inputs.push(match role {
            Operand::Transposed(source) => *source,
            Operand::Kept => *operand,
            Operand::Cheap | Operand::Costly => {
                let full = reshaped(graph, &name, *operand, &padded(graph, *operand, rank))?;
                permuted(graph, &name, full, &to_last(rank))?
            }
        });
    }
    let last = add(graph, &name, op, &inputs);
    let first = permuted(graph, &name, last, &result_perm)?;
    supersede(graph, ValueId { node, out: 0 }, first);
    Ok(true)
}

/// The operand of a transpose to channels-first, and its rank; `None` for other values.
fn transposed_source(graph: &Graph, value: ValueId) -> Option<(ValueId, usize)> {
    match &graph.compute_of(value.node)?.kind {
        Kind::Transpose(perm) if perm.len() > 2 && *perm == to_first(perm.len()) => {
            Some((graph.operands(value.node)[0], perm.len()))
        }
        _ => None,
    }
}

fn role(graph: &Graph, value: ValueId, rank: usize, map: bool) -> Operand {
    let ty = graph.ty(value);
    match transposed_source(graph, value) {
        Some((source, r)) if r == rank => Operand::Transposed(source),
        _ if ty.rank() < rank && (!map || ty.len() == 1) => Operand::Kept,
        _ if graph.const_of(value).is_some() => Operand::Cheap,
        // Both transposes of three axes are the same: a small one would move back and forth.
        _ if ty.bytes() <= SMALL && to_first(rank) != to_last(rank) => Operand::Cheap,
        _ => Operand::Costly,
    }
}

/// Whether more bytes lose a transpose than get one.
fn pays(graph: &Graph, operands: &[ValueId], roles: &[Operand]) -> bool {
    let bytes = |costly: bool| {
        let counted = operands.iter().zip(roles).filter(|(_, role)| match role {
            Operand::Transposed(_) => !costly,
            Operand::Costly => costly,
            Operand::Cheap | Operand::Kept => false,
        });
        counted.map(|(v, _)| graph.ty(*v).bytes()).sum::<usize>()
    };
    bytes(false) > bytes(true)
}

fn padded(graph: &Graph, value: ValueId, rank: usize) -> Vec<usize> {
    let shape = &graph.ty(value).shape;
    let mut full = vec![1; rank - shape.len()];
    full.extend(shape);
    full
}

/// `op`, with broadcast operands of a map extended to `rank` axes.
fn aligned_op(
    graph: &Graph,
    op: &ComputeOp,
    operands: &[ValueId],
    roles: &[Operand],
    rank: usize,
) -> Option<ComputeOp> {
    if op.kind != Kind::Map {
        return Some(op.clone());
    }
    let body = super::rewrite::open(op)?;
    let types = operands.iter().zip(roles).map(|(v, role)| {
        let mut ty = graph.ty(*v).clone();
        if !matches!(role, Operand::Kept) {
            ty.shape = padded(graph, *v, rank);
        }
        ty
    });
    Some(super::rewrite::close_types(
        &types.collect::<Vec<_>>(),
        op.expr.stages[0].ty.clone(),
        &body,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::BinOp;
    use crate::ops::concat;
    use crate::passes::testing::{Builder, check, count};

    fn transposes(graph: &Graph) -> usize {
        count(graph, |k| matches!(k, Kind::Transpose(_)))
    }

    #[test]
    fn a_residual_network_is_transposed_at_its_borders_only() {
        let mut b = Builder::new(20);
        let x = b.input(&[2, 3, 9, 9]);
        let stem = b.conv(x, 4, 3, 2);
        let stem = b.batch_norm(stem);
        let stem = b.relu(stem);
        let pooled = b.max_pool(stem);
        let left = b.conv(pooled, 4, 3, 1);
        let left = b.batch_norm(left);
        let right = b.conv(pooled, 4, 1, 1);
        let sum = b.binary(BinOp::Add, left, right);
        let y = b.relu(sum);
        let both = [y, pooled].map(|v| b.graph.ty(v).clone());
        let joined = b.emit(concat::concat(&both, 1).unwrap(), &[y, pooled]);
        let after = check(b.finish(&[joined]), run);
        assert_eq!(transposes(&after), 2);
        let last = |k: &Kind| match k {
            Kind::Conv(attrs) => attrs.channels == Channels::Last,
            Kind::Pool(attrs) => attrs.channels == Channels::Last,
            _ => false,
        };
        assert_eq!(count(&after, last), 4);
        assert_eq!(count(&after, |k| *k == Kind::Concat { axis: 3 }), 1);
    }

    #[test]
    fn many_results_of_few_channels_take_them_as_they_come() {
        // Channels, results, window: whether the input is transposed.
        for (channels, results, window, transposed) in
            [(3, 16, 3, false), (3, 8, 3, true), (32, 32, 3, true), (3, 16, 1, true)]
        {
            let mut b = Builder::new(22);
            let x = b.input(&[2, channels, 9, 8]);
            let stem = b.conv(x, results, window, 2);
            let y = b.conv(stem, 16, 3, 1);
            let after = check(b.finish(&[y]), run);
            assert_eq!(transposes(&after), 1 + usize::from(transposed), "{channels} {results}");
            let as_it_comes = |k: &Kind| matches!(k, Kind::Conv(a) if a.input == Channels::First);
            assert_eq!(count(&after, as_it_comes), usize::from(!transposed));
        }
    }

    #[test]
    fn means_over_space_end_the_layout() {
        for keep in [false, true] {
            let mut b = Builder::new(21);
            let x = b.input(&[2, 1, 6]);
            let y = b.conv(x, 4, 3, 1);
            let ty = b.graph.ty(y).clone();
            let shape = if keep { vec![2, 4, 1] } else { vec![2, 4] };
            let stage = crate::compute::Stage::reduction(
                "sum",
                TensorType::new(ty.dtype, shape),
                crate::compute::Combiner::Sum,
                vec![6],
                crate::expr::Expr::load(0, {
                    use crate::expr::Expr;
                    vec![Expr::var(0), Expr::var(1), Expr::var(if keep { 3 } else { 2 })]
                }),
            );
            let expr = crate::compute::Compute::single(vec![ty], stage);
            let op = ComputeOp::new(Kind::Reduce { axes: vec![2], keep }, expr);
            let y = b.emit(op, &[y]);
            let y = b.reshape(y, &[4, 2]);
            // One input channel: the order of axes does not matter on that side either.
            assert_eq!(transposes(&check(b.finish(&[y]), run)), 0);
        }
    }

    #[test]
    fn a_costly_operand_keeps_the_transpose() {
        let mut b = Builder::new(22);
        let x = b.input(&[1, 3, 64, 64]);
        let other = b.input(&[1, 8, 64, 64]);
        let y = b.conv(x, 8, 3, 1);
        let y = b.binary(BinOp::Add, y, other);
        assert_eq!(transposes(&check(b.finish(&[y]), run)), 2);
    }

    /// Both transposes of three axes are the same: the input's must not be taken for the result's.
    #[test]
    fn a_residual_line_is_transposed_once_and_for_all() {
        for joined in [false, true] {
            let mut b = Builder::new(27);
            let x = b.input(&[1, 6, 32]);
            let y = b.conv(x, 6, 3, 1);
            let y = match joined {
                true => {
                    let both = [y, x].map(|v| b.graph.ty(v).clone());
                    b.emit(concat::concat(&both, 1).unwrap(), &[y, x])
                }
                false => b.binary(BinOp::Add, y, x),
            };
            assert_eq!(transposes(&check(b.finish(&[y]), run)), 2, "{joined}");
        }
    }

    #[test]
    fn depthwise_convolutions_follow_others_but_do_not_ask_for_the_layout() {
        for (of, after, expected) in [(1, false, 0), (2, false, 2), (1, true, 2)] {
            let mut b = Builder::new(24);
            let x = b.input(&[2, 4, 9, 8]);
            let mut y = b.grouped(x, of);
            if after {
                y = b.conv(y, 4, 1, 1);
            }
            assert_eq!(transposes(&check(b.finish(&[y]), run)), expected, "{of} {after}");
        }
    }

    #[test]
    fn depthwise_convolutions_of_narrow_rows_ask_for_the_layout() {
        for (channels, side, expected) in [(32, 7, 2), (8, 7, 0), (32, 16, 0)] {
            let mut b = Builder::new(25);
            let x = b.input(&[2, channels, side, side]);
            let y = b.grouped(x, 1);
            assert_eq!(transposes(&check(b.finish(&[y]), run)), expected, "{channels} {side}");
        }
    }

    #[test]
    fn convolutions_to_few_channels_follow_others_but_do_not_ask_for_the_layout() {
        // Results, side, stride, whether another one follows.
        for (results, side, stride, follows, expected) in [
            (2, 16, 1, false, 0),
            (2, 16, 1, true, 2),
            (8, 16, 1, false, 2),
            (2, 9, 1, false, 2),
            (2, 32, 2, false, 2),
        ] {
            let mut b = Builder::new(26);
            let x = b.input(&[1, 17, side, side]);
            let mut y = b.conv(x, results, 3, stride);
            if follows {
                y = b.conv(y, 8, 3, 1);
            }
            let after = check(b.finish(&[y]), run);
            assert_eq!(transposes(&after), expected, "{results} {side} {stride} {follows}");
        }
    }

    #[test]
    fn without_convolutions_nothing_changes() {
        let mut b = Builder::new(23);
        let x = b.input(&[1, 4, 4, 3]);
        let x = b.transpose(x, &[0, 3, 1, 2]);
        let y = b.relu(x);
        let mut graph = b.finish(&[y]);
        assert!(!run(&mut graph, &Options::default()).unwrap());
    }
}
