//! `LSTM`: gates `i`, `o`, `f` and a candidate `g`; cell state `f c + i g`, hidden state `o h(c)`.
//!
//! Peepholes let the gates see the cell state too.

use ansc_graph::ops::OpError;
use ansc_graph::ops::recurrent::Cell as Gates;
use ansc_graph::{Expr, ValueId};

use super::activation::{Function, functions};
use super::layer::{Layer, expect, part};
use super::{Cell, Step};
use crate::problem::Problem;
use crate::walk::NodeCtx;

struct Lstm {
    functions: Vec<Vec<Function>>,
    peepholes: Option<ValueId>,
    /// The forget gate is what the input gate leaves.
    coupled: bool,
}

/// Operands of the cell's expression.
const X: usize = 0;
const RECURRENT: usize = 1;
const STATE: usize = 2;
const PEEPHOLES: usize = 3;

pub(super) fn import(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    super::import(ctx, |ctx, layer| {
        expect(ctx, 7, &[layer.reverse.len(), layer.hidden.saturating_mul(3)])?;
        let defaults = ["Sigmoid", "Tanh", "Tanh"];
        Ok(Lstm {
            functions: functions(ctx, layer.reverse.len(), &defaults)?,
            peepholes: ctx.optional(7),
            coupled: ctx.int("input_forget", 0) != 0,
        })
    })
}

impl Cell for Lstm {
    const GATES: usize = 4;
    const STATES: usize = 2;

    fn parameters(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        d: usize,
    ) -> Result<Vec<ValueId>, Problem> {
        let mut parameters = layer.weights(ctx, d, 0, 4)?;
        if let Some(peepholes) = self.peepholes {
            parameters.push(part(ctx, peepholes, d)?);
        }
        Ok(parameters)
    }

    fn step(
        &self,
        ctx: &mut NodeCtx<'_>,
        layer: &Layer,
        step: &Step<'_>,
    ) -> Result<Vec<ValueId>, Problem> {
        let recurrent = layer.product(ctx, step.states[0], step.parameters)?;
        let mut operands = vec![step.x, recurrent, step.states[1]];
        if self.peepholes.is_some() {
            operands.push(step.parameters[layer.parts()]);
        }
        // The cell state comes first, for the hidden state reads it.
        let mut values =
            ctx.cell("LSTMCell", layer, &operands, |cell| self.gates(cell, layer, step.d))?;
        values.reverse();
        Ok(values)
    }
}

impl Lstm {
    fn gates(&self, cell: &mut Gates, layer: &Layer, d: usize) -> Result<(), OpError> {
        let [f, g, h] = self.functions[d][..] else { unreachable!("three functions") };
        let real = cell.real();
        let old = cell.gate(STATE, 0)?;
        // Order of the weights: i, o, f, candidate; of the peepholes: i, o, f.
        let gate = |cell: &Gates, index: usize, function: Function, seen: Option<&Expr>| {
            let mut sum = cell.gate(X, index)? + cell.gate(RECURRENT, index)?;
            if let Some(seen) = seen.filter(|_| self.peepholes.is_some()) {
                sum = sum + cell.gate(PEEPHOLES, index)? * seen.clone();
            }
            Ok::<_, OpError>(function.of(real, cell.clipped(sum, layer.clip)))
        };
        let input = gate(cell, 0, f, Some(&old))?;
        let candidate = gate(cell, 3, g, None)?;
        let next = if self.coupled {
            let input = cell.let_be("input", input);
            (Expr::float(real, 1.0) - input.clone()) * old + input * candidate
        } else {
            gate(cell, 2, f, Some(&old))? * old + input * candidate
        };
        let next = cell.let_be("next", next);
        let output = gate(cell, 1, f, Some(&next))?;
        cell.give("state", next.clone());
        cell.give("hidden", output * h.of(real, next));
        Ok(())
    }
}
