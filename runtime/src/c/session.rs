//! Sessions: make, run, free.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use crate::session::{Session, SessionOptions};

use super::model::AnscModel;
use super::port::{AnscInput, AnscOutput, names_and_shapes, put_shape, put_shape_of, slice};
use super::status::{AnscStatus, Failure, guard, shield};

/// The memory and the threads to run a model with. It keeps what it needs of its model alive.
///
/// Different sessions may run at the same time. One session runs in one thread at a time: a second
/// call meanwhile gives `ANSC_STATUS_BUSY` and changes nothing.
pub struct AnscSession {
    session: Mutex<Session>,
}

/// How a session is made. All zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AnscSessionOptions {
    /// Threads that run the model, the calling one included; 0 for one per available core. At most
    /// 4096: for more, `ansc_session_new` gives `ANSC_STATUS_ARGUMENT`.
    pub threads: usize,
    /// How long idle threads look for work before they sleep, in microseconds; 0 for the default,
    /// negative for not at all.
    pub spin_microseconds: i64,
    /// Cores to pin threads to, the i-th thread to the (i mod `cores_count`)-th of them. The
    /// calling thread is left alone. Null for none.
    pub cores: *const usize,
    /// Numbers that `cores` points to.
    pub cores_count: usize,
    /// Not 0: numbers below the smallest normal one of their type are computed with, which takes
    /// processors a hundred times as long. 0: they are zeros.
    pub keep_denormals: u8,
}

/// Makes a session. `options` may be null. Free it with `ansc_session_free`.
///
/// # Safety
/// `model` is null or a model that was not freed; `options` is null or readable, as is what it
/// points to; `session` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_new(
    model: *const AnscModel,
    options: *const AnscSessionOptions,
    session: *mut *mut AnscSession,
) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, options) = unsafe { (model.as_ref(), options.as_ref()) };
        let (Some(model), false) = (model, session.is_null()) else {
            return Err(Failure::argument("`model` or `session` is null"));
        };
        // SAFETY: the caller's promise.
        let options = options.map(|o| unsafe { from_c(o) }).transpose()?.unwrap_or_default();
        let made = AnscSession { session: Mutex::new(model.model.session_with(&options)?) };
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { session.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// # Safety
/// `cores` must be null or point to `cores_count` values.
unsafe fn from_c(options: &AnscSessionOptions) -> Result<SessionOptions, Failure> {
    // SAFETY: the caller's promise.
    let cores = unsafe { slice("`cores`", options.cores, options.cores_count) }?;
    let spin = options.spin_microseconds;
    let spin = (spin != 0).then(|| Duration::from_micros(u64::try_from(spin).unwrap_or(0)));
    Ok(SessionOptions {
        threads: options.threads,
        spin,
        affinity: cores.to_vec(),
        keep_denormals: options.keep_denormals != 0,
        ..SessionOptions::default()
    })
}

/// Frees a session; null is allowed.
///
/// # Safety
/// `session` is null or a session that was not freed, and no other thread uses it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_free(session: *mut AnscSession) {
    shield((), || {
        if !session.is_null() {
            // SAFETY: it came from `Box::into_raw` and is not freed twice, as the caller promises.
            drop(unsafe { Box::from_raw(session) });
        }
    });
}

/// Threads that run the model, the calling one included; 0 if `session` is null or running.
///
/// # Safety
/// `session` is null or a session that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_threads(session: *const AnscSession) -> usize {
    // SAFETY: the caller's promise.
    shield(0, || unsafe { lock(session) }.map_or(0, |session| session.threads()))
}

/// Runs the model: the specialisation that takes inputs of these shapes. Inputs and outputs come by
/// name, in any order. Every input must be given but those that are bound; outputs that are not
/// given are computed and dropped. An output has the shape that `ansc_model_output_shape` tells, or
/// `ansc_session_shape_of_output` where the model has states.
///
/// Everything is checked before anything runs. After `ANSC_STATUS_DATA` the outputs may hold
/// anything, and the session can be used again. States are then as before the run.
///
/// # Safety
/// `session` is null or a session that was not freed. `inputs` and `outputs` are null or point to
/// as many structures as the counts say, all of whose pointers are null or valid for the sizes
/// beside them. No other thread writes to inputs or uses outputs meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_run(
    session: *mut AnscSession,
    inputs: *const AnscInput,
    inputs_count: usize,
    outputs: *const AnscOutput,
    outputs_count: usize,
) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let mut session = unsafe { lock(session) }?;
        // SAFETY: the caller's promise.
        let inputs = unsafe { slice("`inputs`", inputs, inputs_count) }?;
        // SAFETY: the caller's promise.
        let outputs = unsafe { slice("`outputs`", outputs, outputs_count) }?;
        check_overlap(inputs, outputs)?;
        // SAFETY: the caller's promise.
        let inputs = inputs.iter().map(|input| unsafe { input.view() });
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        // SAFETY: the caller's promise; that the outputs overlap nothing was just checked.
        let outputs = outputs.iter().map(|output| unsafe { output.view() });
        let mut outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        Ok(session.run_into(&inputs, &mut outputs)?)
    })
}

/// The extents of the `index`-th output of the model in the last run: how much of its memory was
/// used, densely from the beginning. Before the first run they are those of the first
/// specialisation, as `ansc_model_output` describes it.
///
/// Writes as many extents as the port has to `shape`, which has room for `capacity` of them.
///
/// # Safety
/// `session` is null or a session that was not freed; `shape` is null or has room for `capacity`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_output_shape(
    session: *const AnscSession,
    index: usize,
    shape: *mut usize,
    capacity: usize,
) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let session = unsafe { lock(session) }?;
        let count = session.outputs().len();
        if index >= count {
            return Err(Failure::argument(format!("output {index} of {count}")));
        }
        // SAFETY: the caller's promise.
        unsafe { put_shape(session.output_shape(index), shape, capacity) }
    })
}

/// The extents of the `index`-th output in a run with these inputs, as `ansc_model_output_shape`
/// tells them, with the states that the session has now.
///
/// # Safety
/// `session` is null or a session that was not freed; the rest as for `ansc_model_output_shape`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_shape_of_output(
    session: *const AnscSession,
    inputs: *const AnscInput,
    inputs_count: usize,
    index: usize,
    shape: *mut usize,
    capacity: usize,
) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let session = unsafe { lock(session) }?;
        // SAFETY: the caller's promise.
        let inputs = unsafe { names_and_shapes(inputs, inputs_count) }?;
        let shapes = session.output_shapes(&inputs)?;
        // SAFETY: the caller's promise.
        unsafe { put_shape_of(&shapes, index, shape, capacity) }
    })
}

/// The session, if it is not running.
///
/// # Safety
/// `session` is null or a session that lives during `'a`.
pub(super) unsafe fn lock<'a>(
    session: *const AnscSession,
) -> Result<MutexGuard<'a, Session>, Failure> {
    // SAFETY: the caller's promise.
    let session = unsafe { session.as_ref() };
    let session = session.ok_or_else(|| Failure::argument("`session` is null"))?;
    match session.session.try_lock() {
        Ok(session) => Ok(session),
        // A run that panicked leaves unspecified outputs; the next one removes what it added to
        // states.
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Failure {
            status: AnscStatus::Busy,
            message: "the session is running in another thread".to_owned(),
        }),
    }
}

/// That no output shares bytes with anything else. Ranges too long to exist are refused later.
fn check_overlap(inputs: &[AnscInput], outputs: &[AnscOutput]) -> Result<(), Failure> {
    let range = |at: usize, bytes: usize| at..at.saturating_add(bytes);
    let read = inputs.iter().map(|input| (range(input.data as usize, input.bytes), false));
    let written = outputs.iter().map(|output| (range(output.data as usize, output.bytes), true));
    let mut all: Vec<(Range<usize>, bool)> = read
        .chain(written)
        .filter(|(range, _)| (1..=isize::MAX as usize).contains(&range.len()))
        .collect();
    all.sort_by_key(|(range, _)| range.start);
    // How far any range so far reaches, and any that is written to.
    let (mut end, mut written_end) = (0, 0);
    for (range, is_written) in all {
        if range.start < if is_written { end } else { written_end } {
            return Err(Failure::argument("an output overlaps an input or another output"));
        }
        end = end.max(range.end);
        written_end = if is_written { written_end.max(range.end) } else { written_end };
    }
    Ok(())
}
