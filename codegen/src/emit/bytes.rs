//! Four bytes that lie side by side, loaded at once.
//!
//! ```text
//! i32(a[k * 4]) | i32(a[k * 4 + 1]) << 8 | i32(a[k * 4 + 2]) << 16 | i32(a[k * 4 + 3]) << 24
//! =>
//! load i32, a + k * 4
//! ```
//!
//! In a vector whose lanes are four bytes apart, a vector of them. Every target has the lowest byte
//! first.

use ansc_graph::{BinOp, BufId, Expr};
use ansc_runtime::DType;
use inkwell::values::BasicValue;

use crate::affine::Affine;
use crate::emit::function::{Emitter, Result};
use crate::emit::ir::{Kind, Reg};
use crate::emit::memory::Pattern;

impl<'c> Emitter<'c, '_> {
    /// None where the expression is anything else, or where lanes are not active.
    pub(crate) fn four_bytes(&mut self, e: &Expr) -> Result<Option<Reg<'c>>> {
        let Some((buffer, first)) = self.side_by_side(e).filter(|_| self.mask.is_none()) else {
            return Ok(None);
        };
        let (base, lanes) = match self.pattern(&first) {
            Pattern::Strided { base, stride: 0 } => (base, None),
            Pattern::Strided { base, stride: 4 } => (base, self.lanes.map(|l| l.count)),
            _ => return Ok(None),
        };
        let ty = self.ir.ty(Kind::Int(32), lanes);
        let (at, align) = self.pointer(buffer, &base)?;
        let word = self.ir.load(ty, at, align);
        self.describe_access(buffer, word.as_instruction_value())?;
        Ok(Some(word))
    }

    /// The buffer and the place of the lowest byte.
    fn side_by_side(&self, e: &Expr) -> Option<(BufId, Affine)> {
        let mut bytes = [None, None, None, None];
        let mut open = vec![e];
        while let Some(e) = open.pop() {
            match e {
                Expr::Binary(BinOp::Or, a, b) => open.extend([&**a, &**b]),
                Expr::Binary(BinOp::Shl, x, amount) => {
                    let amount = usize::try_from(amount.as_const()?.as_i64()).ok()?;
                    let place = bytes.get_mut(amount / 8).filter(|_| amount.is_multiple_of(8))?;
                    *place = Some(self.byte(x)?);
                }
                e => bytes[0] = Some(self.byte(e)?),
            }
        }
        let [first, rest @ ..] = bytes;
        let (buffer, flat) = first?;
        let follows = |(i, byte): (i64, Option<(BufId, Affine)>)| {
            byte == Some((buffer, flat.clone().plus(&Affine::constant(i))))
        };
        (1..).zip(rest).all(follows).then_some((buffer, flat))
    }

    /// The place that a byte is loaded from, and widened without a sign.
    fn byte(&self, e: &Expr) -> Option<(BufId, Affine)> {
        let Expr::Cast(DType::I32, mut x) = e.clone() else { return None };
        if self.dtype(&x) != DType::U8 {
            return None;
        }
        loop {
            *x = match *x {
                Expr::Load(buffer, at) => return Some((buffer, self.flatten(buffer, &at))),
                Expr::Cast(DType::U8, inner) if self.dtype(&inner) == DType::I8 => *inner,
                Expr::Select(c, a, b) => {
                    if self.decide(&c)? {
                        *a
                    } else {
                        *b
                    }
                }
                _ => return None,
            };
        }
    }
}
