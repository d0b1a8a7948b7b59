//! Tensors that sessions keep from run to run, by the C interface.

mod common;

use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

use ansc_runtime::c::{
    AnscDtype, AnscInput, AnscModel, AnscOutput, AnscPort, AnscSession, AnscStatus,
    ansc_error_message, ansc_model_free, ansc_model_load, ansc_model_output_shape,
    ansc_model_state, ansc_model_state_count, ansc_session_free, ansc_session_get_state,
    ansc_session_new, ansc_session_reset, ansc_session_run, ansc_session_set_state,
    ansc_session_shape_of_output, ansc_session_state_shape, ansc_session_truncate,
};
use ansc_runtime::manifest::{BufferId, Port, State, Storage};
use ansc_runtime::{DType, Extent};
use common::Builder;

const F32: u32 = AnscDtype::F32 as u32;
const ROOM: usize = 8;

/// `x: [1, n]` with 1 to 4 columns goes behind `past: [1, p]` in a room of 8. `sum` is that of all
/// that is there, over the zeros behind it, and `seen: [1, p + n]` is a copy.
fn appending() -> Builder {
    let mut b = Builder::new();
    let [n, p] = [b.size("n", 1, 4), b.size("p", 0, ROOM - 1)];
    let x = b.input("x", DType::F32, &[1, 4]);
    let one = Extent::Constant(1);
    let after = [one.clone(), Extent::Sum(vec![Extent::Size(1), Extent::Size(0)])];
    b.vary("x", &[one.clone(), Extent::Size(0)]);
    let extents: [&[Extent]; 2] = [&[one, Extent::Size(1)], &after];
    let past = b.state(["past", "present"], DType::F32, &[1, ROOM], extents);
    let sum = b.output("sum", DType::F32, &[]);
    // The largest sizes together are more than there is room for.
    let seen = b.output("seen", DType::F32, &[1, ROOM - 1 + 4]);
    b.vary("seen", &after);
    b.step(
        "append",
        1,
        &[n, p, x, past],
        "float **f = b; int64_t p = *(int64_t *)b[1]; \
         for (int k = 0; k < *(int64_t *)b[0]; ++k) f[3][p + k] = f[2][k];",
    );
    b.step(
        "sum",
        1,
        &[past, sum, seen],
        "float **f = b; f[1][0] = 0; \
         for (int k = 0; k < 8; ++k) { f[1][0] += f[0][k]; f[2][k] = f[0][k]; }",
    );
    b
}

/// `h: [3]` becomes `h + x` in other memory.
fn moving() -> Builder {
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[3]);
    let h = b.buffer("h", DType::F32, &[3], Storage::State(0));
    let next = b.buffer("hn", DType::F32, &[3], Storage::NextState(0));
    let port = |name: &str, buffer: BufferId| {
        let (name, shape) = (name.to_owned(), vec![3]);
        Port { name, dtype: DType::F32, shape, extents: vec![], dense: false, buffer, bound: None }
    };
    b.plan().states.push(State { input: port("h", h), output: port("hn", next) });
    b.step("step", 3, &[h, x, next], "float **f = b; f[2][i] = f[0][i] + f[1][i];");
    b
}

fn message() -> &'static str {
    // SAFETY: never null; each test reads it before its next call.
    unsafe { CStr::from_ptr(ansc_error_message()) }.to_str().unwrap()
}

fn loaded(b: &Builder) -> *mut AnscModel {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(b.build(dir.path()).to_str().unwrap()).unwrap();
    let mut model = null_mut();
    // SAFETY: both pointers are valid.
    let status = unsafe { ansc_model_load(path.as_ptr(), &raw mut model) };
    assert_eq!(status, AnscStatus::Ok, "{}", message());
    model
}

fn session_of(model: *const AnscModel) -> *mut AnscSession {
    let mut session = null_mut();
    // SAFETY: the pointers are valid, or null where that is allowed.
    let status = unsafe { ansc_session_new(model, null(), &raw mut session) };
    assert_eq!(status, AnscStatus::Ok, "{}", message());
    session
}

fn free(sessions: &[*mut AnscSession], model: *mut AnscModel) {
    // SAFETY: the tests free each once, at their end.
    unsafe {
        sessions.iter().for_each(|session| ansc_session_free(*session));
        ansc_model_free(model);
    }
}

fn input(name: &CStr, shape: &[usize], data: &[f32]) -> AnscInput {
    AnscInput {
        name: name.as_ptr(),
        dtype: F32,
        shape: shape.as_ptr(),
        rank: shape.len(),
        data: data.as_ptr().cast(),
        bytes: size_of_val(data),
    }
}

fn output(name: &CStr, shape: &[usize], data: &mut [f32]) -> AnscOutput {
    AnscOutput {
        name: name.as_ptr(),
        dtype: F32,
        shape: shape.as_ptr(),
        rank: shape.len(),
        data: data.as_mut_ptr().cast(),
        bytes: size_of_val(data),
    }
}

/// One run with these columns; the sum of all that the state holds then.
fn run(session: *mut AnscSession, x: &[f32]) -> Result<f32, AnscStatus> {
    let mut sum = [0f32];
    let shape = [1, x.len()];
    let (x, to) = (input(c"x", &shape, x), output(c"sum", &[], &mut sum));
    // SAFETY: all pointers are valid.
    let status = unsafe { ansc_session_run(session, &raw const x, 1, &raw const to, 1) };
    if status == AnscStatus::Ok { Ok(sum[0]) } else { Err(status) }
}

fn length(session: *const AnscSession) -> usize {
    let mut shape = [9; 3];
    // SAFETY: all pointers are valid.
    let status = unsafe { ansc_session_state_shape(session, 0, shape.as_mut_ptr(), 3) };
    assert_eq!((status, shape[0], shape[2]), (AnscStatus::Ok, 1, 9), "{}", message());
    shape[1]
}

/// All that the state holds, as a caller learns it.
fn state(session: *const AnscSession) -> Vec<f32> {
    let shape = [1, length(session)];
    let mut values = vec![0f32; shape[1]];
    let to = output(c"past", &shape, &mut values);
    // SAFETY: all pointers are valid.
    let status = unsafe { ansc_session_get_state(session, &raw const to) };
    assert_eq!(status, AnscStatus::Ok, "{}", message());
    values
}

fn set(session: *mut AnscSession, values: &[f32]) -> AnscStatus {
    let shape = [1, values.len()];
    let from = input(c"past", &shape, values);
    // SAFETY: all pointers are valid.
    unsafe { ansc_session_set_state(session, &raw const from) }
}

#[test]
fn a_model_tells_its_states() {
    let model = loaded(&appending());
    let mut port =
        AnscPort { name: null(), dtype: 99, shape: null(), rank: 9, bytes: 0, is_bound: true };
    // SAFETY: all pointers are valid.
    unsafe {
        assert_eq!(ansc_model_state_count(model), 1);
        assert_eq!(ansc_model_state(model, 0, &raw mut port), AnscStatus::Ok);
        assert_eq!(CStr::from_ptr(port.name), c"past");
        assert_eq!(std::slice::from_raw_parts(port.shape, port.rank), [1, ROOM]);
        assert_eq!((port.dtype, port.bytes, port.is_bound), (F32, 32, false));
    }
    free(&[], model);
}

#[test]
fn a_session_keeps_cuts_and_forgets() {
    let model = loaded(&appending());
    let session = session_of(model);
    assert_eq!(state(session), [0f32; 0]);
    assert_eq!(run(session, &[1.0, 2.0, 3.0]), Ok(6.0));
    assert_eq!(run(session, &[10.0]), Ok(16.0));
    assert_eq!(state(session), [1.0, 2.0, 3.0, 10.0]);
    // SAFETY: it was not freed.
    let truncate = |length| unsafe { ansc_session_truncate(session, length) };
    assert_eq!((truncate(2), truncate(7)), (AnscStatus::Ok, AnscStatus::Ok));
    assert_eq!(state(session), [1.0, 2.0]);
    // Sums run over the room: nothing of what was cut is there.
    assert_eq!(run(session, &[5.0; 4]), Ok(23.0));
    // SAFETY: it was not freed.
    assert_eq!(unsafe { ansc_session_reset(session) }, AnscStatus::Ok);
    assert_eq!(length(session), 0);
    assert_eq!(run(session, &[7.0]), Ok(7.0));
    free(&[session], model);
}

#[test]
fn what_a_full_session_keeps_stays() {
    let model = loaded(&appending());
    let session = session_of(model);
    assert_eq!((run(session, &[1.0; 4]), run(session, &[1.0; 3])), (Ok(4.0), Ok(7.0)));
    assert_eq!(run(session, &[1.0; 2]), Err(AnscStatus::Data));
    assert!(message().starts_with("the session keeps past [1, 7], and"), "{}", message());
    assert_eq!(run(session, &[2.0]), Ok(9.0));
    assert_eq!(length(session), ROOM);
    free(&[session], model);
}

#[test]
fn another_session_goes_on() {
    let model = loaded(&appending());
    let (first, second) = (session_of(model), session_of(model));
    assert_eq!(run(first, &[1.0, 2.0]), Ok(3.0));
    let saved = state(first);
    assert_eq!(run(second, &[100.0; 4]), Ok(400.0));
    assert_eq!(set(second, &saved), AnscStatus::Ok, "{}", message());
    assert_eq!((state(second), run(second, &[4.0])), (saved, Ok(7.0)));
    assert_eq!(set(second, &[]), AnscStatus::Ok, "{}", message());
    assert_eq!(run(second, &[4.0]), Ok(4.0));
    free(&[first, second], model);
}

#[test]
fn shapes_of_outputs_follow_from_states() {
    let model = loaded(&appending());
    let session = session_of(model);
    assert_eq!(run(session, &[1.0; 3]), Ok(3.0));
    let (given, mut shape) = ([1, 2], [0; 2]);
    let x = AnscInput { data: null(), bytes: 0, ..input(c"x", &given, &[]) };
    // SAFETY: all pointers are valid.
    unsafe {
        let to = shape.as_mut_ptr();
        let asked = |index| ansc_session_shape_of_output(session, &raw const x, 1, index, to, 2);
        assert_eq!(asked(2), AnscStatus::Argument);
        assert_eq!(message(), "output 2 of 2");
        assert_eq!(asked(1), AnscStatus::Ok, "{}", message());
        assert_eq!(shape, [1, 5]);
        // The model alone does not know how much a session keeps.
        let status = ansc_model_output_shape(model, &raw const x, 1, 1, to, 2);
        assert_eq!((status, message()), (AnscStatus::Data, "input `past` is missing"));
        let (values, mut seen) = ([5f32, 6.0], [0f32; 5]);
        let (x, seen_out) = (input(c"x", &given, &values), output(c"seen", &shape, &mut seen));
        let status = ansc_session_run(session, &raw const x, 1, &raw const seen_out, 1);
        assert_eq!((status, seen), (AnscStatus::Ok, [1.0, 1.0, 1.0, 5.0, 6.0]), "{}", message());
    }
    free(&[session], model);
}

#[test]
fn states_without_a_growing_axis_cannot_be_cut() {
    let model = loaded(&moving());
    let session = session_of(model);
    let x = input(c"x", &[3], &[1.0, 2.0, 4.0]);
    let mut h = [9f32; 3];
    let to = output(c"h", &[3], &mut h);
    // SAFETY: all pointers are valid.
    unsafe {
        for _ in 0..3 {
            assert_eq!(ansc_session_run(session, &raw const x, 1, null(), 0), AnscStatus::Ok);
        }
        assert_eq!(ansc_session_truncate(session, 0), AnscStatus::Argument);
        assert!(message().starts_with("state `h` does not grow"), "{}", message());
        assert_eq!(ansc_session_get_state(session, &raw const to), AnscStatus::Ok);
        assert_eq!(h, [3.0, 6.0, 12.0]);
        assert_eq!(ansc_session_reset(session), AnscStatus::Ok);
        assert_eq!(ansc_session_get_state(session, &raw const to), AnscStatus::Ok);
        assert_eq!(h, [0.0; 3]);
    }
    free(&[session], model);
}

#[test]
fn what_does_not_fit_a_state_is_refused() {
    let model = loaded(&appending());
    let session = session_of(model);
    assert_eq!(run(session, &[1.0, 2.0]), Ok(3.0));
    let (argument, data) = (AnscStatus::Argument, AnscStatus::Data);
    let (mut memory, shape, long) = ([7f32; 9], [1, 2], [1, 9]);
    let good = output(c"past", &shape, &mut memory[..2]);
    let given = AnscInput { data: good.data, ..input(c"past", &shape, &[0.0; 2]) };
    // SAFETY: every pointer is valid or null.
    unsafe {
        let get = |to: AnscOutput| ansc_session_get_state(session, &raw const to);
        let set = |from: AnscInput| ansc_session_set_state(session, &raw const from);
        assert_eq!(get(AnscOutput { name: c"present".as_ptr(), ..good }), data);
        assert_eq!(message(), "the model has no state `present`; it has past");
        assert_eq!(set(AnscInput { name: c"x".as_ptr(), ..given }), data);
        assert_eq!(get(AnscOutput { shape: [1, 1].as_ptr(), bytes: 4, ..good }), data);
        assert_eq!(message(), "state `past` has shape [1, 2], but [1, 1] was given");
        assert_eq!(set(AnscInput { shape: long.as_ptr(), bytes: 36, ..given }), data);
        assert_eq!(message(), "state `past` has shape [1, 8], but [1, 9] was given");
        assert_eq!(get(AnscOutput { dtype: AnscDtype::I32 as u32, ..good }), data);
        assert_eq!(set(AnscInput { dtype: AnscDtype::I32 as u32, ..given }), data);
        assert_eq!(message(), "state `past` is of type f32, but i32 was given");
        assert_eq!(get(AnscOutput { data: null_mut(), ..good }), argument);
        assert_eq!(set(AnscInput { name: null(), ..given }), argument);
        assert_eq!(ansc_session_get_state(session, null()), argument);
        assert_eq!(message(), "`state` is null");
        assert_eq!(ansc_session_set_state(session, null()), argument);
        assert_eq!(ansc_session_get_state(null(), &raw const good), argument);
        assert_eq!(ansc_session_set_state(null_mut(), &raw const given), argument);
        assert_eq!(ansc_session_reset(null_mut()), argument);
        assert_eq!(ansc_session_truncate(null_mut(), 0), argument);
        let mut port = std::mem::MaybeUninit::uninit();
        assert_eq!(ansc_model_state(model, 1, port.as_mut_ptr()), argument);
        assert_eq!(ansc_model_state(model, 0, null_mut()), argument);
        assert_eq!(ansc_model_state_count(null()), 0);
        let mut extents = [3; 2];
        let to = extents.as_mut_ptr();
        assert_eq!(ansc_session_state_shape(session, 1, to, 2), argument);
        assert_eq!(message(), "state 1 of 1");
        assert_eq!(ansc_session_state_shape(session, 0, to, 1), argument);
        assert_eq!(ansc_session_shape_of_output(null(), null(), 0, 0, to, 2), argument);
        assert_eq!(extents, [3; 2]);
    }
    assert_eq!(memory, [7.0; 9]);
    assert_eq!(state(session), [1.0, 2.0]);
    free(&[session], model);
}
