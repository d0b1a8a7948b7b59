//! Functions of the C library, called for one lane at a time.
//!
//! The process that runs an artifact has `libm` loaded; `f64` and rare `f32` functions rely on it.

use ansc_graph::UnOp;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::values::{BasicMetadataValueEnum, FunctionValue};

use crate::ir::{Ir, Kind, Reg, lanes};

/// All that is ever called: those that round by LLVM, where a processor has no instruction for it.
pub(crate) const FUNCTIONS: &[&str] = &[
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "floor",
    "fmod",
    "log",
    "pow",
    "roundeven",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "trunc",
];

pub(crate) fn unary<'c>(ir: &Ir<'c>, op: UnOp, x: Reg<'c>) -> Option<Reg<'c>> {
    let name = match op {
        UnOp::Exp => "exp",
        UnOp::Log => "log",
        UnOp::Tanh => "tanh",
        UnOp::Erf => "erf",
        UnOp::Sin => "sin",
        UnOp::Cos => "cos",
        UnOp::Tan => "tan",
        UnOp::Asin => "asin",
        UnOp::Acos => "acos",
        UnOp::Atan => "atan",
        UnOp::Sinh => "sinh",
        UnOp::Cosh => "cosh",
        UnOp::Asinh => "asinh",
        UnOp::Acosh => "acosh",
        UnOp::Atanh => "atanh",
        UnOp::Sigmoid => {
            let one = ir.same(x, 1.0);
            return Some(ir.fdiv(one, ir.add(one, call(ir, "exp", &[ir.neg(x)]))));
        }
        _ => return None,
    };
    Some(call(ir, name, &[x]))
}

/// Calls `name` (`namef` on `f32`) for each lane. Where denormal operands count as zeros they are
/// zeros before the call: libraries scale them up to normal ones, which a zero never becomes.
pub(crate) fn call<'c>(ir: &Ir<'c>, name: &str, args: &[Reg<'c>]) -> Reg<'c> {
    debug_assert!(FUNCTIONS.contains(&name), "{name}");
    let function = declare(ir, name, ir.kind(args[0]), args.len());
    let one = |args: &[Reg<'c>]| {
        let args: Vec<BasicMetadataValueEnum<'c>> = args.iter().map(|&a| a.into()).collect();
        let call = ir.builder.build_call(function, &args, "").expect("the builder is positioned");
        call.try_as_basic_value().basic().expect("the function returns a number")
    };
    let args: Vec<Reg<'c>> = args.iter().map(|&x| as_computed_with(ir, x)).collect();
    let Some(n) = lanes(args[0]) else { return one(&args) };
    let each: Vec<Reg<'c>> =
        (0..n).map(|i| one(&args.iter().map(|&a| ir.lane(a, i)).collect::<Vec<_>>())).collect();
    ir.join_lanes(&each)
}

/// `x`, but zero if a comparison says that it equals zero.
fn as_computed_with<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let zero = ir.same(x, 0.0);
    let equals_zero = ir.fcmp(inkwell::FloatPredicate::OEQ, x, zero);
    ir.select(equals_zero, ir.intrinsic("llvm.copysign", &[zero, x]), x)
}

fn declare<'c>(ir: &Ir<'c>, name: &str, kind: Kind, arity: usize) -> FunctionValue<'c> {
    let name = if kind == Kind::F32 { format!("{name}f") } else { name.to_owned() };
    if let Some(function) = ir.module.get_function(&name) {
        return function;
    }
    let float = ir.scalar_type(kind).into_float_type();
    let function =
        ir.module.add_function(&name, float.fn_type(&vec![float.into(); arity], false), None);
    for attribute in ["nounwind", "willreturn"] {
        let id = Attribute::get_named_enum_kind_id(attribute);
        function.add_attribute(AttributeLoc::Function, ir.context.create_enum_attribute(id, 0));
    }
    let id = Attribute::get_named_enum_kind_id("memory");
    function.add_attribute(AttributeLoc::Function, ir.context.create_enum_attribute(id, 0));
    function
}
