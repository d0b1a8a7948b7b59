//! Branches, loops, scans, host operators and values of sizes that only the data decides.

mod common;

use ansc_runtime::host::HostOp;
use ansc_runtime::manifest::{BufferId, LoopStep, Plan, ScanStep, Step, Storage};
use ansc_runtime::{DType, Model, RunError, StepKind, Tensor};
use common::Builder;

fn plan(steps: Vec<Step>) -> Plan {
    Plan { steps }
}

/// A loop that does nothing yet.
fn empty_loop(max_trip: u64) -> LoopStep {
    LoopStep {
        name: "loop".to_owned(),
        max_trip,
        trip: None,
        condition: None,
        iteration: None,
        condition_in: None,
        condition_out: None,
        initial: vec![],
        carried_in: vec![],
        carried_out: vec![],
        results: vec![],
        scan_inputs: vec![],
        scan_outputs: vec![],
        body: Plan::default(),
    }
}

fn loop_step(step: LoopStep) -> Step {
    Step::Loop(Box::new(step))
}

fn run(model: &Model, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>, RunError> {
    let outputs = model.session().unwrap().run(inputs)?;
    Ok(outputs.into_iter().map(|(_, tensor)| tensor).collect())
}

#[test]
fn if_takes_one_branch() {
    let mut b = Builder::new();
    let condition = b.input("condition", DType::Bool, &[]);
    let y = b.output("y", DType::I64, &[]);
    let one = b.kernel_step("one", 1, &[y], "*((int64_t**)b)[0] = 1;");
    let two = b.kernel_step("two", 1, &[y], "*((int64_t**)b)[0] = 2;");
    b.plan().plan.steps.push(Step::If {
        name: "if".to_owned(),
        condition,
        then_plan: plan(vec![one]),
        else_plan: plan(vec![two]),
    });
    let model = b.load();
    for (condition, expected) in [(true, 1i64), (false, 2)] {
        let outputs = run(&model, &[("condition", &Tensor::scalar(condition))]).unwrap();
        assert_eq!(outputs, [Tensor::scalar(expected)]);
    }
}

/// `for i in 0..trip { (a, b) = (b, a + b); squares[i] = a * a; if a + b > 50 { break } }`, with a
/// body that hands carried values on as they are, as in a swap.
fn fibonacci(reverse: bool) -> Model {
    let mut b = Builder::new();
    let (i64, bool) = (DType::I64, DType::Bool);
    let trip = b.input("trip", i64, &[]);
    let first = b.input("first", bool, &[]);
    let initial = b.weight("initial", &Tensor::scalar(1i64));
    let (a_in, b_in) = (b.arena("a_in", i64, &[]), b.arena("b_in", i64, &[]));
    let sum = b.arena("sum", i64, &[]);
    let slice = b.arena("slice", i64, &[]);
    let go_on = b.arena("go_on", bool, &[]);
    let iteration = b.arena("iteration", i64, &[]);
    let body = b.kernel_step(
        "body",
        1,
        &[a_in, b_in, sum, slice, go_on],
        "int64_t **v = (int64_t**)b; *v[2] = *v[0] + *v[1]; *v[3] = *v[0] * *v[0]; *b[4] = *v[2] <= 50;",
    );
    let a_out = b.output("a", i64, &[]);
    let b_out = b.output("b", i64, &[]);
    let squares = b.output("squares", i64, &[12]);
    let last = b.output("last", i64, &[]);
    let mut step = empty_loop(12);
    step.trip = Some(trip);
    step.condition = Some(first);
    step.iteration = Some(iteration);
    step.condition_out = Some(go_on);
    step.initial = vec![initial, initial];
    step.carried_in = vec![a_in, b_in];
    step.carried_out = vec![b_in, sum];
    step.results = vec![a_out, b_out];
    step.scan_outputs = vec![ScanStep { whole: squares, slice, axis: 0, reverse }];
    step.body = plan(vec![body]);
    b.plan().plan.steps = vec![loop_step(step), Step::Copy { from: iteration, to: last }];
    b.load()
}

/// The same in Rust.
fn fibonacci_in_rust(trip: i64, first: bool) -> (i64, i64, Vec<i64>) {
    let (mut a, mut b, mut squares, mut go_on) = (1, 1, vec![], first);
    while go_on && (squares.len() as i64) < trip {
        squares.push(a * a);
        go_on = a + b <= 50;
        (a, b) = (b, a + b);
    }
    (a, b, squares)
}

#[test]
fn loops_carry_count_break_and_stack() {
    for reverse in [false, true] {
        let model = fibonacci(reverse);
        let mut session = model.session().unwrap();
        // In one session, so that nothing may be left over from the run before.
        for (trip, first) in [(5, true), (12, true), (0, true), (3, false), (-2, true), (9, true)] {
            let inputs = [("trip", &Tensor::scalar(trip)), ("first", &Tensor::scalar(first))];
            let outputs = session.run(&inputs).unwrap();
            let (a, b, mut squares) = fibonacci_in_rust(trip, first);
            if reverse {
                squares.reverse();
            }
            assert_eq!(outputs[0].1, Tensor::scalar(a), "{trip} {first}");
            assert_eq!(outputs[1].1, Tensor::scalar(b));
            assert_eq!(outputs[2].1, Tensor::from_slice(&[squares.len()], &squares));
            if !squares.is_empty() {
                assert_eq!(outputs[3].1, Tensor::scalar(squares.len() as i64 - 1));
            }
        }
    }
}

#[test]
fn a_loop_that_would_go_on_beyond_its_limit_is_an_error() {
    let mut b = Builder::new();
    let trip = b.input("trip", DType::I64, &[]);
    let y = b.output("y", DType::I64, &[]);
    let start = b.weight("start", &Tensor::scalar(0i64));
    let carried = b.arena("carried", DType::I64, &[]);
    let add = b.kernel_step("add", 1, &[carried], "++*((int64_t**)b)[0];");
    let mut step = empty_loop(4);
    step.trip = Some(trip);
    step.initial = vec![start];
    step.carried_in = vec![carried];
    step.carried_out = vec![carried];
    step.results = vec![y];
    step.body = plan(vec![add]);
    b.plan().plan.steps = vec![loop_step(step)];
    let model = b.load();
    assert_eq!(run(&model, &[("trip", &Tensor::scalar(4i64))]).unwrap(), [Tensor::scalar(4i64)]);
    let error = run(&model, &[("trip", &Tensor::scalar(5i64))]).unwrap_err();
    assert_eq!(error, RunError::LoopLimit { step: "loop".to_owned(), max_trip: 4 });
}

/// Doubles each slice of `x` along `axis`; the reference is the tensor's own indexing.
#[test]
fn scans_slice_and_stack_along_any_axis_in_any_direction() {
    let shape = [2usize, 3, 4];
    let x: Vec<i32> = (0..24).collect();
    for axis in 0..3 {
        for (reverse_in, reverse_out) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let mut slice_shape = shape.to_vec();
            let len = slice_shape.remove(axis);
            let mut b = Builder::new();
            let whole = b.input("x", DType::I32, &shape);
            let y = b.output("y", DType::I32, &shape);
            let slice_in = b.arena("in", DType::I32, &slice_shape);
            let slice_out = b.arena("out", DType::I32, &slice_shape);
            let extent = slice_shape.iter().product::<usize>() as u64;
            let twice = "((int32_t**)b)[1][i] = 2 * ((int32_t**)b)[0][i];";
            let body = b.kernel_step("twice", extent, &[slice_in, slice_out], twice);
            let mut step = empty_loop(len as u64);
            step.scan_inputs = vec![ScanStep { whole, slice: slice_in, axis, reverse: reverse_in }];
            step.scan_outputs =
                vec![ScanStep { whole: y, slice: slice_out, axis, reverse: reverse_out }];
            step.body = plan(vec![body]);
            b.plan().plan.steps = vec![loop_step(step)];
            let outputs = run(&b.load(), &[("x", &Tensor::from_slice(&shape, &x))]).unwrap();
            let expected: Vec<i32> = (0..24)
                .map(|flat| {
                    let mut index = [flat / 12, flat / 4 % 3, flat % 4];
                    if reverse_in != reverse_out {
                        index[axis] = len - 1 - index[axis];
                    }
                    2 * x[index[0] * 12 + index[1] * 4 + index[2]]
                })
                .collect();
            assert_eq!(outputs[0].as_slice::<i32>(), expected, "{axis} {reverse_in} {reverse_out}");
        }
    }
}

#[test]
fn a_loop_that_ends_early_packs_what_it_stacked_along_an_inner_axis() {
    for (reverse, expected) in [(false, [0i64, 1, 0, 1]), (true, [1, 0, 1, 0])] {
        let mut b = Builder::new();
        let trip = b.weight("trip", &Tensor::scalar(5i64));
        let y = b.output("y", DType::I64, &[2, 5]);
        let slice = b.arena("slice", DType::I64, &[2]);
        let iteration = b.arena("iteration", DType::I64, &[]);
        let go_on = b.arena("go_on", DType::Bool, &[]);
        let code = "int64_t **v = (int64_t**)b; v[1][0] = v[1][1] = *v[0]; *b[2] = *v[0] < 1;";
        let body = b.kernel_step("body", 1, &[iteration, slice, go_on], code);
        let mut step = empty_loop(5);
        step.trip = Some(trip);
        step.iteration = Some(iteration);
        step.condition_out = Some(go_on);
        step.scan_outputs = vec![ScanStep { whole: y, slice, axis: 1, reverse }];
        step.body = plan(vec![body]);
        b.plan().plan.steps = vec![loop_step(step)];
        assert_eq!(run(&b.load(), &[]).unwrap(), [Tensor::from_slice(&[2, 2], &expected)]);
    }
}

/// `NonZero` of the input in the one branch, all indices by a kernel in the other; then a copy.
#[test]
fn actual_sizes_are_tracked_and_forgotten() {
    let mut b = Builder::new();
    let x = b.input("x", DType::I32, &[4]);
    let dynamic = b.input("dynamic", DType::Bool, &[]);
    let found = b.arena("found", DType::I64, &[1, 4]);
    let y = b.output("y", DType::I64, &[1, 4]);
    let host = Step::Host {
        name: "nonzero".to_owned(),
        call: HostOp::NonZero,
        inputs: vec![x],
        outputs: vec![found],
    };
    let all = b.kernel_step("all", 4, &[found], "((int64_t**)b)[0][i] = i;");
    let branch = Step::If {
        name: "if".to_owned(),
        condition: dynamic,
        then_plan: plan(vec![host]),
        else_plan: plan(vec![all]),
    };
    b.plan().plan.steps = vec![branch, Step::Copy { from: found, to: y }];
    let model = b.load();
    let mut session = model.session().unwrap();
    session.profile(true);
    let all = [0i64, 1, 2, 3];
    for (x, dynamic, expected) in [
        ([0, 5, 0, 6], true, &all[1..4][..0]),
        ([1, 1, 1, 1], true, &all[..]),
        ([0, 0, 0, 0], true, &[]),
        ([0, 0, 0, 0], false, &all),
    ] {
        let expected = if x == [0, 5, 0, 6] { &[1i64, 3][..] } else { expected };
        let x = Tensor::from_slice(&[4], &x);
        let dynamic = Tensor::scalar(dynamic);
        let outputs = session.run(&[("x", &x), ("dynamic", &dynamic)]).unwrap();
        assert_eq!(outputs[0].1, Tensor::from_slice(&[1, expected.len()], expected));
        assert_eq!(session.output_shape(0), [1, expected.len()]);
    }
    let times = session.step_times();
    let told: Vec<_> = times.iter().map(|t| (t.kind, t.depth, t.runs)).collect();
    use StepKind::{Copy, Host, If, Kernel};
    assert_eq!(told, [(If, 0, 4), (Host, 1, 3), (Kernel, 1, 1), (Copy, 0, 4)]);
}

#[test]
fn host_errors_name_the_step() {
    let mut b = Builder::new();
    let x = b.input("x", DType::I32, &[4]);
    let y = b.output("y", DType::I64, &[1, 2]);
    let step = |inputs: Vec<BufferId>| Step::Host {
        name: "nz".to_owned(),
        call: HostOp::NonZero,
        inputs,
        outputs: vec![y],
    };
    b.plan().plan.steps = vec![step(vec![x])];
    let input = Tensor::from_slice(&[4], &[1, 1, 1, 0]);
    let error = run(&b.load(), &[("x", &input)]).unwrap_err();
    let result = Some((DType::I64, vec![1, 3]));
    assert_eq!(error, RunError::HostResult { step: "nz".to_owned(), index: 0, result });
    b.plan().plan.steps = vec![step(vec![x, x])];
    let error = run(&b.load(), &[("x", &input)]).unwrap_err();
    assert!(matches!(error, RunError::Host { step, .. } if step == "nz"));
}

#[test]
fn unsound_steps_are_refused() {
    let mut b = Builder::new();
    let x = b.input("x", DType::I64, &[2, 3]);
    let y = b.output("y", DType::I64, &[2, 3]);
    let row = b.arena("row", DType::I64, &[3]);
    let flag = b.arena("flag", DType::Bool, &[]);
    let none = BufferId(77);
    let scan = |whole, slice, axis| ScanStep { whole, slice, axis, reverse: false };
    let with = |max_trip, change: &dyn Fn(&mut LoopStep)| {
        let mut step = empty_loop(max_trip);
        change(&mut step);
        loop_step(step)
    };
    let host = |inputs, outputs| Step::Host {
        name: "h".to_owned(),
        call: HostOp::NonZero,
        inputs,
        outputs,
    };
    let branch = |condition| Step::If {
        name: "b".to_owned(),
        condition,
        then_plan: Plan::default(),
        else_plan: plan(vec![Step::Copy { from: x, to: none }]),
    };
    let cases = [
        (Step::Kernel { kernel: 0, args: vec![] }, "step 0, kernel ``: there is no kernel 0"),
        (Step::Copy { from: none, to: y }, "step 0, copy `y`: there is no buffer 77"),
        (Step::Copy { from: y, to: x }, "`x` is written, but it is read-only"),
        (Step::Copy { from: x, to: row }, "`x` and `row` differ in type or size"),
        (host(vec![none], vec![y]), "host `h`: there is no buffer 77"),
        (host(vec![x], vec![x]), "read-only"),
        (branch(y), "if `b`: the condition is not a scalar of type bool"),
        (branch(flag), "step 1, copy ``: there is no buffer 77"),
        (with(1, &|l| l.trip = Some(flag)), "the trip count is not a scalar of type i64"),
        (with(1, &|l| l.iteration = Some(none)), "no buffer 77"),
        (with(1, &|l| l.initial = vec![x]), "initial values: 1 sources for 0 targets"),
        (with(1, &|l| l.carried_out = vec![x]), "carried values: 1 sources for 0 targets"),
        (with(1, &|l| l.results = vec![y]), "results: 0 sources for 1 targets"),
        (with(3, &|l| l.scan_inputs = vec![scan(x, row, 0)]), "`x` has less than 3 slices"),
        (with(2, &|l| l.scan_inputs = vec![scan(x, row, 2)]), "`x` has no axis 2"),
        (with(2, &|l| l.scan_inputs = vec![scan(x, row, 1)]), "`row` is not a slice of `x`"),
        (with(2, &|l| l.scan_inputs = vec![scan(y, x, 0)]), "`x` is not a slice of `y`"),
        (with(1, &|l| l.scan_outputs = vec![scan(y, row, 0)]), "scan output of 2 for 1"),
        (with(2, &|l| l.scan_outputs = vec![scan(x, row, 0)]), "read-only"),
        (with(1, &|l| l.body = plan(vec![Step::Copy { from: x, to: none }])), "no buffer 77"),
    ];
    for (step, message) in cases {
        b.plan().plan.steps = vec![step];
        let dir = tempfile::tempdir().unwrap();
        let error = Model::load(b.build(dir.path())).expect_err(message).to_string();
        assert!(error.contains(message), "{error:?} does not contain {message:?}");
    }
}

#[test]
fn copies_between_shapes_keep_the_elements() {
    let mut b = Builder::new();
    let x = b.input("x", DType::I64, &[2, 3]);
    let y = b.output("y", DType::I64, &[6]);
    b.plan().plan.steps = vec![Step::Copy { from: x, to: y }];
    assert!(matches!(b.plan().buffers[1].storage, Storage::Output(0)));
    let values = [1i64, 2, 3, 4, 5, 6];
    let outputs = run(&b.load(), &[("x", &Tensor::from_slice(&[2, 3], &values))]).unwrap();
    assert_eq!(outputs, [Tensor::from_slice(&[6], &values)]);
}
