//! What a tiled reduction reads along its vector axis.
//!
//! An operand that varies along the vector axis and no row is a *panel operand*: it is the weight of a
//! convolution or the right side of a product. It is packed so that a tile reads it front to back.

use std::collections::BTreeSet;

use ansc_graph::{BinOp, BufId, Compute, Expr, Stage, TensorType, VarId};

use super::choose::Shape;
use super::{Columns, Point, Tiling};
use crate::default::Machine;
use crate::default::build::{Builder, Packed};
use crate::default::stage::{lanes_of, plus};
use crate::default::usage::{mentions, readers};
use crate::packed::Packing;
use crate::program::{Access, Body, IterKind};
use crate::vectors::widths_of;
use crate::walk;

/// Packing an operand that is not constant pays from this many rows on.
const MIN_ROWS_TO_PACK: usize = 16;

pub(crate) struct Operands {
    panels: Vec<Panel>,
    /// Spatial axes along which some panel operand varies; they cannot be rows.
    pub(crate) fixed_axes: BTreeSet<usize>,
    /// Groups of channels: a panel may not cross a multiple of this.
    pub(super) panel_limit: Option<usize>,
    /// Rows share the vectors that they multiply with.
    pub(crate) shared: bool,
    /// Whatever vectors walk is a constant in panels, with zeros beyond the last column.
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
    /// The stage is made of these of the subgraph.
    pub(crate) fn of(around: Around<'_>, s: &Stage, members: &[usize]) -> Operands {
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
        let panel_limit =
            group_size(&s.body, vector).filter(|&n| n >= walk::lanes(compute, machine, s));
        let walks = |i: &[Expr]| mentions(i, vector) && !only_grouped(i, vector);
        let row = |axis: &usize| s.ty.shape[*axis] > 1 && !fixed_axes.contains(axis);
        let rows: Vec<usize> = (0..vector).filter(row).collect();
        let differs = |i: &[Expr]| rows.iter().any(|axis| mentions(i, *axis));
        let shared = !s.body.loads().iter().any(|(_, i)| walks(i) && differs(i));
        let in_panels = |p: &Panel| {
            is_constant(constant, p.buffer)
                && is_sole_load(compute, s, members, p.buffer, &p.indices)
        };
        let walked = s.body.loads().into_iter().filter(|(_, i)| mentions(i, vector));
        let is_padded = |(buffer, i): (BufId, &[Expr])| {
            panels.iter().any(|p| p.buffer == buffer && p.indices == i && in_panels(p))
        };
        let padded = group_size(&s.body, vector).is_none() && walked.into_iter().all(is_padded);
        Operands { panels, fixed_axes, panel_limit, shared, padded }
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

/// Varies along the vector axis, lacks a spatial axis, and is worth packing.
fn is_panel(constant: &[bool], s: &Stage, buffer: BufId, indices: &[Expr]) -> bool {
    let vector = s.ty.rank() - 1;
    if !mentions(indices, vector) || only_grouped(indices, vector) || is_data_dependent(indices) {
        return false;
    }
    let lacking = (0..vector).filter(|&a| s.ty.shape[a] > 1 && !mentions(indices, a));
    let reused: usize = lacking.map(|a| s.ty.shape[a]).product();
    is_constant(constant, buffer) || reused >= MIN_ROWS_TO_PACK
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

/// The smallest `n` of all `floor_div(v, n)` and `floor_mod(v, n)` of the vector axis.
fn group_size(body: &Expr, vector: usize) -> Option<usize> {
    let mut size = None;
    body.visit(&mut |e| {
        if let Expr::Binary(BinOp::FloorDiv | BinOp::FloorMod, x, n) = e
            && **x == Expr::Var(VarId::new(vector))
            && let Some(n) = n.as_const()
        {
            size = Some(size.map_or(n.as_i64() as usize, |s: usize| s.min(n.as_i64() as usize)));
        }
    });
    size.filter(|&n| n > 0)
}

/// Lets every panel operand be read from panels: constants packed when compiling, others by a nest.
pub(super) fn pack(
    b: &mut Builder<'_>,
    (members, s): (&[usize], &Stage),
    operands: &Operands,
    shape: &Shape,
) {
    for panel in &operands.panels {
        let layout = Layout::of(s, panel, shape.panel);
        let is_sole = is_sole_load(b.compute, s, members, panel.buffer, &panel.indices);
        let packed = if is_constant(b.constant, panel.buffer) && is_sole {
            pack_constant(b, panel, &layout)
        } else {
            pack_at_run_time(b, s, panel, &layout)
        };
        let (buffer, indices) = (panel.buffer, panel.indices.clone());
        b.add_packed(Packed { stage: members[0], buffer, indices, packed, layout });
    }
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

/// Dimensions of a packed operand: fixed spatial axes, panels, reduction axes, lanes.
#[derive(Clone)]
pub(in crate::default) struct Layout {
    /// Axes of the stage, spatial and reduction, that the operand varies along, without the vector axis.
    before: Vec<usize>,
    after: Vec<usize>,
    vector: usize,
    extents: Vec<usize>,
    panel: usize,
}

impl Layout {
    fn of(s: &Stage, panel: &Panel, width: usize) -> Layout {
        let vector = s.ty.rank() - 1;
        let extents = s.extents();
        let varies = |axis: &usize| extents[*axis] > 1 && mentions(&panel.indices, *axis);
        Layout {
            before: (0..vector).filter(varies).collect(),
            after: (vector + 1..extents.len()).filter(varies).collect(),
            vector,
            extents,
            panel: width,
        }
    }

    fn panels(&self) -> usize {
        self.extents[self.vector].div_ceil(self.panel)
    }

    fn shape(&self) -> Vec<usize> {
        let of = |axes: &[usize]| axes.iter().map(|&a| self.extents[a]).collect::<Vec<_>>();
        [of(&self.before), vec![self.panels()], of(&self.after), vec![self.panel]].concat()
    }

    /// The index of a point: `axes` has an expression for each axis of the stage.
    fn index(&self, axes: &[Expr], panel: &Expr, lane: &Expr) -> Vec<Expr> {
        let of = |list: &[usize]| list.iter().map(|&a| axes[a].clone()).collect::<Vec<_>>();
        [of(&self.before), vec![panel.clone()], of(&self.after), vec![lane.clone()]].concat()
    }

    /// An expression for each axis of the stage from an index into the packed operand.
    fn axes(&self, index: &[Expr]) -> Vec<Expr> {
        let mut axes = vec![Expr::int(0); self.extents.len()];
        let (before, rest) = index.split_at(self.before.len());
        let (panel, lane) = (&rest[0], &rest[rest.len() - 1]);
        self.before.iter().zip(before).for_each(|(&a, e)| axes[a] = e.clone());
        self.after.iter().zip(&rest[1..]).for_each(|(&a, e)| axes[a] = e.clone());
        axes[self.vector] = plus(panel.clone() * Expr::index(self.panel), lane.clone());
        axes
    }
}

/// The compiler evaluates the packing; columns beyond the last are zero.
fn pack_constant(b: &mut Builder<'_>, panel: &Panel, layout: &Layout) -> BufId {
    let input = b.compute.buffer_type(panel.buffer).clone();
    let ty = TensorType::new(input.dtype, layout.shape());
    let index: Vec<Expr> = (0..ty.rank()).map(Expr::var).collect();
    let axes = layout.axes(&index);
    let at =
        panel.indices.iter().map(|i| i.substitute(&|v| Some(axes[v.index()].clone()))).collect();
    let mut value = Expr::Load(BufId::new(0), at);
    let columns = layout.extents[layout.vector];
    if !columns.is_multiple_of(layout.panel) {
        let inside = axes[layout.vector].clone().lt(Expr::index(columns));
        value = Expr::select(inside, value, Expr::float(input.dtype, 0.0));
    }
    let compute = Compute::single(vec![input], Stage::map("packed", ty.clone(), value));
    let param = panel.buffer.index();
    b.packings.push(Packing { param, compute });
    let buffer = b.source(panel.buffer);
    b.program.buffers[buffer.index()].ty = ty;
    buffer
}

fn pack_at_run_time(b: &mut Builder<'_>, s: &Stage, panel: &Panel, layout: &Layout) -> BufId {
    let lanes = lanes_of(b, s);
    let ty = TensorType::new(b.compute.buffer_type(panel.buffer).dtype, layout.shape());
    let packed = b.global("packed", ty);
    let columns = layout.extents[layout.vector];
    let (whole, rest) = (columns / layout.panel, columns % layout.panel);
    for (panels, width, first) in [(whole, layout.panel, 0), (usize::from(rest > 0), rest, whole)] {
        if panels == 0 {
            continue;
        }
        let mut extents: Vec<usize> = layout.before.iter().map(|&a| layout.extents[a]).collect();
        extents.push(panels);
        let inner: Vec<usize> = layout.after.iter().map(|&a| layout.extents[a]).collect();
        let worthwhile = layout.shape().iter().product::<usize>() >= 16 * 1024;
        let stmts = b.parallel(&extents, worthwhile, |b, path, mut outer| {
            let jo = plus(Expr::index(first), outer.pop().expect("a panel"));
            b.serial_all(path, &inner, IterKind::Spatial, &mut |b, path, terms| {
                let mut stmts = Vec::new();
                let mut start = 0;
                for piece in widths_of(width, lanes) {
                    let base = Expr::index(start);
                    stmts.extend(b.vector(path, piece, |b, path, l| {
                        let index =
                            [&outer[..], std::slice::from_ref(&jo), &terms, &[plus(base, l)]]
                                .concat();
                        let axes = layout.axes(&index);
                        let value =
                            b.expr_at(&Expr::Load(panel.buffer, panel.indices.clone()), &axes);
                        b.block(
                            path,
                            "pack",
                            Body::Assign { dst: Access { buffer: packed, indices: index }, value },
                        )
                    }));
                    start += piece;
                }
                stmts
            })
        });
        b.push(stmts);
    }
    packed
}

/// An expression over the reduction's axes at a point of a tile, panel operands read from their
/// panels.
pub(super) fn value_at(
    b: &Builder<'_>,
    t: &Tiling,
    value: &Expr,
    columns: &Columns,
    point: &Point,
    terms: &[Expr],
) -> Expr {
    let s = &t.stage;
    let axes: Vec<Expr> = (0..s.extents().len()).map(Expr::var).collect();
    let vector = s.ty.rank() - 1;
    let body = value.rewrite(&mut |e| match e {
        Expr::Load(buffer, indices) => Some(match b.packed(t.reduction, *buffer, indices) {
            Some(p) => {
                Expr::Load(p.packed, p.layout.index(&axes, &Expr::Var(PANEL), &Expr::Var(LANE)))
            }
            None => b.load(*buffer, indices),
        }),
        _ => None,
    });
    let at = [&point.indices[..], terms].concat();
    within_group(&body, vector, columns.width).substitute(&|v| {
        Some(match v {
            PANEL => columns.panel.clone(),
            LANE => point.lane.clone(),
            v => return at.get(v.index()).cloned(),
        })
    })
}

/// A panel lies in one group of channels, whose number and offset then depend on the panel alone:
/// `floor_div(panel * 8 + lane, 32)` is `floor_div(panel, 4)`.
fn within_group(body: &Expr, vector: usize, panel: usize) -> Expr {
    let vector = Expr::var(vector);
    body.rewrite(&mut |e| {
        let Expr::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), x, n) = e else { return None };
        let n = n.as_const()?.as_i64();
        if **x != vector || n % panel as i64 != 0 {
            return None;
        }
        let panels = n / panel as i64;
        Some(match op {
            BinOp::FloorDiv => Expr::Var(PANEL).floor_div(panels),
            _ => Expr::Var(PANEL).floor_mod(panels) * Expr::index(panel) + Expr::Var(LANE),
        })
    })
}

/// Stand for the panel and the lane until they are known; no stage has so many axes.
const PANEL: VarId = VarId(u32::MAX);
const LANE: VarId = VarId(u32::MAX - 1);
