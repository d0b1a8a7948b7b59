//! `GRU`: update gate `z`, reset gate `r`, and a candidate `n` for the next state, `(1 - z) n + z
//! h`.
//!
//! With `linear_before_reset` the reset gate scales what the state gives to the candidate,
//! otherwise the state itself, which makes two products of each step.

use ansc_graph::ops::recurrent::Cell as Gates;
use ansc_graph::{Expr, ValueId};

use super::activation::{Function, functions};
use super::layer::{Layer, narrow, part};
use super::{Cell, Step};
use crate::ops::compose::One;
use crate::problem::Problem;
use crate::walk::NodeCtx;

struct Gru {
    functions: Vec<Vec<Function>>,
    linear_before_reset: bool,
}

pub(super) fn import(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    super::import(ctx, |ctx, layer| {
        Ok(Gru {
            functions: functions(ctx, layer.reverse.len(), &["Sigmoid", "Tanh"])?,
            linear_before_reset: ctx.int("linear_before_reset", 0) != 0,
        })
    })
}

impl Cell for Gru {
    const GATES: usize = 3;
    const STATES: usize = 1;

    fn parameters(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        d: usize,
    ) -> Result<Vec<ValueId>, Problem> {
        if !self.linear_before_reset {
            return Ok([layer.weights(ctx, d, 0, 2)?, layer.weights(ctx, d, 2, 1)?].concat());
        }
        let mut parameters = layer.weights(ctx, d, 0, 3)?;
        if let Some(bias) = ctx.optional(3) {
            let both = part(ctx, bias, d)?;
            parameters.push(narrow(ctx, both, 5 * layer.hidden, layer.hidden)?);
        }
        Ok(parameters)
    }

    /// The state's part of the candidate's bias is scaled with the rest of it.
    fn bias(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        of_input: ValueId,
        of_state: ValueId,
    ) -> One {
        if !self.linear_before_reset {
            return ctx.add_values(of_input, of_state);
        }
        let gates = 2 * layer.hidden;
        let (gates_in, gates_state) =
            (narrow(ctx, of_input, 0, gates)?, narrow(ctx, of_state, 0, gates)?);
        let sum = ctx.add_values(gates_in, gates_state)?;
        let candidate = narrow(ctx, of_input, gates, layer.hidden)?;
        ctx.concat(&[sum, candidate], 0)
    }

    fn step(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        step: &Step<'_>,
    ) -> Result<Vec<ValueId>, Problem> {
        if self.linear_before_reset {
            self.reset_after(ctx, layer, step)
        } else {
            self.reset_before(ctx, layer, step)
        }
    }
}

impl Gru {
    fn reset_after(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        step: &Step<'_>,
    ) -> Result<Vec<ValueId>, Problem> {
        let [f, g] = self.functions[step.d][..] else { unreachable!("two functions") };
        let h = step.states[0];
        let recurrent = ctx.matmul(h, step.parameters[0])?;
        let mut operands = vec![step.x, recurrent, h];
        // The lengths of sequences may follow the kind's own parameters.
        let biased = ctx.optional(3).is_some();
        operands.extend(step.parameters.get(1).filter(|_| biased));
        ctx.cell("GRUCell", layer, &operands, |cell: &mut Gates| {
            let real = cell.real();
            let mut gate = |name, index| {
                let sum = cell.gate(0, index)? + cell.gate(1, index)?;
                let value = f.of(real, cell.clipped(sum, layer.clip));
                Ok(cell.let_be(name, value))
            };
            let (z, r) = (gate("update", 0)?, gate("reset", 1)?);
            let mut given = cell.gate(1, 2)?;
            if biased {
                given = given + cell.gate(3, 0)?;
            }
            let sum = cell.gate(0, 2)? + r * given;
            let candidate = g.of(real, cell.clipped(sum, layer.clip));
            let old = cell.gate(2, 0)?;
            cell.give("hidden", mixed(real, z, candidate, old));
            Ok(())
        })
    }

    fn reset_before(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        step: &Step<'_>,
    ) -> Result<Vec<ValueId>, Problem> {
        let [f, g] = self.functions[step.d][..] else { unreachable!("two functions") };
        let h = step.states[0];
        let recurrent = ctx.matmul(h, step.parameters[0])?;
        let gates = ctx.cell("GRUGates", layer, &[step.x, recurrent, h], |cell: &mut Gates| {
            let real = cell.real();
            let gate = |cell: &Gates, index| {
                let sum = cell.gate(0, index)? + cell.gate(1, index)?;
                Ok(f.of(real, cell.clipped(sum, layer.clip)))
            };
            let (update, reset) = (gate(cell, 0)?, gate(cell, 1)?);
            cell.give("update", update);
            let kept = reset * cell.gate(2, 0)?;
            cell.give("kept", kept);
            Ok(())
        })?;
        let recurrent = ctx.matmul(gates[1], step.parameters[1])?;
        let operands = [step.x, recurrent, h, gates[0]];
        ctx.cell("GRUCell", layer, &operands, |cell: &mut Gates| {
            let sum = cell.gate(0, 2)? + cell.gate(1, 0)?;
            let candidate = g.of(cell.real(), cell.clipped(sum, layer.clip));
            let (z, old) = (cell.gate(3, 0)?, cell.gate(2, 0)?);
            cell.give("hidden", mixed(cell.real(), z, candidate, old));
            Ok(())
        })
    }
}

fn mixed(real: ansc_runtime::DType, z: Expr, candidate: Expr, old: Expr) -> Expr {
    (Expr::float(real, 1.0) - z.clone()) * candidate + z * old
}
