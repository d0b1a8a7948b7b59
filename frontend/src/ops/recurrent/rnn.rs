//! `RNN`: one gate, which is the next state.

use ansc_graph::ValueId;
use ansc_graph::ops::recurrent::Cell as Gates;

use super::activation::{Function, functions};
use super::layer::Layer;
use super::{Cell, Step};
use crate::problem::Problem;
use crate::walk::NodeCtx;

struct Rnn {
    functions: Vec<Vec<Function>>,
}

pub(super) fn import(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    super::import(ctx, |ctx, layer| {
        Ok(Rnn { functions: functions(ctx, layer.reverse.len(), &["Tanh"])? })
    })
}

impl Cell for Rnn {
    const GATES: usize = 1;
    const STATES: usize = 1;

    fn parameters(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        d: usize,
    ) -> Result<Vec<ValueId>, Problem> {
        layer.weights(ctx, d, 0, 1)
    }

    fn step(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        step: &Step<'_>,
    ) -> Result<Vec<ValueId>, Problem> {
        let recurrent = layer.product(ctx, step.states[0], step.parameters)?;
        let function = self.functions[step.d][0];
        ctx.cell("RNNCell", layer, &[step.x, recurrent], |cell: &mut Gates| {
            let sum = cell.gate(0, 0)? + cell.gate(1, 0)?;
            cell.give("hidden", function.of(cell.real(), cell.clipped(sum, layer.clip)));
            Ok(())
        })
    }
}
