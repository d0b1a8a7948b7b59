//! `Scan`: a loop over slices of its inputs.
//!
//! Before opset 9 every input and output has a batch axis in front, and each element of the batch
//! is scanned on its own.

use ansc_graph::op::{LoopOp, ScanAxis};
use ansc_graph::ops::slice;
use ansc_graph::{Op, TensorType, Value, ValueId};
use ansc_runtime::{DType, Tensor};
use tract_onnx::pb::GraphProto;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::{NodeCtx, nameless};

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("Scan", 8, scan)];

/// The body of a node, the number of its states, and the axes that it scans.
struct Scan<'a> {
    body: &'a GraphProto,
    states: usize,
    inputs: Vec<ScanAxis>,
    outputs: Vec<ScanAxis>,
}

fn scan(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let body = ctx.graph("body").ok_or_else(|| ctx.problem("it has no `body`"))?;
    if ctx.opset() < 9 { batch(ctx, body) } else { single(ctx, body) }
}

fn single(ctx: &mut NodeCtx<'_>, body: &GraphProto) -> Result<Vec<ValueId>, Problem> {
    let operands = ctx.all_inputs()?;
    let count = ctx.size(ctx.int("num_scan_inputs", 0), "number of scan inputs")?;
    let states = operands.len().checked_sub(count).filter(|_| count > 0).ok_or_else(|| {
        ctx.problem(format!("it has {} inputs, {count} of them to be scanned", operands.len()))
    })?;
    let slices = body.output.len().saturating_sub(states);
    let ranks: Vec<usize> = operands[states..].iter().map(|&v| ctx.ty(v).rank()).collect();
    let inputs = axes(ctx, "scan_input_axes", "scan_input_directions", count, &|i| Some(ranks[i]))?;
    // The rank of an output is only known once the body is.
    let outputs = axes(ctx, "scan_output_axes", "scan_output_directions", slices, &|_| None)?;
    Scan { body, states, inputs, outputs }.emit(ctx, &operands)
}

/// Axis and direction of each scanned value; an axis counted from the end becomes `usize::MAX - i`
/// where the rank is not known.
fn axes(
    ctx: &NodeCtx<'_>,
    axes: &str,
    directions: &str,
    count: usize,
    rank: &dyn Fn(usize) -> Option<usize>,
) -> Result<Vec<ScanAxis>, Problem> {
    let listed = |name: &str| match ctx.ints(name) {
        Some(list) if list.len() != count => {
            Err(ctx.problem(format!("`{name}` lists {} values, not {count}", list.len())))
        }
        list => Ok(list.unwrap_or_else(|| vec![0; count])),
    };
    let pairs = listed(axes)?.into_iter().zip(listed(directions)?).enumerate();
    pairs
        .map(|(i, (axis, direction))| {
            let axis = match rank(i) {
                Some(rank) => ctx.axis(axis, rank)?,
                None => axis as usize,
            };
            Ok(ScanAxis { axis, reverse: direction != 0 })
        })
        .collect()
}

impl Scan<'_> {
    fn emit(
        mut self,
        ctx: &mut NodeCtx<'_>,
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>, Problem> {
        ctx.fixed_sizes(operands)?;
        let types: Vec<TensorType> = operands.iter().map(|&v| ctx.ty(v)).collect();
        let length = self.length(ctx, &types)?;
        let mut takes = types.clone();
        for (ty, scan) in takes[self.states..].iter_mut().zip(&self.inputs) {
            ty.shape.remove(scan.axis);
        }
        let head = [TensorType::new(DType::I64, []), TensorType::new(DType::Bool, [])];
        let mut body = ctx.import_body(self.body, &head, &takes, &[])?;
        let gives: Vec<TensorType> =
            body.graph.outputs.iter().map(|(_, v)| body.graph.ty(*v).clone()).collect();
        let outputs = self.outputs(ctx, &types, &gives, length)?;
        let on = body.graph.add_const("on", Tensor::scalar(true));
        body.graph.outputs.insert(0, (nameless(0), on));
        let op = LoopOp {
            body: body.graph,
            max_trip: length as u64,
            has_trip: false,
            has_condition: false,
            carried: self.states,
            scan_inputs: self.inputs,
            scan_outputs: self.outputs,
        };
        Ok(ctx.add(Op::Loop(Box::new(op)), &[operands, &body.captures].concat(), outputs))
    }

    /// The common extent of the scanned axes.
    fn length(&self, ctx: &NodeCtx<'_>, types: &[TensorType]) -> Result<usize, Problem> {
        let scanned = types[self.states..].iter().zip(&self.inputs);
        let extents: Vec<usize> = scanned.map(|(ty, scan)| ty.shape[scan.axis]).collect();
        ctx.check(extents.windows(2).all(|w| w[0] == w[1]), || {
            format!("its inputs are to be scanned along axes of {extents:?} elements")
        })?;
        extents.first().copied().ok_or_else(|| ctx.problem("it has nothing to scan"))
    }

    /// The node's outputs, for what the body gives. Axes counted from the end are resolved.
    fn outputs(
        &mut self,
        ctx: &NodeCtx<'_>,
        takes: &[TensorType],
        gives: &[TensorType],
        length: usize,
    ) -> Result<Vec<Value>, Problem> {
        ctx.check(gives.len() == self.states + self.outputs.len(), || {
            format!("its body gives {} values, {} of them states", gives.len(), self.states)
        })?;
        let (states, slices) = gives.split_at(self.states);
        for (before, after) in takes.iter().zip(states) {
            ctx.check(before == after, || {
                format!("a state starts as {before} and goes on as {after}")
            })?;
        }
        let mut outputs: Vec<Value> = states.iter().map(|ty| Value::new("", ty.clone())).collect();
        for (ty, scan) in slices.iter().zip(&mut self.outputs) {
            scan.axis = ctx.axis(scan.axis as i64, ty.rank() + 1)?;
            let mut whole = ty.clone();
            whole.shape.insert(scan.axis, length);
            outputs.push(Value::new("", ctx.addressable(whole)?));
        }
        Ok(outputs)
    }
}

/// Scans each element of the batch.
fn batch(ctx: &mut NodeCtx<'_>, body: &GraphProto) -> Result<Vec<ValueId>, Problem> {
    ctx.check(ctx.optional(0).is_none(), || "sequence lengths are not supported".into())?;
    let operands = (1..ctx.n_inputs()).map(|i| ctx.input(i)).collect::<Result<Vec<_>, _>>()?;
    let count = ctx.size(ctx.int("num_scan_inputs", 0), "number of scan inputs")?;
    let states = operands.len().saturating_sub(count);
    let inputs = axes(ctx, "axes", "directions", count, &|_| Some(1))?;
    let outputs =
        vec![ScanAxis { axis: 0, reverse: false }; body.output.len().saturating_sub(states)];
    let size = operands.first().and_then(|&v| ctx.shape(v).first().copied()).unwrap_or(0);
    let mut parts: Vec<Vec<ValueId>> = vec![Vec::new(); body.output.len()];
    for element in 0..size {
        let mut slices = Vec::with_capacity(operands.len());
        for &operand in &operands {
            slices.push(ctx.emit1(slice::select(&ctx.ty(operand), 0, element), &[operand])?);
        }
        let scan = Scan { body, states, inputs: inputs.clone(), outputs: outputs.clone() };
        for (part, value) in parts.iter_mut().zip(scan.emit(ctx, &slices)?) {
            let shape = [&[1], &ctx.shape(value)[..]].concat();
            part.push(ctx.reshape(value, &shape)?);
        }
    }
    ctx.check(size > 0, || "its batch is empty".into())?;
    parts.iter().map(|values| ctx.concat(values, 0)).collect()
}
