//! Instructions of one operation.

use ansc_graph::{BinOp, UnOp};
use ansc_runtime::DType;

/// The operands of an operation.
#[derive(Clone, Copy)]
pub(super) struct On {
    pub(super) dtype: DType,
    /// Registers that its lanes take, and the lanes.
    pub(super) registers: usize,
    pub(super) lanes: usize,
}

/// Around a call of the C library: a lane is taken out, and put back.
const CALL: usize = 6;
/// A division of integers, of one lane.
const DIVISION: usize = 6;

pub(super) fn unary(op: UnOp, on: On) -> usize {
    use UnOp::*;
    let in_registers = match op {
        Exp if on.dtype != DType::F64 => 18,
        Sigmoid if on.dtype != DType::F64 => 28,
        Log if on.dtype != DType::F64 => 26,
        Tanh if on.dtype != DType::F64 => 18,
        Erf if on.dtype != DType::F64 => 20,
        Exp | Log | Tanh | Sigmoid | Erf | Sin | Cos | Tan | Asin | Acos | Atan | Sinh | Cosh
        | Asinh | Acosh | Atanh => return on.lanes * CALL,
        Sign | Tf32 => 3,
        IsInf => 2,
        Neg | Abs | Not | Sqrt | Floor | Ceil | Round | Trunc | IsNan => 1,
    };
    (in_registers + rounding(on.dtype)) * on.registers
}

pub(super) fn binary(op: BinOp, on: On, by_constant: bool) -> usize {
    use BinOp::*;
    let float = on.dtype.is_float();
    let in_registers = match op {
        Pow => return on.lanes * CALL,
        Rem | FloorMod if float => return on.lanes * CALL,
        Div | Rem | FloorDiv | FloorMod if !float => match by_constant {
            true => return on.registers * DIVISION,
            false => return on.lanes * DIVISION,
        },
        Mul if on.dtype.size() == 8 && !float => 3,
        Mul if on.dtype.size() == 1 => 4,
        Min | Max if float && !by_constant => 3,
        FloorDiv => 2,
        Dot4 | Dot2 | DotBf16 => 2,
        PairBf16 => 3,
        Mix => 10,
        _ => 1,
    };
    let rounding = if op.is_comparison() { 0 } else { rounding(on.dtype) };
    (in_registers + rounding) * on.registers
}

/// From one type to another, whose lanes take so many registers.
pub(super) fn cast(from: On, to: On) -> usize {
    let saturates = from.dtype.is_float() && !to.dtype.is_float() && to.dtype != DType::Bool;
    let each = if saturates { 8 } else { 1 };
    each * from.registers.max(to.registers) + rounding(to.dtype) * to.registers
}

/// Half floats round after every operation.
fn rounding(dtype: DType) -> usize {
    match dtype {
        DType::F16 => 2,
        DType::BF16 => 6,
        _ => 0,
    }
}
