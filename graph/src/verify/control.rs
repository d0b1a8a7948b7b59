//! Checks of branches and loops.

use ansc_runtime::DType;

use super::Problem;
use super::graph::{Report, types};
use crate::compute::TensorType;
use crate::graph::{Graph, Node};
use crate::op::{IfOp, LoopOp, ScanAxis};

fn scalar(dtype: DType) -> TensorType {
    TensorType::new(dtype, [])
}

fn input_types(graph: &Graph) -> Vec<TensorType> {
    let inputs = graph.inputs().iter().filter(|&&n| graph.contains(n));
    inputs.filter_map(|&n| graph.node(n).outputs.first()).map(|v| v.ty.clone()).collect()
}

fn output_types(graph: &Graph) -> Vec<TensorType> {
    let outputs = graph.outputs.iter().map(|(_, v)| *v).filter(|v| graph.contains(v.node));
    outputs
        .filter_map(|v| graph.node(v.node).outputs.get(v.out as usize))
        .map(|v| v.ty.clone())
        .collect()
}

pub(super) fn check_if(node: &Node, op: &IfOp, inputs: &[TensorType], report: &mut Report<'_>) {
    let [condition, captures @ ..] = inputs else {
        report.count(&node.name, "operands", 1, 0);
        return;
    };
    report.same(&node.name, "the condition", &scalar(DType::Bool), condition);
    for (what, branch) in [("then", &op.then_branch), ("else", &op.else_branch)] {
        report.all_same(&node.name, &format!("{what} input"), captures, &input_types(branch));
        let outputs = types(&node.outputs);
        report.all_same(&node.name, &format!("{what} output"), &outputs, &output_types(branch));
        report.body(&format!("{}/{what}", node.name), branch);
    }
}

pub(super) fn check_loop(node: &Node, op: &LoopOp, inputs: &[TensorType], report: &mut Report<'_>) {
    report.body(&node.name, &op.body);
    let Some(operands) = Operands::split(op, inputs) else {
        let expected = usize::from(op.has_trip)
            + usize::from(op.has_condition)
            + op.carried
            + op.scan_inputs.len();
        report.count(&node.name, "operands", expected, inputs.len());
        return;
    };
    let heads = [(operands.trip, DType::I64), (operands.condition, DType::Bool)];
    for (operand, dtype) in heads.into_iter().filter_map(|(o, d)| Some((o?, d))) {
        report.same(&node.name, "trip count or condition", &scalar(dtype), operand);
    }
    check_signature(node, op, &operands, report);
}

struct Operands<'a> {
    trip: Option<&'a TensorType>,
    condition: Option<&'a TensorType>,
    carried: &'a [TensorType],
    scans: &'a [TensorType],
    captures: &'a [TensorType],
}

impl<'a> Operands<'a> {
    fn split(op: &LoopOp, inputs: &'a [TensorType]) -> Option<Operands<'a>> {
        let (trip, rest) = inputs.split_at_checked(usize::from(op.has_trip))?;
        let (condition, rest) = rest.split_at_checked(usize::from(op.has_condition))?;
        let (carried, rest) = rest.split_at_checked(op.carried)?;
        let (scans, captures) = rest.split_at_checked(op.scan_inputs.len())?;
        Some(Operands {
            trip: trip.first(),
            condition: condition.first(),
            carried,
            scans,
            captures,
        })
    }
}

/// The body takes iteration, condition, carried values, slices, captures; it gives condition,
/// carried values, slices. The node gives carried values and whole scan outputs.
fn check_signature(node: &Node, op: &LoopOp, operands: &Operands<'_>, report: &mut Report<'_>) {
    let mut takes = vec![scalar(DType::I64), scalar(DType::Bool)];
    takes.extend_from_slice(operands.carried);
    for (whole, scan) in operands.scans.iter().zip(&op.scan_inputs) {
        takes.push(sliced(node, whole, *scan, Some(op.max_trip), report));
    }
    takes.extend_from_slice(operands.captures);
    report.all_same(&node.name, "body input", &takes, &input_types(&op.body));

    let results = op.carried + op.scan_outputs.len();
    if !report.count(&node.name, "results", results, node.outputs.len()) {
        return;
    }
    let (carried, scans) = node.outputs.split_at(op.carried);
    report.all_same(&node.name, "carried result", operands.carried, &types(carried));
    let mut gives = vec![scalar(DType::Bool)];
    gives.extend_from_slice(operands.carried);
    for (whole, scan) in scans.iter().zip(&op.scan_outputs) {
        gives.push(sliced(node, &whole.ty, *scan, None, report));
        let length = whole.ty.shape.get(scan.axis).map(|&n| n as u64);
        if length.is_some_and(|n| n != op.max_trip) {
            let (expected, found) = (op.max_trip as usize, whole.ty.shape[scan.axis]);
            let what = format!("elements along the scan axis of {}", whole.name);
            report.count(&node.name, &what, expected, found);
        }
    }
    report.all_same(&node.name, "body output", &gives, &output_types(&op.body));
}

/// The type of one iteration's slice, which needs `iterations` elements along the axis.
fn sliced(
    node: &Node,
    whole: &TensorType,
    scan: ScanAxis,
    iterations: Option<u64>,
    report: &mut Report<'_>,
) -> TensorType {
    let mut slice = whole.clone();
    if scan.axis >= whole.rank() {
        report.note(&node.name, Problem::NoSuchOutput { what: format!("scan axis {}", scan.axis) });
        return slice;
    }
    let length = slice.shape.remove(scan.axis);
    if let Some(n) = iterations.filter(|&n| n > length as u64) {
        report.count(&node.name, "elements along a scan axis", n as usize, length);
    }
    slice
}
