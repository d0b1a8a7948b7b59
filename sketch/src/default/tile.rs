//! Reductions that use their operands more than once, with the running results in registers.
//!
//! ```text
//! c[i, j] = sum[k] a[i, k] * b[k, j];  y[i, j] = max(c[i, j] + d[j], 0)
//! =>
//! parallel (jo, io) {
//!   tile[6, 16] = 0
//!   for k { unrolled 6 x 2 { vectorized 8 { tile[..] += a[io * 6 + ., k] * b'[jo, k, .] } } }
//!   y[io * 6 + ., jo * 16 + .] = max(tile[..] + d[..], 0)
//! }
//! ```
//!
//! The vector axis is the innermost spatial one. Operands that walk it and the reduction axes but no row are
//! packed into panels `b'[jo, k.., lanes]`: constants when compiling, others in a nest before. Extents
//! that the tile does not divide get smaller tiles of their own, and tiles at the border of a padded window theirs
//! (`borders`), so that nothing inside is guarded.

pub(crate) mod blocks;
mod borders;
pub(crate) mod choose;
pub(crate) mod epilogue;
pub(crate) mod nested;
pub(crate) mod operands;
mod order;

use std::ops::Range;

use ansc_graph::{BufId, Combiner, Expr, Reduce, Stage, TensorType};

use super::build::{Builder, Path};
use super::knobs::Knob;
use super::stage::{each_width, lanes_of, plus};
use super::usage::has_reuse;
use crate::algorithm::Sums;
use crate::program::{Access, Body, IterKind, Stmt};
use crate::vectors::widths_of;
use crate::walk::PARALLEL_WORK;
use blocks::Blocks;
use choose::Shape;
pub(super) use epilogue::Epilogue;
use nested::Nested;
pub(super) use operands::Layout;
use operands::{Around, Operands};
use order::{Order, Role};

/// A reduction, its tile and its readers.
struct Tiling {
    /// The stage that tiles are of: of a nested sum, the outer one.
    reduction: usize,
    /// The same, with the axes of a nested sum as well.
    stage: Stage,
    nested: Option<Nested>,
    epilogue: Option<Epilogue>,
    shape: Shape,
    /// Spatial axes outside of the tile along which panels vary, and the others.
    fixed: Vec<usize>,
    free: Vec<usize>,
    /// How many of the last reduction axes are written out as a whole.
    window: usize,
    /// Indices along the upper and the row axis at which windows are inside of what they read.
    inside: [Range<usize>; 2],
    /// Whether panels have zeros beyond the last column.
    padded: bool,
}

/// The columns that one tile covers: `base + 0..sum(widths)` along the vector axis.
struct Columns {
    /// Index of the panel.
    panel: Expr,
    /// Columns of a whole panel.
    width: usize,
    base: Expr,
    widths: Vec<usize>,
    /// Vectors that are computed: they may reach beyond the last column, into the zeros of panels.
    computed: Vec<usize>,
}

pub(super) fn schedule(b: &mut Builder<'_>, reduction: usize, done: &[bool]) -> Option<Vec<usize>> {
    let first = reduction;
    let nested = Nested::of(b.compute, first, done);
    let reduction = nested.as_ref().map_or(first, |n| n.outer);
    let stage = nested.as_ref().map_or(&b.compute.stages[first], |n| &n.merged).clone();
    let s = &stage;
    if !is_tileable(s) {
        return None;
    }
    let epilogue = Epilogue::of(b.compute, reduction, done);
    // What is packed is known by the first of them.
    let members = [reduction, first];
    let around = Around { compute: b.compute, constant: b.constant, machine: b.machine };
    let operands = Operands::of(around, s, &members);
    let tiles = 1 + usize::from(nested.is_some());
    let rank = b.knobs.get(Knob::Tile);
    let mut shapes = choose::ranked(b.machine, s, &operands, lanes_of(b, s), tiles);
    let shape = shapes.swap_remove(rank.min(shapes.len() - 1));
    let rows = [shape.upper_axis, shape.row_axis];
    let outside = (0..s.ty.rank() - 1).filter(|axis| !rows.contains(&Some(*axis)));
    let (fixed, free) = outside.partition(|axis| operands.fixed_axes.contains(axis));
    let inside = rows.map(|axis| axis.map_or(0..1, |axis| borders::inside(s, axis)));
    let window = if nested.is_some() { 0 } else { window(b, s, &operands, &shape) };
    let padded = operands.padded;
    operands::pack(b, (&members, s), &operands, &shape);
    let tiling =
        Tiling { reduction, stage, nested, epilogue, shape, fixed, free, window, inside, padded };
    nests(b, &tiling);
    let covered = tiling.epilogue.iter().map(|e| e.stage);
    let nested = tiling.nested.iter().map(|_| first);
    Some(std::iter::once(reduction).chain(nested).chain(covered).collect())
}

/// Whether a stage is a reduction with a tile: vectors along its last axis use elements again.
pub(crate) fn is_tileable(s: &Stage) -> bool {
    let plain =
        |r: &Reduce| !matches!(r.combiner, Combiner::ArgMax { .. } | Combiner::ArgMin { .. });
    let wide = s.ty.shape.last().is_some_and(|&extent| extent > 1);
    s.reduce.as_ref().is_some_and(plain) && wide && has_reuse(s) && !s.extents().contains(&0)
}

/// Whole panels of columns in one nest, the columns that are left in another.
fn nests(b: &mut Builder<'_>, t: &Tiling) {
    let s = &t.stage;
    let (lanes, panel) = (lanes_of(b, s), t.shape.panel);
    let extent = *s.ty.shape.last().expect("a vector axis");
    let whole = extent / panel;
    if whole > 0 {
        nest(b, t, whole, &|jo| {
            let base = if whole == 1 { Expr::int(0) } else { jo.clone() * Expr::index(panel) };
            let widths = widths_of(panel, lanes);
            Columns { panel: jo, width: panel, base, computed: widths.clone(), widths }
        });
    }
    if !extent.is_multiple_of(panel) {
        let rest = extent % panel;
        nest(b, t, 1, &|_| Columns {
            panel: Expr::index(whole),
            width: panel,
            base: Expr::index(whole * panel),
            widths: widths_of(rest, lanes),
            computed: choose::vectors_of(rest, lanes, t.padded),
        });
    }
}

/// Uppers at the borders, and those inside.
fn nest(b: &mut Builder<'_>, t: &Tiling, panels: usize, columns: &dyn Fn(Expr) -> Columns) {
    let shape = &b.compute.stages[t.reduction].ty.shape;
    let uppers = t.shape.upper_axis.map_or(1, |a| shape[a]) / t.shape.upper;
    for uppers in borders::pieces(&t.inside[0], t.shape.upper, uppers) {
        nest_of(b, t, panels, uppers, columns);
    }
}

fn nest_of(
    b: &mut Builder<'_>,
    t: &Tiling,
    panels: usize,
    uppers: Range<usize>,
    columns: &dyn Fn(Expr) -> Columns,
) {
    let s = &t.stage;
    let extent_of = |axis: Option<usize>| axis.map_or(1, |a| s.ty.shape[a]);
    let (rows, tiles) = (extent_of(t.shape.row_axis), extent_of(t.shape.row_axis) / t.shape.rows);
    let rest = rows % t.shape.rows;
    let mut order = Order::of(b, t, panels, uppers.len());
    let block = order.block(b.knobs.get(Knob::RowBlock), tiles);
    let blocks = tiles.checked_div(block).unwrap_or(0);
    let worthwhile = s.extents().iter().product::<usize>() >= PARALLEL_WORK;
    let row = |at: Expr| at * Expr::index(t.shape.rows);
    let mut stmts = Vec::new();
    if blocks > 0 {
        order.set(Role::Block, blocks);
        stmts = b.parallel(&order.extents(), worthwhile, |b, path, indices| {
            let outer = order.index(Role::Block, &indices);
            b.serial(path, block, IterKind::Spatial, |b, path, i| {
                let first = row(if block == 1 { outer } else { outer * Expr::index(block) + i });
                tile(
                    b,
                    path,
                    t,
                    Origin::new(t, &order, &indices, uppers.start, columns)
                        .rows(first, t.shape.rows),
                )
            })
        });
        order.set(Role::Block, 1);
    }
    let done = blocks * block;
    if done < tiles || rest > 0 {
        stmts.extend(b.parallel(&order.extents(), worthwhile, |b, path, indices| {
            let origin = || Origin::new(t, &order, &indices, uppers.start, columns);
            let mut stmts = Vec::new();
            for piece in borders::pieces(&t.inside[1], t.shape.rows, tiles) {
                let piece = piece.start.max(done)..piece.end;
                if piece.is_empty() {
                    continue;
                }
                stmts.extend(b.serial(path, piece.len(), IterKind::Spatial, |b, path, i| {
                    let first = if tiles == 1 { i } else { row(plus(Expr::index(piece.start), i)) };
                    tile(b, path, t, origin().rows(first, t.shape.rows))
                }));
            }
            if rest > 0 {
                stmts.extend(tile(b, path, t, origin().rows(Expr::index(rows - rest), rest)));
            }
            stmts
        }));
    }
    b.push(stmts);
}

/// One tile: initialised, reduced, stored through the epilogue.
fn tile(b: &mut Builder<'_>, path: &Path, t: &Tiling, origin: Origin) -> Vec<Stmt> {
    let width: usize = origin.columns.computed.iter().sum();
    let dtype = t.nested.as_ref().map_or(t.stage.ty.dtype, |n| n.dtype);
    let acc = b.local("tile", TensorType::new(dtype, [t.shape.upper, origin.rows, width]));
    let place = Place { t, origin, acc };
    let (mut stmts, result) = place.reduced(b, path);
    stmts.extend(place.results(b, path, &mut |b, path, point, tile| {
        let tile = Expr::Load(result, tile.indices);
        let (writer, at, value) = match &t.epilogue {
            None => (t.reduction, point.indices.clone(), tile),
            Some(e) => {
                let at = e.at(&point.indices);
                let value = e.value(b, t.reduction, &at, tile);
                (e.stage, at, value)
            }
        };
        let dst = Access { buffer: b.source(b.compute.stage_buffer(writer)), indices: at };
        b.block(path, &b.compute.stages[writer].name, Body::Assign { dst, value })
    }));
    stmts
}

/// Where rounding matters more than time, long sums of floats are summed by blocks.
fn blocks(b: &Builder<'_>, t: &Tiling, r: &Reduce) -> Option<Blocks> {
    let is_float = b.compute.stages[t.reduction].ty.dtype.is_float();
    let rounds = b.knobs.sums == Sums::Direct && is_float && r.combiner == Combiner::Sum;
    rounds.then(|| Blocks::of(&r.extents)).flatten()
}

/// What one term of a reduction adds, given the indices of the term.
type Terms<'f> = dyn FnMut(&mut Builder<'_>, &Path, &[Expr]) -> Vec<Stmt> + 'f;

/// Loops over the reduction axes, the innermost one written out several terms at a time; or the last `window` axes as a
/// whole, so that rows which a window meets several times are loaded once.
fn reduction_loops(
    b: &mut Builder<'_>,
    path: &Path,
    extents: &[usize],
    window: usize,
    body: &mut Terms<'_>,
) -> Vec<Stmt> {
    let Some((&last, outer)) = extents.split_last() else { return body(b, path, &[]) };
    if window > 1 {
        let (outer, inner) = extents.split_at(extents.len() - window);
        return b.serial_all(path, outer, IterKind::Reduce, &mut |b, path, terms| {
            b.unrolled_all(path, inner, IterKind::Reduce, &mut |b, path, more| {
                body(b, path, &[&terms[..], &more[..]].concat())
            })
        });
    }
    let most = b.knobs.get(Knob::Unroll).max(1);
    let unroll = (1..=most).rev().find(|u| last.is_multiple_of(*u)).unwrap_or(1);
    let unroll = if last <= 2 * most { last } else { unroll };
    b.serial_all(path, outer, IterKind::Reduce, &mut |b, path, terms| {
        b.serial(path, last / unroll, IterKind::Reduce, |b, path, o| {
            b.unrolled(path, unroll, IterKind::Reduce, |b, path, u| {
                let base = if last == unroll { Expr::int(0) } else { o * Expr::index(unroll) };
                body(b, path, &[&terms[..], &[plus(base, u)]].concat())
            })
        })
    })
}

/// How many of the last reduction axes together have few enough terms to be written out, where that lets rows share the
/// vectors that they read. Several rows of rows leave no registers to hold these.
fn window(b: &Builder<'_>, s: &Stage, operands: &Operands, shape: &Shape) -> usize {
    let most = WINDOW * b.knobs.get(Knob::Unroll).max(1);
    let extents = &s.reduce.as_ref().expect("a reduction").extents;
    let mut terms = 1;
    let fits = |&&extent: &&usize| {
        terms *= extent;
        terms <= most
    };
    match operands.shared || shape.upper > 1 {
        true => 0,
        false => extents.iter().rev().take_while(fits).count(),
    }
}

/// Terms of a window that are written out, as a multiple of the terms of one axis.
const WINDOW: usize = 3;

/// Where one tile begins in its stage, and how many rows and columns it has.
struct Origin {
    /// An index for each spatial axis; the first row's and column's along the tile's own axes.
    indices: Vec<Expr>,
    row_axis: Option<usize>,
    rows: usize,
    columns: Columns,
}

impl Origin {
    fn new(
        t: &Tiling,
        order: &Order,
        indices: &[Expr],
        first_upper: usize,
        columns: &dyn Fn(Expr) -> Columns,
    ) -> Origin {
        let mut at = vec![Expr::int(0); t.fixed.len() + t.free.len() + t.shape.tile_axes()];
        let (fixed, free) =
            (order.indices(Role::Fixed, indices), order.indices(Role::Free, indices));
        t.fixed
            .iter()
            .zip(fixed)
            .chain(t.free.iter().zip(free))
            .for_each(|(&axis, e)| at[axis] = e.clone());
        if let Some(axis) = t.shape.upper_axis {
            let upper = plus(Expr::index(first_upper), order.index(Role::Upper, indices));
            at[axis] = if t.shape.upper == 1 { upper } else { upper * Expr::index(t.shape.upper) };
        }
        let columns = columns(order.index(Role::Panel, indices));
        *at.last_mut().expect("a vector axis") = columns.base.clone();
        Origin { indices: at, row_axis: t.shape.row_axis, rows: 1, columns }
    }

    fn rows(mut self, first: Expr, rows: usize) -> Origin {
        if let Some(axis) = self.row_axis {
            self.indices[axis] = first;
        }
        self.rows = rows;
        self
    }
}

/// A tile and the buffer of its running values.
struct Place<'a> {
    t: &'a Tiling,
    origin: Origin,
    acc: BufId,
}

/// What stands at each element of a tile, given that and its running value.
type Inside<'f> = dyn FnMut(&mut Builder<'_>, &Path, &Point, Access) -> Vec<Stmt> + 'f;

/// One element of a tile.
struct Point {
    /// An index for each spatial axis.
    indices: Vec<Expr>,
    /// Position along the panel.
    lane: Expr,
}

impl Place<'_> {
    /// What reduces the tile, and the buffer that has the results then.
    fn reduced(&self, b: &mut Builder<'_>, path: &Path) -> (Vec<Stmt>, BufId) {
        if let Some(nested) = &self.t.nested {
            return self.nested(b, path, nested);
        }
        let r = self.reduce();
        let Some(blocks) = blocks(b, self.t, r) else {
            let mut stmts = self.init(b, path, self.acc);
            stmts.extend(reduction_loops(
                b,
                path,
                &r.extents,
                self.t.window,
                &mut |b, path, at| self.add(b, path, at),
            ));
            return (stmts, self.acc);
        };
        let total = b.local("total", b.program.buffers[self.acc.index()].ty.clone());
        let mut stmts = self.init(b, path, total);
        stmts.extend(b.serial_all(path, &blocks.outer, IterKind::Reduce, &mut |b, path, block| {
            let mut stmts = self.init(b, path, self.acc);
            let (inner, window) = (&blocks.inner, self.t.window);
            stmts.extend(reduction_loops(b, path, inner, window, &mut |b, path, within| {
                self.add(b, path, &blocks.joined(&block, within))
            }));
            stmts.extend(self.add_block(b, path, total));
            stmts
        }));
        (stmts, total)
    }

    fn reduce(&self) -> &Reduce {
        self.t.stage.reduce.as_ref().expect("a reduction")
    }

    fn init(&self, b: &mut Builder<'_>, path: &Path, buffer: BufId) -> Vec<Stmt> {
        let ty = b.program.buffers[buffer.index()].ty.dtype;
        let identity = self.reduce().combiner.identity(ty).expect("not an arg-combiner");
        self.points(b, path, &self.origin.columns.computed, &mut |b, path, _, dst| {
            let (dst, value) = (Access { buffer, ..dst }, Expr::Const(identity));
            b.block(path, "init", Body::Assign { dst, value })
        })
    }

    /// Adds one term of the reduction to each element.
    fn add(&self, b: &mut Builder<'_>, path: &Path, terms: &[Expr]) -> Vec<Stmt> {
        let (t, combiner) = (self.t, self.reduce().combiner);
        let term = t.nested.as_ref().map_or(&t.stage.body, |n| &n.term);
        self.points(b, path, &self.origin.columns.computed, &mut |b, path, point, dst| {
            let value = operands::value_at(b, t, term, &self.origin.columns, point, terms);
            b.block(path, &t.stage.name, Body::Reduce { combiner, dst, value, init: false })
        })
    }

    /// Adds what a block of terms came to.
    fn add_block(&self, b: &mut Builder<'_>, path: &Path, total: BufId) -> Vec<Stmt> {
        let combiner = self.reduce().combiner;
        self.points(b, path, &self.origin.columns.computed, &mut |b, path, _, of_block| {
            let dst = Access { buffer: total, indices: of_block.indices.clone() };
            let value = Expr::Load(of_block.buffer, of_block.indices);
            b.block(path, "block", Body::Reduce { combiner, dst, value, init: false })
        })
    }

    /// `f` at every element of the tile, rows written out, columns in vectors of these widths.
    fn points(
        &self,
        b: &mut Builder<'_>,
        path: &Path,
        widths: &[usize],
        f: &mut Inside<'_>,
    ) -> Vec<Stmt> {
        b.unrolled(path, self.t.shape.upper, IterKind::Spatial, |b, path, u| {
            b.unrolled(path, self.origin.rows, IterKind::Spatial, |b, path, i| {
                let f = &mut |b: &mut Builder<'_>, path: &Path, lane: Expr| {
                    self.visit(b, path, [&u, &i, &lane], f)
                };
                each_width(b, path, widths, f)
            })
        })
    }

    /// `f` at every element of the tile, in the order in which the results are stored: where rows lie side by side
    /// in the result, they stand inside of the vectors, and code generation transposes them in registers.
    fn results(&self, b: &mut Builder<'_>, path: &Path, f: &mut Inside<'_>) -> Vec<Stmt> {
        let last = |e: &Epilogue| self.t.shape.row_axis.is_some_and(|row| e.walks_last(row));
        if !self.t.epilogue.as_ref().is_some_and(last) {
            return self.points(b, path, &self.origin.columns.widths, f);
        }
        b.unrolled(path, self.t.shape.upper, IterKind::Spatial, |b, path, u| {
            each_width(b, path, &self.origin.columns.widths, &mut |b, path, lane| {
                b.unrolled(path, self.origin.rows, IterKind::Spatial, |b, path, i| {
                    self.visit(b, path, [&u, &i, &lane], f)
                })
            })
        })
    }

    fn visit(
        &self,
        b: &mut Builder<'_>,
        path: &Path,
        [u, i, lane]: [&Expr; 3],
        f: &mut Inside<'_>,
    ) -> Vec<Stmt> {
        let indices = vec![u.clone(), i.clone(), lane.clone()];
        f(b, path, &self.point(u, i, lane.clone()), Access { buffer: self.acc, indices })
    }

    fn point(&self, u: &Expr, i: &Expr, lane: Expr) -> Point {
        let mut indices = self.origin.indices.clone();
        let mut shift =
            |axis: usize, by: &Expr| indices[axis] = plus(indices[axis].clone(), by.clone());
        self.t.shape.upper_axis.into_iter().for_each(|axis| shift(axis, u));
        self.t.shape.row_axis.into_iter().for_each(|axis| shift(axis, i));
        shift(self.origin.indices.len() - 1, &lane);
        Point { indices, lane }
    }
}
