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

use ansc_graph::{BufId, Expr};
use ansc_runtime::DType;
use ansc_sketch::lowering::{self, Joined, Places};
use inkwell::values::BasicValue;

use crate::affine::Affine;
use crate::emit::function::{Emitter, Result};
use crate::emit::memory::Pattern;
use crate::ir::{Kind, Reg};
use crate::ops;

impl<'c> Emitter<'c, '_> {
    /// Four bytes or two words. None where the expression is anything else, or where lanes are not
    /// active.
    pub(crate) fn one_integer(&mut self, e: &Expr) -> Result<Option<Reg<'c>>> {
        let found = lowering::one_integer(self, e).filter(|_| self.mask.is_none());
        let Some(Joined { buffer, first, elements }) = found else { return Ok(None) };
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
        let found = lowering::two_words(self, e).filter(|_| self.mask.is_none());
        let (Some(found), Some(lanes)) = (found, self.lanes.map(|l| l.count)) else {
            return Ok(None);
        };
        let Pattern::Strided { base, stride: 2 } = self.pattern(&found.first) else {
            return Ok(None);
        };
        let buffer = found.buffer;
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
}

impl Places for Emitter<'_, '_> {
    type Place = Affine;

    fn dtype(&self, e: &Expr) -> DType {
        Emitter::dtype(self, e)
    }

    fn decide(&self, condition: &Expr) -> Option<bool> {
        Emitter::decide(self, condition)
    }

    fn place(&self, buffer: BufId, indices: &[Expr]) -> Affine {
        self.flatten(buffer, indices)
    }

    fn beyond(&self, place: &Affine, elements: i64) -> Affine {
        place.clone().plus(&Affine::constant(elements))
    }
}
