//! Element types, the ports of a model, and tensors in the caller's memory.

use std::ffi::{CStr, CString, c_char, c_void};

use crate::dtype::DType;
use crate::manifest::Port;
use crate::tensor::byte_len;
use crate::view::{View, ViewMut};

use super::status::{Failure, c_string, shield};

/// Types of elements.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnscDtype {
    /// One byte, 0 or 1.
    Bool = 0,
    /// An unsigned integer of 8 bits.
    U8 = 1,
    /// An unsigned integer of 16 bits.
    U16 = 2,
    /// An unsigned integer of 32 bits.
    U32 = 3,
    /// An unsigned integer of 64 bits.
    U64 = 4,
    /// A signed integer of 8 bits.
    I8 = 5,
    /// A signed integer of 16 bits.
    I16 = 6,
    /// A signed integer of 32 bits.
    I32 = 7,
    /// A signed integer of 64 bits.
    I64 = 8,
    /// IEEE half precision.
    F16 = 9,
    /// The upper half of an `F32`.
    Bf16 = 10,
    /// IEEE single precision.
    F32 = 11,
    /// IEEE double precision.
    F64 = 12,
}

/// An input, output or state of a model. The pointers belong to the model and live as long as it
/// does.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AnscPort {
    /// In UTF-8, never null.
    pub name: *const c_char,
    /// An `AnscDtype`.
    pub dtype: u32,
    /// `rank` extents: the largest possible ones, where the data or the shapes of a run decide, and
    /// for a state.
    pub shape: *const usize,
    /// Extents that `shape` points to.
    pub rank: usize,
    /// Bytes of a dense tensor of this type and shape.
    pub bytes: usize,
    /// Whether the value was fixed when the model was compiled: then it need not be given.
    pub is_bound: bool,
}

/// An input, or a value for a state, in the caller's memory: a dense row-major tensor.
///
/// Data that is not aligned to the size of its element is copied first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AnscInput {
    /// In UTF-8, with a zero at the end: the name of an input or a state of the model.
    pub name: *const c_char,
    /// An `AnscDtype`.
    pub dtype: u32,
    /// May be null if `rank` is 0.
    pub shape: *const usize,
    /// Extents that `shape` points to.
    pub rank: usize,
    /// May be null if `bytes` is 0.
    pub data: *const c_void,
    /// Size of `data`; compared with type and shape.
    pub bytes: usize,
}

/// Memory for an output, or for a copy of a state, as `AnscInput`. In a run it must overlap neither
/// an input nor another output.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AnscOutput {
    /// In UTF-8, with a zero at the end: the name of an output or a state of the model.
    pub name: *const c_char,
    /// An `AnscDtype`.
    pub dtype: u32,
    /// May be null if `rank` is 0.
    pub shape: *const usize,
    /// Extents that `shape` points to.
    pub rank: usize,
    /// May be null if `bytes` is 0.
    pub data: *mut c_void,
    /// Size of `data`; compared with type and shape.
    pub bytes: usize,
}

/// Bytes of an element of the `AnscDtype`; 0 if there is no such type.
#[unsafe(no_mangle)]
pub extern "C" fn ansc_dtype_size(dtype: u32) -> usize {
    shield(0, || from_number(dtype).map_or(0, DType::size))
}

/// The name of the `AnscDtype`, such as "f32"; "unknown" if there is no such type. Never null,
/// valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn ansc_dtype_name(dtype: u32) -> *const c_char {
    const NAMES: [&CStr; DType::ALL.len()] = [
        c"bool", c"u8", c"u16", c"u32", c"u64", c"i8", c"i16", c"i32", c"i64", c"f16", c"bf16",
        c"f32", c"f64",
    ];
    NAMES.get(dtype as usize).copied().unwrap_or(c"unknown").as_ptr()
}

fn from_number(dtype: u32) -> Option<DType> {
    DType::ALL.get(dtype as usize).copied()
}

/// A port with a name that C can read.
pub(super) struct OwnedPort {
    name: CString,
    port: Port,
}

impl OwnedPort {
    pub(super) fn new(port: &Port) -> OwnedPort {
        OwnedPort { name: c_string(&port.name), port: port.clone() }
    }

    pub(super) fn to_c(&self) -> AnscPort {
        let Port { dtype, shape, bound, .. } = &self.port;
        let number = DType::ALL.iter().position(|d| d == dtype);
        AnscPort {
            name: self.name.as_ptr(),
            dtype: number.expect("ALL holds every type") as u32,
            shape: shape.as_ptr(),
            rank: shape.len(),
            bytes: byte_len(*dtype, shape).expect("checked when the model was loaded"),
            is_bound: bound.is_some(),
        }
    }
}

/// A null-terminated string in UTF-8.
///
/// # Safety
/// A pointer that is not null must point to such a string, which outlives `'a`.
pub(super) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("{what} is null")));
    }
    // SAFETY: not null; the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// `len` values; null is allowed for none.
///
/// # Safety
/// A pointer that is not null must point to `len` values, which nobody changes during `'a`.
pub(super) unsafe fn slice<'a, T>(
    what: &str,
    values: *const T,
    len: usize,
) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    check_slice::<T>(what, values.cast(), values.is_aligned(), len)?;
    // SAFETY: not null, aligned, not too long; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(values, len) })
}

fn check_slice<T>(what: &str, at: *const u8, aligned: bool, len: usize) -> Result<(), Failure> {
    if at.is_null() {
        return Err(Failure::argument(format!("{what} is null, but its length is {len}")));
    }
    let fits = len.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= isize::MAX as usize);
    if !aligned || !fits {
        return Err(Failure::argument(format!("{what} is misaligned or too long")));
    }
    Ok(())
}

/// Gives a shape to the caller.
///
/// # Safety
/// `to` must be null or have room for `capacity` extents.
pub(super) unsafe fn put_shape(
    shape: &[usize],
    to: *mut usize,
    capacity: usize,
) -> Result<(), Failure> {
    let rank = shape.len();
    if rank > capacity || (to.is_null() && rank > 0) {
        return Err(Failure::argument(format!("`shape` has no room for {rank} extents")));
    }
    if rank > 0 {
        // SAFETY: not null, with enough room; the rest is the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(shape.as_ptr(), to, rank) };
    }
    Ok(())
}

/// As [`put_shape`], of the `index`-th output.
///
/// # Safety
/// As for [`put_shape`].
pub(super) unsafe fn put_shape_of(
    outputs: &[Vec<usize>],
    index: usize,
    to: *mut usize,
    capacity: usize,
) -> Result<(), Failure> {
    let none = || Failure::argument(format!("output {index} of {}", outputs.len()));
    // SAFETY: the caller's promise.
    unsafe { put_shape(outputs.get(index).ok_or_else(none)?, to, capacity) }
}

/// The fields that both kinds of tensors have in front of their data.
struct Head<'a> {
    name: &'a str,
    dtype: DType,
    shape: &'a [usize],
}

/// # Safety
/// As for [`text`] and [`slice`].
unsafe fn head<'a>(
    what: &str,
    name: *const c_char,
    dtype: u32,
    shape: *const usize,
    rank: usize,
) -> Result<Head<'a>, Failure> {
    // SAFETY: the caller's promise.
    let name = unsafe { text(&format!("the name of {what}"), name) }?;
    let unknown = || Failure::argument(format!("`{name}`: there is no element type {dtype}"));
    let dtype = from_number(dtype).ok_or_else(unknown)?;
    // SAFETY: the caller's promise.
    let shape = unsafe { slice(&format!("the shape of `{name}`"), shape, rank) }?;
    Ok(Head { name, dtype, shape })
}

/// The names and shapes of inputs whose data is not looked at.
///
/// # Safety
/// As for [`slice`]; names and shapes must be valid as their type's documentation says. All that
/// during `'a`.
pub(super) unsafe fn names_and_shapes<'a>(
    inputs: *const AnscInput,
    count: usize,
) -> Result<Vec<(&'a str, &'a [usize])>, Failure> {
    // SAFETY: the caller's promise.
    let inputs: &'a [AnscInput] = unsafe { slice("`inputs`", inputs, count) }?;
    // SAFETY: the caller's promise.
    inputs.iter().map(|input| unsafe { input.name_and_shape() }).collect()
}

impl AnscInput {
    /// # Safety
    /// Name and shape must be valid as the type's documentation says, during `'a`.
    unsafe fn name_and_shape<'a>(&self) -> Result<(&'a str, &'a [usize]), Failure> {
        // SAFETY: the caller's promise.
        let name = unsafe { text("the name of an input", self.name) }?;
        // SAFETY: the caller's promise.
        let shape = unsafe { slice(&format!("the shape of `{name}`"), self.shape, self.rank) }?;
        Ok((name, shape))
    }

    /// # Safety
    /// The pointers must be valid as the type's documentation says, during `'a`.
    pub(super) unsafe fn view<'a>(&self) -> Result<(&'a str, View<'a>), Failure> {
        // SAFETY: the caller's promise.
        let head = unsafe { head("an input", self.name, self.dtype, self.shape, self.rank) }?;
        let what = format!("the data of `{}`", head.name);
        // SAFETY: the caller's promise.
        let data = unsafe { slice(&what, self.data.cast::<u8>(), self.bytes) }?;
        let view = View::new(head.dtype, head.shape, data).map_err(|e| data_error(head.name, e))?;
        Ok((head.name, view))
    }
}

impl AnscOutput {
    /// # Safety
    /// The pointers must be valid as the type's documentation says, during `'a`, and nobody else
    /// may use the data meanwhile.
    pub(super) unsafe fn view<'a>(&self) -> Result<(&'a str, ViewMut<'a>), Failure> {
        // SAFETY: the caller's promise.
        let head = unsafe { head("an output", self.name, self.dtype, self.shape, self.rank) }?;
        let data: &mut [u8] = if self.bytes == 0 {
            &mut []
        } else {
            let at = self.data.cast::<u8>();
            check_slice::<u8>(&format!("the data of `{}`", head.name), at, true, self.bytes)?;
            // SAFETY: not null, not too long; the rest is the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(at, self.bytes) }
        };
        let view = ViewMut::new(head.dtype, head.shape, data);
        Ok((head.name, view.map_err(|e| data_error(head.name, e))?))
    }
}

fn data_error(name: &str, error: impl std::fmt::Display) -> Failure {
    Failure { status: super::AnscStatus::Data, message: format!("`{name}`: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_sizes_are_those_of_the_types() {
        assert_eq!(AnscDtype::F64 as usize + 1, DType::ALL.len());
        assert_eq!(from_number(AnscDtype::Bf16 as u32), Some(DType::BF16));
        for (number, dtype) in (0..).zip(DType::ALL) {
            assert_eq!(ansc_dtype_size(number), dtype.size());
            // SAFETY: never null.
            let name = unsafe { CStr::from_ptr(ansc_dtype_name(number)) };
            assert_eq!(name.to_str(), Ok(dtype.name()));
        }
        assert_eq!(ansc_dtype_size(13), 0);
    }
}
