//! `If`: the branch that is known to be taken in place of the node, or a node with both of them.

use ansc_graph::op::IfOp;
use ansc_graph::{Graph, Op, TensorType, Value, ValueId};
use ansc_runtime::DType;
use tract_onnx::pb::GraphProto;

use super::OpEntry;
use crate::problem::Problem;
use crate::walk::{Binding, Body, NodeCtx, nameless};

pub(crate) const OPS: &[OpEntry] = &[OpEntry::any("If", 1, branch)];

fn branch(ctx: &mut NodeCtx<'_>) -> Result<Vec<Binding>, Problem> {
    let condition = ctx.input(0)?;
    let ty = ctx.ty(condition);
    ctx.check(ty.dtype == DType::Bool && ty.len() == 1, || {
        format!("its condition must be one truth value, not {ty}")
    })?;
    let (then_graph, else_graph) = (body(ctx, "then_branch")?, body(ctx, "else_branch")?);
    match ctx.constant(condition).as_deref().map(|t| t.as_slice::<bool>()[0]) {
        Some(true) => ctx.inline_body(then_graph, &[]),
        Some(false) => ctx.inline_body(else_graph, &[]),
        None => {
            let values = both(ctx, condition, then_graph, else_graph)?;
            Ok(values.into_iter().map(Binding::Value).collect())
        }
    }
}

fn body<'a>(ctx: &NodeCtx<'a>, name: &str) -> Result<&'a GraphProto, Problem> {
    ctx.graph(name).ok_or_else(|| ctx.problem(format!("it has no `{name}`")))
}

fn both(
    ctx: &mut NodeCtx<'_>,
    condition: ValueId,
    then_graph: &GraphProto,
    else_graph: &GraphProto,
) -> Result<Vec<ValueId>, Problem> {
    let bodies = ctx.attempt(|ctx| {
        let mut then_body = ctx.import_body(then_graph, &[], &[], &[])?;
        let else_body = ctx.import_body(else_graph, &[], &[], &then_body.captures)?;
        for (i, &value) in else_body.captures.iter().enumerate().skip(then_body.captures.len()) {
            then_body.graph.add_input(&nameless(i), ctx.ty(value), None);
        }
        Ok((then_body, else_body))
    });
    let (then_body, else_body) = bodies.map_err(|mut problems| {
        let reason = "its condition is not known, so that both of its branches must be supported";
        problems.push(ctx.unknown(reason, condition));
        ctx.give_up(problems)
    })?;
    let outputs = outputs(ctx, condition, &then_body, &else_body)?;
    let condition = ctx.reshape(condition, &[])?;
    let operands = [&[condition], &else_body.captures[..]].concat();
    let op = IfOp { then_branch: then_body.graph, else_branch: else_body.graph };
    Ok(ctx.add(Op::If(Box::new(op)), &operands, outputs))
}

/// The outputs of the node. Both branches must give values of the same types.
fn outputs(
    ctx: &NodeCtx<'_>,
    condition: ValueId,
    then_body: &Body,
    else_body: &Body,
) -> Result<Vec<Value>, Problem> {
    let (then_types, else_types) = (results(&then_body.graph), results(&else_body.graph));
    ctx.check(then_types.len() == else_types.len(), || {
        format!("its branches give {} and {} values", then_types.len(), else_types.len())
    })?;
    let mut outputs = Vec::with_capacity(then_types.len());
    for (index, (a, b)) in then_types.into_iter().zip(else_types).enumerate() {
        if a.0 != b.0 {
            let reason =
                format!("its output {index} is {} in one branch, {} in the other", a.0, b.0);
            return Err(ctx.unknown(reason, condition));
        }
        let mut value = Value::new(format!("{}:{index}", ctx.name()), a.0);
        value.dynamic = a.1 || b.1;
        outputs.push(value);
    }
    Ok(outputs)
}

/// Type of each output, and whether only the data decides its size.
fn results(body: &Graph) -> Vec<(TensorType, bool)> {
    let outputs = body.outputs.iter().map(|(_, v)| body.value(*v));
    outputs.map(|value| (value.ty.clone(), value.dynamic)).collect()
}
