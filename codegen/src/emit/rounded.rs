//! Floats that become integers of few bits, as quantisation makes them, and floats again.
//!
//! ```text
//! u8(round(x) + 3)                 ->   convert x, which rounds, and add 3: see `ops::narrow`
//! f32(i32(u8(round(x) + 3)) - 5)   ->   limit round(x) to -3..252, minus 2: no integer is made
//! ```
//!
//! All are exact: what is limited are whole numbers, of which floats hold those near the limits.

use ansc_graph::{BinOp, Expr, UnOp};
use ansc_runtime::DType;

use crate::emit::function::{Emitter, Result};
use crate::ir::Reg;
use crate::ops;

/// Constants that are added are no larger, so that sums are exact near the limits.
const LARGEST: f64 = 65536.0;

/// A whole number that becomes an integer of few bits: `value + plus`.
struct Whole<'e> {
    to: DType,
    value: &'e Expr,
    plus: f64,
}

impl<'c> Emitter<'c, '_> {
    /// The conversion of `x`. None where it is none of these.
    pub(crate) fn rounded(&mut self, to: DType, x: &Expr) -> Result<Option<Reg<'c>>> {
        if to == DType::F32 {
            return self.as_float(x);
        }
        let Some(Whole { value, plus, .. }) = self.whole(to, x) else { return Ok(None) };
        let Expr::Unary(UnOp::Round, value) = value else { return Ok(None) };
        // Without lanes there is no such instruction.
        if self.lanes.is_none() {
            return Ok(None);
        }
        let value = self.value(value)?;
        if let Some(narrow) = ops::rounded(&self.ir, self.target, to, value, plus) {
            return Ok(Some(narrow));
        }
        let sum = ops::unary(&self.ir, self.target, UnOp::Round, DType::F32, value)
            .map_err(|e| e.to_string())?;
        let sum = if plus == 0.0 { sum } else { self.ir.add(sum, self.ir.same(sum, plus)) };
        Ok(Some(ops::cast(&self.ir, self.target, DType::F32, to, sum)))
    }

    /// The float of an integer that was a float before: `x` is that integer, less a constant.
    fn as_float(&mut self, x: &Expr) -> Result<Option<Reg<'c>>> {
        let (narrow, less) = match x {
            // Differences of few bits wrap around.
            Expr::Binary(BinOp::Sub, wide, c) if self.dtype(wide).size() > 2 => {
                (&**wide, constant(c))
            }
            narrow => (narrow, Some(0.0)),
        };
        let (Some(Whole { to, value, plus }), Some(less)) = (self.made_whole(narrow), less) else {
            return Ok(None);
        };
        let value = self.value(value)?;
        let limited = ops::limited(&self.ir, to, value, plus);
        // An integer has no zero with a sign: to add one takes it away.
        Ok(Some(self.ir.add(limited, self.ir.same(limited, plus - less))))
    }

    /// An integer of few bits, maybe widened, that was a whole float before.
    fn made_whole<'e>(&self, e: &'e Expr) -> Option<Whole<'e>> {
        match e {
            Expr::Cast(DType::I32 | DType::I64, narrow) => match &**narrow {
                Expr::Cast(to, x) => self.whole(*to, x),
                _ => None,
            },
            Expr::Cast(to, x) => self.whole(*to, x),
            _ => None,
        }
    }

    fn whole<'e>(&self, to: DType, x: &'e Expr) -> Option<Whole<'e>> {
        let is_narrow = to.is_int() && to.size() <= 2 && self.dtype(x) == DType::F32;
        let (value, plus) = match x {
            Expr::Binary(BinOp::Add, value, c) if constant(c).is_some() => (&**value, constant(c)?),
            value => (value, 0.0),
        };
        (is_narrow && self.is_whole(value)).then_some(Whole { to, value, plus })
    }

    /// Whether a float has no fraction.
    fn is_whole(&self, e: &Expr) -> bool {
        match e {
            Expr::Unary(UnOp::Round | UnOp::Floor | UnOp::Ceil | UnOp::Trunc, _) => true,
            Expr::Binary(BinOp::Min | BinOp::Max, a, b) => {
                let holds = |e: &Expr| constant(e).is_some() || self.is_whole(e);
                holds(a) && holds(b)
            }
            _ => false,
        }
    }
}

/// A small whole number.
fn constant(e: &Expr) -> Option<f64> {
    let value = e.as_const()?.as_f64();
    (value.fract() == 0.0 && value.abs() <= LARGEST).then_some(value)
}
