//! Vectorised loops: the loop variable becomes the lanes of vectors.
//!
//! The extent is cut into pieces of a power of two of lanes: whole registers, then what is left. A
//! local buffer that belongs to one iteration gets an element for each lane.
//!
//! ```text
//! for v in 0..13 vectorized, 8 lanes   ->   v = 0 + <0..8>; v = 8 + <0..4>; v = 12
//! ```

use std::collections::BTreeSet;

use ansc_graph::{BufId, Expr, VarId};
use ansc_sketch::lowering::{Pieces, Vectors};
use ansc_sketch::program::For;
use ansc_sketch::{Scope, Stmt};

use crate::affine::Affine;
use crate::emit::function::{Emitter, Lanes, Result};
use crate::emit::uses;

impl Emitter<'_, '_> {
    pub(crate) fn vectorized(&mut self, l: &For) -> Result<()> {
        let Pieces { width, whole, turns, rest } = Pieces::of(self.program, l, self.vectors());
        let added = self.expand_private(l, width);
        if turns {
            self.loop_of_pieces(l, whole, width)?;
        }
        let written_out = if turns { 0 } else { whole };
        let mut start = (whole - written_out) * width;
        for count in std::iter::repeat_n(width, written_out).chain(rest) {
            self.piece(l, &Affine::constant(start as i64), count)?;
            start += count;
        }
        for buffer in added {
            self.expanded.remove(&buffer);
        }
        Ok(())
    }

    fn loop_of_pieces(&mut self, l: &For, pieces: usize, width: usize) -> Result<()> {
        let var = self.fresh_var();
        let (zero, end) = (self.ir.index(0), self.ir.index(pieces as i64));
        let start = Affine::var(var).times(width as i64);
        self.counted(var, pieces, zero, end, |e| e.piece(l, &start, width))
    }

    /// The iterations `start..start + count`, at once.
    fn piece(&mut self, l: &For, start: &Affine, count: usize) -> Result<()> {
        if count == 1 {
            self.bindings.insert(l.var, start.clone());
            // Private buffers of this piece have one lane, the first one.
            let expanded = std::mem::take(&mut self.expanded);
            let result = self.stmts(&l.body);
            self.expanded = expanded;
            self.bindings.remove(&l.var);
            return result;
        }
        let var = self.fresh_var();
        let count = u32::try_from(count).expect("few lanes");
        self.bindings.insert(l.var, start.clone().plus(&Affine::var(var)));
        self.ranges.insert(var, (0, i64::from(count) - 1));
        self.lanes = Some(Lanes { var, count });
        self.lane_var = Some(var);
        let result = self.stmts(&l.body);
        self.lanes = None;
        self.lane_var = None;
        self.ranges.remove(&var);
        self.bindings.remove(&l.var);
        result
    }

    fn vectors(&self) -> Vectors {
        match self.is_gpu() {
            true => Vectors::Thread,
            false => Vectors::Registers(self.target.vector_bytes),
        }
    }

    /// Gives each lane an element of the local buffers that are used in this loop only, unless its
    /// variable indexes them already. On a GPU, where uses are not counted, no buffer is private.
    fn expand_private(&mut self, l: &For, width: usize) -> Vec<BufId> {
        let inside = uses(&l.body);
        let shared = buffers_not_indexed_by(&l.body, l.var);
        let private = |b: &BufId| {
            self.program.buffer(*b).scope == Scope::Local
                && !self.is_argument(*b)
                && self.buffers.uses.get(b) == Some(&inside[b])
                && shared.contains(b)
        };
        let private: Vec<BufId> = inside.keys().copied().filter(private).collect();
        for &buffer in &private {
            self.expanded.insert(buffer, u32::try_from(width).expect("few lanes"));
        }
        private
    }
}

/// Buffers with an access whose indices do not depend on the loop variable.
fn buffers_not_indexed_by(body: &[Stmt], var: VarId) -> BTreeSet<BufId> {
    let mut buffers = BTreeSet::new();
    for stmt in body {
        stmt.visit_blocks(&mut |block| {
            let bound: BTreeSet<VarId> = block
                .iters
                .iter()
                .filter(|i| i.binding.vars().contains(&var))
                .map(|i| i.var)
                .collect();
            let fixed = |indices: &[Expr]| {
                !indices.iter().any(|e| e.vars().iter().any(|v| *v == var || bound.contains(v)))
            };
            let loads = block.body.value().loads();
            buffers.extend(loads.into_iter().filter(|(_, i)| fixed(i)).map(|(b, _)| b));
            let writes = block.body.writes();
            buffers.extend(writes.into_iter().filter(|a| fixed(&a.indices)).map(|a| a.buffer));
        });
    }
    buffers
}
