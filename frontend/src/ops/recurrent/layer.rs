//! The parts that the three operators have in common: their operands, split by direction, and their
//! results.

use ansc_graph::ops::{fill, slice};
use ansc_graph::{Expr, Scalar, ValueId};
use ansc_runtime::DType;

use super::Cell;
use crate::ops::compose::One;
use crate::ops::matmul_integer::dynamic_product;
use crate::problem::Problem;
use crate::walk::NodeCtx;

/// The first input of a quantised operator that describes quantisation.
const QUANTISED: usize = 8;

pub(super) struct Layer {
    /// For each direction, whether it goes through the steps backwards.
    pub(super) reverse: Vec<bool>,
    pub(super) steps: usize,
    pub(super) batch: usize,
    pub(super) hidden: usize,
    pub(super) dtype: DType,
    pub(super) clip: Option<f32>,
    /// Where each element of the batch ends, as `i64[batch, 1]`, unless all go on to the end.
    pub(super) lengths: Option<ValueId>,
    batch_first: bool,
    /// Weights are quantised, and transposed: inputs `QUANTISED` and `QUANTISED + 2` hold the scales
    /// and zero points of those of inputs and of states.
    quantised: bool,
    /// `[steps, batch, inputs]`.
    x: ValueId,
}

impl Layer {
    pub(super) fn new(ctx: &mut NodeCtx<'_>, gates: usize) -> Result<Layer, Problem> {
        let reverse = match ctx.string("direction", "forward").as_str() {
            "forward" => vec![false],
            "reverse" => vec![true],
            "bidirectional" => vec![false, true],
            other => return Err(ctx.problem(format!("direction `{other}` is not known"))),
        };
        let batch_first = ctx.int("layout", 0) != 0;
        let given = ctx.input(0)?;
        let ty = ctx.ty(given);
        ctx.check(ty.rank() == 3 && ty.dtype.is_float(), || {
            format!("its input must be floats of rank 3, not {ty}")
        })?;
        let x = if batch_first { ctx.transpose(given, &[1, 0, 2])? } else { given };
        let [steps, batch, width] = ctx.shape(x)[..] else { unreachable!("of rank 3") };
        let weights = ctx.input(2)?;
        let quantised = ctx.optional(QUANTISED).is_some();
        let hidden = match ctx.shape(weights)[..] {
            [_, hidden, _] if quantised => hidden,
            [_, _, hidden] => hidden,
            _ => return Err(ctx.problem("its weights must have rank 3")),
        };
        let rows = gates.saturating_mul(hidden);
        let directions = reverse.len();
        for (input, columns) in [(1, width), (2, hidden)] {
            match quantised {
                true => expect_quantised(ctx, input, &[directions, columns, rows])?,
                false => expect(ctx, input, &[directions, rows, columns])?,
            }
        }
        expect(ctx, 3, &[directions, rows.saturating_mul(2)])?;
        let size = ctx.int_opt("hidden_size").map_or(Ok(hidden), |n| ctx.size(n, "hidden size"))?;
        ctx.check(size == hidden, || format!("its hidden size is {size}, its weights' {hidden}"))?;
        let lengths = lengths(ctx, steps, batch)?;
        let clip = ctx.float_opt("clip");
        let dtype = ty.dtype;
        Ok(Layer { reverse, steps, batch, hidden, dtype, clip, lengths, batch_first, quantised, x })
    }

    /// The part of the gates that the inputs of all steps give: `[steps, batch, gates * hidden]`.
    pub(super) fn inputs<C: Cell>(&self, ctx: &mut NodeCtx<'_>, cell: &C, d: usize) -> One {
        let w = self.matrix(ctx, 1, d, 0, C::GATES)?;
        let [width, rows] = ctx.shape(w[0])[..] else { unreachable!("a matrix") };
        let x = ctx.reshape(self.x, &[self.steps * self.batch, width])?;
        let mut y = self.product(ctx, x, &w)?;
        if let Some(bias) = ctx.optional(3) {
            let both = part(ctx, bias, d)?;
            let of_input = narrow(ctx, both, 0, rows)?;
            let of_state = narrow(ctx, both, rows, rows)?;
            let bias = cell.bias(ctx, self, of_input, of_state)?;
            y = ctx.add_values(y, bias)?;
        }
        ctx.reshape(y, &[self.steps, self.batch, rows])
    }

    /// Gates `begin..begin + count` of the recurrent weights; see [`Layer::matrix`].
    pub(super) fn weights(
        &self,
        ctx: &mut NodeCtx<'_>,
        d: usize,
        begin: usize,
        count: usize,
    ) -> Result<Vec<ValueId>, Problem> {
        self.matrix(ctx, 2, d, begin, count)
    }

    /// Gates of the weights at `input`, as `[columns, count * hidden]`; for quantised ones scale and
    /// zero point follow. [`Layer::product`] takes them.
    fn matrix(
        &self,
        ctx: &mut NodeCtx<'_>,
        input: usize,
        d: usize,
        begin: usize,
        count: usize,
    ) -> Result<Vec<ValueId>, Problem> {
        let weights = ctx.input(input)?;
        let w = part(ctx, weights, d)?;
        if self.quantised {
            let first = QUANTISED + 2 * (input - 1);
            let (scale, zero) = (ctx.input(first)?, ctx.input(first + 1)?);
            return Ok(vec![w, part(ctx, scale, d)?, part(ctx, zero, d)?]);
        }
        let w = narrow(ctx, w, begin * self.hidden, count * self.hidden)?;
        Ok(vec![ctx.transpose_matrix(w)?])
    }

    /// `x` times the first of `weights`.
    pub(super) fn product(&self, ctx: &mut NodeCtx<'_>, x: ValueId, weights: &[ValueId]) -> One {
        match weights[..] {
            [w, scale, zero, ..] if self.quantised => {
                dynamic_product(ctx, [x, w], scale, Some(zero), None)
            }
            _ => ctx.matmul(x, weights[0]),
        }
    }

    /// The number of values that weights are.
    pub(super) fn parts(&self) -> usize {
        if self.quantised { 3 } else { 1 }
    }

    /// The states before the first step, `[batch, hidden]`; zero where they are not given.
    pub(super) fn initial_states(
        &self,
        ctx: &mut NodeCtx<'_>,
        count: usize,
        d: usize,
    ) -> Result<Vec<ValueId>, Problem> {
        let (directions, batch, hidden) = (self.reverse.len(), self.batch, self.hidden);
        let mut states = Vec::with_capacity(count);
        for input in 5..5 + count {
            let state = match ctx.optional(input) {
                None => {
                    ctx.emit1(fill::constant(Scalar::zero(self.dtype), &[batch, hidden]), &[])?
                }
                Some(given) if self.batch_first => {
                    expect(ctx, input, &[batch, directions, hidden])?;
                    ctx.emit1(slice::select(&ctx.ty(given), 1, d), &[given])?
                }
                Some(given) => {
                    expect(ctx, input, &[directions, batch, hidden])?;
                    part(ctx, given, d)?
                }
            };
            states.push(state);
        }
        Ok(states)
    }

    /// For each element of the batch, whether the step that iteration number `iteration` makes lies
    /// before its end. A backward pass holds its state until it comes to that end.
    pub(super) fn valid(
        &self,
        ctx: &mut NodeCtx<'_>,
        d: usize,
        iteration: ValueId,
        lengths: ValueId,
    ) -> One {
        let last = Expr::index(self.steps) - Expr::int(1);
        ctx.map(&[iteration, lengths], DType::Bool, |v| {
            let at = if self.reverse[d] { last - v[0].clone() } else { v[0].clone() };
            at.lt(v[1].clone())
        })
    }

    /// `value` where `valid`, `other` or zero elsewhere.
    pub(super) fn masked(
        &self,
        ctx: &mut NodeCtx<'_>,
        valid: ValueId,
        value: ValueId,
        other: Option<ValueId>,
    ) -> One {
        let operands: Vec<ValueId> = [valid, value].into_iter().chain(other).collect();
        ctx.map(&operands, self.dtype, |v| {
            let other = v.get(2).cloned().unwrap_or(Expr::Const(Scalar::zero(self.dtype)));
            Expr::select(v[0].clone(), v[1].clone(), other)
        })
    }

    /// The hidden states of all steps, with an axis for the directions.
    pub(super) fn whole_output(&self, ctx: &mut NodeCtx<'_>, directions: &[ValueId]) -> One {
        let mut parts = Vec::with_capacity(directions.len());
        for &y in directions {
            parts.push(ctx.reshape(y, &[self.steps, 1, self.batch, self.hidden])?);
        }
        let y = ctx.concat(&parts, 1)?;
        if self.batch_first { ctx.transpose(y, &[2, 0, 1, 3]) } else { Ok(y) }
    }

    /// A state after the last step, likewise.
    pub(super) fn last_state(&self, ctx: &mut NodeCtx<'_>, directions: &[ValueId]) -> One {
        let mut parts = Vec::with_capacity(directions.len());
        for &state in directions {
            parts.push(ctx.reshape(state, &[1, self.batch, self.hidden])?);
        }
        let state = ctx.concat(&parts, 0)?;
        if self.batch_first { ctx.transpose(state, &[1, 0, 2]) } else { Ok(state) }
    }
}

/// A problem where input `input` is given and is not floats of this shape.
pub(super) fn expect(ctx: &NodeCtx<'_>, input: usize, shape: &[usize]) -> Result<(), Problem> {
    let Some(value) = ctx.optional(input) else { return Ok(()) };
    let (ty, dtype) = (ctx.ty(value), ctx.dtype(ctx.input(0)?));
    ctx.check(ty.shape == shape && ty.dtype == dtype, || {
        format!("its input {input} must be {dtype}{shape:?}, but is {ty}")
    })
}

fn expect_quantised(ctx: &NodeCtx<'_>, input: usize, shape: &[usize]) -> Result<(), Problem> {
    let ty = ctx.ty(ctx.input(input)?);
    ctx.check(ty.shape == shape && matches!(ty.dtype, DType::I8 | DType::U8), || {
        format!("its input {input} must be 8-bit integers {shape:?}, but is {ty}")
    })
}

/// The part of `x` for direction `d`, which is an index of the first axis.
pub(super) fn part(ctx: &mut NodeCtx<'_>, x: ValueId, d: usize) -> One {
    ctx.emit1(slice::select(&ctx.ty(x), 0, d), &[x])
}

pub(super) fn narrow(ctx: &mut NodeCtx<'_>, x: ValueId, begin: usize, extent: usize) -> One {
    let ty = ctx.ty(x);
    if begin == 0 && extent == ty.shape[0] {
        return Ok(x);
    }
    ctx.emit1(slice::narrow(&ty, 0, begin, extent), &[x])
}

fn lengths(ctx: &mut NodeCtx<'_>, steps: usize, batch: usize) -> Result<Option<ValueId>, Problem> {
    let Some(given) = ctx.optional(4) else { return Ok(None) };
    let ty = ctx.ty(given);
    ctx.check(ty.shape == [batch] && ty.dtype.is_int(), || {
        format!("its sequence lengths must be {batch} integers, not {ty}")
    })?;
    let known = ctx.constant(given).and_then(|t| t.to_i64_vec());
    if known.is_some_and(|known| known.iter().all(|&n| usize::try_from(n) == Ok(steps))) {
        return Ok(None);
    }
    let given = ctx.cast(given, DType::I64)?;
    ctx.reshape(given, &[batch, 1]).map(Some)
}
