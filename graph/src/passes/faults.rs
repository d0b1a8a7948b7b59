//! Faults that a pass plants among the real ones: the verifier finds each, and names the pass and
//! the node.

use ansc_runtime::DType;

use super::testing::{Builder, f32};
use super::{ORDER, Options, PASSES, Pass, PassError, Run};
use crate::compute::TensorType;
use crate::graph::{Graph, NodeId, Value, ValueId};
use crate::op::{Kind, LoopOp, Op, ScanAxis};
use crate::ops::softmax;
use crate::verify::{Defect, Verifier};

type Plant = fn(&mut Graph, &Options) -> Result<bool, PassError>;

/// `x -> conv -> relu -> softmax`, under these names.
fn network() -> Graph {
    let mut b = Builder::new(1);
    let x = b.input(&[1, 3, 6, 6]);
    let conv = b.conv(x, 4, 3, 1);
    let relu = b.relu(conv);
    let op = softmax::softmax(&[1], b.graph.ty(relu)).unwrap();
    let y = b.emit(op, &[relu]);
    let names = [(conv, "conv"), (relu, "relu"), (y, "softmax")];
    names.iter().for_each(|(value, name)| b.graph.node_mut(value.node).name = (*name).into());
    b.finish(&[y])
}

/// A loop over `h * x` named `loop`, whose product is named `product`.
fn looped() -> Graph {
    let mut body = Builder::new(2);
    body.graph.add_input("i", TensorType::new(DType::I64, []), None);
    let on = body.graph.add_input("on", TensorType::new(DType::Bool, []), None);
    let (h, x) = (body.input(&[2]), body.input(&[2]));
    let next = body.binary(crate::expr::BinOp::Mul, h, x);
    body.graph.node_mut(next.node).name = "product".into();
    let op = LoopOp {
        body: body.finish(&[on, next]),
        max_trip: 20,
        has_trip: false,
        has_condition: false,
        carried: 1,
        scan_inputs: vec![ScanAxis { axis: 0, reverse: false }],
        scan_outputs: vec![],
    };
    let mut b = Builder::new(3);
    let (h, xs) = (b.input(&[2]), b.input(&[20, 2]));
    let outputs = vec![Value::new("h", f32(&[2]))];
    let node = b.graph.add("loop", Op::Loop(Box::new(op)), &[h, xs], outputs);
    b.finish(&[ValueId { node, out: 0 }])
}

/// Where a fault is planted among the real passes.
#[derive(Clone, Copy)]
enum Place {
    Amid,
    Last,
}

/// Runs the real passes and one more.
fn run(
    graph: &mut Graph,
    place: Place,
    plant: Plant,
    verifier: &mut Verifier,
) -> Result<(), PassError> {
    let planted = Pass { name: "planted", description: "a fault", run: plant };
    let named = |name: &str| PASSES.iter().find(|p| p.name == name).unwrap();
    let mut passes: Vec<&Pass> = ORDER.iter().map(|name| named(name)).collect();
    let at = match place {
        Place::Amid => passes.len() / 3,
        Place::Last => passes.len(),
    };
    passes.insert(at, &planted);
    let options = Options::default();
    Run { passes: &passes, options: &options, verifier }.over(graph, &mut |_, _, _| ())
}

fn defect(mut graph: Graph, place: Place, plant: Plant) -> Defect {
    match run(&mut graph, place, plant, &mut Verifier::new()) {
        Err(PassError::Defect(defect)) => defect,
        other => panic!("{other:?}"),
    }
}

fn find(graph: &Graph, name: &str) -> Option<NodeId> {
    graph.node_ids().into_iter().find(|n| graph.node(*n).name == name)
}

/// Changes the node of that name, if there is one.
fn change(graph: &mut Graph, name: &str, f: impl FnOnce(&mut Graph, NodeId)) -> bool {
    let Some(node) = find(graph, name) else { return false };
    f(graph, node);
    true
}

fn wrong_type(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    Ok(change(graph, "relu", |g, n| g.node_mut(n).outputs[0].ty.dtype = DType::I64))
}

fn cycle(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    let last = graph.outputs[0].1;
    Ok(change(graph, "relu", |g, n| g.set_operands(n, &[last])))
}

fn missing_value(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    Ok(change(graph, "softmax", |g, n| {
        let relu = g.operands(n)[0].node;
        g.set_operands(n, &[ValueId { node: relu, out: 5 }]);
    }))
}

fn wrong_kind(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    Ok(change(graph, "softmax", |g, n| {
        let Op::Compute(op) = &mut g.node_mut(n).op else { panic!("softmax is computed") };
        op.kind = Kind::Softmax { axis: 2 };
    }))
}

fn bad_shape(graph: &mut Graph, _: &Options) -> Result<bool, PassError> {
    Ok(change(graph, "relu", |g, n| g.node_mut(n).outputs[0].ty.shape[3] += 1))
}

#[test]
fn the_passes_themselves_plant_nothing() {
    for mut graph in [network(), looped()] {
        run(&mut graph, Place::Amid, |_, _| Ok(true), &mut Verifier::new()).unwrap();
    }
}

#[test]
fn each_planted_fault_is_found() {
    let table: [(Plant, &str); 5] = [
        (wrong_type, "node relu: result 0 is i64[1, 4, 6, 6] instead of f32[1, 4, 6, 6]"),
        (cycle, "the graph has a cycle"),
        (missing_value, "node softmax: operand 0 is read from an output that does not exist"),
        (wrong_kind, "node softmax: its kind is softmax[2], but its expression is another"),
        (bad_shape, "node relu: result 0 is f32[1, 4, 6, 7] instead of f32[1, 4, 6, 6]"),
    ];
    for (plant, problem) in table {
        let defect = defect(network(), Place::Amid, plant);
        assert!(defect.violations.iter().any(|v| v.to_string() == problem), "{defect:?}");
        let told = defect.to_string();
        assert!(told.starts_with("the pass planted left an invalid graph: "), "{told}");
        assert!(told.contains("a defect of ansc: please report it"), "{told}");
    }
}

#[test]
fn a_fault_in_a_body_is_found_under_the_name_of_its_loop() {
    let plant: Plant =
        |graph, _| Ok(change(graph, "product", |g, n| g.node_mut(n).outputs[0].ty = f32(&[3])));
    let defect = defect(looped(), Place::Amid, plant);
    assert_eq!(defect.stage, "the pass planted");
    let problem = "node loop/product: result 0 is f32[3] instead of f32[2]";
    assert!(defect.violations.iter().any(|v| v.to_string() == problem), "{defect:?}");
}

/// A pass may spoil the body of a node of the graph that it runs on.
#[test]
fn a_fault_that_the_pass_around_a_body_planted_is_its_own() {
    let plant: Plant = |graph, _| {
        Ok(change(graph, "loop", |g, n| {
            let Op::Loop(op) = &mut g.node_mut(n).op else { panic!("a loop") };
            change(&mut op.body, "product", |g, n| g.node_mut(n).outputs.clear());
        }))
    };
    let defect = defect(looped(), Place::Amid, plant);
    assert_eq!(defect.stage, "the pass planted");
    let problem = "node loop/product: 0 results instead of 1";
    assert!(defect.violations.iter().any(|v| v.to_string() == problem), "{defect:?}");
}

#[test]
fn a_pass_that_hides_its_change_does_not_hide_its_fault() {
    let plant: Plant = |graph, options| wrong_kind(graph, options).map(|_| false);
    let defect = defect(network(), Place::Last, plant);
    assert_eq!(defect.stage, "the passes together");
    assert!(defect.to_string().contains("node softmax: its kind is softmax[2]"), "{defect}");
}

#[test]
fn what_the_import_left_is_checked_before_any_pass() {
    let mut graph = network();
    bad_shape(&mut graph, &Options::default()).unwrap();
    let told = run(&mut graph, Place::Amid, |_, _| Ok(false), &mut Verifier::new()).unwrap_err();
    assert!(told.to_string().starts_with("the import left an invalid graph"), "{told}");
}

#[test]
fn a_verifier_that_is_off_checks_nothing() {
    run(&mut network(), Place::Amid, wrong_kind, &mut Verifier::off()).unwrap();
}
