//! Artifacts for several shapes: inputs choose the plan, memory and weights are shared.

mod common;

use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use ansc_runtime::c::{
    AnscStatus, ansc_error_message, ansc_model_free, ansc_model_input, ansc_model_load,
    ansc_model_specialisation_count, ansc_model_specialisation_input,
    ansc_model_specialisation_name, ansc_model_specialisation_output,
};
use ansc_runtime::manifest::{BufferId, Specialisation, Storage};
use ansc_runtime::{DType, Model, PortKind, RunError, StepKind, Tensor, View, ViewMut};
use common::Builder;

const WEIGHTS: [f32; 3] = [2.0, 3.0, 5.0];

/// `t = x * w`, `y = t + x` with `x: [n, 3]`, for each `n` of `batches`, with one copy of `w`.
fn scaled(batches: &[usize]) -> Builder {
    let mut b = Builder::new();
    let first = b.weight("w", &Tensor::from_slice(&[3], &WEIGHTS));
    let w = b.plan().buffers[first.0 as usize].clone();
    b.manifest.specialisations.clear();
    for &n in batches {
        let name = format!("batch={n}");
        b.manifest.specialisations.push(Specialisation { name, ..Specialisation::default() });
        b.plan().buffers.push(w.clone());
        let x = b.input("x", DType::F32, &[n, 3]);
        let t = b.arena("t", DType::F32, &[n, 3]);
        let y = b.output("y", DType::F32, &[n, 3]);
        b.step(
            &format!("scale_{n}"),
            3 * n as u64,
            &[x, BufferId(0), t],
            "((float**)b)[2][i] = ((float**)b)[0][i] * ((float**)b)[1][i % 3];",
        );
        b.step(
            &format!("add_{n}"),
            3 * n as u64,
            &[x, t, y],
            "((float**)b)[2][i] = ((float**)b)[0][i] + ((float**)b)[1][i];",
        );
    }
    b
}

fn input(n: usize) -> Tensor {
    let values: Vec<f32> = (0..3 * n).map(|i| i as f32).collect();
    Tensor::from_slice(&[n, 3], &values)
}

fn expected(n: usize) -> Tensor {
    let values: Vec<f32> = (0..3 * n).map(|i| i as f32 * (WEIGHTS[i % 3] + 1.0)).collect();
    Tensor::from_slice(&[n, 3], &values)
}

#[test]
fn the_shapes_of_the_inputs_choose() {
    let model = scaled(&[1, 16, 4]).load();
    assert_eq!(model.specialisations().len(), 3);
    assert_eq!(model.inputs()[0].shape, [1, 3]);
    let mut session = model.session().unwrap();
    for n in [4, 1, 16, 16, 1, 4] {
        let outputs = session.run(&[("x", &input(n))]).unwrap();
        assert_eq!(outputs, [("y".to_owned(), expected(n))]);
        assert_eq!(session.specialisation().name, format!("batch={n}"));
        assert_eq!(
            (session.output_shape(0), &session.inputs()[0].shape[..]),
            (&[n, 3][..], &[n, 3][..])
        );
    }
    assert_eq!(model.specialisation(&[("x", &[16, 3])]).unwrap().name, "batch=16");
    assert_eq!(model.specialisation(&[]).unwrap().name, "batch=1");
    assert!(model.specialisation(&[("z", &[16, 3])]).is_err());
}

#[test]
fn the_callers_memory_has_the_shape_of_the_choice() {
    let mut session = scaled(&[1, 4]).load().session().unwrap();
    let x = input(4);
    let mut y = [0f32; 12];
    session
        .run_into(
            &[("x", View::from(&x))],
            &mut [("y", ViewMut::of_slice(&[4, 3], &mut y).unwrap())],
        )
        .unwrap();
    assert_eq!(y, expected(4).as_slice::<f32>());
    let wrong = &mut [("y", ViewMut::of_slice(&[1, 3], &mut y[..3]).unwrap())];
    let error = session.run_into(&[("x", View::from(&x))], wrong).unwrap_err();
    let kind = PortKind::Output;
    let (expected, found) = (vec![4, 3], vec![1, 3]);
    assert_eq!(error, RunError::Shape { kind, name: "y".into(), expected, found });
}

#[test]
fn what_no_specialisation_takes_is_refused_with_all_there_are() {
    let mut session = scaled(&[1, 4]).load().session().unwrap();
    session.run(&[("x", &input(4))]).unwrap();
    let error = session.run(&[("x", &input(2))]).unwrap_err();
    assert!(matches!(&error, RunError::Specialisation { available, .. } if available.len() == 2));
    let message = "the model was not compiled for x [2, 3], only for x [1, 3]; x [4, 3]";
    assert_eq!(error.to_string(), message);
    let halves = Tensor::zeros(DType::F16, &[4, 3]);
    assert!(matches!(session.run(&[("x", &halves)]), Err(RunError::Type { .. })));
    assert!(matches!(session.run(&[]), Err(RunError::Missing { .. })));
    // The session is as good as before.
    assert_eq!(session.run(&[("x", &input(1))]).unwrap()[0].1, expected(1));
}

#[test]
fn profiles_are_of_the_last_choice() {
    let mut session = scaled(&[1, 4]).load().session().unwrap();
    session.profile(true);
    for n in [1, 4, 4] {
        session.run(&[("x", &input(n))]).unwrap();
    }
    let steps = session.step_times();
    let seen: Vec<_> = steps.iter().map(|s| (s.name.as_str(), s.kind, s.runs)).collect();
    assert_eq!(seen, [("scale_4", StepKind::Kernel, 2), ("add_4", StepKind::Kernel, 2)]);
    session.profile(false);
    session.run(&[("x", &input(4))]).unwrap();
    assert!(session.step_times().is_empty());
}

#[test]
fn weights_are_stored_once() {
    let b = scaled(&[1, 16]);
    let arena = |i: usize| b.manifest.specialisations[i].arena_bytes;
    assert_eq!((arena(0), arena(1), b.manifest.weight_bytes), (64, 192, 64));
}

type Change = fn(&mut Builder);

const UNSOUND: [(Change, &str); 6] = [
    (|b| b.manifest.specialisations.clear(), "specialisations: there is none"),
    (|b| b.plan().outputs[0].name = "z".into(), "`batch=4`: it has other inputs or outputs"),
    (|b| b.plan().outputs.clear(), "a port that does not exist"),
    (|b| b.plan().plan.steps.clear(), ""),
    (|b| b.plan().arena_bytes = 0, "exceed the 0"),
    (
        |b| {
            let first = b.manifest.specialisations[0].clone();
            *b.plan() = Specialisation { name: "again".into(), ..first };
        },
        "`again`: another one takes inputs of the same shapes",
    ),
];

#[test]
fn unsound_specialisations_are_refused() {
    for (change, problem) in UNSOUND {
        let mut b = scaled(&[1, 4]);
        change(&mut b);
        let dir = tempfile::tempdir().unwrap();
        match Model::load(b.build(dir.path())) {
            // An empty plan is sound, if useless.
            Ok(_) => assert_eq!(problem, ""),
            Err(error) => assert!(
                !problem.is_empty() && error.to_string().contains(problem),
                "`{error}` does not say `{problem}`"
            ),
        }
    }
}

#[test]
fn a_weight_beyond_the_section_is_found_in_every_specialisation() {
    let mut b = scaled(&[1, 4]);
    b.plan().buffers[0].storage = Storage::Weight { offset: 64 };
    let dir = tempfile::tempdir().unwrap();
    let error = Model::load(b.build(dir.path())).unwrap_err().to_string();
    assert!(error.contains("buffer 0 `w`: 12 bytes at 64 exceed the 64"), "{error}");
}

#[test]
fn c_sees_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(scaled(&[1, 4]).build(dir.path()).to_str().unwrap()).unwrap();
    let mut model = null_mut();
    // SAFETY: all pointers are valid; the model is freed last.
    unsafe {
        assert_eq!(ansc_model_load(path.as_ptr(), &raw mut model), AnscStatus::Ok);
        assert_eq!(ansc_model_specialisation_count(model), 2);
        assert_eq!(CStr::from_ptr(ansc_model_specialisation_name(model, 1)), c"batch=4");
        assert!(ansc_model_specialisation_name(model, 2).is_null());
        let mut port = std::mem::zeroed();
        assert_eq!(ansc_model_input(model, 0, &raw mut port), AnscStatus::Ok);
        assert_eq!((port.bytes, *port.shape), (12, 1));
        for describe in [ansc_model_specialisation_input, ansc_model_specialisation_output] {
            assert_eq!(describe(model, 1, 0, &raw mut port), AnscStatus::Ok);
            assert_eq!((port.bytes, *port.shape, port.rank), (48, 4, 2));
        }
        let status = ansc_model_specialisation_input(model, 2, 0, &raw mut port);
        assert_eq!(status, AnscStatus::Argument);
        let message = CStr::from_ptr(ansc_error_message());
        assert_eq!(message, c"specialisation 2 of 2");
        ansc_model_free(model);
    }
}
