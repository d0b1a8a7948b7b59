//! Running models: values, checks of what the caller gives, memory of the caller.

mod common;

use ansc_runtime::manifest::Storage;
use ansc_runtime::{DType, PortKind, RunError, SessionOptions, StepKind, Tensor, View, ViewMut};
use common::{Builder, sample, sample_result};

const X: [f32; 8] = [1.0, -2.0, 3.0, 0.5, 0.0, 7.0, -1.0, 2.0];

fn options(threads: usize) -> SessionOptions {
    SessionOptions { threads, ..SessionOptions::default() }
}

#[test]
fn gives_the_expected_values_with_any_number_of_threads() {
    let model = sample().load();
    let (y, sum) = sample_result(&X);
    for threads in [1, 2, 3, 16] {
        let mut session = model.session_with(&options(threads)).unwrap();
        assert_eq!(session.threads(), threads);
        for _ in 0..3 {
            let outputs = session.run(&[("x", &Tensor::from_slice(&[2, 4], &X))]).unwrap();
            assert_eq!(outputs[0], ("y".to_owned(), Tensor::from_slice(&[2, 4], &y)));
            assert_eq!(outputs[1], ("sum".to_owned(), Tensor::scalar(sum)));
        }
    }
}

#[test]
fn the_callers_memory_is_used_directly() {
    let mut b = Builder::new();
    let x = b.input("x", DType::I64, &[2]);
    let y = b.output("y", DType::I64, &[2]);
    b.step(
        "where",
        1,
        &[x, y],
        "((int64_t**)b)[1][0] = (int64_t)b[0]; ((int64_t**)b)[1][1] = (int64_t)b[1];",
    );
    let mut session = b.load().session().unwrap();
    let (x, mut y) = ([0i64; 2], [0i64; 2]);
    let expected = [x.as_ptr() as i64, y.as_ptr() as i64];
    session
        .run_into(
            &[("x", View::of_slice(&[2], &x).unwrap())],
            &mut [("y", ViewMut::of_slice(&[2], &mut y).unwrap())],
        )
        .unwrap();
    assert_eq!(y, expected);
}

#[test]
fn memory_of_any_alignment_works() {
    let mut session = sample().load().session().unwrap();
    let (expected, _) = sample_result(&X);
    let mut bytes = [0u8; 33];
    let mut out = [0u8; 33];
    for shift in [0, 1] {
        bytes[shift..shift + 32].copy_from_slice(Tensor::from_slice(&[8], &X).bytes());
        let input = View::new(DType::F32, &[2, 4], &bytes[shift..shift + 32]).unwrap();
        let output = ViewMut::new(DType::F32, &[2, 4], &mut out[shift..shift + 32]).unwrap();
        session.run_into(&[("x", input)], &mut [("y", output)]).unwrap();
        assert_eq!(&out[shift..shift + 32], Tensor::from_slice(&[8], &expected).bytes());
    }
}

#[test]
fn wrong_inputs_and_outputs_are_refused() {
    let mut session = sample().load().session().unwrap();
    let good = Tensor::from_slice(&[2, 4], &X);
    let (wrong_type, wrong_shape) =
        (Tensor::zeros(DType::F64, &[2, 4]), good.clone().reshaped(&[8]));
    let (kind, name) = (PortKind::Input, || "x".to_owned());
    let cases: [(&[(&str, &Tensor)], RunError); 5] = [
        (&[], RunError::Missing { name: name() }),
        (
            &[("x", &good), ("z", &good)],
            RunError::Unknown { kind, name: "z".to_owned(), known: vec![name()] },
        ),
        (&[("x", &good), ("x", &good)], RunError::Duplicate { kind, name: name() }),
        (
            &[("x", &wrong_type)],
            RunError::Type { kind, name: name(), expected: DType::F32, found: DType::F64 },
        ),
        (
            &[("x", &wrong_shape)],
            RunError::Shape { kind, name: name(), expected: vec![2, 4], found: vec![8] },
        ),
    ];
    for (inputs, expected) in cases {
        assert_eq!(session.run(inputs).unwrap_err(), expected);
    }
    let mut outputs = |names: &[&str], dtype| {
        let mut tensors: Vec<Tensor> = names.iter().map(|_| Tensor::zeros(dtype, &[])).collect();
        let mut views: Vec<_> =
            names.iter().copied().zip(tensors.iter_mut().map(ViewMut::from)).collect();
        session.run_into(&[("x", View::from(&good))], &mut views)
    };
    assert!(matches!(
        outputs(&["y"], DType::F32),
        Err(RunError::Shape { kind: PortKind::Output, .. })
    ));
    assert!(matches!(
        outputs(&["sum"], DType::I8),
        Err(RunError::Type { kind: PortKind::Output, .. })
    ));
    assert!(matches!(
        outputs(&["s"], DType::F32),
        Err(RunError::Unknown { kind: PortKind::Output, .. })
    ));
    assert!(matches!(outputs(&["sum", "sum"], DType::F32), Err(RunError::Duplicate { .. })));
    assert_eq!(outputs(&["sum"], DType::F32), Ok(()));
}

#[test]
fn bound_inputs_take_their_value_and_no_other() {
    let mut b = sample();
    let fixed = Tensor::from_slice(&[2], &[3i64, 4]);
    let bound = b.weight("steps", &fixed);
    let port = b.input("steps", DType::I64, &[2]);
    b.plan().inputs[1].bound = Some(bound);
    b.expose("copy", port);
    let mut session = b.load().session().unwrap();
    let x = Tensor::from_slice(&[2, 4], &X);
    for inputs in [&[("x", &x)][..], &[("x", &x), ("steps", &fixed)]] {
        assert_eq!(session.run(inputs).unwrap()[2].1, fixed);
    }
    let other = Tensor::from_slice(&[2], &[3i64, 5]);
    let error = session.run(&[("x", &x), ("steps", &other)]).unwrap_err();
    assert_eq!(error, RunError::Bound { name: "steps".to_owned() });
}

#[test]
fn outputs_may_be_inputs_weights_and_values_in_between() {
    let mut b = sample();
    for (name, buffer) in [("in", 0), ("weight", 1), ("middle", 2), ("again", 3)] {
        b.expose(name, ansc_runtime::manifest::BufferId(buffer));
    }
    let mut session = b.load().session().unwrap();
    let outputs = session.run(&[("x", &Tensor::from_slice(&[2, 4], &X))]).unwrap();
    let values: Vec<&[f32]> = outputs.iter().map(|(_, t)| t.as_slice()).collect();
    assert_eq!(values[2], X);
    assert_eq!(values[3], common::WEIGHTS);
    assert!(values[4].iter().zip(X).zip(common::WEIGHTS).all(|((m, x), w)| *m == x * w));
    assert_eq!(values[5], values[0]);
}

/// An exabyte can be addressed, and is on no machine.
#[test]
fn an_output_without_memory_is_an_error() {
    let mut b = Builder::new();
    let small = b.output("small", DType::I64, &[]);
    b.output("large", DType::U8, &[1 << 30, 1 << 30]);
    b.step("seven", 1, &[small], "((int64_t **)b)[0][0] = 7;");
    let mut session = b.load().session().unwrap();
    let no_memory = |error: RunError| {
        let text = error.to_string();
        assert!(text.contains("`large`") && text.contains("1152921504606846976 bytes"), "{text}");
        assert!(matches!(error, RunError::Memory { .. }) && error.is_of_the_machine());
    };
    no_memory(session.run(&[]).unwrap_err());
    // Nor is there any for one that the caller does not want.
    let mut seven = Tensor::zeros(DType::I64, &[]);
    let mut wanted = [("small", (&mut seven).into())];
    no_memory(session.run_into(&[], &mut wanted).unwrap_err());
}

#[test]
fn each_thread_has_scratch_of_its_own() {
    let mut b = Builder::new();
    let y = b.output("y", DType::I64, &[64]);
    let kernel = b.kernel(
        "reverse",
        64,
        (800, &[y]),
        "int64_t *t = (int64_t *)s; for (int k = 0; k < 100; ++k) t[k] = i + k; \
         int64_t sum = 0; for (int r = 0; r < 200; ++r) for (int k = 0; k < 100; ++k) sum += ((volatile int64_t *)t)[k]; \
         ((int64_t**)b)[0][i] = sum + ((int64_t)s & 63);",
    );
    b.plan().plan.steps.push(ansc_runtime::manifest::Step::Kernel { kernel, args: vec![y] });
    let mut session = b.load().session_with(&options(4)).unwrap();
    let outputs = session.run(&[]).unwrap();
    let expected: Vec<i64> = (0..64).map(|i| 200 * (100 * i + 4950)).collect();
    assert_eq!(outputs[0].1.as_slice::<i64>(), expected);
}

#[test]
fn arena_and_weights_are_aligned() {
    let mut b = sample();
    let out = b.output("at", DType::I64, &[2]);
    let (weight, arena) =
        (ansc_runtime::manifest::BufferId(1), ansc_runtime::manifest::BufferId(2));
    assert!(matches!(b.plan().buffers[2].storage, Storage::Arena { .. }));
    b.step("at", 2, &[weight, arena, out], "((int64_t**)b)[2][i] = (int64_t)b[i] & 63;");
    let mut session = b.load().session().unwrap();
    let outputs = session.run(&[("x", &Tensor::from_slice(&[2, 4], &X))]).unwrap();
    assert_eq!(outputs[2].1.as_slice::<i64>(), [0, 0]);
}

#[test]
fn steps_are_timed_on_demand() {
    let mut session = sample().load().session().unwrap();
    let x = Tensor::from_slice(&[2, 4], &X);
    session.run(&[("x", &x)]).unwrap();
    assert!(session.step_times().is_empty());
    session.profile(true);
    for _ in 0..3 {
        session.run(&[("x", &x)]).unwrap();
    }
    let times = session.step_times();
    assert_eq!(
        times.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
        ["scale", "add", "total"]
    );
    assert!(times.iter().all(|t| t.runs == 3 && t.kind == StepKind::Kernel && !t.total.is_zero()));
    session.profile(false);
    assert!(session.step_times().is_empty());
}
