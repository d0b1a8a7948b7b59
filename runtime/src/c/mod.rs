//! The C interface: the functions and types of `include/ansc.h`, which is made from this module.
//!
//! In: what a C program passes. Out: a status, and results through pointers. Three promises hold
//! for every function: no panic leaves it, no null pointer is followed, and no byte is written
//! through a result pointer unless the status is `ANSC_STATUS_OK`. That a pointer which is not null
//! points to what its type says is the caller's promise; nothing here can check it.
//!
//! After a change run `runtime/header/generate`; a test compares the header with these files.

mod model;
mod port;
mod session;
mod state;
mod status;

pub use model::{
    AnscModel, ansc_model_free, ansc_model_input, ansc_model_input_count, ansc_model_load,
    ansc_model_load_from_memory, ansc_model_load_shared, ansc_model_name, ansc_model_output,
    ansc_model_output_count, ansc_model_output_shape, ansc_model_specialisation_count,
    ansc_model_specialisation_input, ansc_model_specialisation_name,
    ansc_model_specialisation_output, ansc_model_state, ansc_model_state_count,
};
pub use port::{AnscDtype, AnscInput, AnscOutput, AnscPort, ansc_dtype_name, ansc_dtype_size};
pub use session::{
    AnscSession, AnscSessionOptions, ansc_session_free, ansc_session_new,
    ansc_session_output_shape, ansc_session_run, ansc_session_shape_of_output,
    ansc_session_threads,
};
pub use state::{
    ansc_session_get_state, ansc_session_reset, ansc_session_seed, ansc_session_set_state,
    ansc_session_state_shape, ansc_session_truncate,
};
pub use status::{AnscStatus, ansc_error_message, ansc_status_name, ansc_version};
