//! States: the tensors that a session keeps from one run to the next.

use super::port::{AnscInput, AnscOutput, put_shape};
use super::session::{AnscSession, lock};
use super::status::{AnscStatus, Failure, guard};

/// Forgets what earlier runs left: all states are as in a new session, and random numbers begin
/// anew.
///
/// # Safety
/// `session` is null or a session that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_reset(session: *mut AnscSession) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { lock(session) }?.reset();
        Ok(())
    })
}

/// Begins another sequence of random numbers. With the same seed the next runs repeat what those of
/// a new session gave, whose seed is 0.
///
/// # Safety
/// `session` is null or a session that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_seed(session: *mut AnscSession, seed: u64) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { lock(session) }?.seed(seed);
        Ok(())
    })
}

/// Keeps the first `length` elements of each state along the axis that runs add to, such as the
/// keys and values of so many tokens. Shorter states stay as they are.
///
/// Where a state does not grow along one axis there is no way back but `ansc_session_reset`:
/// `ANSC_STATUS_ARGUMENT`, and nothing changes.
///
/// # Safety
/// `session` is null or a session that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_truncate(
    session: *mut AnscSession,
    length: usize,
) -> AnscStatus {
    // SAFETY: the caller's promise.
    guard(|| Ok(unsafe { lock(session) }?.truncate(length)?))
}

/// The extents that the `index`-th state has now. Before the first run there is nothing
/// along axes that runs add to.
///
/// Writes as many extents as the state has to `shape`, which has room for `capacity` of them.
///
/// # Safety
/// `session` is null or a session that was not freed; `shape` is null or has room for `capacity`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_state_shape(
    session: *const AnscSession,
    index: usize,
    shape: *mut usize,
    capacity: usize,
) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let session = unsafe { lock(session) }?;
        let count = session.states().len();
        if index >= count {
            return Err(Failure::argument(format!("state {index} of {count}")));
        }
        // SAFETY: the caller's promise.
        unsafe { put_shape(&session.state_shape(index), shape, capacity) }
    })
}

/// Copies what a state holds now. `state` has its name and type, its shape now, as
/// `ansc_session_state_shape` tells it, and the memory to copy to.
///
/// # Safety
/// `session` is null or a session that was not freed. `state` is null or points to a structure
/// whose pointers are null or valid for the sizes beside them. No other thread uses its data
/// meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_get_state(
    session: *const AnscSession,
    state: *const AnscOutput,
) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let session = unsafe { lock(session) }?;
        // SAFETY: the caller's promise.
        let state = unsafe { state.as_ref() };
        let state = state.ok_or_else(|| Failure::argument("`state` is null"))?;
        // SAFETY: the caller's promise.
        let (name, mut view) = unsafe { state.view() }?;
        Ok(session.state_into(name, &mut view)?)
    })
}

/// Lets the next run find this in a state. With what `ansc_session_get_state` gave, it goes on from
/// there, in this session or in another one of the model.
///
/// # Safety
/// `session` is null or a session that was not freed. `state` is null or points to a structure
/// whose pointers are null or valid for the sizes beside them. No other thread writes to its data
/// meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_session_set_state(
    session: *mut AnscSession,
    state: *const AnscInput,
) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let mut session = unsafe { lock(session) }?;
        // SAFETY: the caller's promise.
        let state = unsafe { state.as_ref() };
        let state = state.ok_or_else(|| Failure::argument("`state` is null"))?;
        // SAFETY: the caller's promise.
        let (name, view) = unsafe { state.view() }?;
        Ok(session.set_state(name, view)?)
    })
}
