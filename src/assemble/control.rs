//! Branches and loops: their bodies are plans of their own over the same buffers.
//!
//! A body uses the outer buffers of the values that it captures. Its results are copied to where
//! the outer graph expects them.

use ansc_graph::op::{IfOp, LoopOp, ScanAxis};
use ansc_graph::{Graph, NodeId, ValueId};
use ansc_runtime::manifest::{BufferId, LoopStep, Plan, ScanStep, Step};

use super::{Builder, Values};
use crate::Error;
use crate::sizes::Sizes;

impl Builder<'_> {
    pub(super) fn branch(
        &mut self,
        graph: &Graph,
        node: NodeId,
        op: &IfOp,
        values: &mut Values,
        plan: &mut Plan,
    ) -> Result<(), Error> {
        let operands = self.buffers_of(graph, &graph.operands(node), values);
        let (condition, captures) = operands.split_first().expect("an If has a condition");
        let results = self.outputs_of(graph, node, values);
        let then_plan = self.branch_plan(&op.then_branch, captures, &results)?;
        let else_plan = self.branch_plan(&op.else_branch, captures, &results)?;
        let name = graph.node(node).name.clone();
        plan.steps.push(Step::If { name, condition: *condition, then_plan, else_plan });
        Ok(())
    }

    fn branch_plan(
        &mut self,
        body: &Graph,
        captures: &[BufferId],
        results: &[BufferId],
    ) -> Result<Plan, Error> {
        let (mut plan, outputs) = self.body(body, captures)?;
        let copies =
            outputs.into_iter().zip(results).map(|(from, to)| Step::Copy { from, to: *to });
        plan.steps.extend(copies);
        Ok(plan)
    }

    /// A body whose inputs are views of `given`; its plan and the buffers of its outputs.
    fn body(&mut self, body: &Graph, given: &[BufferId]) -> Result<(Plan, Vec<BufferId>), Error> {
        let mut values = Values::default();
        for (&node, &outer) in body.inputs().iter().zip(given) {
            let value = ValueId { node, out: 0 };
            let view = self.view(&body.node(node).name, body.ty(value), outer);
            values.insert(value, view);
        }
        let plan = self.walk(body, &Sizes::default(), &mut values)?;
        let outputs =
            body.outputs.iter().map(|(_, v)| self.buffer_of(body, *v, &mut values)).collect();
        Ok((plan, outputs))
    }

    pub(super) fn repeat(
        &mut self,
        graph: &Graph,
        node: NodeId,
        op: &LoopOp,
        values: &mut Values,
        plan: &mut Plan,
    ) -> Result<(), Error> {
        let operands = self.buffers_of(graph, &graph.operands(node), values);
        let mut operands = operands.into_iter();
        let trip = op.has_trip.then(|| operands.next().expect("a trip count"));
        let trip = trip.filter(|_| !op.makes_all_trips(graph, node));
        let condition = op.has_condition.then(|| operands.next().expect("a condition"));
        let initial: Vec<BufferId> = operands.by_ref().take(op.carried).collect();
        let whole_inputs: Vec<BufferId> = operands.by_ref().take(op.scan_inputs.len()).collect();
        let captures: Vec<BufferId> = operands.collect();

        let own: Vec<BufferId> =
            (0..2 + op.carried + op.scan_inputs.len()).map(|i| self.body_input(op, i)).collect();
        let given: Vec<BufferId> = own.iter().chain(&captures).copied().collect();
        let (mut body, outputs) = self.body(&op.body, &given)?;
        let carried_in = &own[2..2 + op.carried];
        let carried_out = self.settle(&outputs[1..1 + op.carried], &own, &mut body);
        let results = self.outputs_of(graph, node, values);
        plan.steps.push(Step::Loop(Box::new(LoopStep {
            name: graph.node(node).name.clone(),
            max_trip: op.max_trip,
            trip,
            condition,
            iteration: op.reads(0).then_some(own[0]),
            condition_in: op.reads(1).then_some(own[1]),
            condition_out: (!op.never_ends_early()).then_some(outputs[0]),
            initial,
            carried_in: carried_in.to_vec(),
            carried_out,
            results: results[..op.carried].to_vec(),
            scan_inputs: scans(&op.scan_inputs, &whole_inputs, &own[2 + op.carried..]),
            scan_outputs: scans(
                &op.scan_outputs,
                &results[op.carried..],
                &outputs[1 + op.carried..],
            ),
            body,
        })));
        Ok(())
    }

    fn body_input(&mut self, op: &LoopOp, index: usize) -> BufferId {
        let value = ValueId { node: op.body.inputs()[index], out: 0 };
        self.new_buffer(&op.body.value(value).name, op.body.ty(value))
    }

    /// Carried values that are themselves inputs of the body are copied aside first: the copies into
    /// `carried_in` happen one after another and must not read what was just written.
    fn settle(
        &mut self,
        carried_out: &[BufferId],
        own: &[BufferId],
        body: &mut Plan,
    ) -> Vec<BufferId> {
        let mut settled = Vec::new();
        for &out in carried_out {
            if !own.iter().any(|o| self.draft.classes.same(*o, out)) {
                settled.push(out);
                continue;
            }
            let info = self.draft.specialisation.buffers[out.0 as usize].clone();
            let aside =
                self.new_buffer(&info.name, &ansc_graph::TensorType::new(info.dtype, info.shape));
            body.steps.push(Step::Copy { from: out, to: aside });
            settled.push(aside);
        }
        settled
    }
}

fn scans(axes: &[ScanAxis], wholes: &[BufferId], slices: &[BufferId]) -> Vec<ScanStep> {
    let pairs = wholes.iter().zip(slices);
    axes.iter()
        .zip(pairs)
        .map(|(a, (&whole, &slice))| ScanStep { whole, slice, axis: a.axis, reverse: a.reverse })
        .collect()
}
