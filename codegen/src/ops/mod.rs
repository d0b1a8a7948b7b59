//! Scalar operations of the expression language as LLVM IR, on scalars and vectors alike.
//!
//! Operands are registers of an element type's compute kind: `bool` is `i1`, half floats are `f32`
//! that hold a representable value, everything else is itself.

mod arith;
mod cast;
mod dot2;
mod dot4;
mod dot_bf16;
pub(crate) mod half;
mod narrow;
mod unary;

pub(crate) use arith::{binary, combine};
pub(crate) use cast::cast;
pub(crate) use dot_bf16::{dot_bf16, pair_bf16};
pub(crate) use dot2::dot2;
pub(crate) use dot4::{Bytes, call, dot4};
pub(crate) use narrow::{limited, rounded};
pub(crate) use unary::unary;

use ansc_graph::Scalar;
use ansc_runtime::DType;

use inkwell::IntPredicate;

use crate::ir::{Ir, Kind, Reg};
use crate::target::Target;

/// The kind of a register that holds a value of the type.
pub(crate) fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::Bool => Kind::Int(1),
        DType::U8 | DType::I8 => Kind::Int(8),
        DType::U16 | DType::I16 => Kind::Int(16),
        DType::U32 | DType::I32 => Kind::Int(32),
        DType::U64 | DType::I64 => Kind::Int(64),
        DType::F16 | DType::BF16 | DType::F32 => Kind::F32,
        DType::F64 => Kind::F64,
    }
}

/// The kind that a value of the type has in memory.
pub(crate) fn stored(dtype: DType) -> Kind {
    match dtype {
        DType::Bool => Kind::Int(8),
        DType::F16 | DType::BF16 => Kind::Int(16),
        other => kind(other),
    }
}

pub(crate) fn constant<'c>(ir: &Ir<'c>, value: Scalar, lanes: Option<u32>) -> Reg<'c> {
    match kind(value.dtype()) {
        Kind::Int(bits) => ir.int(bits, value.as_i64(), lanes),
        float => ir.float(float, value.as_f64(), lanes),
    }
}

/// An operation that has no meaning for an element type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{op}` is not defined on {dtype}")]
pub(crate) struct Undefined {
    pub(crate) op: &'static str,
    pub(crate) dtype: DType,
}

/// A register from what was loaded.
pub(crate) fn from_stored<'c>(ir: &Ir<'c>, target: &Target, dtype: DType, raw: Reg<'c>) -> Reg<'c> {
    match dtype {
        DType::Bool => ir.icmp(IntPredicate::NE, raw, ir.same(raw, 0.0)),
        DType::F16 | DType::BF16 => half::from_bits(ir, target, dtype, raw),
        _ => raw,
    }
}

/// The value to store in memory for a register.
pub(crate) fn to_stored<'c>(ir: &Ir<'c>, target: &Target, dtype: DType, value: Reg<'c>) -> Reg<'c> {
    match dtype {
        DType::Bool => ir.resize(value, 8, false),
        DType::F16 | DType::BF16 => half::to_bits(ir, target, dtype, value),
        _ => value,
    }
}
