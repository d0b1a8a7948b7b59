//! Operands that a tiled reduction reads along its vector axis.
//!
//! An operand that varies along the vector axis and no row is a *panel operand*: the weight of a
//! convolution, or the right side of a product. It is packed so that a tile reads it front to back.

use std::collections::BTreeSet;

use ansc_graph::{BinOp, BufId, Compute, Expr, Stage, VarId};

use super::slide::Slide;
use crate::machine::Machine;
use crate::usage::{mentions, readers};
use crate::walk;

/// Packing an operand that is not constant pays from this many rows on ...
const MIN_ROWS_TO_PACK: usize = 16;
/// ... and from these if vectors would gather what lies in rows of terms.
pub const MIN_ROWS_TO_TURN: usize = 5;

pub(crate) struct Operands {
    panels: Vec<Panel>,
    /// Spatial axes along which some panel operand varies; they cannot be rows.
    pub(crate) fixed_axes: BTreeSet<usize>,
    /// Groups of channels: a panel may not cross a multiple of this.
    pub(super) panel_limit: Option<usize>,
    /// Groups of fewer channels than a vector has lanes: elements of several are in each vector.
    pub(super) crossed: Option<usize>,
    /// Rows share the vectors that they multiply with.
    pub(crate) shared: bool,
    /// Rows have vectors of their own, every one of which is read once: memory is the limit.
    pub(super) once: bool,
    /// Rows have vectors of their own, which other rows read for other terms.
    pub(crate) slide: Option<Slide>,
    /// Whatever vectors walk may be in panels, with zeros beyond the last column.
    pub(crate) padded: bool,
}

/// The subgraph that a stage is of, and the machine.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) compute: &'a Compute,
    pub(crate) constant: &'a [bool],
    pub(crate) machine: &'a Machine,
}

/// One panel operand: all loads of `buffer` at `indices`.
struct Panel {
    buffer: BufId,
    indices: Vec<Expr>,
}

impl Operands {
    /// Those of a stage.
    pub(crate) fn of(around: Around<'_>, s: &Stage) -> Operands {
        let Around { compute, constant, machine } = around;
        let vector = s.ty.rank() - 1;
        let mut panels: Vec<Panel> = Vec::new();
        for (buffer, indices) in s.body.loads() {
            let known = panels.iter().any(|p| p.buffer == buffer && p.indices == indices);
            if !known && is_panel(constant, s, buffer, indices) {
                panels.push(Panel { buffer, indices: indices.to_vec() });
            }
        }
        let varies = |axis: &usize| panels.iter().any(|p| mentions(&p.indices, *axis));
        let fixed_axes: BTreeSet<usize> =
            (0..vector).filter(|a| s.ty.shape[*a] > 1 && varies(a)).collect();
        // Groups narrower than a vector are crossed by it, and gathered.
        let lanes = walk::lanes(compute, machine, s);
        let group = group_size(&s.body, vector, lanes);
        let (panel_limit, crossed) = (group.filter(|&n| n >= lanes), group.filter(|&n| n < lanes));
        let walks = |i: &[Expr]| mentions(i, vector) && !only_grouped(i, vector);
        let row = |axis: &usize| s.ty.shape[*axis] > 1 && !fixed_axes.contains(axis);
        let rows: Vec<usize> = (0..vector).filter(row).collect();
        let differs = |i: &[Expr]| rows.iter().any(|axis| mentions(i, *axis));
        let loads = s.body.loads();
        let shared = !loads.iter().any(|(_, i)| walks(i) && differs(i));
        let walking = || loads.iter().filter(|(_, i)| mentions(i, vector));
        let once = !shared && walking().all(|(_, i)| reads_once(s, i));
        let walked = s.body.loads().into_iter().filter(|(_, i)| mentions(i, vector));
        let is_padded = |(buffer, i): (BufId, &[Expr])| {
            panels.iter().any(|p| p.buffer == buffer && p.indices == i)
        };
        let padded = group.is_none() && walked.into_iter().all(is_padded);
        let own = rows.last().filter(|_| !shared);
        let slide = own.and_then(|row| Slide::of(s, *row, vector));
        Operands { panels, fixed_axes, panel_limit, crossed, shared, once, slide, padded }
    }

    /// The buffers of panel operands, and where the stage reads them.
    pub(crate) fn panels(&self) -> impl Iterator<Item = (BufId, &[Expr])> {
        self.panels.iter().map(|p| (p.buffer, &p.indices[..]))
    }

    /// A panel of this many columns lies inside one group.
    pub(super) fn allows(&self, panel: usize) -> bool {
        self.panel_limit.is_none_or(|group| group.is_multiple_of(panel))
    }
}

/// Every iteration reads another element: each axis is an index of its own.
fn reads_once(s: &Stage, indices: &[Expr]) -> bool {
    let is_index = |axis: usize| indices.contains(&Expr::Var(VarId::new(axis)));
    s.extents().iter().enumerate().all(|(axis, n)| *n == 1 || is_index(axis))
}

/// Varies along the vector axis, lacks a spatial axis, and is worth packing.
fn is_panel(constant: &[bool], s: &Stage, buffer: BufId, indices: &[Expr]) -> bool {
    let vector = s.ty.rank() - 1;
    if !mentions(indices, vector) || only_grouped(indices, vector) || is_data_dependent(indices) {
        return false;
    }
    let lacking = (0..vector).filter(|&a| s.ty.shape[a] > 1 && !mentions(indices, a));
    let reused: usize = lacking.map(|a| s.ty.shape[a]).product();
    let gathers = indices.last().is_some_and(|last| !last.vars().contains(&VarId::new(vector)));
    let least = if gathers { MIN_ROWS_TO_TURN } else { MIN_ROWS_TO_PACK };
    is_constant(constant, buffer) || reused >= least
}

fn is_constant(constant: &[bool], buffer: BufId) -> bool {
    constant.get(buffer.index()).copied().unwrap_or(false)
}

fn is_data_dependent(indices: &[Expr]) -> bool {
    indices.iter().any(|i| !i.loads().is_empty())
}

/// The vector axis appears only as `floor_div(v, n)`: constant within a group.
fn only_grouped(indices: &[Expr], vector: usize) -> bool {
    let stripped = indices.iter().map(|i| {
        i.rewrite(&mut |e| match e {
            Expr::Binary(BinOp::FloorDiv, x, _) if **x == Expr::Var(VarId::new(vector)) => {
                Some(Expr::int(0))
            }
            _ => None,
        })
    });
    !mentions(&stripped.collect::<Vec<_>>(), vector)
}

/// The smallest `n` of all `floor_div(v, n)` and `floor_mod(v, n)` of the vector axis. Where whole
/// vectors repeat, none is crossed.
fn group_size(body: &Expr, vector: usize, lanes: usize) -> Option<usize> {
    let mut size = None;
    body.visit(&mut |e| {
        if let Expr::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), x, n) = e
            && **x == Expr::Var(VarId::new(vector))
            && let Some(n) = n.as_const().map(|n| n.as_i64() as usize)
            && (*op == BinOp::FloorDiv || !n.is_multiple_of(lanes))
        {
            size = Some(size.map_or(n, |s: usize| s.min(n)));
        }
    });
    size.filter(|&n| n > 0)
}

/// Nothing else reads the operand, so that its own buffer may take another layout.
pub(crate) fn is_sole_load(
    compute: &Compute,
    s: &Stage,
    members: &[usize],
    buffer: BufId,
    indices: &[Expr],
) -> bool {
    let mut own = s.body.loads().into_iter().filter(|(other, _)| *other == buffer);
    own.all(|(_, at)| at == indices)
        && readers(compute, buffer).iter().all(|reader| members.contains(reader))
}
