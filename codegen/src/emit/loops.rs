//! Statements and loops.

use ansc_graph::VarId;
use ansc_sketch::Stmt;
use ansc_sketch::lowering;
use ansc_sketch::program::{For, ForKind};
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::context::{AsContextRef, Context};
use inkwell::llvm_sys::{core, debuginfo};
use inkwell::values::{AsValueRef, InstructionValue, IntValue, PhiValue};

use crate::affine::Affine;
use crate::emit::function::{Emitter, Frame, Result};

/// Longer loops of a GPU's kernel stay loops for `ptxas` too, which would unroll hundreds of
/// iterations and then spill registers. Shorter ones are left to it.
const MAX_LEFT_TO_ASSEMBLER: usize = 16;

const POSITIONED: &str = "the builder is positioned";

impl<'c> Emitter<'c, '_> {
    pub(crate) fn stmts(&mut self, stmts: &[Stmt]) -> Result<()> {
        let all: Vec<&Stmt> = stmts.iter().collect();
        let mut done = 0;
        while done < stmts.len() {
            let count = self.sharing_tiles(&all[done..]);
            self.with_tiles(&all[done..done + count], |e| {
                (done..done + count).try_for_each(|at| {
                    e.fetch_for_later(stmts, at)?;
                    e.strips = e.strips(stmts, at);
                    e.stmt(&stmts[at])
                })
            })?;
            done += count;
        }
        Ok(())
    }

    /// Statements of the root, those that share tiles together.
    pub(crate) fn grouped(&mut self, stmts: &[&Stmt]) -> Result<()> {
        let mut left = stmts;
        while !left.is_empty() {
            let (group, rest) = left.split_at(self.sharing_tiles(left));
            self.with_tiles(group, |e| group.iter().try_for_each(|s| e.stmt(s)))?;
            left = rest;
        }
        Ok(())
    }

    pub(crate) fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        match stmt {
            Stmt::Block(block) => self.block(block),
            Stmt::For(l) => self.for_loop(l),
        }
    }

    fn for_loop(&mut self, l: &For) -> Result<()> {
        match l.kind {
            ForKind::Tensor(_) if self.is_gpu() => return self.warp(l),
            ForKind::Tensor(_) if self.tensor(l)? => return Ok(()),
            _ => {}
        }
        match l.kind {
            _ if l.extent <= 1 => self.unrolled(l),
            ForKind::Bound(_) => Err("a loop over GPU threads is not lowered".into()),
            ForKind::Vectorized if self.lanes.is_none() => self.vectorized(l),
            ForKind::Unrolled if lowering::is_written_out(self.copies, l.extent) => {
                self.unrolled(l)
            }
            _ => self.rolled(l),
        }
    }

    fn unrolled(&mut self, l: &For) -> Result<()> {
        let known = self.load_tiles(l)?;
        let around = self.keep_stores(l);
        self.copies *= l.extent.max(1);
        for i in 0..l.extent {
            self.bindings.insert(l.var, Affine::constant(i as i64));
            self.iteration(l)?;
        }
        self.bindings.remove(&l.var);
        self.store_kept(around)?;
        self.loaded.truncate(known);
        self.copies /= l.extent.max(1);
        Ok(())
    }

    fn rolled(&mut self, l: &For) -> Result<()> {
        if self.with_late_rows(l)? {
            return Ok(());
        }
        let (zero, extent) = (self.ir.index(0), self.ir.index(l.extent as i64));
        let strips = std::mem::take(&mut self.strips);
        let ahead = |e: &mut Self| {
            e.fetch_ahead(l)?;
            e.fetch_strips(l, strips)
        };
        self.counted_while_needed(l, (zero, extent), ahead, |e| {
            e.rows_of_step(l)?;
            e.with_conditions(&l.body)
        })
    }

    /// A loop over `begin..end`, which lies in `0..extent` and is not empty.
    pub(crate) fn counted(
        &mut self,
        var: VarId,
        extent: usize,
        begin: IntValue<'c>,
        end: IntValue<'c>,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let context = self.ir.context;
        let before = self.ir.builder.get_insert_block().expect(POSITIONED);
        let head = context.append_basic_block(self.function, "head");
        let inside = context.append_basic_block(self.function, "loop");
        let after = context.append_basic_block(self.function, "after");
        self.ir.builder.build_unconditional_branch(head).expect(POSITIONED);
        self.ir.builder.position_at_end(head);
        let phi = self.ir.builder.build_phi(context.i64_type(), "").expect(POSITIONED);
        self.ir.builder.build_unconditional_branch(inside).expect(POSITIONED);
        self.ir.builder.position_at_end(inside);
        let counter = phi.as_basic_value().into_int_value();
        self.ranges.insert(var, (0, extent as i64 - 1));
        self.frames.push(Frame::counted(var, counter, head));
        body(self)?;
        let frame = self.frames.pop().expect("pushed above");
        self.ranges.remove(&var);
        // The loop ends by the last of what it counts up: with a multiple of the counter in use,
        // the counter itself may be of no use any more, and vanish.
        let counted = std::iter::once((1, phi)).chain(frame.multiples.into_iter().flatten());
        let tests: Vec<_> =
            counted.map(|(by, phi)| self.count_up(phi, by, before, (begin, end))).collect();
        let more = *tests.last().expect("at least the counter");
        let back = self.ir.builder.build_conditional_branch(more, head, after).expect(POSITIONED);
        if self.is_gpu() && extent > MAX_LEFT_TO_ASSEMBLER {
            keep_rolled(self.ir.context, back);
        }
        self.ir.builder.position_at_end(after);
        Ok(())
    }

    /// Lets `phi` have `factor` times the values of `range`, which is not empty; gives whether
    /// there are more.
    fn count_up(
        &self,
        phi: PhiValue<'c>,
        factor: i64,
        before: BasicBlock<'c>,
        (begin, end): (IntValue<'c>, IntValue<'c>),
    ) -> IntValue<'c> {
        let last = self.ir.builder.get_insert_block().expect(POSITIONED);
        let factor = self.ir.index(factor);
        self.ir.position_at(before);
        let times = |x: IntValue<'c>| self.ir.mul(x.into(), factor.into()).into_int_value();
        let (begin, end) = (times(begin), times(end));
        self.ir.position_at(last);
        let now = phi.as_basic_value().into_int_value();
        let next = self.ir.builder.build_int_nsw_add(now, factor, "").expect(POSITIONED);
        phi.add_incoming(&[(&begin, before), (&next, last)]);
        self.ir.builder.build_int_compare(IntPredicate::NE, next, end, "").expect(POSITIONED)
    }
}

/// Says of a loop, by the branch back to its head, that nobody is to unroll it.
fn keep_rolled(context: &Context, back: InstructionValue<'_>) {
    let words = "llvm.loop.unroll.disable";
    let (context, kind) = (context.as_ctx_ref(), context.get_kind_id("llvm.loop"));
    // SAFETY: all live in the context, which outlives them; lengths are those of what they go with.
    // A loop's description names itself first, which takes a placeholder that LLVM releases as it
    // replaces it.
    unsafe {
        let itself = debuginfo::LLVMTemporaryMDNode(context, std::ptr::null_mut(), 0);
        let words = core::LLVMMDStringInContext2(context, words.as_ptr().cast(), words.len());
        let words = core::LLVMMDNodeInContext2(context, [words].as_mut_ptr(), 1);
        let node = core::LLVMMDNodeInContext2(context, [itself, words].as_mut_ptr(), 2);
        debuginfo::LLVMMetadataReplaceAllUsesWith(itself, node);
        let value = core::LLVMMetadataAsValue(context, node);
        core::LLVMSetMetadata(back.as_value_ref(), kind, value);
    }
}
