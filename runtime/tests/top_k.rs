//! `TopK` as a step of a plan: on the run's own memory and threads, and on copies where memory is
//! shared.

mod common;

use ansc_runtime::host::{HostError, HostOp};
use ansc_runtime::manifest::{BufferId, Step, Storage};
use ansc_runtime::{DType, RunError, SessionOptions, Tensor};
use common::Builder;

fn top(axis: usize, k: usize, x: BufferId, outputs: &[BufferId]) -> Step {
    Step::Host {
        name: "top".to_owned(),
        call: HostOp::TopK { axis, k, at_most: false, largest: true, sorted: true },
        inputs: vec![x],
        outputs: outputs.to_vec(),
    }
}

fn options(threads: usize) -> SessionOptions {
    SessionOptions { threads, ..SessionOptions::default() }
}

#[test]
fn any_number_of_threads_gives_the_same() {
    let (outer, extent, inner) = (3, 40, 700);
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[outer, extent, inner]);
    let values = b.output("values", DType::F32, &[outer, 1, inner]);
    let indices = b.output("indices", DType::I64, &[outer, 1, inner]);
    b.plan().plan.steps.push(top(1, 1, x, &[values, indices]));
    let model = b.load();
    // The largest element of a lane is 9, at an index of the lane's own.
    let best = |lane: usize| (lane * 7 + lane / 40) % extent;
    let data: Vec<f32> = (0..outer * extent * inner)
        .map(|at| {
            let lane = at / (extent * inner) * inner + at % inner;
            if at / inner % extent == best(lane) { 9.0 } else { -(at as f32) }
        })
        .collect();
    let x = Tensor::from_slice(&[outer, extent, inner], &data);
    let expected: Vec<i64> = (0..outer * inner).map(|lane| best(lane) as i64).collect();
    for threads in [1, 2, 3, 16] {
        let mut session = model.session_with(&options(threads)).unwrap();
        for _ in 0..3 {
            let outputs = session.run(&[("x", &x)]).unwrap();
            assert!(outputs[0].1.as_slice::<f32>().iter().all(|&v| v == 9.0));
            assert_eq!(outputs[1].1.as_slice::<i64>(), expected, "{threads} threads");
        }
    }
}

#[test]
fn results_may_lie_where_the_input_lies() {
    let mut b = Builder::new();
    let x = b.input("x", DType::I64, &[2, 3]);
    let y = b.output("y", DType::I64, &[2, 2]);
    let at = b.output("at", DType::I64, &[2, 2]);
    let copy = b.arena("copy", DType::I64, &[2, 3]);
    let values = b.buffer("values", DType::I64, &[2, 2], Storage::Arena { offset: 0 });
    b.plan().plan.steps = vec![
        Step::Copy { from: x, to: copy },
        top(1, 2, copy, &[values, at]),
        Step::Copy { from: values, to: y },
    ];
    let x = Tensor::from_slice(&[2, 3], &[1i64, 2, 3, 6, 4, 5]);
    let outputs = b.load().session().unwrap().run(&[("x", &x)]).unwrap();
    assert_eq!(outputs[0].1.as_slice::<i64>(), [3, 2, 6, 5]);
    assert_eq!(outputs[1].1.as_slice::<i64>(), [2, 1, 0, 2]);
}

#[test]
fn the_data_decides_how_much_there_is() {
    let mut b = Builder::new();
    let x = b.input("x", DType::I32, &[2, 2]);
    let found = b.arena("found", DType::I64, &[2, 4]);
    let values = b.output("values", DType::I64, &[1, 4]);
    let indices = b.output("indices", DType::I64, &[1, 4]);
    let along = b.arena("along", DType::I64, &[2, 2]);
    let at = b.arena("at", DType::I64, &[2, 2]);
    b.plan().plan.steps = vec![
        Step::Host {
            name: "nonzero".to_owned(),
            call: HostOp::NonZero,
            inputs: vec![x],
            outputs: vec![found],
        },
        top(0, 1, found, &[values, indices]),
        top(1, 2, found, &[along, at]),
    ];
    let mut session = b.load().session().unwrap();
    let mut run = |x: [i32; 4]| session.run(&[("x", &Tensor::from_slice(&[2, 2], &x))]);
    // Rows and columns of what is not 0: (0, 1), (1, 0), (1, 1).
    let outputs = run([0, 1, 1, 1]).unwrap();
    assert_eq!(outputs[0].1, Tensor::from_slice(&[1, 3], &[1i64, 1, 1]));
    assert_eq!(outputs[1].1, Tensor::from_slice(&[1, 3], &[1i64, 0, 0]));
    let source = HostError::TooMany { op: "TopK", wanted: 2, extent: 1 };
    assert_eq!(run([0, 0, 0, 1]).unwrap_err(), RunError::Host { step: "top".to_owned(), source });
    assert_eq!(run([1, 1, 1, 1]).unwrap()[0].1.shape(), [1, 4]);
}
