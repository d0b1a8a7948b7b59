//! Results that are larger than the caches, written past them.
//!
//! A store fetches the line that it writes a part of. Where whole lines are written, and nothing of
//! a large result would be in a near cache when somebody reads it, fetching is half of the traffic,
//! and takes the place of what the kernel reads again.
//!
//! In: a store of a vector. Out: if it is to a large output that the program only assigns, and lies
//! within a line, a store without fetching wherever the output begins at a line, which is known
//! when the kernel runs. Functions that write so end with a fence, for these stores are not ordered
//! with others.
//!
//! ```text
//! y[i, 0..16] = v
//! =>
//! if y % 64 == 0 { stream y[i, 0..16] = v } else { y[i, 0..16] = v }
//! ```

use ansc_graph::BufId;
use ansc_sketch::program::Body;
use ansc_sketch::{Block, Program, Scope};
use inkwell::IntPredicate;

use crate::affine::Affine;
use crate::emit::ahead::LINE;
use crate::emit::function::{Emitter, Result};
use crate::ir::{Reg, lanes};
use crate::target::Arch;

/// More than a core's share of the last cache. A smaller result is found there by what reads it
/// next.
const LEAST_BYTES: usize = 12 << 20;
/// Shorter vectors would leave lines in parts.
const LEAST_VECTOR: i64 = 32;

impl<'c> Emitter<'c, '_> {
    /// Stores a vector without fetching its line, if that pays; says whether it has done so.
    pub(super) fn stream(&mut self, buffer: BufId, flat: &Affine, raw: Reg<'c>) -> Result<bool> {
        if !self.is_streamed(buffer, flat, raw) {
            return Ok(false);
        }
        let begins_line = self.begins_line(buffer)?;
        let (at, align) = self.pointer(buffer, flat)?;
        self.streams = true;
        let (one, kind) = (self.ir.marks.one, self.ir.marks.nontemporal);
        self.either(
            begins_line,
            |e| {
                let store = e.ir.store(raw, at, LINE as u32);
                store.set_metadata(one, kind).expect("a metadata node");
                e.describe_access(buffer, Some(store))
            },
            |e| {
                let store = e.ir.store(raw, at, align);
                e.describe_access(buffer, Some(store))
            },
        )?;
        Ok(true)
    }

    /// Makes sure that whoever is told of the end of the function finds what it has streamed.
    pub(super) fn end_stream(&mut self) {
        if self.streams {
            self.ir.intrinsic_on("llvm.x86.sse.sfence", &[], &[]);
        }
    }

    fn is_streamed(&self, buffer: BufId, flat: &Affine, raw: Reg<'c>) -> bool {
        let size = self.program.buffer(buffer).ty.dtype.size() as i64;
        let bytes = lanes(raw).map_or(0, i64::from) * size;
        let in_line = flat.clone().times(size).alignment(LINE) >= bytes.min(LINE);
        let is_cpu = !self.is_gpu() && self.target.arch == Arch::X86_64;
        let in_whole = bytes >= LINE || has_one_writer(self.program, buffer);
        let is_filled = bytes >= LEAST_VECTOR && in_line && in_whole;
        is_cpu && is_filled && is_large_result(self.program, buffer)
    }

    /// Whether the buffer begins at a line, as computed at the beginning of the function.
    fn begins_line(&mut self, buffer: BufId) -> Result<Reg<'c>> {
        let base = self.place(buffer)?.base;
        Ok(self.in_head(0, |e| {
            let address = e.ir.address(base);
            let within = e.ir.and(address, e.ir.int(64, LINE - 1, None));
            e.ir.icmp(IntPredicate::EQ, within, e.ir.int(64, 0, None))
        }))
    }
}

/// Whether parts of a line are written one after the other. With several writers, as of a join,
/// each may write its part of all lines first: then every line goes to memory in parts, which takes
/// ten times as long.
fn has_one_writer(program: &Program, buffer: BufId) -> bool {
    let writes = |block: &&Block| block.body.writes().iter().any(|w| w.buffer == buffer);
    program.blocks().into_iter().filter(writes).count() == 1
}

/// Whether the program assigns the elements of a large output, and reads none.
fn is_large_result(program: &Program, buffer: BufId) -> bool {
    let info = program.buffer(buffer);
    let is_assigned = |block: &&Block| {
        let is_written = block.body.writes().iter().any(|w| w.buffer == buffer);
        let is_read = block.body.value().loads().iter().any(|(read, _)| *read == buffer);
        !is_read && (!is_written || matches!(block.body, Body::Assign { .. }))
    };
    info.scope == Scope::Output
        && info.ty.bytes() >= LEAST_BYTES
        && program.blocks().iter().all(is_assigned)
}
