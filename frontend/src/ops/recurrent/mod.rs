//! `LSTM`, `GRU` and `RNN`: for each direction one matrix product of all inputs with their weights,
//! and then a loop that adds to each step what comes from the step before.
//!
//! ```text
//! g = reshape(x, [t * b, i]) @ w' + bias
//! loop over t: h = cell(g[t], h @ r', h);  y[t] = h
//! ```
//!
//! Loops of a few steps are unrolled by a pass later. One file per kind of cell.
//! `DynamicQuantizeLSTM` differs in its products alone: their left operands are quantised by what
//! they are.

mod activation;
mod gru;
mod layer;
mod lstm;
mod rnn;

use ansc_graph::op::{LoopOp, ScanAxis};
use ansc_graph::ops::OpError;
use ansc_graph::ops::recurrent::Cell as Gates;
use ansc_graph::{Op, TensorType, Value, ValueId};
use ansc_runtime::{DType, Tensor};

use super::OpEntry;
use super::compose::One;
use crate::problem::Problem;
use crate::walk::NodeCtx;
use layer::Layer;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("GRU", 7, gru::import),
    OpEntry::onnx("LSTM", 7, lstm::import),
    OpEntry::onnx("RNN", 7, rnn::import),
    OpEntry::microsoft("DynamicQuantizeLSTM", lstm::import),
];

/// A kind of cell.
trait Cell {
    /// Gates of the weights.
    const GATES: usize;
    /// Values that go around: the hidden state, and for LSTM the cell state.
    const STATES: usize;

    /// The values that the steps of direction `d` read besides their input and state.
    fn parameters(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        d: usize,
    ) -> Result<Vec<ValueId>, Problem>;

    /// The bias that is added to the inputs of all steps: `[gates * hidden]`, made from both
    /// biases.
    fn bias(&self, ctx: &mut NodeCtx<'_>, _: &Layer, of_input: ValueId, of_state: ValueId) -> One {
        ctx.add_values(of_input, of_state)
    }

    /// The next states.
    fn step(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        step: &Step<'_>,
    ) -> Result<Vec<ValueId>, Problem>;
}

/// The values that a step of direction `d` sees.
struct Step<'a> {
    d: usize,
    /// `[batch, gates * hidden]`.
    x: ValueId,
    states: &'a [ValueId],
    parameters: &'a [ValueId],
}

fn import<C: Cell>(
    ctx: &mut NodeCtx<'_>,
    cell: impl FnOnce(&NodeCtx<'_>, &Layer) -> Result<C, Problem>,
) -> Result<Vec<ValueId>, Problem> {
    let layer = Layer::new(ctx, C::GATES)?;
    let cell = cell(ctx, &layer)?;
    let mut all: Vec<Vec<ValueId>> = vec![Vec::new(); 1 + C::STATES];
    for d in 0..layer.reverse.len() {
        let inputs = layer.inputs(ctx, &cell, d)?;
        let values = steps(ctx, &cell, &layer, d, inputs)?;
        all.iter_mut().zip(values).for_each(|(list, value)| list.push(value));
    }
    let whole = layer.whole_output(ctx, &all[0])?;
    let mut outputs = vec![whole];
    for last in &all[1..] {
        outputs.push(layer.last_state(ctx, last)?);
    }
    Ok(outputs)
}

/// The hidden states of all steps, `[steps, batch, hidden]`, and the last states, `[batch,
/// hidden]`.
fn steps<C: Cell>(
    ctx: &mut NodeCtx<'_>,
    cell: &C,
    layer: &Layer,
    d: usize,
    inputs: ValueId,
) -> Result<Vec<ValueId>, Problem> {
    let states = layer.initial_states(ctx, C::STATES, d)?;
    let mut captures = cell.parameters(ctx, layer, d)?;
    captures.extend(layer.lengths);

    let operands = [&states[..], &[inputs], &captures].concat();
    let mut types: Vec<TensorType> = operands.iter().map(|&v| ctx.ty(v)).collect();
    types[C::STATES].shape.remove(0);
    let head = [TensorType::new(DType::I64, []), TensorType::new(DType::Bool, [])];
    let body = ctx.build_body(&[&head, &types[..]].concat(), |ctx, values| {
        let (states, rest) = values[2..].split_at(C::STATES);
        let (x, parameters) = (rest[0], &rest[1..]);
        let mut next = cell.step(ctx, layer, &Step { d, x, states, parameters })?;
        let mut shown = next[0];
        if layer.lengths.is_some() {
            let valid = layer.valid(ctx, d, values[0], parameters[parameters.len() - 1])?;
            shown = layer.masked(ctx, valid, next[0], None)?;
            for (new, &old) in next.iter_mut().zip(states) {
                *new = layer.masked(ctx, valid, *new, Some(old))?;
            }
        }
        let on = ctx.add_const(Tensor::scalar(true))?;
        Ok([&[on], &next[..], &[shown]].concat())
    })?;
    let reverse = layer.reverse[d];
    let op = LoopOp {
        body,
        max_trip: layer.steps as u64,
        has_trip: false,
        has_condition: false,
        carried: C::STATES,
        scan_inputs: vec![ScanAxis { axis: 0, reverse }],
        scan_outputs: vec![ScanAxis { axis: 0, reverse }],
    };
    let mut outputs: Vec<Value> =
        types[..C::STATES].iter().map(|ty| Value::new("", ty.clone())).collect();
    let whole = TensorType::new(layer.dtype, [layer.steps, layer.batch, layer.hidden]);
    outputs.push(Value::new("", ctx.addressable(whole)?));
    let mut values = ctx.add(Op::Loop(Box::new(op)), &operands, outputs);
    values.rotate_right(1);
    Ok(values)
}

impl NodeCtx<'_> {
    /// Adds the expression that `build` makes of `operands`.
    fn cell(
        &mut self,
        name: &str,
        layer: &Layer,
        operands: &[ValueId],
        build: impl FnOnce(&mut Gates) -> Result<(), OpError>,
    ) -> Result<Vec<ValueId>, Problem> {
        let types: Vec<TensorType> = operands.iter().map(|&v| self.ty(v)).collect();
        let op = Gates::new(&types, layer.batch, layer.hidden).and_then(|mut gates| {
            build(&mut gates)?;
            Ok(gates.finish(name))
        });
        self.emit(op, operands)
    }
}
