//! Indices out of range: the run fails with an error that says where, and the session goes on.

mod common;

use ansc_runtime::host::HostOp;
use ansc_runtime::manifest::{BufferId, Plan, Step, Storage};
use ansc_runtime::{BadIndex, DType, Model, RunError, SessionOptions, Tensor};
use common::Builder;

fn check(indices: BufferId, extents: &[usize]) -> Step {
    Step::Host {
        name: "lookup".to_owned(),
        call: HostOp::CheckIndices { extents: extents.to_vec() },
        inputs: vec![indices],
        outputs: vec![],
    }
}

fn bad(name: &str, is_input: bool, position: &[usize], index: i64, extent: i64) -> RunError {
    RunError::Index(Box::new(BadIndex {
        node: "lookup".to_owned(),
        tensor: name.to_owned(),
        is_input,
        position: position.to_vec(),
        index,
        legal: -extent..=extent - 1,
    }))
}

/// Outputs `y = x`, after a check of `x: i64[shape]`.
fn checked(shape: &[usize], extents: &[usize]) -> Builder {
    let mut b = Builder::new();
    let x = b.input("x", DType::I64, shape);
    let y = b.output("y", DType::I64, shape);
    b.plan().plan.steps.push(check(x, extents));
    b.plan().plan.steps.push(Step::Copy { from: x, to: y });
    b
}

fn run(model: &Model, threads: usize, x: &Tensor) -> Result<Tensor, RunError> {
    let options = SessionOptions { threads, ..SessionOptions::default() };
    let outputs = model.session_with(&options).unwrap().run(&[("x", x)])?;
    Ok(outputs.into_iter().next().unwrap().1)
}

#[test]
fn the_error_says_where_and_the_session_goes_on() {
    let model = checked(&[2, 3], &[5]).load();
    let mut session = model.session().unwrap();
    let good = Tensor::from_slice(&[2, 3], &[0i64, 4, -5, 1, 2, 3]);
    let wrong = Tensor::from_slice(&[2, 3], &[0i64, 4, -5, 1, -6, 5]);
    for _ in 0..2 {
        let error = session.run(&[("x", &wrong)]).unwrap_err();
        assert_eq!(error, bad("x", true, &[1, 1], -6, 5));
        let said = "node `lookup`: index -6 at [1, 1] of input `x` is out of range; \
                    it must be from -5 to 4";
        assert_eq!(error.to_string(), said);
        assert_eq!(session.run(&[("x", &good)]).unwrap()[0].1, good);
    }
}

#[test]
fn the_first_of_many_is_found_by_any_number_of_threads() {
    let n = 100_000;
    let model = checked(&[n / 2, 2], &[3, 7]).load();
    let mut all: Vec<i64> = (0..n as i64).map(|i| if i % 2 == 0 { i % 3 } else { i % 7 }).collect();
    for threads in [1, 3] {
        assert!(run(&model, threads, &Tensor::from_slice(&[n / 2, 2], &all)).is_ok());
    }
    for at in [n - 1, n / 2, 2, 0] {
        all[at] = 7;
        let x = Tensor::from_slice(&[n / 2, 2], &all);
        let extent = if at % 2 == 0 { 3 } else { 7 };
        for threads in [1, 3] {
            let error = run(&model, threads, &x).unwrap_err();
            assert_eq!(error, bad("x", true, &[at / 2, at % 2], 7, extent));
        }
    }
}

/// A view of an input is called as the input is, and has its positions; what is computed has its
/// own name.
#[test]
fn views_and_computed_indices() {
    let mut b = Builder::new();
    let x = b.input("x", DType::I64, &[2, 2]);
    let flat = b.buffer("flat", DType::I64, &[4], Storage::Input(0));
    let doubled = b.arena("doubled", DType::I64, &[4]);
    b.plan().plan.steps.push(check(flat, &[10]));
    b.step("twice", 4, &[x, doubled], "((int64_t**)b)[1][i] = ((int64_t**)b)[0][i] * 2;");
    b.plan().plan.steps.push(check(doubled, &[10]));
    b.expose("y", doubled);
    let model = b.load();
    let run = |x: [i64; 4]| run(&model, 1, &Tensor::from_slice(&[2, 2], &x));
    assert_eq!(run([1, 2, 3, 4]).unwrap().as_slice::<i64>(), [2, 4, 6, 8]);
    assert_eq!(run([1, 2, 10, 4]), Err(bad("x", true, &[1, 0], 10, 10)));
    assert_eq!(run([1, 2, 3, 5]), Err(bad("doubled", false, &[3], 10, 10)));
}

/// Only the branch that is taken is checked.
#[test]
fn branches() {
    let mut b = Builder::new();
    let x = b.input("x", DType::I64, &[1]);
    let condition = b.arena("condition", DType::Bool, &[]);
    let y = b.output("y", DType::I64, &[1]);
    b.step("is_positive", 1, &[x, condition], "b[1][0] = ((int64_t**)b)[0][0] > 0;");
    b.plan().plan.steps.push(Step::If {
        name: "if".to_owned(),
        condition,
        then_plan: Plan { steps: vec![check(x, &[2])] },
        else_plan: Plan::default(),
    });
    b.plan().plan.steps.push(Step::Copy { from: x, to: y });
    let model = b.load();
    assert!(run(&model, 1, &Tensor::from_slice(&[1], &[-7i64])).is_ok());
    assert!(run(&model, 1, &Tensor::from_slice(&[1], &[1i64])).is_ok());
    let error = run(&model, 1, &Tensor::from_slice(&[1], &[7i64]));
    assert_eq!(error, Err(bad("x", true, &[0], 7, 2)));
}

#[test]
fn scattering_gives_the_same_error() {
    let mut b = Builder::new();
    let data = b.weight("data", &Tensor::from_slice(&[3], &[0f32; 3]));
    let updates = b.weight("updates", &Tensor::from_slice(&[2], &[1f32, 2.0]));
    let x = b.input("x", DType::I64, &[2]);
    let y = b.output("y", DType::F32, &[3]);
    b.plan().plan.steps.push(Step::Host {
        name: "lookup".to_owned(),
        call: HostOp::ScatterElements { axis: 0, mode: ansc_runtime::host::ScatterMode::Add },
        inputs: vec![data, x, updates],
        outputs: vec![y],
    });
    let error = run(&b.load(), 1, &Tensor::from_slice(&[2], &[2i64, 3]));
    assert_eq!(error, Err(bad("x", true, &[1], 3, 3)));
}

#[test]
fn checks_that_make_no_sense_are_refused() {
    // With these extents, numbers of indices, of tensors of floats beside them, and of outputs.
    let load = |extents: &[usize], inputs: usize, floats: usize, outputs: usize| {
        let mut b = Builder::new();
        let x = b.input("x", DType::I64, &[2, 3]);
        let y = b.output("y", DType::F32, &[3]);
        b.plan().plan.steps.push(Step::Host {
            name: "lookup".to_owned(),
            call: HostOp::CheckIndices { extents: extents.to_vec() },
            inputs: [vec![x; inputs], vec![y; floats]].concat(),
            outputs: vec![y; outputs],
        });
        let dir = tempfile::tempdir().unwrap();
        Model::load(b.build(dir.path())).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(load(&[5, 5, 5], 1, 0, 0), Ok(()));
    assert_eq!(load(&[5], 1, 0, 0), Ok(()));
    let no_indices = [load(&[], 1, 0, 0), load(&[5, 5], 1, 0, 0), load(&[5], 0, 1, 0)];
    for result in no_indices {
        let said = result.unwrap_err();
        assert!(said.contains("holds no indices of"), "{said}");
    }
    for result in [load(&[5], 0, 0, 0), load(&[5], 2, 0, 0), load(&[5], 1, 0, 1)] {
        let said = result.unwrap_err();
        assert!(said.contains("one input and no output"), "{said}");
    }
}
