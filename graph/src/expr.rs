//! The expression language that all levels share.
//!
//! An [`Expr`] is a typed scalar computed at one point of an iteration space. In a [`Stage`](crate::Stage)
//! variables are the stage's axes and buffers are its sources; in a scheduled
//! program variables are loops and block iterators. The same tree, printer, parser, simplifier and
//! evaluator serve both.
//!
//! # Semantics
//! - Variables are `i64`. Every other type is known from the leaves; operands of a binary
//!   operation have the same type, nothing is converted implicitly.
//! - Integers wrap. `Div` of integers truncates, `Rem` has the sign of the dividend (as in C);
//!   `FloorDiv` and `FloorMod` round to minus infinity. Division of integers by zero gives zero.
//! - Floats are IEEE: an operation on `f16`/`bf16` is computed in `f32` and rounded. Code
//!   generation may contract `a * b + c` and use its own `exp`, `tanh`, ... within stated bounds;
//!   NaN and infinities are kept. `Min`/`Max` of floats give NaN if either side is NaN.
//! - Float to integer casts truncate and saturate (NaN gives 0); integer to integer casts wrap;
//!   anything to `bool` is `!= 0`.
//! - `Select(c, a, b)` evaluates only the chosen side: a load in the other one does not happen, so
//!   a guard makes an index that would be out of bounds legal. Loads that happen are in bounds.
//! - `Shl`/`Shr` by the width or more, or by a negative amount, move every bit out. An integer to a
//!   negative power gives the truncated reciprocal.
//! - `And`/`Or`/`Xor`/`Not` are logical on `bool` and bitwise on integers.
//! - `Dot4` is of `i32` alone, each of which stands for four bytes: those on the left without a sign, those on the right
//!   with one. It is the sum of the four products, exact: what machines have an instruction for.
//!   `dot4(0x04030201, 0xfcfdfeff) = 1 * -1 + 2 * -2 + 3 * -3 + 4 * -4`.

use std::collections::BTreeSet;

use ansc_runtime::DType;

use crate::scalar::Scalar;

macro_rules! index_type {
    ($(#[$doc:meta] $name:ident $prefix:literal),* $(,)?) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(pub u32);

        impl $name {
            pub fn new(index: usize) -> $name {
                $name(u32::try_from(index).expect("fewer than 2^32 entities"))
            }

            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

index_type! {
    /// A variable: an axis of a stage, or a loop or block iterator of a program.
    VarId "v",
    /// Something that elements are loaded from: a source of a stage, or a buffer of a program.
    BufId "b",
}

/// The order of expressions is arbitrary but fixed: canonical forms sort by it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Expr {
    Const(Scalar),
    Var(VarId),
    Load(BufId, Vec<Expr>),
    Unary(UnOp, Box<Expr>),
    Binary(BinOp, Box<Expr>, Box<Expr>),
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    Cast(DType, Box<Expr>),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum UnOp {
    Neg,
    Abs,
    Sign,
    Not,
    Exp,
    Log,
    Sqrt,
    Tanh,
    Sigmoid,
    Erf,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
    Floor,
    Ceil,
    /// To nearest, ties to even.
    Round,
    Trunc,
    IsNan,
    IsInf,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum BinOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    FloorDiv,
    FloorMod,
    Pow,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Dot4,
}

impl UnOp {
    pub const ALL: [UnOp; 27] = {
        use UnOp::*;
        [
            Neg, Abs, Sign, Not, Exp, Log, Sqrt, Tanh, Sigmoid, Erf, Sin, Cos, Tan, Asin, Acos,
            Atan, Sinh, Cosh, Asinh, Acosh, Atanh, Floor, Ceil, Round, Trunc, IsNan, IsInf,
        ]
    };

    pub const fn name(self) -> &'static str {
        match self {
            UnOp::Neg => "neg",
            UnOp::Abs => "abs",
            UnOp::Sign => "sign",
            UnOp::Not => "not",
            UnOp::Exp => "exp",
            UnOp::Log => "log",
            UnOp::Sqrt => "sqrt",
            UnOp::Tanh => "tanh",
            UnOp::Sigmoid => "sigmoid",
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
            UnOp::Floor => "floor",
            UnOp::Ceil => "ceil",
            UnOp::Round => "round",
            UnOp::Trunc => "trunc",
            UnOp::IsNan => "is_nan",
            UnOp::IsInf => "is_inf",
        }
    }

    /// The type of the result for an operand of type `dtype`.
    pub const fn result(self, dtype: DType) -> DType {
        match self {
            UnOp::IsNan | UnOp::IsInf => DType::Bool,
            _ => dtype,
        }
    }
}

impl BinOp {
    pub const ALL: [BinOp; 20] = {
        use BinOp::*;
        [
            Add, Sub, Mul, Div, Rem, FloorDiv, FloorMod, Pow, Min, Max, And, Or, Xor, Shl, Shr, Eq,
            Ne, Lt, Le, Dot4,
        ]
    };

    pub const fn name(self) -> &'static str {
        match self {
            BinOp::Add => "add",
            BinOp::Sub => "sub",
            BinOp::Mul => "mul",
            BinOp::Div => "div",
            BinOp::Rem => "rem",
            BinOp::FloorDiv => "floor_div",
            BinOp::FloorMod => "floor_mod",
            BinOp::Pow => "pow",
            BinOp::Min => "min",
            BinOp::Max => "max",
            BinOp::And => "and",
            BinOp::Or => "or",
            BinOp::Xor => "xor",
            BinOp::Shl => "shl",
            BinOp::Shr => "shr",
            BinOp::Eq => "eq",
            BinOp::Ne => "ne",
            BinOp::Lt => "lt",
            BinOp::Le => "le",
            BinOp::Dot4 => "dot4",
        }
    }

    pub const fn is_comparison(self) -> bool {
        matches!(self, BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le)
    }

    /// The type of the result for operands of type `dtype`.
    pub const fn result(self, dtype: DType) -> DType {
        if self.is_comparison() { DType::Bool } else { dtype }
    }
}

/// Construction. These fold nothing; see the simplifier for that.
impl Expr {
    pub fn index(value: usize) -> Expr {
        Expr::int(i64::try_from(value).expect("an index fits i64"))
    }

    pub fn int(value: i64) -> Expr {
        Expr::Const(Scalar::index(value))
    }

    pub fn float(dtype: DType, value: f64) -> Expr {
        Expr::Const(Scalar::from_f64(dtype, value))
    }

    pub fn bool(value: bool) -> Expr {
        Expr::Const(Scalar::bool(value))
    }

    pub fn var(index: usize) -> Expr {
        Expr::Var(VarId::new(index))
    }

    pub fn load(buffer: usize, indices: Vec<Expr>) -> Expr {
        Expr::Load(BufId::new(buffer), indices)
    }

    pub fn unary(op: UnOp, x: Expr) -> Expr {
        Expr::Unary(op, Box::new(x))
    }

    pub fn binary(op: BinOp, a: Expr, b: Expr) -> Expr {
        Expr::Binary(op, Box::new(a), Box::new(b))
    }

    pub fn select(condition: Expr, then: Expr, other: Expr) -> Expr {
        Expr::Select(Box::new(condition), Box::new(then), Box::new(other))
    }

    /// A conversion, left out where `from` is already `to`.
    pub fn cast(from: DType, to: DType, x: Expr) -> Expr {
        if from == to { x } else { Expr::Cast(to, Box::new(x)) }
    }

    pub fn floor_div(self, b: i64) -> Expr {
        Expr::binary(BinOp::FloorDiv, self, Expr::int(b))
    }

    pub fn floor_mod(self, b: i64) -> Expr {
        Expr::binary(BinOp::FloorMod, self, Expr::int(b))
    }

    pub fn min(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Min, self, b)
    }

    pub fn max(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Max, self, b)
    }

    pub fn lt(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Lt, self, b)
    }

    pub fn le(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Le, self, b)
    }

    pub fn eq(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Eq, self, b)
    }

    pub fn and(self, b: Expr) -> Expr {
        Expr::binary(BinOp::And, self, b)
    }

    pub fn or(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Or, self, b)
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident $op:ident),* $(,)?) => {$(
        impl std::ops::$trait for Expr {
            type Output = Expr;

            fn $method(self, other: Expr) -> Expr {
                Expr::binary(BinOp::$op, self, other)
            }
        }
    )*};
}

operator! { Add add Add, Sub sub Sub, Mul mul Mul, Div div Div }

/// Walking.
impl Expr {
    /// Direct operands, left to right.
    pub fn children(&self) -> Vec<&Expr> {
        match self {
            Expr::Const(_) | Expr::Var(_) => vec![],
            Expr::Load(_, indices) => indices.iter().collect(),
            Expr::Unary(_, x) | Expr::Cast(_, x) => vec![x],
            Expr::Binary(_, a, b) => vec![a, b],
            Expr::Select(c, a, b) => vec![c, a, b],
        }
    }

    /// The same node with every operand replaced by `f` of it.
    #[must_use]
    pub fn map_children(&self, mut f: impl FnMut(&Expr) -> Expr) -> Expr {
        match self {
            Expr::Const(_) | Expr::Var(_) => self.clone(),
            Expr::Load(buffer, indices) => Expr::Load(*buffer, indices.iter().map(f).collect()),
            Expr::Unary(op, x) => Expr::unary(*op, f(x)),
            Expr::Cast(to, x) => Expr::Cast(*to, Box::new(f(x))),
            Expr::Binary(op, a, b) => Expr::binary(*op, f(a), f(b)),
            Expr::Select(c, a, b) => Expr::select(f(c), f(a), f(b)),
        }
    }

    /// Calls `f` on this expression and everything below it, parents first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        f(self);
        match self {
            Expr::Const(_) | Expr::Var(_) => {}
            Expr::Load(_, indices) => indices.iter().for_each(|i| i.visit(f)),
            Expr::Unary(_, x) | Expr::Cast(_, x) => x.visit(f),
            Expr::Binary(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
            Expr::Select(c, a, b) => [c, a, b].into_iter().for_each(|x| x.visit(f)),
        }
    }

    /// Calls `f` on everything below this expression and on itself, operands first.
    pub fn visit_mut(&mut self, f: &mut impl FnMut(&mut Expr)) {
        match self {
            Expr::Const(_) | Expr::Var(_) => {}
            Expr::Load(_, indices) => indices.iter_mut().for_each(|i| i.visit_mut(f)),
            Expr::Unary(_, x) | Expr::Cast(_, x) => x.visit_mut(f),
            Expr::Binary(_, a, b) => {
                a.visit_mut(f);
                b.visit_mut(f);
            }
            Expr::Select(c, a, b) => [c, a, b].into_iter().for_each(|x| x.visit_mut(f)),
        }
        f(self);
    }

    /// Whether `f` holds for this expression or for one below it.
    pub fn any(&self, f: &mut impl FnMut(&Expr) -> bool) -> bool {
        f(self)
            || match self {
                Expr::Const(_) | Expr::Var(_) => false,
                Expr::Load(_, indices) => indices.iter().any(|i| i.any(f)),
                Expr::Unary(_, x) | Expr::Cast(_, x) => x.any(f),
                Expr::Binary(_, a, b) => a.any(f) || b.any(f),
                Expr::Select(c, a, b) => c.any(f) || a.any(f) || b.any(f),
            }
    }

    /// Rebuilds bottom-up: `f` sees each node after its operands were rebuilt and returns `Some`
    /// to replace it.
    #[must_use]
    pub fn rewrite(&self, f: &mut impl FnMut(&Expr) -> Option<Expr>) -> Expr {
        let rebuilt = self.map_children(|child| child.rewrite(f));
        f(&rebuilt).unwrap_or(rebuilt)
    }

    /// Replaces variables; `f` returns `None` to leave one as it is.
    #[must_use]
    pub fn substitute(&self, f: &impl Fn(VarId) -> Option<Expr>) -> Expr {
        match self {
            Expr::Var(v) => f(*v).unwrap_or_else(|| self.clone()),
            _ => self.map_children(|child| child.substitute(f)),
        }
    }

    pub fn vars(&self) -> BTreeSet<VarId> {
        let mut vars = BTreeSet::new();
        self.visit(&mut |e| {
            if let Expr::Var(v) = e {
                vars.insert(*v);
            }
        });
        vars
    }

    /// Every load, in order of appearance, repeated ones too.
    pub fn loads(&self) -> Vec<(BufId, &[Expr])> {
        let mut loads = Vec::new();
        self.visit(&mut |e| {
            if let Expr::Load(buffer, indices) = e {
                loads.push((*buffer, indices.as_slice()));
            }
        });
        loads
    }

    pub fn as_const(&self) -> Option<Scalar> {
        match self {
            Expr::Const(s) => Some(*s),
            _ => None,
        }
    }

    /// The element type, given the element types of buffers.
    pub fn dtype(&self, buffer: &impl Fn(BufId) -> DType) -> DType {
        match self {
            Expr::Const(s) => s.dtype(),
            Expr::Var(_) => DType::I64,
            Expr::Load(b, _) => buffer(*b),
            Expr::Unary(op, x) => op.result(x.dtype(buffer)),
            Expr::Binary(op, a, _) => op.result(a.dtype(buffer)),
            Expr::Select(_, a, _) => a.dtype(buffer),
            Expr::Cast(to, _) => *to,
        }
    }
}
