//! Group 1: how many operations of each kind the stored values take, index arithmetic of loads
//! included.
//!
//! Comparisons, minima and maxima are `cmp`; logic on `bool` is `bool_op`; functions, powers, and
//! bits of integers are `mathfunc`. The entries `mad` and `otherfunc` keep the layout; nothing
//! counts as such.

use ansc_graph::{BinOp, BufId, Expr, UnOp};
use ansc_runtime::DType;

pub(super) const LEN: usize = 16;

pub(super) const NAMES: [&str; LEN] = [
    "float_mad",
    "float_addsub",
    "float_mul",
    "float_divmod",
    "float_cmp",
    "float_mathfunc",
    "float_otherfunc",
    "int_mad",
    "int_addsub",
    "int_mul",
    "int_divmod",
    "int_cmp",
    "int_mathfunc",
    "int_otherfunc",
    "bool_op",
    "select_op",
];

/// The place of a kind among those of floats; those of integers come `INT` later.
const ADD_SUB: usize = 1;
const MUL: usize = 2;
const DIV_MOD: usize = 3;
const CMP: usize = 4;
const MATH: usize = 5;
const INT: usize = 7;
const BOOL: usize = 14;
const SELECT: usize = 15;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Counts([f64; LEN]);

impl Counts {
    /// Counts what `e` calculates and returns its type.
    pub(super) fn count(&mut self, e: &Expr, dtype: &impl Fn(BufId) -> DType) -> DType {
        match e {
            Expr::Const(s) => s.dtype(),
            Expr::Var(_) => DType::I64,
            Expr::Load(buffer, indices) => {
                indices.iter().for_each(|i| _ = self.count(i, dtype));
                dtype(*buffer)
            }
            Expr::Unary(op, x) => {
                let operand = self.count(x, dtype);
                self.unary(*op, operand);
                op.result(operand)
            }
            Expr::Binary(op, a, b) => {
                let operand = self.count(a, dtype);
                self.count(b, dtype);
                self.binary(*op, operand);
                op.result(operand)
            }
            Expr::Select(c, a, b) => {
                self.count(c, dtype);
                self.count(b, dtype);
                self.select();
                self.count(a, dtype)
            }
            Expr::Cast(to, x) => {
                self.count(x, dtype);
                *to
            }
        }
    }

    fn unary(&mut self, op: UnOp, operand: DType) {
        match op {
            // A difference from zero.
            UnOp::Neg => self.arithmetic(ADD_SUB, operand),
            UnOp::Not if operand == DType::Bool => self.0[BOOL] += 1.0,
            _ => self.arithmetic(MATH, op.result(operand)),
        }
    }

    pub(super) fn binary(&mut self, op: BinOp, operand: DType) {
        use BinOp::*;
        match op {
            Add | Sub => self.arithmetic(ADD_SUB, operand),
            Mul => self.arithmetic(MUL, operand),
            Div | Rem | FloorDiv | FloorMod => self.arithmetic(DIV_MOD, operand),
            Min | Max | Eq | Ne | Lt | Le => self.arithmetic(CMP, operand),
            And | Or | Xor if operand == DType::Bool => self.0[BOOL] += 1.0,
            And | Or | Xor | Shl | Shr | Pow => self.arithmetic(MATH, operand),
            PairBf16 => self.arithmetic(MATH, op.result(operand)),
            Dot4 | Dot2 | DotBf16 | Mix => {
                let Some(parts) = op.parts() else { return };
                let kinds = [(MUL, parts.products), (ADD_SUB, parts.sums), (MATH, parts.others)];
                for (kind, times) in kinds {
                    (0..times).for_each(|_| self.arithmetic(kind, op.result(operand)));
                }
            }
        }
    }

    pub(super) fn select(&mut self) {
        self.0[SELECT] += 1.0;
    }

    fn arithmetic(&mut self, kind: usize, dtype: DType) {
        self.0[if dtype.is_float() { kind } else { kind + INT }] += 1.0;
    }

    /// All operations on floats.
    pub(super) fn floats(&self) -> f64 {
        self.0[..INT].iter().sum()
    }

    pub(super) fn add_to(&self, executions: f64, out: &mut [f64]) {
        for (total, count) in out.iter_mut().zip(self.0) {
            *total += executions * count;
        }
    }
}
