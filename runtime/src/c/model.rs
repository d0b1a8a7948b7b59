//! Models: load, ask for the ports, free.

use std::ffi::{CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;

use crate::load::LoadOptions;
use crate::manifest::{Port, Specialisation};
use crate::model::Model;

use super::port::{AnscInput, AnscPort, OwnedPort, names_and_shapes, put_shape_of};
use super::status::{AnscStatus, Failure, c_string, guard, shield};

/// A loaded model. It never changes: any number of threads may use it at once, without locks.
pub struct AnscModel {
    pub(super) model: Model,
    name: CString,
    /// Never empty.
    specialisations: Vec<Ports>,
}

impl AnscModel {
    /// A model that C owns.
    fn new(model: Model) -> *mut AnscModel {
        Box::into_raw(Box::new(AnscModel {
            name: c_string(&model.manifest().model.name),
            specialisations: model.specialisations().iter().map(Ports::new).collect(),
            model,
        }))
    }
}

/// The ports of a specialisation.
struct Ports {
    name: CString,
    inputs: Vec<OwnedPort>,
    outputs: Vec<OwnedPort>,
    /// The inputs of the states.
    states: Vec<OwnedPort>,
}

impl Ports {
    fn new(specialisation: &Specialisation) -> Ports {
        let ports = |ports: &[Port]| ports.iter().map(OwnedPort::new).collect();
        Ports {
            name: c_string(&specialisation.name),
            inputs: ports(&specialisation.inputs),
            outputs: ports(&specialisation.outputs),
            states: specialisation.states.iter().map(|one| OwnedPort::new(&one.input)).collect(),
        }
    }
}

/// Loads an artifact from the file `path`, and checks it as far as that is possible.
///
/// An artifact is machine code, and loading it is as safe as starting a program: load only what
/// you or somebody you trust compiled. Free the model with `ansc_model_free`.
///
/// # Safety
/// `path` is null or a null-terminated string; `model` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_load(
    path: *const c_char,
    model: *mut *mut AnscModel,
) -> AnscStatus {
    // SAFETY: as promised to this function.
    unsafe { load_with(path, &LoadOptions::default(), model) }
}

/// Loads an artifact as `ansc_model_load` does, but leaves its weights in the pages of the file,
/// which all processes share that load it so. Else weights of 16 MiB or more are copied to larger
/// pages, which makes models faster that wait for them.
///
/// # Safety
/// `path` is null or a null-terminated string; `model` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_load_shared(
    path: *const c_char,
    model: *mut *mut AnscModel,
) -> AnscStatus {
    // SAFETY: as promised to this function.
    unsafe { load_with(path, &LoadOptions { share_weights: true }, model) }
}

/// # Safety
/// That of `ansc_model_load`.
unsafe fn load_with(
    path: *const c_char,
    options: &LoadOptions,
    model: *mut *mut AnscModel,
) -> AnscStatus {
    guard(|| {
        if path.is_null() || model.is_null() {
            return Err(Failure::argument("`path` or `model` is null"));
        }
        // SAFETY: not null; the rest is the caller's promise.
        let path = unsafe { std::ffi::CStr::from_ptr(path) };
        let loaded = Model::load_with(OsStr::from_bytes(path.to_bytes()), options)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { model.write(AnscModel::new(loaded)) };
        Ok(())
    })
}

/// Loads an artifact that lies in memory, as `ansc_model_load` does from a file. The model keeps a
/// copy: the memory may change or go when the function returns. A file is better where there is
/// one: its weights get larger pages, or are shared by processes.
///
/// # Safety
/// `data` is null or `size` readable bytes; `model` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_load_from_memory(
    data: *const c_void,
    size: usize,
    model: *mut *mut AnscModel,
) -> AnscStatus {
    guard(|| {
        if data.is_null() || model.is_null() {
            return Err(Failure::argument("`data` or `model` is null"));
        }
        if isize::try_from(size).is_err() {
            return Err(Failure::argument(format!("`size` is {size}: no memory is that large")));
        }
        // SAFETY: not null and not too large; the rest is the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
        let loaded = Model::from_bytes(bytes)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { model.write(AnscModel::new(loaded)) };
        Ok(())
    })
}

/// Frees a model; null is allowed. Its sessions stay usable, its strings and shapes do not.
///
/// # Safety
/// `model` is null or a model that was not freed, and no other thread uses it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_free(model: *mut AnscModel) {
    shield((), || {
        if !model.is_null() {
            // SAFETY: it came from `Box::into_raw` and is not freed twice, as the caller promises.
            drop(unsafe { Box::from_raw(model) });
        }
    });
}

/// The name of the ONNX file that the model was compiled from; it lives as long as the model. Null
/// if `model` is null.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_name(model: *const AnscModel) -> *const c_char {
    shield(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        unsafe { model.as_ref() }.map_or(std::ptr::null(), |m| m.name.as_ptr())
    })
}

/// How many inputs the model has; 0 if `model` is null.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_input_count(model: *const AnscModel) -> usize {
    // SAFETY: the caller's promise.
    shield(0, || unsafe { model.as_ref() }.map_or(0, |m| m.model.inputs().len()))
}

/// How many outputs the model has; 0 if `model` is null.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_output_count(model: *const AnscModel) -> usize {
    // SAFETY: the caller's promise.
    shield(0, || unsafe { model.as_ref() }.map_or(0, |m| m.model.outputs().len()))
}

/// How many states the model has; 0 if `model` is null. They are tensors that a session keeps from
/// one run to the next, such as the keys and values of earlier tokens.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_state_count(model: *const AnscModel) -> usize {
    // SAFETY: the caller's promise.
    shield(0, || unsafe { model.as_ref() }.map_or(0, |m| m.specialisations[0].states.len()))
}

/// How many specialisations the model has, at least 1; 0 if `model` is null. Each is for one
/// combination of its inputs' shapes, or for all in a range: then its ports have the largest ones.
/// A session runs one that takes the shapes of its inputs, one of a single combination first.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_specialisation_count(model: *const AnscModel) -> usize {
    // SAFETY: the caller's promise.
    shield(0, || unsafe { model.as_ref() }.map_or(0, |m| m.specialisations.len()))
}

/// The name that tells the `index`-th specialisation from the others, such as "batch=4"; empty if
/// there is only one. It lives as long as the model. Null if there is none.
///
/// # Safety
/// `model` is null or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_specialisation_name(
    model: *const AnscModel,
    index: usize,
) -> *const c_char {
    shield(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        let ports = unsafe { model.as_ref() }.and_then(|m| m.specialisations.get(index));
        ports.map_or(std::ptr::null(), |ports| ports.name.as_ptr())
    })
}

/// Describes the `index`-th input, from 0, with its shape in the first specialisation.
///
/// # Safety
/// `model` is null or a model that was not freed; `port` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_input(
    model: *const AnscModel,
    index: usize,
    port: *mut AnscPort,
) -> AnscStatus {
    // SAFETY: the caller's promise.
    unsafe { describe(model, 0, |ports| &ports.inputs, index, port) }
}

/// Describes the `index`-th output, from 0, with its shape in the first specialisation.
///
/// # Safety
/// `model` is null or a model that was not freed; `port` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_output(
    model: *const AnscModel,
    index: usize,
    port: *mut AnscPort,
) -> AnscStatus {
    // SAFETY: the caller's promise.
    unsafe { describe(model, 0, |ports| &ports.outputs, index, port) }
}

/// Describes the `index`-th state, from 0: the name of the input that it stands in for, and the
/// room that each session has for it. `ansc_session_state_shape` tells how much of that is used.
///
/// # Safety
/// `model` is null or a model that was not freed; `port` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_state(
    model: *const AnscModel,
    index: usize,
    port: *mut AnscPort,
) -> AnscStatus {
    // SAFETY: the caller's promise.
    unsafe { describe(model, 0, |ports| &ports.states, index, port) }
}

/// As `ansc_model_input`, of a specialisation.
///
/// # Safety
/// `model` is null or a model that was not freed; `port` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_specialisation_input(
    model: *const AnscModel,
    specialisation: usize,
    index: usize,
    port: *mut AnscPort,
) -> AnscStatus {
    // SAFETY: the caller's promise.
    unsafe { describe(model, specialisation, |ports| &ports.inputs, index, port) }
}

/// As `ansc_model_output`, of a specialisation.
///
/// # Safety
/// `model` is null or a model that was not freed; `port` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_specialisation_output(
    model: *const AnscModel,
    specialisation: usize,
    index: usize,
    port: *mut AnscPort,
) -> AnscStatus {
    // SAFETY: the caller's promise.
    unsafe { describe(model, specialisation, |ports| &ports.outputs, index, port) }
}

/// The extents of the `index`-th output, from 0, in a run with these inputs, of which only names
/// and shapes are looked at. Where the data decides too, they are the largest possible ones. Inputs
/// may be left out whose shape is not needed to know. Where states of a session decide,
/// `ansc_session_shape_of_output` knows.
///
/// Writes as many extents as the port has to `shape`, which has room for `capacity` of them.
///
/// # Safety
/// `model` is null or a model that was not freed. `inputs` is null or points to `inputs_count`
/// structures, whose names and shapes are null or valid for the sizes beside them. `shape` is null
/// or has room for `capacity`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ansc_model_output_shape(
    model: *const AnscModel,
    inputs: *const AnscInput,
    inputs_count: usize,
    index: usize,
    shape: *mut usize,
    capacity: usize,
) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let model = unsafe { model.as_ref() };
        let model = &model.ok_or_else(|| Failure::argument("`model` is null"))?.model;
        // SAFETY: the caller's promise.
        let inputs = unsafe { names_and_shapes(inputs, inputs_count) }?;
        let shapes = model.output_shapes(&inputs)?;
        // SAFETY: the caller's promise.
        unsafe { put_shape_of(&shapes, index, shape, capacity) }
    })
}

/// # Safety
/// As for the functions above.
unsafe fn describe(
    model: *const AnscModel,
    specialisation: usize,
    ports: impl FnOnce(&Ports) -> &Vec<OwnedPort>,
    index: usize,
    port: *mut AnscPort,
) -> AnscStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let model = unsafe { model.as_ref() };
        let model = model.ok_or_else(|| Failure::argument("`model` is null"))?;
        if port.is_null() {
            return Err(Failure::argument("`port` is null"));
        }
        let count = model.specialisations.len();
        let none = || Failure::argument(format!("specialisation {specialisation} of {count}"));
        let ports = ports(model.specialisations.get(specialisation).ok_or_else(none)?);
        let none = || Failure::argument(format!("port {index} of {}", ports.len()));
        let found = ports.get(index).ok_or_else(none)?;
        // SAFETY: not null; the rest is the caller's promise.
        unsafe { port.write(found.to_c()) };
        Ok(())
    })
}
