//! `LinearAttention`: attention whose past is a matrix per head, as a loop over time.
//!
//! ```text
//! s = s * exp(decay);  v = beta * (v - k . s);  s = s + k^T v;  y = scale * q . s
//! ```
//! Update rules leave out the first step, the second, or both. Query heads that share a head of
//! keys are rows of one product. Everything is computed in `f32`.

use ansc_graph::op::{LoopOp, ScanAxis};
use ansc_graph::{BinOp, Expr, Op, TensorType, UnOp, Value, ValueId};
use ansc_runtime::{DType, Tensor};

use super::OpEntry;
use super::compose::One;
use super::gemm::scaled;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("LinearAttention", 27, linear_attention)];

struct Rule {
    decays: bool,
    corrects: bool,
}

/// Extents: batch, steps, heads of queries and of keys, elements of keys and of values.
struct Sizes {
    n: usize,
    t: usize,
    h: usize,
    g: usize,
    d: usize,
    e: usize,
}

fn linear_attention(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let rule = rule(ctx)?;
    let sizes = Sizes::new(ctx)?;
    let y_type = ctx.dtype(ctx.input(0)?);
    let state_type = ctx.optional(3).map_or(y_type, |s| ctx.dtype(s));
    let state = initial(ctx, &sizes)?;
    let mut inputs = vec![
        unpacked(ctx, 0, &sizes, sizes.h, sizes.d)?,
        unpacked(ctx, 1, &sizes, sizes.g, sizes.d)?,
        unpacked(ctx, 2, &sizes, sizes.g, sizes.e)?,
    ];
    if rule.decays {
        let each = ctx.shape(ctx.input(4)?).last() == Some(&sizes.g);
        inputs.push(unpacked(ctx, 4, &sizes, sizes.g, if each { 1 } else { sizes.d })?);
    }
    if rule.corrects {
        let shared = ctx.shape(ctx.input(5)?).last() == Some(&1);
        inputs.push(unpacked(ctx, 5, &sizes, if shared { 1 } else { sizes.g }, 1)?);
    }
    let (state, y) = over_time(ctx, &rule, &sizes, state, &inputs)?;
    Ok(vec![ctx.cast(y, y_type)?, ctx.cast(state, state_type)?])
}

fn rule(ctx: &NodeCtx<'_>) -> Result<Rule, Problem> {
    let (decays, corrects) = match ctx.string("update_rule", "gated_delta").as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(ctx.problem(format!("its update rule `{other}` is not known"))),
    };
    Ok(Rule { decays, corrects })
}

impl Sizes {
    fn new(ctx: &NodeCtx<'_>) -> Result<Sizes, Problem> {
        let heads = |name: &str| ctx.size(ctx.int(name, 0), name);
        let (h, g) = (heads("q_num_heads")?, heads("kv_num_heads")?);
        let (q, v) = (ctx.shape(ctx.input(0)?), ctx.shape(ctx.input(2)?));
        match (&q[..], &v[..]) {
            (&[n, t, qs], &[_, _, vs])
                if g > 0 && h > 0 && h % g == 0 && qs % h == 0 && vs % g == 0 =>
            {
                Ok(Sizes { n, t, h, g, d: qs / h, e: vs / g })
            }
            _ => Err(ctx.problem(format!(
                "queries {q:?} and values {v:?} do not consist of {h} and {g} heads"
            ))),
        }
    }

    fn state(&self) -> [usize; 4] {
        [self.n, self.g, self.d, self.e]
    }
}

/// Input `i`, `[n, t, heads * width]`, as `[n, t, heads, width]`.
fn unpacked(ctx: &mut NodeCtx<'_>, i: usize, sizes: &Sizes, heads: usize, width: usize) -> One {
    let x = ctx.input(i)?;
    let shape = ctx.shape(x);
    ctx.check(shape == [sizes.n, sizes.t, heads * width], || {
        format!("its input {i} of shape {shape:?} does not consist of {heads} heads of {width}")
    })?;
    let wide = ctx.cast(x, DType::F32)?;
    ctx.reshape(wide, &[sizes.n, sizes.t, heads, width])
}

fn initial(ctx: &mut NodeCtx<'_>, sizes: &Sizes) -> One {
    let shape = sizes.state();
    match ctx.optional(3) {
        None => ctx.zeros(DType::F32, &shape),
        Some(state) => {
            ctx.check(ctx.shape(state) == shape, || format!("its state must be {shape:?}"))?;
            ctx.cast(state, DType::F32)
        }
    }
}

/// The last state, and `[n, t, h * e]`.
fn over_time(
    ctx: &mut NodeCtx<'_>,
    rule: &Rule,
    sizes: &Sizes,
    state: ValueId,
    inputs: &[ValueId],
) -> Result<(ValueId, ValueId), Problem> {
    let operands = [&[state], inputs].concat();
    ctx.fixed_sizes(&operands)?;
    let mut types: Vec<TensorType> = operands.iter().map(|&v| ctx.ty(v)).collect();
    types[1..].iter_mut().for_each(|ty| _ = ty.shape.remove(1));
    let head = [TensorType::new(DType::I64, []), TensorType::new(DType::Bool, [])];
    let body = ctx.build_body(&[&head, &types[..]].concat(), |ctx, values| {
        let (state, y) = step(ctx, rule, sizes, values[2], &values[3..])?;
        let on = ctx.add_const(Tensor::scalar(true))?;
        Ok(vec![on, state, y])
    })?;
    let along_time = ScanAxis { axis: 1, reverse: false };
    let op = LoopOp {
        body,
        max_trip: sizes.t as u64,
        has_trip: false,
        has_condition: false,
        carried: 1,
        scan_inputs: vec![along_time; inputs.len()],
        scan_outputs: vec![along_time],
    };
    let whole = TensorType::new(DType::F32, [sizes.n, sizes.t, sizes.h * sizes.e]);
    let outputs = [types[0].clone(), ctx.addressable(whole)?].map(|ty| Value::new("", ty));
    let values = ctx.add(Op::Loop(Box::new(op)), &operands, outputs.into());
    Ok((values[0], values[1]))
}

/// The next state, and `[n, h * e]`.
fn step(
    ctx: &mut NodeCtx<'_>,
    rule: &Rule,
    sizes: &Sizes,
    mut state: ValueId,
    inputs: &[ValueId],
) -> Result<(ValueId, ValueId), Problem> {
    let &Sizes { n, h, g, d, e, .. } = sizes;
    let mut gates = inputs[3..].iter();
    if let Some(&decay) = gates.next().filter(|_| rule.decays) {
        let width = ctx.shape(decay)[2];
        let decay = ctx.reshape(decay, &[n, g, width, 1])?;
        state = ctx.map(&[state, decay], DType::F32, |v| {
            v[0].clone() * Expr::unary(UnOp::Exp, v[1].clone())
        })?;
    }
    let row = ctx.reshape(inputs[1], &[n, g, 1, d])?;
    let column = ctx.reshape(inputs[1], &[n, g, d, 1])?;
    let mut value = ctx.reshape(inputs[2], &[n, g, 1, e])?;
    if rule.corrects {
        let beta = inputs[inputs.len() - 1];
        let heads = ctx.shape(beta)[1];
        let beta = ctx.reshape(beta, &[n, heads, 1, 1])?;
        let known = ctx.matmul(row, state)?;
        value = ctx.map(&[value, known, beta], DType::F32, |v| {
            v[2].clone() * (v[0].clone() - v[1].clone())
        })?;
    }
    let outer = ctx.binary(BinOp::Mul, column, value)?;
    let state = ctx.add_values(state, outer)?;
    let scale = match ctx.float("scale", 0.0) {
        0.0 => 1.0 / (d as f32).sqrt(),
        given => given,
    };
    let queries = ctx.reshape(inputs[0], &[n, g, h / g, d])?;
    let queries = scaled(ctx, queries, scale)?;
    let y = ctx.matmul(queries, state)?;
    Ok((state, ctx.reshape(y, &[n, h * e])?))
}
