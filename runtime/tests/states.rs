//! Tensors that sessions keep from run to run.

mod common;

use ansc_runtime::host::HostOp;
use ansc_runtime::manifest::{BufferId, Port, State, Step, Storage};
use ansc_runtime::{DType, Extent, Model, PortKind, RunError, Session, Tensor, View};
use common::Builder;

const ROOM: usize = 8;

fn sum(a: u32, b: u32) -> Extent {
    Extent::Sum(vec![Extent::Size(a), Extent::Size(b)])
}

/// `x: [2, n]` with 1 to 4 columns goes behind `past: [2, p]` in a room of 8. `total` sums all that
/// is there, over the zeros behind it, and `last` is the number of columns before.
fn appending() -> Builder {
    let mut b = Builder::new();
    let [n, p] = [b.size("n", 1, 4), b.size("p", 0, 7)];
    let x = b.input("x", DType::F32, &[2, 4]);
    let rows = Extent::Constant(2);
    b.vary("x", &[rows.clone(), Extent::Size(0)]);
    let before = [rows.clone(), Extent::Size(1)];
    let after = [rows, sum(0, 1)];
    let past = b.state(["past", "present"], DType::F32, &[2, ROOM], [&before, &after]);
    let total = b.output("total", DType::F32, &[2]);
    b.expose("last", p);
    let call = HostOp::Append { axis: 1, at: Extent::Size(1), count: Extent::Size(0), each: false };
    let (inputs, outputs) = (vec![past, x, n, p], vec![past]);
    b.plan().plan.steps.push(Step::Host { name: "append".into(), call, inputs, outputs });
    let body = "float **f = b; float t = 0; for (int k = 0; k < 8; ++k) t += f[0][8 * i + k]; \
                f[1][i] = t;";
    b.step("total", 2, &[past, total], body);
    b
}

fn columns(from: f32, n: usize) -> Tensor {
    let all: Vec<f32> = (0..2 * n).map(|i| from + i as f32).collect();
    Tensor::from_slice(&[2, n], &all)
}

/// One run; the sums of the two rows.
fn run(session: &mut Session, x: &Tensor) -> Result<[f32; 2], RunError> {
    let outputs = session.run(&[("x", x)])?;
    let names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["total", "last"]);
    let total = outputs[0].1.as_slice::<f32>();
    Ok([total[0], total[1]])
}

fn sums(tensor: &Tensor) -> [f32; 2] {
    let n = tensor.shape()[1];
    let all = tensor.as_slice::<f32>();
    [all[..n].iter().sum(), all[n..].iter().sum()]
}

#[test]
fn runs_add_to_a_state() {
    let model = appending().load();
    assert_eq!((model.inputs().len(), model.outputs().len()), (1, 2));
    let mut session = model.session().unwrap();
    assert_eq!(session.states().len(), 1);
    assert_eq!(session.state("past").unwrap().shape(), [2, 0]);
    assert_eq!(session.output_shapes(&[("x", &[2, 3])]), Ok(vec![vec![2], vec![]]));
    for (from, n, length) in [(1.0, 3, 3), (10.0, 1, 4), (20.0, 4, 8)] {
        let total = run(&mut session, &columns(from, n)).unwrap();
        let state = session.state("past").unwrap();
        assert_eq!((state.shape(), total), (&[2, length][..], sums(&state)));
    }
    let expected = [1f32, 2., 3., 10., 20., 21., 22., 23., 4., 5., 6., 11., 24., 25., 26., 27.];
    assert_eq!(session.state("past").unwrap(), Tensor::from_slice(&[2, 8], &expected));
    let mut other = model.session().unwrap();
    assert_eq!(run(&mut other, &columns(5.0, 1)), Ok([5.0, 6.0]));
}

#[test]
fn a_full_state_is_an_error_that_changes_nothing() {
    let mut session = appending().load().session().unwrap();
    run(&mut session, &columns(1.0, 4)).unwrap();
    run(&mut session, &columns(1.0, 3)).unwrap();
    let error = run(&mut session, &columns(1.0, 2)).unwrap_err();
    assert!(matches!(&error, RunError::Full { kept } if kept[0].shape == [2, 7]), "{error}");
    assert_eq!(
        error.to_string(),
        "the session keeps past [2, 7], and the model was not compiled for more; `reset` or \
         `truncate` the session, or compile the model for a longer range"
    );
    assert!(run(&mut session, &columns(1.0, 1)).is_ok());
    // The wrong shape is still what it was.
    let x = Tensor::from_slice(&[3, 1], &[0f32; 3]);
    assert!(matches!(session.run(&[("x", &x)]), Err(RunError::Specialisation { .. })));
}

#[test]
fn a_state_can_be_cut_and_forgotten() {
    let mut session = appending().load().session().unwrap();
    run(&mut session, &columns(1.0, 4)).unwrap();
    session.truncate(2).unwrap();
    session.truncate(9).unwrap();
    assert_eq!(session.state("past").unwrap(), Tensor::from_slice(&[2, 2], &[1f32, 2., 5., 6.]));
    // Sums run over the room: nothing of what was cut is there.
    assert_eq!(run(&mut session, &columns(10.0, 1)), Ok([13.0, 22.0]));
    session.truncate(0).unwrap();
    assert_eq!(run(&mut session, &columns(3.0, 1)), Ok([3.0, 4.0]));
    session.reset();
    assert_eq!(session.state("past").unwrap().shape(), [2, 0]);
    assert_eq!(run(&mut session, &columns(7.0, 2)), Ok([15.0, 19.0]));
}

#[test]
fn a_state_can_be_saved_and_given_back() {
    let model = appending().load();
    let mut session = model.session().unwrap();
    run(&mut session, &columns(1.0, 3)).unwrap();
    let saved = session.state("past").unwrap();
    let expected = run(&mut session, &columns(9.0, 2));
    let mut other = model.session().unwrap();
    run(&mut other, &columns(100.0, 4)).unwrap();
    other.set_state("past", View::from(&saved)).unwrap();
    assert_eq!(run(&mut other, &columns(9.0, 2)), expected);
    let set = |session: &mut Session, name: &str, value: &Tensor| {
        session.set_state(name, View::from(value)).unwrap_err()
    };
    let error = set(&mut session, "present", &saved);
    let known = ["past".to_owned()];
    let is_unknown = |error: &RunError| {
        matches!(error, RunError::Unknown { kind: PortKind::State, known: names, .. }
            if names[..] == known)
    };
    assert!(is_unknown(&error) && is_unknown(&session.state("x").unwrap_err()));
    let long = set(&mut session, "past", &columns(0.0, 9));
    assert!(matches!(long, RunError::Shape { kind: PortKind::State, .. }), "{long}");
    let ints = set(&mut session, "past", &Tensor::from_slice(&[2, 1], &[0i32; 2]));
    assert!(matches!(ints, RunError::Type { kind: PortKind::State, .. }), "{ints}");
}

/// `h: [3]` becomes `0.5 * h + x` in other memory; `y` is what it becomes.
fn moving() -> Builder {
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[3]);
    let h = b.buffer("h", DType::F32, &[3], Storage::State(0));
    let next = b.buffer("hn", DType::F32, &[3], Storage::NextState(0));
    let port = |name: &str, buffer: BufferId| Port {
        name: name.to_owned(),
        dtype: DType::F32,
        shape: vec![3],
        extents: vec![],
        buffer,
        dense: false,
        bound: None,
    };
    b.plan().states.push(State { input: port("h", h), output: port("hn", next) });
    b.step("step", 3, &[h, x, next], "float **f = b; f[2][i] = 0.5f * f[0][i] + f[1][i];");
    b.expose("y", next);
    b
}

#[test]
fn a_state_may_be_another_tensor_after_each_run() {
    let model = moving().load();
    let mut session = model.session().unwrap();
    let x = Tensor::from_slice(&[3], &[1f32, 2., 4.]);
    let mut expected = [0f32; 3];
    for _ in 0..5 {
        for (h, x) in expected.iter_mut().zip(x.as_slice::<f32>()) {
            *h = 0.5 * *h + x;
        }
        let outputs = session.run(&[("x", &x)]).unwrap();
        assert_eq!(outputs[0].1.as_slice::<f32>(), expected);
        assert_eq!(session.state("h").unwrap().as_slice::<f32>(), expected);
    }
    let error = session.truncate(1).unwrap_err();
    assert_eq!(error, RunError::Truncate { name: "h".into() });
    session.reset();
    assert_eq!(session.state("h").unwrap().as_slice::<f32>(), [0f32; 3]);
    assert_eq!(session.run(&[("x", &x)]).unwrap()[0].1, x);
}

/// A run that fails after it has appended leaves the state as it was.
#[test]
fn a_run_that_fails_adds_nothing() {
    let mut b = appending();
    let indices = b.input("indices", DType::I64, &[1]);
    let call = HostOp::CheckIndices { extents: vec![5] };
    let (inputs, outputs) = (vec![indices], vec![]);
    b.plan().plan.steps.push(Step::Host { name: "gather".into(), call, inputs, outputs });
    let mut session = b.load().session().unwrap();
    let mut run = |x: &Tensor, index: i64| {
        let outputs = session.run(&[("x", x), ("indices", &Tensor::from_slice(&[1], &[index]))])?;
        Ok::<_, RunError>(outputs[0].1.as_slice::<f32>().to_vec())
    };
    assert_eq!(run(&columns(1.0, 2), 4), Ok(vec![3.0, 7.0]));
    assert!(matches!(run(&columns(50.0, 3), 5), Err(RunError::Index(_))));
    assert_eq!(run(&columns(1.0, 1), 0), Ok(vec![4.0, 9.0]));
}

type Damage = (fn(&mut Builder), &'static str);

#[test]
fn damaged_states_are_found() {
    let cases: [Damage; 9] = [
        (|b| b.plan().states[0].output.shape = vec![2, 9], "leaves another type than it finds"),
        (|b| b.plan().states[0].input.name = "x".into(), "the name is used twice"),
        (|b| b.plan().states[0].output.name = "total".into(), "the name is used twice"),
        (|b| b.plan().buffers[3].storage = Storage::NextState(0), "`past`: its buffers are not"),
        (|b| b.plan().sizes[1].high = 9, "no room for its shape"),
        (|b| b.plan().states[0].output.extents.truncate(1), "1 extents for 2 axes"),
        (|b| b.plan().states[0].input.extents[1] = Extent::Constant(1), "no input has an axis"),
        (|b| b.plan().states.clear(), "size `p`: no input has an axis of it"),
        (|b| b.plan().buffers[3].storage = Storage::State(1), "a port that does not exist"),
    ];
    for (damage, expected) in cases {
        let mut b = appending();
        damage(&mut b);
        let dir = tempfile::tempdir().unwrap();
        let error = Model::load(b.build(dir.path())).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // A state that is not changed in place is not written where it lies.
    let mut b = moving();
    let Step::Kernel { args, .. } = &mut b.plan().plan.steps[0] else { panic!("a kernel") };
    args[2] = args[0];
    let dir = tempfile::tempdir().unwrap();
    let error = Model::load(b.build(dir.path())).unwrap_err().to_string();
    assert!(error.contains("`h` is written, but it is read-only"), "{error}");
}
