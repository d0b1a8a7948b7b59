//! Tensors of other libraries by DLPack: where their memory is, without a copy.
//!
//! In: an object with `__dlpack__`. Out: address, type, extents and strides, which hold as long as
//! the capsule lives. The capsule is not consumed: when it goes, it tells the other library so
//! itself.

use std::ffi::{CStr, c_void};

use ansc_runtime::DType;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

const NAME: &CStr = c"dltensor";
/// Devices whose memory a CPU reads as its own: `kDLCPU`, `kDLCUDAHost`, `kDLROCMHost`.
const ON_HOST: [i32; 3] = [1, 3, 11];

/// `DLTensor` of `dlpack.h`, which begins a `DLManagedTensor`.
#[repr(C)]
struct DlTensor {
    data: *const c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// A tensor that another library lends.
pub(crate) struct Lent<'py> {
    /// Keeps the memory, and the extents.
    pub(crate) capsule: Bound<'py, PyAny>,
    pub(crate) dtype: DType,
    pub(crate) address: *const u8,
    pub(crate) shape: *const usize,
    pub(crate) rank: usize,
}

/// The tensor in an object's capsule; `None` if it does not lie densely in row-major order in this
/// machine's memory, or has elements that ansc lacks.
pub(crate) fn lent<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Lent<'py>>> {
    let py = object.py();
    let capsule = object.call_method0(intern!(py, "__dlpack__"))?;
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(NAME))?;
    // SAFETY: a capsule of this name holds a `DLManagedTensor`, which begins with a `DLTensor`.
    let tensor = unsafe { pointer.cast::<DlTensor>().as_ref() };
    let Some(dtype) = dtype(tensor) else { return Ok(None) };
    if !ON_HOST.contains(&tensor.device_type) || !is_dense(tensor) {
        return Ok(None);
    }
    let address = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    // Extents are not negative, so they read the same without a sign.
    let (shape, rank) = (tensor.shape.cast::<usize>(), tensor.ndim as usize);
    Ok(Some(Lent { capsule, dtype, address, shape, rank }))
}

fn dtype(tensor: &DlTensor) -> Option<DType> {
    let bytes = usize::from(tensor.bits / 8);
    let is_whole = tensor.lanes == 1 && tensor.bits.is_multiple_of(8);
    match tensor.code {
        _ if !is_whole => None,
        0 => crate::dtype::of_kind(b'i', bytes),
        1 => crate::dtype::of_kind(b'u', bytes),
        2 => crate::dtype::of_kind(b'f', bytes),
        4 if bytes == 2 => Some(DType::BF16),
        6 => crate::dtype::of_kind(b'b', bytes),
        _ => None,
    }
}

/// Strides count elements; null means dense.
fn is_dense(tensor: &DlTensor) -> bool {
    let rank = tensor.ndim as usize;
    if tensor.strides.is_null() || rank == 0 {
        return true;
    }
    // SAFETY: both lists have an entry for each of `ndim` dimensions.
    let (shape, strides) = unsafe {
        (
            std::slice::from_raw_parts(tensor.shape, rank),
            std::slice::from_raw_parts(tensor.strides, rank),
        )
    };
    let mut expected = 1;
    shape.contains(&0)
        || shape.iter().zip(strides).rev().all(|(&extent, &stride)| {
            let dense = extent == 1 || stride == expected;
            expected *= extent;
            dense
        })
}
