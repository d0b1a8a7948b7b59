//! Branches and loops.

use std::sync::Arc;

use ansc_runtime::{DType, Tensor};

use super::InterpError;
use super::run::run_shared;
use crate::compute::TensorType;
use crate::graph::Node;
use crate::op::{IfOp, LoopOp, ScanAxis};

type Shared = Arc<Tensor>;

pub(super) fn branch(op: &IfOp, operands: &[Shared]) -> Result<Vec<Shared>, InterpError> {
    let [condition, captures @ ..] = operands else {
        return Err(missing());
    };
    let graph = if is_true(condition)? { &op.then_branch } else { &op.else_branch };
    run_shared(graph, captures.to_vec(), &mut |_, _| ())
}

fn missing() -> InterpError {
    InterpError::Graph("operands or results of control flow are missing".into())
}

fn is_true(condition: &Tensor) -> Result<bool, InterpError> {
    match (condition.dtype(), condition.len()) {
        (DType::Bool, 1) => Ok(condition.as_slice::<bool>()[0]),
        _ => Err(InterpError::Graph(format!("{condition:?} is not a condition"))),
    }
}

/// The operands of a loop node, by meaning.
struct Operands<'a> {
    trips: u64,
    condition: bool,
    carried: &'a [Shared],
    scans: &'a [Shared],
    captures: &'a [Shared],
}

fn split<'a>(op: &LoopOp, mut operands: &'a [Shared]) -> Result<Operands<'a>, InterpError> {
    let mut next = |n: usize| -> Result<&'a [Shared], InterpError> {
        let (first, rest) = operands.split_at_checked(n).ok_or_else(missing)?;
        operands = rest;
        Ok(first)
    };
    let trips = match next(usize::from(op.has_trip))? {
        [count] => trip_count(count)?.min(op.max_trip),
        _ => op.max_trip,
    };
    let condition = match next(usize::from(op.has_condition))? {
        [condition] => is_true(condition)?,
        _ => true,
    };
    let (carried, scans) = (next(op.carried)?, next(op.scan_inputs.len())?);
    Ok(Operands { trips, condition, carried, scans, captures: operands })
}

fn trip_count(count: &Tensor) -> Result<u64, InterpError> {
    match count.to_i64_vec().as_deref() {
        Some(&[n]) => Ok(n.max(0) as u64),
        _ => Err(InterpError::Graph(format!("{count:?} is not a trip count"))),
    }
}

/// Outputs of the node: final carried values, then the scan outputs, as long as the loop ran or as
/// long as is known before.
pub(super) fn iterate(
    op: &LoopOp,
    node: &Node,
    operands: &[Shared],
) -> Result<Vec<Shared>, InterpError> {
    let Operands { trips, mut condition, carried, scans, captures } = split(op, operands)?;
    let mut carried = carried.to_vec();
    let mut slices: Vec<Vec<Shared>> = vec![vec![]; op.scan_outputs.len()];
    for trip in 0..trips {
        if !condition {
            break;
        }
        let mut inputs =
            vec![Arc::new(Tensor::scalar(trip as i64)), Arc::new(Tensor::scalar(condition))];
        inputs.append(&mut carried);
        for (whole, scan) in scans.iter().zip(&op.scan_inputs) {
            inputs.push(Arc::new(slice(whole, *scan, trip as usize)?));
        }
        inputs.extend_from_slice(captures);
        let mut outputs = run_shared(&op.body, inputs, &mut |_, _| ())?.into_iter();
        let go_on = outputs.next().ok_or_else(missing)?;
        condition = is_true(&go_on)?;
        carried = outputs.by_ref().take(op.carried).collect();
        slices.iter_mut().zip(outputs).for_each(|(all, slice)| all.push(slice));
    }
    let declared = node.outputs.get(op.carried..).ok_or_else(missing)?;
    let is_counted = op.has_trip && op.never_ends_early();
    for ((slices, scan), value) in slices.into_iter().zip(&op.scan_outputs).zip(declared) {
        let whole = stack(&slices, *scan, &value.ty, is_counted && !value.dynamic)?;
        carried.push(Arc::new(whole));
    }
    Ok(carried)
}

/// The slice of `whole` that iteration `trip` reads, without the axis.
fn slice(whole: &Tensor, scan: ScanAxis, trip: usize) -> Result<Tensor, InterpError> {
    let len = *whole.shape().get(scan.axis).ok_or_else(missing)?;
    let position = if scan.reverse { len.checked_sub(trip + 1) } else { Some(trip) };
    let position = position.filter(|p| *p < len).ok_or_else(|| {
        InterpError::Graph(format!("iteration {trip} reads beyond a scan input of length {len}"))
    })?;
    let outer: usize = whole.shape()[..scan.axis].iter().product();
    let mut shape = whole.shape().to_vec();
    shape.remove(scan.axis);
    let mut result = Tensor::zeros(whole.dtype(), &shape);
    let inner = result.bytes().len() / outer.max(1);
    for row in 0..outer {
        let from = (row * len + position) * inner;
        result.bytes_mut()[row * inner..][..inner]
            .copy_from_slice(&whole.bytes()[from..from + inner]);
    }
    Ok(result)
}

/// One tensor of all slices; `declared` is the type for the greatest number of iterations. If that
/// is the type in any case, floats beyond the slices are NaN, so that tests see who reads them.
fn stack(
    slices: &[Shared],
    scan: ScanAxis,
    declared: &TensorType,
    is_whole: bool,
) -> Result<Tensor, InterpError> {
    let mut shape = declared.shape.clone();
    let length = shape.get_mut(scan.axis).ok_or_else(missing)?;
    if !is_whole {
        *length = slices.len();
    }
    let length = *length;
    let mut result =
        Tensor::try_zeros(declared.dtype, &shape).map_err(|e| InterpError::Graph(e.to_string()))?;
    if declared.dtype.is_float() && slices.len() < length {
        result.bytes_mut().fill(0xff);
    }
    let outer: usize = shape[..scan.axis].iter().product();
    let inner = result.bytes().len() / (outer * length).max(1);
    for (trip, slice) in slices.iter().enumerate() {
        if slice.bytes().len() != outer * inner {
            return Err(InterpError::Graph(format!("a scan output is {slice:?}")));
        }
        let position = if scan.reverse { slices.len() - 1 - trip } else { trip };
        for row in 0..outer {
            let to = (row * length + position) * inner;
            result.bytes_mut()[to..to + inner]
                .copy_from_slice(&slice.bytes()[row * inner..][..inner]);
        }
    }
    Ok(result)
}
