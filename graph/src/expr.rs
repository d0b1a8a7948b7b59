//! The expression language that all levels share.
//!
//! An [`Expr`] is a typed scalar computed at one point of an iteration space. In a
//! [`Stage`](crate::Stage) variables are the stage's axes and buffers are its sources; in a
//! scheduled program variables are loops and block iterators. The same tree, printer, parser,
//! simplifier and evaluator serve both.
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
//! - `Dot4` is of `i32` alone, each of which stands for four bytes: those on the left without a
//!   sign, those on the right with one. It is the sum of the four products, exact: what machines
//!   have an instruction for. `dot4(0x04030201, 0xfcfdfeff) = 1 * -1 + 2 * -2 + 3 * -3 + 4 * -4`.
//! - `Dot2` is of `i32` alone, too: each stands for two integers of 16 bits with signs. It is the
//!   sum of both products, modulo 2^32. `dot2(0x00020001, 0xfffeffff) = 1 * -1 + 2 * -2`.
//! - `Tf32` is of `f32` alone: `x` with 11 bits of significand, halves rounded away from zero.
//!   Tensor cores read as many bits of a float.
//! - `PairBf16` is of `f32` alone and gives an `i32`: both operands rounded to `bf16`, the left one
//!   in the lower half. `DotBf16` is of two such pairs and gives an `f32`: the sum of the products
//!   of the lower halves and of the upper ones. Code generation may round it with what it is added
//!   to, and take subnormal halves for zeros: so does the instruction that machines have for it.
//! - `Mix` is of `u32` alone: what random numbers are made of. Each bit of the result depends on
//!   all bits of both operands. It begins with `x = a + b * 0x9e3779b1`; then come `x ^= x >> n`
//!   for 16, 15 and 16, and products with `0x7feb352d` and `0x846ca68b` between these.

use std::collections::BTreeSet;

use ansc_runtime::DType;

use crate::scalar::Scalar;

macro_rules! index_type {
    ($(#[$doc:meta] $name:ident $prefix:literal),* $(,)?) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(pub u32);

        impl $name {
            /// The id number `index`, counted from 0.
            #[inline]
            pub fn new(index: usize) -> $name {
                $name(u32::try_from(index).expect("fewer than 2^32 entities"))
            }

            /// The number as a place in a list.
            #[inline]
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
    /// A constant.
    Const(Scalar),
    /// The `i64` value of an axis, loop or iterator.
    Var(VarId),
    /// An element of a buffer, with an index for each axis.
    Load(BufId, Vec<Expr>),
    /// An operation on one operand.
    Unary(UnOp, Box<Expr>),
    /// An operation on two operands of one type.
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// The second operand if the first, a `bool`, holds; else the third.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// The operand converted to this type.
    Cast(DType, Box<Expr>),
}

/// An operation on one operand. Its result has the operand's type, except for [`UnOp::IsNan`] and
/// [`UnOp::IsInf`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum UnOp {
    /// `-x`.
    Neg,
    /// `x` without its sign.
    Abs,
    /// -1, 0 or 1 of the operand's own type; NaN stays NaN.
    Sign,
    /// Logical on `bool`, bitwise on integers.
    Not,
    /// `e` to the power of `x`.
    Exp,
    /// The natural logarithm.
    Log,
    /// The square root.
    Sqrt,
    /// The hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The error function.
    Erf,
    /// The sine of radians.
    Sin,
    /// The cosine of radians.
    Cos,
    /// The tangent of radians.
    Tan,
    /// The inverse of the sine, in radians.
    Asin,
    /// The inverse of the cosine, in radians.
    Acos,
    /// The inverse of the tangent, in radians.
    Atan,
    /// The hyperbolic sine.
    Sinh,
    /// The hyperbolic cosine.
    Cosh,
    /// The inverse of the hyperbolic sine.
    Asinh,
    /// The inverse of the hyperbolic cosine.
    Acosh,
    /// The inverse of the hyperbolic tangent.
    Atanh,
    /// The largest integer that is not above `x`.
    Floor,
    /// The smallest integer that is not below `x`.
    Ceil,
    /// To nearest, ties to even.
    Round,
    /// `x` without its fraction.
    Trunc,
    /// `x` with as many bits as tensor cores read of an `f32`.
    Tf32,
    /// A `bool`: whether the float is NaN.
    IsNan,
    /// A `bool`: whether the float is an infinity of either sign.
    IsInf,
}

/// An operation on two operands of one type. Comparisons give `bool`, those of pairs what they say,
/// and all others the operands' type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum BinOp {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`; integers truncate.
    Div,
    /// The remainder of truncating division, with the sign of `a`.
    Rem,
    /// `a / b`, rounded to minus infinity.
    FloorDiv,
    /// The remainder of [`BinOp::FloorDiv`], with the sign of `b`.
    FloorMod,
    /// `a` to the power of `b`.
    Pow,
    /// The smaller operand; NaN if either is.
    Min,
    /// The larger operand; NaN if either is.
    Max,
    /// Logical on `bool`, bitwise on integers.
    And,
    /// Logical on `bool`, bitwise on integers.
    Or,
    /// Logical on `bool`, bitwise on integers.
    Xor,
    /// `a` moved by `b` bits towards the highest.
    Shl,
    /// `a` moved by `b` bits towards the lowest.
    Shr,
    /// Whether `a` equals `b`.
    Eq,
    /// Whether `a` differs from `b`.
    Ne,
    /// Whether `a` is less than `b`.
    Lt,
    /// Whether `a` is at most `b`.
    Le,
    /// The sum of the products of four bytes, `a`'s without a sign and `b`'s with one.
    Dot4,
    /// The sum of the products of two integers of 16 bits.
    Dot2,
    /// Two floats as a pair of `bf16`.
    PairBf16,
    /// The sum of the products of two pairs of `bf16`.
    DotBf16,
    /// The bits of both operands, mixed.
    Mix,
}

impl UnOp {
    /// Every operation once, in the order of the variants.
    pub const ALL: [UnOp; 28] = {
        use UnOp::*;
        [
            Neg, Abs, Sign, Not, Exp, Log, Sqrt, Tanh, Sigmoid, Erf, Sin, Cos, Tan, Asin, Acos,
            Atan, Sinh, Cosh, Asinh, Acosh, Atanh, Floor, Ceil, Round, Trunc, Tf32, IsNan, IsInf,
        ]
    };

    /// As in the text of expressions, such as `is_nan`.
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
            UnOp::Tf32 => "tf32",
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
    /// Every operation once, in the order of the variants.
    pub const ALL: [BinOp; 24] = {
        use BinOp::*;
        [
            Add, Sub, Mul, Div, Rem, FloorDiv, FloorMod, Pow, Min, Max, And, Or, Xor, Shl, Shr, Eq,
            Ne, Lt, Le, Dot4, Dot2, PairBf16, DotBf16, Mix,
        ]
    };

    /// As in the text of expressions, such as `floor_div`.
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
            BinOp::Dot2 => "dot2",
            BinOp::PairBf16 => "pair_bf16",
            BinOp::DotBf16 => "dot_bf16",
            BinOp::Mix => "mix",
        }
    }

    /// Whether the result is a `bool` that tells how two operands compare.
    pub const fn is_comparison(self) -> bool {
        matches!(self, BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le)
    }

    /// The type of the result for operands of type `dtype`.
    pub const fn result(self, dtype: DType) -> DType {
        match self {
            BinOp::PairBf16 => DType::I32,
            BinOp::DotBf16 => DType::F32,
            _ if self.is_comparison() => DType::Bool,
            _ => dtype,
        }
    }
}

/// Construction. These fold nothing; see the simplifier for that.
impl Expr {
    /// An `i64` constant that is an index or an extent.
    pub fn index(value: usize) -> Expr {
        Expr::int(i64::try_from(value).expect("an index fits i64"))
    }

    /// An `i64` constant.
    pub fn int(value: i64) -> Expr {
        Expr::Const(Scalar::index(value))
    }

    /// A constant rounded to this type.
    pub fn float(dtype: DType, value: f64) -> Expr {
        Expr::Const(Scalar::from_f64(dtype, value))
    }

    /// A `bool` constant.
    pub fn bool(value: bool) -> Expr {
        Expr::Const(Scalar::bool(value))
    }

    /// The variable of this number.
    pub fn var(index: usize) -> Expr {
        Expr::Var(VarId::new(index))
    }

    /// An element of the buffer of this number.
    pub fn load(buffer: usize, indices: Vec<Expr>) -> Expr {
        Expr::Load(BufId::new(buffer), indices)
    }

    /// `op(x)`.
    pub fn unary(op: UnOp, x: Expr) -> Expr {
        Expr::Unary(op, Box::new(x))
    }

    /// `op(a, b)`.
    pub fn binary(op: BinOp, a: Expr, b: Expr) -> Expr {
        Expr::Binary(op, Box::new(a), Box::new(b))
    }

    /// `then` where `condition` holds, else `other`, which is not evaluated there.
    pub fn select(condition: Expr, then: Expr, other: Expr) -> Expr {
        Expr::Select(Box::new(condition), Box::new(then), Box::new(other))
    }

    /// A conversion, left out where `from` is already `to`.
    pub fn cast(from: DType, to: DType, x: Expr) -> Expr {
        if from == to { x } else { Expr::Cast(to, Box::new(x)) }
    }

    /// The quotient by an `i64` constant, rounded to minus infinity.
    pub fn floor_div(self, b: i64) -> Expr {
        Expr::binary(BinOp::FloorDiv, self, Expr::int(b))
    }

    /// The remainder of [`Expr::floor_div`].
    pub fn floor_mod(self, b: i64) -> Expr {
        Expr::binary(BinOp::FloorMod, self, Expr::int(b))
    }

    /// The smaller of two.
    pub fn min(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Min, self, b)
    }

    /// The larger of two.
    pub fn max(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Max, self, b)
    }

    /// Whether this is less than `b`.
    pub fn lt(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Lt, self, b)
    }

    /// Whether this is at most `b`.
    pub fn le(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Le, self, b)
    }

    /// Whether this equals `b`.
    pub fn eq(self, b: Expr) -> Expr {
        Expr::binary(BinOp::Eq, self, b)
    }

    /// Whether both hold; of integers, the bits that both have.
    pub fn and(self, b: Expr) -> Expr {
        Expr::binary(BinOp::And, self, b)
    }

    /// Whether one of them holds; of integers, the bits that either has.
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

    /// Whether both are the same but for their operands; loads may have more or fewer of them.
    pub fn is_same_node(&self, other: &Expr) -> bool {
        match (self, other) {
            (Expr::Const(a), Expr::Const(b)) => a == b,
            (Expr::Var(a), Expr::Var(b)) => a == b,
            (Expr::Load(a, _), Expr::Load(b, _)) => a == b,
            (Expr::Unary(a, _), Expr::Unary(b, _)) => a == b,
            (Expr::Binary(a, ..), Expr::Binary(b, ..)) => a == b,
            (Expr::Cast(a, _), Expr::Cast(b, _)) => a == b,
            (Expr::Select(..), Expr::Select(..)) => true,
            _ => false,
        }
    }

    /// `a && b && c` as its parts, left to right.
    pub fn conjuncts(&self) -> Vec<&Expr> {
        match self {
            Expr::Binary(BinOp::And, a, b) => [a.conjuncts(), b.conjuncts()].concat(),
            one => vec![one],
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

    /// All variables in the tree.
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

    /// The constant, if the expression is nothing else.
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
