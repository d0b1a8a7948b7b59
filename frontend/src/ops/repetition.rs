//! `Loop`: a loop node; or, where the body only makes sense with its iterations' numbers and sizes
//! known, as many copies of the body as there are iterations.

use ansc_graph::op::{LoopOp, ScanAxis};
use ansc_graph::ops::shape;
use ansc_graph::{Op, TensorType, Value, ValueId};
use ansc_runtime::{DType, Tensor};
use tract_onnx::pb::GraphProto;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::{Binding, Body, NodeCtx};

pub(crate) const OPS: &[OpEntry] = &[OpEntry::any("Loop", 1, repetition)];

/// Copies of a body, where a loop node is not possible.
const MAX_COPIES: u64 = 1024;
/// Where all that goes around is constant, up to this number of copies are tried first.
const FEW_COPIES: u64 = 64;
/// Space for stacked values of loops whose number of iterations is not known. The runtime reports
/// loops that go on longer.
const MAX_STACKED: u64 = 1024;
/// As many iterations as anyone can count.
const ENDLESS: u64 = i64::MAX as u64;

/// A `Loop` node: its body, its inputs, and the known facts about how often the body runs.
struct Repetition<'a> {
    body: &'a GraphProto,
    trip: Option<ValueId>,
    condition: Option<ValueId>,
    carried: Vec<Binding>,
    /// The trip count, if it is known.
    trips: Option<u64>,
    /// Whether the first iteration's condition holds, if that is known.
    starts: Option<bool>,
}

fn repetition(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    let node = Repetition::new(ctx)?;
    let known =
        |ctx: &NodeCtx<'_>, b: &Binding| b.value().is_some_and(|v| ctx.constant(v).is_some());
    let all_known = node.carried.iter().all(|b| known(ctx, b));
    if all_known
        && !node.carried.is_empty()
        && node.trips.is_some_and(|n| n <= FEW_COPIES)
        && let Ok(values) = ctx.attempt(|ctx| node.copies(ctx))
        && values.iter().all(|b| known(ctx, b))
    {
        return Ok(values);
    }
    match ctx.attempt(|ctx| node.as_loop(ctx)) {
        Ok(values) => Ok(values.into_iter().map(Binding::Value).collect()),
        Err(problems) => match ctx.attempt(|ctx| node.copies(ctx)) {
            Ok(values) => Ok(values),
            Err(_) => Err(ctx.give_up(problems)),
        },
    }
}

impl<'a> Repetition<'a> {
    fn new(ctx: &mut NodeCtx<'a>) -> Result<Repetition<'a>, Problem> {
        let body = ctx.graph("body").ok_or_else(|| ctx.problem("it has no `body`"))?;
        let trip = scalar(ctx, 0, DType::I64)?;
        let condition = scalar(ctx, 1, DType::Bool)?;
        let carried: Vec<Binding> = (2..ctx.n_inputs()).map(|i| ctx.binding(i)).collect();
        let number = |v: ValueId| ctx.constant(v).and_then(|t| t.to_i64_vec()?.first().copied());
        let trips = match trip {
            Some(trip) => number(trip).map(|n| n.max(0) as u64),
            None => Some(ENDLESS),
        };
        let starts = match condition {
            Some(condition) => number(condition).map(|c| c != 0),
            None => Some(true),
        };
        Ok(Repetition { body, trip, condition, carried, trips, starts })
    }

    fn as_loop(&self, ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
        let head = [TensorType::new(DType::I64, []), TensorType::new(DType::Bool, [])];
        let initial = self.tensors(ctx)?;
        let carried: Vec<TensorType> = initial.iter().map(|&v| ctx.ty(v)).collect();
        let mut body = ctx.import_body(self.body, &[], &[&head[..], &carried].concat(), &[])?;
        self.check_results(ctx, &mut body, &carried)?;

        let stacked: Vec<TensorType> = body.graph.outputs[1 + carried.len()..]
            .iter()
            .map(|(_, v)| body.graph.ty(*v).clone())
            .collect();
        let max_trip = match (self.starts, self.trips) {
            (Some(false), _) => 0,
            (_, Some(n))
                if n <= MAX_STACKED
                    || stacked.is_empty()
                    || self.runs_all(&body) && n < ENDLESS =>
            {
                n
            }
            _ if stacked.is_empty() => ENDLESS,
            _ => MAX_STACKED,
        };
        let exact = max_trip == 0 || (self.trips == Some(max_trip) && self.runs_all(&body));
        let mut outputs: Vec<Value> = carried.into_iter().map(|ty| Value::new("", ty)).collect();
        for ty in &stacked {
            let mut whole = ty.clone();
            whole.shape.insert(0, usize::try_from(max_trip).unwrap_or(usize::MAX));
            outputs.push(Value { dynamic: !exact, ..Value::new("", ctx.addressable(whole)?) });
        }
        let trip = match self.trips {
            _ if max_trip == 0 => None,
            Some(n) if n == max_trip => None,
            // The runtime compares the trip count with what there is space for.
            _ => Some(match self.trip {
                Some(trip) => trip,
                None => ctx.add_const(Tensor::scalar(i64::MAX))?,
            }),
        };
        let condition = self.condition.filter(|_| self.starts.is_none());
        let operands: Vec<ValueId> =
            trip.into_iter().chain(condition).chain(initial).chain(body.captures).collect();
        let op = LoopOp {
            body: body.graph,
            max_trip,
            has_trip: trip.is_some(),
            has_condition: condition.is_some(),
            carried: self.carried.len(),
            scan_inputs: vec![],
            scan_outputs: vec![ScanAxis { axis: 0, reverse: false }; stacked.len()],
        };
        Ok(ctx.add(Op::Loop(Box::new(op)), &operands, outputs))
    }

    /// The values that go around, if a loop node can carry them: tensors of fixed sizes.
    fn tensors(&self, ctx: &NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
        let values: Vec<ValueId> = self.carried.iter().filter_map(Binding::value).collect();
        if values.len() < self.carried.len() {
            let reason = "a sequence or an optional value goes around in it; \
                          then how often it runs must be known at compile time";
            let unknown = self.trip.filter(|_| self.trips.is_none()).or(self.condition);
            return Err(match unknown {
                Some(value) => ctx.unknown(reason, value),
                None => ctx.problem(reason),
            });
        }
        ctx.fixed_sizes(&values)?;
        Ok(values)
    }

    /// Whether only the trip count ends the loop.
    fn runs_all(&self, body: &Body) -> bool {
        let (_, condition) = body.graph.outputs[0];
        let goes_on = body.graph.const_of(condition).is_some_and(|t| t.bytes() == [1]);
        let input = ValueId { node: body.graph.inputs()[1], out: 0 };
        self.starts == Some(true) && (goes_on || condition == input)
    }

    /// A condition, what goes around unchanged in type, and any number of values to stack.
    fn check_results(
        &self,
        ctx: &NodeCtx<'_>,
        body: &mut Body,
        carried: &[TensorType],
    ) -> Result<(), Problem> {
        let outputs = &body.graph.outputs;
        ctx.check(outputs.len() > carried.len(), || {
            format!("its body gives {} values, but takes {}", outputs.len(), carried.len() + 2)
        })?;
        let graph = &body.graph;
        if let Some((name, _)) = outputs.iter().find(|(_, v)| graph.value(*v).dynamic) {
            let reason =
                format!("only the data decides the size of `{name}`, which its body gives");
            return Err(ctx.problem(reason));
        }
        for ((name, value), ty) in outputs[1..].iter().zip(carried) {
            let found = graph.ty(*value);
            ctx.check(found == ty, || {
                format!("the value that becomes `{name}` starts as {ty} and goes on as {found}")
            })?;
        }
        let condition = outputs[0].1;
        let ty = graph.ty(condition).clone();
        ctx.check(ty.dtype == DType::Bool && ty.len() == 1, || {
            format!("its body's condition must be one truth value, not {ty}")
        })?;
        if ty.rank() > 0 {
            let flat = shape::reshape(&ty, &[]).map_err(|e| ctx.problem(e.to_string()))?;
            let expr = std::sync::Arc::unwrap_or_clone(flat.expr);
            let values = body.graph.add_compute("condition", flat.kind, expr, &[condition]);
            body.graph.outputs[0].1 = values[0];
        }
        Ok(())
    }

    /// One copy of the body after the other, until a condition is known not to hold.
    fn copies(&self, ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
        let unknown = |ctx: &NodeCtx<'_>| ctx.problem("the number of its iterations is not known");
        let trips = self.trips.filter(|_| self.starts.is_some()).ok_or_else(|| unknown(ctx))?;
        let mut goes_on = self.starts == Some(true);
        let mut carried = self.carried.clone();
        let mut stacks: Vec<Vec<ValueId>> = Vec::new();
        let mut trip = 0;
        while goes_on && trip < trips {
            ctx.check(trip < MAX_COPIES, || format!("it runs more than {MAX_COPIES} times"))?;
            let mut inputs = vec![
                Binding::Value(ctx.add_const(Tensor::scalar(trip as i64))?),
                Binding::Value(ctx.add_const(Tensor::scalar(true))?),
            ];
            inputs.append(&mut carried);
            let outputs = ctx.inline_body(self.body, &inputs)?;
            ctx.check(outputs.len() > self.carried.len(), || "its body gives too little".into())?;
            let condition = tensor(ctx, &outputs[0])?;
            let condition = ctx.constant(condition).ok_or_else(|| unknown(ctx))?;
            goes_on = condition.bytes().first().is_some_and(|&b| b != 0);
            let (next, slices) = outputs[1..].split_at(self.carried.len());
            carried = next.to_vec();
            stacks.resize(slices.len(), Vec::new());
            for (stack, slice) in stacks.iter_mut().zip(slices) {
                stack.push(tensor(ctx, slice)?);
            }
            trip += 1;
        }
        // Without a copy nothing says what the stacked values would be.
        ctx.check(trip > 0 || ctx.n_outputs() <= carried.len(), || "it never runs".into())?;
        for stack in stacks {
            carried.push(Binding::Value(stacked(ctx, &stack)?));
        }
        Ok(carried)
    }
}

fn tensor(ctx: &NodeCtx<'_>, binding: &Binding) -> Result<ValueId, Problem> {
    binding.value().ok_or_else(|| {
        ctx.problem("its body gives a value that is to be stacked, but is not a tensor")
    })
}

fn scalar(ctx: &mut NodeCtx<'_>, input: usize, dtype: DType) -> Result<Option<ValueId>, Problem> {
    let Some(value) = ctx.optional(input) else { return Ok(None) };
    let ty = ctx.ty(value);
    ctx.check(ty.dtype == dtype && ty.len() == 1, || {
        format!("its input {input} must be one element of type {dtype}, not {ty}")
    })?;
    ctx.reshape(value, &[]).map(Some)
}

/// The values along a new first axis.
fn stacked(ctx: &mut NodeCtx<'_>, values: &[ValueId]) -> Result<ValueId, Problem> {
    let mut parts = Vec::with_capacity(values.len());
    for &value in values {
        let shape = [&[1], &ctx.shape(value)[..]].concat();
        parts.push(ctx.reshape(value, &shape)?);
    }
    ctx.concat(&parts, 0)
}
