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
use ansc_sketch::program::{For, ForKind};
use ansc_sketch::{Body, Scope, Stmt};

use crate::affine::Affine;
use crate::emit::function::{Emitter, Lanes, Result};
use crate::emit::uses;

/// With more pieces than this there is a loop over them.
const MAX_PIECES: usize = 16;
/// Registers that one vector may span, where a loop runs inside of the vectorised one: each is a
/// chain of operations of its own, which hides latency.
const MAX_SPAN: usize = 8;

impl Emitter<'_, '_> {
    pub(crate) fn vectorized(&mut self, l: &For) -> Result<()> {
        let width = self.width(l);
        let added = self.expand_private(l, width);
        let whole = l.extent / width;
        let mut start = 0;
        if whole > MAX_PIECES {
            self.loop_of_pieces(l, whole, width)?;
            start = whole * width;
        }
        while start < l.extent {
            let left = l.extent - start;
            let count = width.min(1 << left.ilog2());
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

    /// Lanes of a piece: one register of the widest element type involved, or several.
    fn width(&self, l: &For) -> usize {
        let mut size = 1;
        l.body.iter().for_each(|s| {
            s.visit_blocks(&mut |block| {
                if self.is_gpu()
                    && let Some(copied) = self.copied(&block.body)
                {
                    size = size.max(copied);
                    return;
                }
                let written = block.body.writes().into_iter().map(|a| a.buffer);
                for buffer in value_loads(block.body.value()).into_iter().chain(written) {
                    // Half floats are computed as `f32`.
                    let dtype = self.program.buffer(buffer).ty.dtype.accumulator();
                    size = size.max(dtype.size());
                }
                let computed = self.dtype(block.body.value()).accumulator();
                size = size.max(computed.size());
            });
        });
        let register = (self.target.vector_bytes / size).max(2);
        if !l.body.iter().any(has_loop) {
            return register;
        }
        let spanned = l.extent.div_ceil(register).clamp(1, MAX_SPAN);
        register << spanned.ilog2()
    }

    /// Bytes of an element of a block that only copies, or chooses between a copy and zeros.
    fn copied(&self, body: &Body) -> Option<usize> {
        let Body::Assign { dst, value } = body else { return None };
        let value = match value {
            Expr::Select(condition, inside, outside) => {
                let plain = condition.loads().is_empty() && outside.as_const().is_some();
                plain.then_some(&**inside)?
            }
            other => other,
        };
        let Expr::Load(source, _) = value else { return None };
        let [from, to] = [*source, dst.buffer].map(|b| self.program.buffer(b).ty.dtype);
        (from == to).then_some(to.size())
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

/// Buffers that an expression loads as values, not as parts of indices.
fn value_loads(e: &Expr) -> Vec<BufId> {
    match e {
        Expr::Load(buffer, _) => vec![*buffer],
        _ => e.children().into_iter().flat_map(value_loads).collect(),
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

fn has_loop(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Block(_) => false,
        Stmt::For(l) => {
            (l.extent > 1 && l.kind != ForKind::Unrolled) || l.body.iter().any(has_loop)
        }
    }
}
