//! Bytes that lie side by side, loaded at once: four as one integer, or two that become words. The
//! same of two words, or of two `bf16` that become a pair.
//!
//! ```text
//! i32(a[k * 4]) | i32(a[k * 4 + 1]) << 8 | i32(a[k * 4 + 2]) << 16 | i32(a[k * 4 + 3]) << 24
//! =>
//! load i32, a + k * 4
//! ```
//!
//! In a vector whose lanes are four bytes apart, a vector of them. Every target has the lowest byte
//! first. Two words are one integer likewise.
//!
//! ```text
//! i32(a[k * 2]) | i32(a[k * 2 + 1]) << 16, a vector whose lanes are two bytes apart
//! =>
//! load bytes, a + k * 2; widen each to 16 bits
//! ```

use ansc_graph::{BinOp, BufId, Expr};
use ansc_runtime::DType;
use inkwell::values::BasicValue;

use crate::affine::Affine;
use crate::emit::function::{Emitter, Result};
use crate::emit::ir::{Kind, Reg};
use crate::emit::memory::Pattern;
use crate::ops;

impl<'c> Emitter<'c, '_> {
    /// Four bytes or two words. None where the expression is anything else, or where lanes are not
    /// active.
    pub(crate) fn one_integer(&mut self, e: &Expr) -> Result<Option<Reg<'c>>> {
        let bytes = self.side_by_side::<4>(e, DType::U8).map(|found| (found, 4));
        let found = bytes.or_else(|| Some((self.side_by_side::<2>(e, DType::U16)?, 2)));
        let Some(((buffer, first), elements)) = found.filter(|_| self.mask.is_none()) else {
            return Ok(None);
        };
        let (base, lanes) = match self.pattern(&first) {
            Pattern::Strided { base, stride: 0 } => (base, None),
            Pattern::Strided { base, stride } if stride == elements => {
                (base, self.lanes.map(|l| l.count))
            }
            _ => return Ok(None),
        };
        let ty = self.ir.ty(Kind::Int(32), lanes);
        let (at, align) = self.pointer(buffer, &base)?;
        let word = self.ir.load(ty, at, align);
        self.describe_access(buffer, word.as_instruction_value())?;
        Ok(Some(word))
    }

    /// Two bytes. None where the expression is anything else, or where lanes are not active.
    pub(crate) fn two_words(&mut self, e: &Expr) -> Result<Option<Reg<'c>>> {
        let found = self.side_by_side::<2>(e, DType::U8).filter(|_| self.mask.is_none());
        let (Some((buffer, first)), Some(lanes)) = (found, self.lanes.map(|l| l.count)) else {
            return Ok(None);
        };
        let Pattern::Strided { base, stride: 2 } = self.pattern(&first) else { return Ok(None) };
        let (at, align) = self.pointer(buffer, &base)?;
        let bytes = self.ir.load(self.ir.ty(Kind::Int(8), Some(2 * lanes)), at, align);
        self.describe_access(buffer, bytes.as_instruction_value())?;
        let words = self.ir.resize(bytes, 16, false);
        Ok(Some(self.ir.reinterpret(words, self.ir.ty(Kind::Int(32), Some(lanes)))))
    }

    /// A pair of numbers that are `bf16` already: one load where they lie side by side. None where
    /// they are no such numbers.
    pub(crate) fn two_halves(&mut self, a: &Expr, b: &Expr) -> Result<Option<Reg<'c>>> {
        let (Some(x), Some(y)) = (self.half(a), self.half(b)) else { return Ok(None) };
        let ((buffer, first), second) = match (self.loaded_place(&x), self.loaded_place(&y)) {
            (Some(first), Some(second)) if self.mask.is_none() => (first, second),
            _ => return self.two_apart([&x, &y]).map(Some),
        };
        let follows = second == (buffer, first.clone().plus(&Affine::constant(1)));
        let (base, lanes) = match self.pattern(&first) {
            Pattern::Strided { base, stride: 0 } if follows => (base, None),
            Pattern::Strided { base, stride: 2 } if follows => (base, self.lanes.map(|l| l.count)),
            _ => return self.two_apart([&x, &y]).map(Some),
        };
        let (at, align) = self.pointer(buffer, &base)?;
        let pair = self.ir.load(self.ir.ty(Kind::Int(32), lanes), at, align);
        self.describe_access(buffer, pair.as_instruction_value())?;
        Ok(Some(pair))
    }

    fn two_apart(&mut self, halves: [&Expr; 2]) -> Result<Reg<'c>> {
        let [a, b] = halves.map(|e| self.value(e));
        let (a, b) = self.ir.level(a?, b?);
        Ok(ops::pair_bf16(&self.ir, self.target, [a, b], true))
    }

    /// The `bf16` that is widened, if the expression is that.
    fn half(&self, e: &Expr) -> Option<Expr> {
        let Expr::Cast(DType::F32, x) = e else { return None };
        (self.dtype(x) == DType::BF16).then(|| Expr::clone(x))
    }

    /// The place that an element is loaded from.
    fn loaded_place(&self, e: &Expr) -> Option<(BufId, Affine)> {
        match e {
            Expr::Load(buffer, at) => Some((*buffer, self.flatten(*buffer, at))),
            Expr::Select(c, a, b) => self.loaded_place(if self.decide(c)? { a } else { b }),
            _ => None,
        }
    }

    /// The buffer and the place of the lowest of `N` elements of this type, which share 32 bits.
    fn side_by_side<const N: usize>(&self, e: &Expr, dtype: DType) -> Option<(BufId, Affine)> {
        let apart = 32 / N;
        let mut parts: [Option<(BufId, Affine)>; N] = std::array::from_fn(|_| None);
        let mut open = vec![e];
        while let Some(e) = open.pop() {
            match e {
                Expr::Binary(BinOp::Or, a, b) => open.extend([&**a, &**b]),
                Expr::Binary(BinOp::Shl, x, amount) => {
                    let amount = usize::try_from(amount.as_const()?.as_i64()).ok()?;
                    let is_place = amount.is_multiple_of(apart);
                    let place = parts.get_mut(amount / apart).filter(|_| is_place)?;
                    *place = Some(self.part(x, dtype)?);
                }
                e => parts[0] = Some(self.part(e, dtype)?),
            }
        }
        let mut parts = parts.into_iter();
        let (buffer, flat) = parts.next()??;
        let follows = |(i, part): (i64, Option<(BufId, Affine)>)| {
            part == Some((buffer, flat.clone().plus(&Affine::constant(i))))
        };
        (1..).zip(parts).all(follows).then_some((buffer, flat))
    }

    /// The place that an element of this type is loaded from, and widened without a sign.
    fn part(&self, e: &Expr, dtype: DType) -> Option<(BufId, Affine)> {
        let Expr::Cast(DType::I32, mut x) = e.clone() else { return None };
        if self.dtype(&x) != dtype {
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
