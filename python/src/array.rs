//! Arrays as views, without a copy.
//!
//! In: arrays of NumPy, tensors with `__dlpack__`, or anything that NumPy makes an array of. Out: a
//! [`View`] of their memory. Only what is not dense and row-major is copied.
//!
//! NumPy's arrays tell where they are by `__array_struct__`, a structure of C that no version of
//! NumPy changes. (Buffers belong to the stable interface of Python only from 3.11 on.)

use std::ffi::{c_char, c_int, c_void};

use ansc_runtime::manifest::Port;
use ansc_runtime::{DType, View, ViewMut};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

use crate::{dlpack, dtype, error};

/// `PyArrayInterface` of NumPy's array interface protocol.
#[repr(C)]
struct ArrayInterface {
    two: c_int,
    rank: c_int,
    kind: c_char,
    item_bytes: c_int,
    flags: c_int,
    shape: *const isize,
    strides: *const isize,
    data: *const c_void,
}

const ROW_MAJOR: c_int = 0x1;
const NATIVE_BYTES: c_int = 0x200;
const WRITABLE: c_int = 0x400;

/// Memory of an array.
pub(crate) struct Memory<'py> {
    /// Keeps the memory and the extents: a capsule that holds the array.
    _owner: Bound<'py, PyAny>,
    pub(crate) dtype: DType,
    shape: *const usize,
    rank: usize,
    address: *const u8,
    bytes: usize,
}

impl<'py> Memory<'py> {
    /// The memory of `object`, to read. `port` is for messages, and says the type of a number or a
    /// list, which has none.
    pub(crate) fn read(object: &Bound<'py, PyAny>, port: &Port) -> PyResult<Memory<'py>> {
        let py = object.py();
        if let Ok(capsule) = object.getattr(intern!(py, "__array_struct__")) {
            return match Memory::of(object, capsule, &port.name)? {
                Some((memory, _)) => Ok(memory),
                None => Memory::dense(object, port),
            };
        }
        let numpy = py.import(intern!(py, "numpy"))?;
        if object.hasattr(intern!(py, "__dlpack__"))? {
            return match dlpack::lent(object)? {
                Some(lent) => Ok(Memory::lent(lent)),
                None => Memory::dense(&numpy.call_method1("from_dlpack", (object,))?, port),
            };
        }
        let array = numpy.call_method1(intern!(py, "asarray"), (object,))?;
        let wanted = (dtype::object(py, port.dtype, &port.name)?, "C", "same_kind");
        let array = array.call_method1(intern!(py, "astype"), wanted).map_err(|e| {
            error::data(format!(
                "input `{}` cannot be made of this value: {}",
                port.name,
                e.value(py)
            ))
        })?;
        Memory::dense(&array, port)
    }

    /// The memory of an array of NumPy, to write: it must be dense, for a copy would be lost.
    pub(crate) fn write(array: &Bound<'py, PyAny>, name: &str) -> PyResult<Memory<'py>> {
        let capsule = array.getattr(intern!(array.py(), "__array_struct__")).map_err(|_| {
            error::usage(format!("what output `{name}` is written to must be an array of NumPy"))
        })?;
        match Memory::of(array, capsule, name)? {
            Some((memory, true)) => Ok(memory),
            Some((_, false)) => {
                Err(error::usage(format!("the array for output `{name}` is read-only")))
            }
            None => Err(error::usage(format!(
                "the array for output `{name}` must lie in memory without gaps, row by row (C order)"
            ))),
        }
    }

    /// The memory of a copy that is dense.
    fn dense(array: &Bound<'py, PyAny>, port: &Port) -> PyResult<Memory<'py>> {
        let py = array.py();
        let dtype = array.getattr("dtype")?;
        let native = dtype.call_method1("newbyteorder", ("=",))?;
        let copy = array.call_method1(intern!(py, "astype"), (native, "C"))?;
        let capsule = copy.getattr(intern!(py, "__array_struct__"))?;
        let memory = Memory::of(&copy, capsule, &port.name)?;
        let (memory, _) = memory.ok_or_else(|| {
            error::usage(format!("`{}` cannot be copied to a dense array", port.name))
        })?;
        Ok(memory)
    }

    /// With whether it may be written; `None` if it is not dense, row-major and in this machine's
    /// order of bytes.
    fn of(
        array: &Bound<'py, PyAny>,
        capsule: Bound<'py, PyAny>,
        name: &str,
    ) -> PyResult<Option<(Memory<'py>, bool)>> {
        let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(None)?;
        // SAFETY: that is what the attribute of this name holds; the capsule keeps it.
        let interface = unsafe { pointer.cast::<ArrayInterface>().as_ref() };
        let (item, rank) = (interface.item_bytes as usize, interface.rank as usize);
        let dtype = match dtype::of_kind(interface.kind as u8, item) {
            Some(dtype) => dtype,
            None => other_dtype(array, name)?,
        };
        let wanted = ROW_MAJOR | NATIVE_BYTES;
        if interface.flags & wanted != wanted {
            return Ok(None);
        }
        let shape = interface.shape.cast::<usize>();
        let memory = Memory {
            dtype,
            shape,
            rank,
            address: interface.data.cast(),
            bytes: elements(shape, rank) * item,
            _owner: capsule,
        };
        Ok(Some((memory, interface.flags & WRITABLE != 0)))
    }

    fn lent(lent: dlpack::Lent<'py>) -> Memory<'py> {
        let dlpack::Lent { capsule, dtype, address, shape, rank } = lent;
        let bytes = elements(shape, rank) * dtype.size();
        Memory { _owner: capsule, dtype, shape, rank, address, bytes }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        if self.rank == 0 {
            return &[];
        }
        // SAFETY: the owner keeps a list of `rank` extents, none of which is negative.
        unsafe { std::slice::from_raw_parts(self.shape, self.rank) }
    }

    /// The elements, to read.
    pub(crate) fn view(&self) -> PyResult<View<'_>> {
        // SAFETY: the owner keeps memory of that many bytes. That nobody writes to it meanwhile is
        // the caller's promise, as with every function of NumPy that lets other threads run.
        let bytes = unsafe { std::slice::from_raw_parts(self.place(), self.bytes) };
        View::new(self.dtype, self.shape(), bytes).map_err(error::data)
    }

    /// The elements, to write.
    pub(crate) fn view_mut(&mut self) -> PyResult<ViewMut<'_>> {
        // SAFETY: as above; the array is writable, and `overlaps` told that no other view is of it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.place().cast_mut(), self.bytes) };
        ViewMut::new(self.dtype, self.shape(), bytes).map_err(error::data)
    }

    /// Whether some memory is of both.
    pub(crate) fn overlaps(&self, other: &Memory<'_>) -> bool {
        let (a, b) = (self.address as usize, other.address as usize);
        a < b + other.bytes && b < a + self.bytes && self.bytes > 0 && other.bytes > 0
    }

    /// A slice without elements has an address too.
    fn place(&self) -> *const u8 {
        if self.bytes == 0 { std::ptr::dangling() } else { self.address }
    }
}

fn elements(shape: *const usize, rank: usize) -> usize {
    // SAFETY: whoever gives the list promises `rank` extents.
    (0..rank).map(|i| unsafe { *shape.add(i) }).product()
}

/// Types that NumPy has from elsewhere, or that ansc lacks.
fn other_dtype(array: &Bound<'_, PyAny>, name: &str) -> PyResult<DType> {
    let found: String = array.getattr("dtype")?.getattr("name")?.extract()?;
    match found.as_str() {
        "bfloat16" => Ok(DType::BF16),
        _ => Err(error::data(format!("`{name}` has elements of type {found}, which ansc lacks"))),
    }
}
