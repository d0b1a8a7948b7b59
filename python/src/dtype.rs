//! Element types, as NumPy names them.

use ansc_runtime::DType;
use pyo3::intern;
use pyo3::prelude::*;

use crate::error;

/// The name of a type in NumPy, which for bfloat16 has it from the package `ml_dtypes`.
pub(crate) fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
    }
}

/// The type of NumPy's kind letter and a size in bytes.
pub(crate) fn of_kind(kind: u8, bytes: usize) -> Option<DType> {
    Some(match (kind, bytes) {
        (b'b', 1) => DType::Bool,
        (b'u', 1) => DType::U8,
        (b'u', 2) => DType::U16,
        (b'u', 4) => DType::U32,
        (b'u', 8) => DType::U64,
        (b'i', 1) => DType::I8,
        (b'i', 2) => DType::I16,
        (b'i', 4) => DType::I32,
        (b'i', 8) => DType::I64,
        (b'f', 2) => DType::F16,
        (b'f', 4) => DType::F32,
        (b'f', 8) => DType::F64,
        _ => return None,
    })
}

/// The object of NumPy for a type; `port` is for the message.
pub(crate) fn object<'py>(
    py: Python<'py>,
    dtype: DType,
    port: &str,
) -> PyResult<Bound<'py, PyAny>> {
    if dtype == DType::BF16 {
        let package = py.import(intern!(py, "ml_dtypes")).map_err(|_| {
            error::machine(format!(
                "`{port}` is of type bfloat16, for which NumPy needs another package: pip install ml_dtypes"
            ))
        })?;
        return py.import("numpy")?.call_method1("dtype", (package.getattr("bfloat16")?,));
    }
    py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "dtype"), (name(dtype),))
}
