//! Candidates that do harm, in real worker processes: what becomes of them, and that measuring goes
//! on.

use std::sync::Arc;
use std::time::Duration;

use ansc_graph::Compute;
use ansc_sketch::Machine;
use ansc_sketch::{Program, Task};
use ansc_tuner::Candidate;
use ansc_tuner::measure::{LocalMeasurer, LocalOptions, MeasureError, Measurer, WorkerCommand};
use ansc_tuner::outcome::{Failure, Outcome};

const WORKER: [&str; 5] = ["candidates", "--target-cpu", "native", "--memory", "8000000000"];

fn measurer(interpret_flops: u64) -> LocalMeasurer {
    let program = env!("CARGO_BIN_EXE_ansc").into();
    with(WorkerCommand { program, args: WORKER.map(String::from).to_vec() }, interpret_flops)
}

fn with(worker: WorkerCommand, interpret_flops: u64) -> LocalMeasurer {
    let options = LocalOptions {
        run_limit: Duration::from_secs(3),
        interpret_flops,
        ..LocalOptions::new(worker, 1)
    };
    LocalMeasurer::new(options).unwrap()
}

fn task(text: &str) -> Arc<Task> {
    let compute = Compute::parse(text).unwrap();
    let constant = vec![false; compute.inputs.len()];
    let machine = Machine::new(16, 16);
    Arc::new(Task::on_cpu("k", &compute, &constant, &machine))
}

const DOUBLE: &str = "compute(in0: f32[64]) -> y { y: f32[64] = mul(in0[i0], 2.0_f32) }";

/// The untuned candidate with another program.
fn candidate(task: &Arc<Task>, program: &str) -> Candidate {
    let mut candidate = Candidate::exactly(task, &task.untuned()).unwrap();
    candidate.scheduled.program = Program::parse(program).unwrap_or_else(|e| panic!("{e}"));
    // Another one for each text.
    candidate.program = program.bytes().fold(7, |h, b| h * 31 % 1_000_000_007 + u64::from(b));
    candidate
}

/// The text of a program that computes the task, loop by loop.
fn naive(task: &Task) -> String {
    ansc_sketch::finish(ansc_sketch::lower("k", &task.compute)).to_string()
}

#[test]
fn harm_is_the_candidates_own() {
    let task = task(DOUBLE);
    let naive = naive(&task);
    let at = naive.find("y[").unwrap_or_else(|| panic!("{naive}")) + 2;
    let index = &naive[at..at + naive[at..].find(']').unwrap()];
    let storing_at = |other: &str| {
        candidate(&task, &naive.replace(&format!("y[{index}]"), &format!("y[{other}]")))
    };
    let good = candidate(&task, &naive);
    let cases = [
        ("far away", storing_at(&format!("add({index}, 1000000000000)")), &[Failure::Crash][..]),
        // Whether the process survives this depends on what lies behind its output.
        (
            "one too far",
            storing_at(&format!("add({index}, 1)")),
            &[Failure::WrongResult, Failure::Crash],
        ),
        ("in another order", storing_at(&format!("sub(63, {index})")), &[Failure::WrongResult]),
    ];
    for (what, bad, expected) in cases {
        let mut measurer = measurer(u64::MAX);
        let outcomes = measurer.measure(&task, &[bad.clone(), good.clone()]).unwrap();
        let found = expected.iter().any(|&f| outcomes[0] == Outcome::Failed(f));
        assert!(found, "{what}: {:?}\n{}", outcomes[0], bad.scheduled.program);
        assert!(outcomes[1].seconds().is_some(), "{what}");
    }
}

/// A worker that may write nothing is as one on a full disk.
#[test]
fn a_full_disk_is_the_machines_fault() {
    let task = task(DOUBLE);
    let good = Candidate::exactly(&task, &task.untuned()).unwrap();
    let args = ["-c", "ulimit -f 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ansc")];
    let args = args.iter().chain(&WORKER).map(|arg| (*arg).to_owned()).collect();
    let mut measurer = with(WorkerCommand { program: "sh".into(), args }, u64::MAX);
    let error = measurer.measure(&task, &[good]).unwrap_err();
    assert!(matches!(error, MeasureError::Unfit(_)) && error.is_of_the_machine(), "{error}");
    assert!(error.to_string().contains("File too large"), "{error}");
}

#[test]
fn one_that_never_ends_is_ended() {
    let text = "compute(in0: f32[4]) -> y { y: f32[1] = sum{r0: 4000000000000} in0[sub(r0, r0)] }";
    let endless = task(text);
    let mut measurer = measurer(u64::MAX);
    let one = Candidate::exactly(&endless, &endless.untuned()).unwrap();
    let outcomes = measurer.measure(&endless, std::slice::from_ref(&one)).unwrap();
    assert_eq!(outcomes, [Outcome::Failed(Failure::Timeout)]);
    let fine = task(DOUBLE);
    let good = Candidate::exactly(&fine, &fine.untuned()).unwrap();
    assert!(measurer.measure(&fine, &[good]).unwrap()[0].seconds().is_some());
}

/// The untuned schedule computes the reference of a large subgraph, against which candidates are
/// held.
#[test]
fn large_subgraphs_are_compared_with_the_scheduled() {
    let text = "compute(in0: f32[32, 48], in1: f32[48, 40]) -> y {
      y: f32[32, 40] = sum{r0: 48} mul(in0[i0, r0], in1[r0, i1])
    }";
    let task = task(text);
    let mut measurer = measurer(0);
    let good = Candidate::exactly(&task, &task.untuned()).unwrap();
    let naive = naive(&task);
    let wrong = candidate(&task, &naive.replace("0..48", "0..47"));
    let outcomes = measurer.measure(&task, &[wrong, good]).unwrap();
    assert_eq!(outcomes[0], Outcome::Failed(Failure::WrongResult), "{naive}");
    assert!(outcomes[1].seconds().is_some(), "{outcomes:?}");
}
