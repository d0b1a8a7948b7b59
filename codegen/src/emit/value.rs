//! Values of expressions.

use ansc_graph::{BinOp, Expr};
use ansc_runtime::DType;
use inkwell::types::BasicType;

use crate::affine::{Affine, affine, bounds};
use crate::emit::function::{Emitter, Result};
use crate::emit::memory::Pattern;
use crate::ir::{Reg, lanes};
use crate::ops;

impl<'c> Emitter<'c, '_> {
    pub(crate) fn dtype(&self, e: &Expr) -> DType {
        e.dtype(&|b| self.program.buffer(b).ty.dtype)
    }

    pub(crate) fn value(&mut self, e: &Expr) -> Result<Reg<'c>> {
        if let Some(form) = self.index_form(e) {
            return self.index(&form);
        }
        if let Some(found) = self.by_table(e)? {
            return Ok(found);
        }
        match e {
            Expr::Const(s) => Ok(ops::constant(&self.ir, *s, None)),
            Expr::Var(_) => self.index(&affine(e, self)),
            Expr::Load(buffer, indices) => {
                let flat = self.flatten(*buffer, indices);
                self.load(*buffer, &flat)
            }
            Expr::Unary(op, x) => {
                let dtype = self.dtype(x);
                let x = self.value(x)?;
                ops::unary(&self.ir, self.target, *op, dtype, x).map_err(|e| e.to_string())
            }
            Expr::Cast(to, x) => match self.rounded(*to, x)? {
                Some(rounded) => Ok(rounded),
                None => {
                    let from = self.dtype(x);
                    let x = self.value(x)?;
                    Ok(ops::cast(&self.ir, self.target, from, *to, x))
                }
            },
            Expr::Binary(BinOp::Or, a, b) => match self.one_integer(e)? {
                Some(word) => Ok(word),
                None => match self.two_words(e)? {
                    Some(words) => Ok(words),
                    None => self.binary(BinOp::Or, a, b),
                },
            },
            Expr::Binary(BinOp::PairBf16, a, b) => match self.two_halves(a, b)? {
                Some(pair) => Ok(pair),
                None => self.binary(BinOp::PairBf16, a, b),
            },
            Expr::Binary(op, a, b) => self.binary(*op, a, b),
            Expr::Select(c, a, b) => self.choice(c, a, b),
        }
    }

    /// The affine form of an integer expression over variables alone.
    fn index_form(&self, e: &Expr) -> Option<Affine> {
        let over_variables =
            |e: &Expr| self.dtype(e) == DType::I64 && e.loads().is_empty() && !e.vars().is_empty();
        match e {
            Expr::Var(_) => Some(affine(e, self)),
            Expr::Binary(op, ..)
                if over_variables(e)
                    && matches!(
                        op,
                        BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::FloorDiv | BinOp::FloorMod
                    ) =>
            {
                Some(affine(e, self)).filter(|form| form.to_expr() != *e)
            }
            _ => None,
        }
    }

    /// A term of an affine form; its variables are loops.
    pub(crate) fn opaque(&mut self, e: &Expr) -> Result<Reg<'c>> {
        match e {
            Expr::Binary(op, a, b) if self.dtype(e) == DType::I64 => self.binary(*op, a, b),
            _ => self.value(e),
        }
    }

    fn binary(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Result<Reg<'c>> {
        let dtype = self.dtype(a);
        if let Some(known) = self.decide_comparison(op, a, b) {
            return Ok(self.ir.int(1, i64::from(known), None));
        }
        if op.is_comparison()
            && let Some(mask) = self.lane_comparison(op, a, b)?
        {
            return Ok(mask);
        }
        let (x, y) = (self.value(a)?, self.value(b)?);
        let result = if self.divides_naturals(op, dtype, a, b) {
            let [x, y] = [x, y].map(|v| self.ir.resize(v, 32, false));
            let short = ops::binary(&self.ir, self.target, op, DType::U32, x, y);
            short.map(|v| self.ir.resize(v, 64, false))
        } else {
            ops::binary(&self.ir, self.target, op, dtype, x, y)
        };
        result.map_err(|e| e.to_string())
    }

    /// Whether indices are divided that are known to have no sign and 32 bits at most: that takes
    /// one multiplication, and vectors of them have it.
    fn divides_naturals(&self, op: BinOp, dtype: DType, a: &Expr, b: &Expr) -> bool {
        let fits = |e: &Expr, least: i64| {
            let range = bounds(e, self);
            range.is_some_and(|(low, high)| low >= least && high <= i64::from(u32::MAX))
        };
        let divides = matches!(op, BinOp::FloorDiv | BinOp::FloorMod) && dtype == DType::I64;
        divides && b.as_const().is_some() && fits(b, 1) && fits(a, 0)
    }

    /// Whether the condition is known here.
    pub(crate) fn decide(&self, e: &Expr) -> Option<bool> {
        match e {
            Expr::Const(s) => Some(!s.is_zero()),
            Expr::Binary(BinOp::And, a, b) => match (self.decide(a), self.decide(b)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Expr::Binary(BinOp::Or, a, b) => match (self.decide(a), self.decide(b)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Expr::Unary(ansc_graph::UnOp::Not, x) => self.decide(x).map(|known| !known),
            Expr::Binary(op, a, b) => self.decide_comparison(*op, a, b),
            _ => None,
        }
    }

    fn decide_comparison(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<bool> {
        let difference = self.difference(op, a, b)?;
        if self.held.iter().any(|(known, other)| (*known, other) == (op, &difference)) {
            return Some(true);
        }
        let (low, high) = difference.bounds(self)?;
        match op {
            BinOp::Lt if high < 0 => Some(true),
            BinOp::Lt if low >= 0 => Some(false),
            BinOp::Le if high <= 0 => Some(true),
            BinOp::Le if low > 0 => Some(false),
            BinOp::Eq if low == 0 && high == 0 => Some(true),
            BinOp::Eq if low > 0 || high < 0 => Some(false),
            BinOp::Ne if low > 0 || high < 0 => Some(true),
            BinOp::Ne if low == 0 && high == 0 => Some(false),
            _ => None,
        }
    }

    /// A comparison of indices, in a form by which it is recognised.
    pub(crate) fn fact(&self, e: &Expr) -> Option<(BinOp, Affine)> {
        let Expr::Binary(op, a, b) = e else { return None };
        Some((*op, self.difference(*op, a, b)?))
    }

    /// `a - b` of a comparison of indices, or what is on the same side of zero and cheaper.
    fn difference(&self, op: BinOp, a: &Expr, b: &Expr) -> Option<Affine> {
        let is_index = |e: &Expr| self.dtype(e) == DType::I64 && e.loads().is_empty();
        if !op.is_comparison() || !is_index(a) || !is_index(b) {
            return None;
        }
        let difference = affine(a, self).plus(&affine(b, self).times(-1));
        let one = Affine::constant(1);
        Some(match op {
            BinOp::Lt => difference.undivided(self),
            BinOp::Le => difference.plus(&one.clone().times(-1)).undivided(self).plus(&one),
            _ => difference,
        })
    }

    /// A comparison of indices that differ between lanes, in 32 bits if they suffice.
    fn lane_comparison(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Result<Option<Reg<'c>>> {
        let Some(difference) = self.difference(op, a, b).filter(|d| self.varies(d)) else {
            return Ok(None);
        };
        let fits = |v: i64| i32::try_from(v).is_ok();
        let narrow = difference.bounds(self).is_some_and(|(low, high)| fits(low) && fits(high));
        let Pattern::Strided { base, stride } = self.pattern(&difference) else { return Ok(None) };
        if !narrow || !fits(stride) {
            return Ok(None);
        }
        let base = self.uniform_index(&base)?;
        let lanes = self.progression(self.narrow(base), stride);
        let zero = self.ir.same(lanes, 0.0);
        ops::binary(&self.ir, self.target, op, DType::I32, lanes, zero)
            .map(Some)
            .map_err(|e| e.to_string())
    }

    fn choice(&mut self, c: &Expr, a: &Expr, b: &Expr) -> Result<Reg<'c>> {
        match self.decide(c) {
            Some(true) => return self.value(a),
            Some(false) => return self.value(b),
            None => {}
        }
        let condition = self.value(c)?;
        if self.speculative(a) && self.speculative(b) {
            let (a, b) = (self.value(a)?, self.value(b)?);
            return Ok(self.ir.select(condition, a, b));
        }
        if lanes(condition).is_some() {
            let a = self.masked(condition, |e| e.value(a))?;
            let b = self.masked(self.ir.not(condition), |e| e.value(b))?;
            return Ok(self.ir.select(condition, a, b));
        }
        self.branch(condition, |e| e.value(a), |e| e.value(b))
    }

    /// Runs `f` with fewer lanes active.
    fn masked<T>(&mut self, lanes: Reg<'c>, f: impl FnOnce(&mut Self) -> T) -> T {
        let fewer = self.mask.map_or(lanes, |m| self.ir.and(m, lanes));
        let outer = self.mask.replace(fewer);
        let result = f(self);
        self.mask = outer;
        result
    }

    /// Whether the expression may be evaluated where its value is not wanted.
    fn speculative(&self, e: &Expr) -> bool {
        e.loads().iter().all(|(buffer, indices)| self.in_bounds(*buffer, indices))
    }

    /// Whether the ranges of variables alone keep the access inside of the buffer.
    pub(crate) fn in_bounds(&self, buffer: ansc_graph::BufId, indices: &[Expr]) -> bool {
        let shape = &self.program.buffer(buffer).ty.shape;
        indices.iter().zip(shape).all(|(index, &extent)| {
            affine(index, self)
                .bounds(self)
                .is_some_and(|(low, high)| low >= 0 && high < extent as i64)
        })
    }

    fn branch(
        &mut self,
        condition: Reg<'c>,
        then: impl FnOnce(&mut Self) -> Result<Reg<'c>>,
        other: impl FnOnce(&mut Self) -> Result<Reg<'c>>,
    ) -> Result<Reg<'c>> {
        const POSITIONED: &str = "the builder is positioned";
        let [yes, no, after] = ["yes", "no", "after"]
            .map(|name| self.ir.context.append_basic_block(self.function, name));
        self.ir
            .builder
            .build_conditional_branch(condition.into_int_value(), yes, no)
            .expect(POSITIONED);
        self.ir.builder.position_at_end(yes);
        let a = then(self)?;
        let a_end = self.ir.builder.get_insert_block().expect(POSITIONED);
        self.ir.builder.position_at_end(no);
        let b = other(self)?;
        let b_end = self.ir.builder.get_insert_block().expect(POSITIONED);
        let count = lanes(a).or(lanes(b));
        let b = self.ir.splat(b, count);
        self.ir.builder.build_unconditional_branch(after).expect(POSITIONED);
        self.ir.builder.position_at_end(a_end);
        let a = self.ir.splat(a, count);
        self.ir.builder.build_unconditional_branch(after).expect(POSITIONED);
        self.ir.builder.position_at_end(after);
        let phi =
            self.ir.builder.build_phi(a.get_type().as_basic_type_enum(), "").expect(POSITIONED);
        phi.add_incoming(&[(&a, a_end), (&b, b_end)]);
        Ok(phi.as_basic_value())
    }
}
