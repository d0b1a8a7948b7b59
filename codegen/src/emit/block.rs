//! Blocks: guards, assignments, reduction steps.

use ansc_graph::{BinOp, Combiner, Expr};
use ansc_sketch::{Access, Block, Body, Scope};
use inkwell::{FloatPredicate, IntPredicate};

use crate::affine::affine;
use crate::emit::function::{Emitter, Result};
use crate::ir::{Kind, Reg, lanes};
use crate::ops;

impl<'c> Emitter<'c, '_> {
    pub(crate) fn block(&mut self, block: &Block) -> Result<()> {
        let bound: Vec<_> = block.iters.iter().map(|i| (i.var, affine(&i.binding, self))).collect();
        self.bindings.extend(bound);
        let result = self.guarded(block);
        for iter in &block.iters {
            self.bindings.remove(&iter.var);
        }
        result
    }

    fn guarded(&mut self, block: &Block) -> Result<()> {
        let mut open = Vec::new();
        for guard in block.predicate.iter().flat_map(Expr::conjuncts) {
            match self.decide(guard) {
                Some(true) => {}
                Some(false) => return Ok(()),
                None => open.push(guard),
            }
        }
        let (mut uniform, mut mask): (Option<Reg<'c>>, Option<Reg<'c>>) = (None, self.mask);
        for guard in open {
            let value = self.value(guard)?;
            let side = if lanes(value).is_some() { &mut mask } else { &mut uniform };
            *side = Some(side.map_or(value, |c| self.ir.and(c, value)));
        }
        let outer = std::mem::replace(&mut self.mask, mask);
        let result = match uniform {
            None => self.body(&block.body),
            Some(condition) => self.when(condition, |e| e.body(&block.body)),
        };
        self.mask = outer;
        result
    }

    /// Runs `body` where the condition, which is the same in all lanes, holds.
    pub(crate) fn when(
        &mut self,
        condition: Reg<'c>,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        const POSITIONED: &str = "the builder is positioned";
        let [inside, after] = ["guarded", "after"]
            .map(|name| self.ir.context.append_basic_block(self.function, name));
        self.ir
            .builder
            .build_conditional_branch(condition.into_int_value(), inside, after)
            .expect(POSITIONED);
        self.ir.builder.position_at_end(inside);
        body(self)?;
        self.ir.builder.build_unconditional_branch(after).expect(POSITIONED);
        self.ir.builder.position_at_end(after);
        Ok(())
    }

    /// Runs one of two, by a condition that is the same in all lanes.
    pub(super) fn either(
        &mut self,
        condition: Reg<'c>,
        yes: impl FnOnce(&mut Self) -> Result<()>,
        no: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        const POSITIONED: &str = "the builder is positioned";
        let [yes_block, no_block, after] = ["yes", "no", "after"]
            .map(|name| self.ir.context.append_basic_block(self.function, name));
        let condition = condition.into_int_value();
        let branch = self.ir.builder.build_conditional_branch(condition, yes_block, no_block);
        branch.expect(POSITIONED);
        self.ir.builder.position_at_end(yes_block);
        yes(self)?;
        self.ir.builder.build_unconditional_branch(after).expect(POSITIONED);
        self.ir.builder.position_at_end(no_block);
        no(self)?;
        self.ir.builder.build_unconditional_branch(after).expect(POSITIONED);
        self.ir.builder.position_at_end(after);
        Ok(())
    }

    fn body(&mut self, body: &Body) -> Result<()> {
        match body {
            Body::Assign { dst, value } => {
                if self.copy_early(dst, value)? {
                    return Ok(());
                }
                let value = self.value(value)?;
                self.write(dst, value)
            }
            Body::Reduce { init: true, .. } | Body::ArgReduce { init: true, .. } => {
                Err("a reduction is not decomposed".into())
            }
            Body::Reduce { combiner: Combiner::Sum, dst, value, .. } if is_dots(value) => {
                let so_far = self.read(dst)?;
                let sum = self.add_dots(so_far, value)?;
                self.write(dst, sum)
            }
            Body::Reduce { combiner, dst, value, .. } => {
                let value = self.value(value)?;
                let so_far = self.read(dst)?;
                let dtype = self.program.buffer(dst.buffer).ty.dtype;
                let sum = ops::combine(&self.ir, self.target, *combiner, dtype, so_far, value)
                    .map_err(|e| e.to_string())?;
                self.write(dst, sum)
            }
            Body::ArgReduce { combiner, best, position, value, term, .. } => {
                self.arg_reduce(*combiner, best, position, value, term)
            }
        }
    }

    /// `so_far` plus products of bytes, words or halves, one after the other.
    fn add_dots(&mut self, so_far: Reg<'c>, value: &Expr) -> Result<Reg<'c>> {
        if let Expr::Binary(BinOp::Dot4, a, b) = value {
            let are_small = have_seven_bits(a);
            let bytes = ops::Bytes { a: self.value(a)?, are_small, b: self.value(b)? };
            return Ok(ops::dot4(&self.ir, self.target, so_far, bytes));
        }
        if let Expr::Binary(BinOp::Dot2, a, b) = value {
            let words = [self.value(a)?, self.value(b)?];
            return Ok(ops::dot2(&self.ir, self.target, so_far, words));
        }
        if let Expr::Binary(BinOp::DotBf16, a, b) = value {
            let pairs = [self.value(a)?, self.value(b)?];
            return Ok(ops::dot_bf16(&self.ir, self.target, so_far, pairs));
        }
        value.children().into_iter().try_fold(so_far, |sum, term| self.add_dots(sum, term))
    }

    fn read(&mut self, access: &Access) -> Result<Reg<'c>> {
        let flat = self.flatten(access.buffer, &access.indices);
        self.load(access.buffer, &flat)
    }

    fn write(&mut self, access: &Access, value: Reg<'c>) -> Result<()> {
        let flat = self.flatten(access.buffer, &access.indices);
        match self.mask {
            // The thread's own memory may be written back as it is: so it can become registers.
            Some(mask) if self.is_private(access) => {
                self.mask = None;
                let old = self.load(access.buffer, &flat)?;
                let blended = self.ir.select(mask, value, old);
                let result = self.store(access.buffer, &flat, blended);
                self.mask = Some(mask);
                result
            }
            _ => self.store(access.buffer, &flat, value),
        }
    }

    /// Whether the element belongs to this thread, and lies in its buffer whether it is active or not.
    fn is_private(&self, access: &Access) -> bool {
        self.program.buffer(access.buffer).scope == Scope::Local
            && !self.is_argument(access.buffer)
            && self.in_bounds(access.buffer, &access.indices)
    }

    fn arg_reduce(
        &mut self,
        combiner: Combiner,
        best: &Access,
        position: &Access,
        value: &Expr,
        term: &Expr,
    ) -> Result<()> {
        let signed = self.program.buffer(best.buffer).ty.dtype.is_signed_int();
        let (new, at) = (self.value(value)?, self.value(term)?);
        let (old, held) = (self.read(best)?, self.read(position)?);
        let (new, old) = self.ir.level(new, old);
        let (at, held) = self.ir.level(at, held);
        let wins = self.beats(combiner, signed, new, old);
        let ties = self.ties(new, old);
        let last =
            matches!(combiner, Combiner::ArgMax { last: true } | Combiner::ArgMin { last: true });
        let order = if last { IntPredicate::SGT } else { IntPredicate::SLT };
        let earlier = self.ir.icmp(order, at, held);
        let (ties, earlier) = self.ir.level(ties, earlier);
        let (wins, ties) = self.ir.level(wins, self.ir.and(ties, earlier));
        let takes = self.ir.or(wins, ties);
        let (new, at) = (self.ir.select(takes, new, old), self.ir.select(takes, at, held));
        self.write(best, new)?;
        self.write(position, at)
    }

    /// Whether the new value is strictly better; NaN beats every number.
    fn beats(&self, combiner: Combiner, signed: bool, new: Reg<'c>, old: Reg<'c>) -> Reg<'c> {
        let max = matches!(combiner, Combiner::ArgMax { .. });
        if let Kind::Int(_) = self.ir.kind(new) {
            let predicate = match (max, signed) {
                (true, true) => IntPredicate::SGT,
                (true, false) => IntPredicate::UGT,
                (false, true) => IntPredicate::SLT,
                (false, false) => IntPredicate::ULT,
            };
            return self.ir.icmp(predicate, new, old);
        }
        let predicate = if max { FloatPredicate::OGT } else { FloatPredicate::OLT };
        let better = self.ir.fcmp(predicate, new, old);
        let nan = |v| self.ir.fcmp(FloatPredicate::UNO, v, v);
        let first_nan = self.ir.and(nan(new), self.ir.not(nan(old)));
        self.ir.or(better, first_nan)
    }

    fn ties(&self, new: Reg<'c>, old: Reg<'c>) -> Reg<'c> {
        if let Kind::Int(_) = self.ir.kind(new) {
            return self.ir.icmp(IntPredicate::EQ, new, old);
        }
        let nan = |v| self.ir.fcmp(FloatPredicate::UNO, v, v);
        let both_nan = self.ir.and(nan(new), nan(old));
        self.ir.or(self.ir.fcmp(FloatPredicate::OEQ, new, old), both_nan)
    }
}

/// Whether it is a sum of products of four bytes, two words or two halves.
fn is_dots(e: &Expr) -> bool {
    match e {
        Expr::Binary(BinOp::Dot4 | BinOp::Dot2 | BinOp::DotBf16, ..) => true,
        Expr::Binary(BinOp::Add, a, b) => is_dots(a) && is_dots(b),
        _ => false,
    }
}

/// Whether no byte of an integer of 32 bits is beyond 127, as a mask tells.
fn have_seven_bits(e: &Expr) -> bool {
    let is_mask = |e: &Expr| {
        let mask = e.as_const().map(|mask| mask.as_i64() as u32);
        mask.is_some_and(|mask| mask & 0x8080_8080 == 0)
    };
    matches!(e, Expr::Binary(BinOp::And, a, b) if is_mask(a) || is_mask(b))
}
