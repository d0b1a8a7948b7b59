//! The cuts of a product into tiles that are worth trying, the cheapest by its price first.

use ansc_graph::{BinOp, Compute, Expr, Stage, VarId};
use ansc_runtime::DType;

use crate::affine::{Digit, Extents, Source, Sum};
use crate::intrinsic::amx::{self, APART, Apart, COLUMNS, Names, ROWS, STEPS};
pub(super) use crate::price::amx::Shape;
use crate::usage::factors;

/// Tile registers.
const TILES: usize = 8;

/// A sum over panels, as the algorithm `tiles` makes it: axes `.., p, row, l`, terms `window.., t,
/// g, q`.
pub(super) struct Tiled {
    pub(super) factors: [DType; 2],
    /// Axes of the sum.
    pub(super) rank: usize,
    /// The axis whose points are the rows of a tile, and how far these are apart in the first
    /// factor.
    pub(super) row: usize,
    pub(super) apart: Apart,
    /// Axes along which only the first factor moves, `row` among them.
    pub(super) rows: Vec<usize>,
    /// The axis over panels.
    pub(super) panel: usize,
    /// Groups of terms of a step.
    pub(super) groups: usize,
    /// Axes that the first factor moves along, and the axis that each index of the second one is.
    pub(super) first: Vec<usize>,
    pub(super) second: Vec<usize>,
}

impl Tiled {
    pub(super) fn of(compute: &Compute, stage: usize) -> Option<Tiled> {
        let s = &compute.stages[stage];
        let (extents, rank) = (s.extents(), s.ty.rank());
        if rank < 3 || extents.len() < rank + 3 || s.ty.shape[rank - 1] != COLUMNS {
            return None;
        }
        let [a, b] = factors(s)?;
        let [(a, a_at), (b, b_at)] = [loaded(a)?, loaded(b)?];
        let factors = [a, b].map(|buffer| compute.buffer_type(buffer).dtype);
        let n = extents.len();
        let [t, g, q] = [n - 3, n - 2, n - 1].map(Expr::var);
        let (group, groups) = (extents[n - 1], extents[n - 2]);
        let second = b_at.iter().map(plain).collect::<Option<Vec<usize>>>()?;
        let is_panel = second.ends_with(&[n - 3, n - 2, rank - 1, n - 1]);
        if amx::sum_of(factors) != Some(s.ty.dtype) || group != amx::group(factors[0]) || !is_panel
        {
            return None;
        }
        let sides = Extents::of_axes(&extents);
        let side_by_side = t * Expr::index(groups * group) + g * Expr::index(group) + q;
        let moves = |v: &usize| a_at.iter().any(|e| e.vars().contains(&VarId::new(*v)));
        let first: Vec<usize> = (0..n).filter(moves).collect();
        let panel = (0..rank - 1).find(|v| second.contains(v) && !first.contains(v))?;
        let row = panel + 1;
        let is_row = |v: &usize| first.contains(v) && !second.contains(v) && extents[*v] > 1;
        let rows: Vec<usize> = (0..rank - 1).filter(is_row).collect();
        let (terms, apart) = apart(a_at, row, &sides).filter(|_| rows.contains(&row))?;
        if terms != Sum::of(&side_by_side, &sides) || groups < 2 {
            return None;
        }
        Some(Tiled { factors, rank, row, apart, rows, panel, groups, first, second })
    }

    /// Where a map of the result finds the sum for its own element.
    pub(super) fn place(&self) -> Vec<Expr> {
        let column = Expr::var(self.rank - 2);
        let mut at: Vec<Expr> = (0..self.rank - 2).map(Expr::var).collect();
        at.insert(self.panel, column.clone().floor_div(COLUMNS as i64));
        at.push(Expr::binary(BinOp::FloorMod, column, Expr::index(COLUMNS)));
        at
    }

    /// The axis of the map that an axis of the sum is: it has no panels.
    pub(super) fn axis_of_map(&self, axis: usize) -> usize {
        if axis > self.panel { axis - 1 } else { axis }
    }

    /// Whether only the first factor moves along an axis of the map.
    pub(super) fn is_row_of_map(&self, axis: usize) -> bool {
        let axis = if axis >= self.panel { axis + 1 } else { axis };
        !self.second.contains(&axis)
    }

    /// About how many bytes of the first factor a block reads.
    pub(super) fn bytes_of_tile(&self, extents: &[usize], shape: &Shape) -> usize {
        let terms: usize = extents[extents.len() - 3..].iter().product();
        shape.rows * shape.high * terms * self.factors[0].size()
    }

    /// The cuts of the stage that are worth trying, the cheapest first.
    pub(super) fn shapes(&self, s: &Stage) -> Vec<Shape> {
        let panels = s.ty.shape[self.panel];
        let length = s.ty.shape[self.row];
        let mut all = vec![];
        // One row that is left over would be no tile.
        for rows in (2..=ROWS.min(length)).filter(|rows| length % rows != 1) {
            for wide in (1..=3).filter(|wide| panels.is_multiple_of(*wide)) {
                for (along, high) in self.heights(s, rows) {
                    if high * wide + high + wide <= TILES {
                        all.push(Shape { rows, high, along, wide });
                    }
                }
            }
        }
        let price = |shape: &Shape| shape.cycles(self.row, &s.ty.shape);
        all.sort_by(|a, b| price(a).total_cmp(&price(b)));
        all
    }

    /// Axes along which blocks have several tiles of rows, and how many. Blocks along the axis of
    /// rows are complete. Along another one the last block may be smaller, if all tiles are.
    fn heights(&self, s: &Stage, rows: usize) -> Vec<(usize, usize)> {
        let mut all = vec![(self.row, 1)];
        for high in 2..=3 {
            let fits = |&axis: &usize| match axis == self.row {
                true => s.ty.shape[axis].is_multiple_of(rows * high),
                false => s.ty.shape[axis] >= high && s.ty.shape[self.row].is_multiple_of(rows),
            };
            all.extend(self.rows.iter().rev().copied().filter(fits).map(|axis| (axis, high)));
        }
        all
    }

    /// Names of the instructions on tiles of so many rows.
    pub(super) fn names(&self, rows: usize) -> Names {
        Names { factors: self.factors, rows, groups: self.groups, apart: self.apart }
    }
}

/// The last index of the buffer without the axis, and how far points of the axis are apart along
/// the one axis of the buffer that it moves along.
fn apart(at: &[Expr], v: usize, extents: &Extents) -> Option<(Sum, Apart)> {
    let own = Digit { source: Source::Var(VarId::new(v)), divisor: 1, modulus: None };
    let moving = |e: &Expr| Sum::of(e, extents).partition(|digit, _| *digit == own);
    let (last, outer) = at.split_last()?;
    let mut along = outer.iter().filter(|e| e.vars().contains(&VarId::new(v)));
    let (in_line, terms) = moving(last);
    let distance = |sum: &Sum| usize::try_from(sum.terms.get(&own)?).ok();
    let apart = match along.next() {
        None => Apart::Elements(distance(&in_line).filter(|d| (1..=APART).contains(d))?),
        Some(index) => {
            let steps = distance(&moving(index).0).filter(|d| (1..=STEPS).contains(d))?;
            Apart::Rows(steps)
        }
    };
    let is_along_one =
        along.next().is_none() && (in_line.terms.is_empty() || matches!(apart, Apart::Elements(_)));
    is_along_one.then_some((terms, apart))
}

/// The variable that an index is.
fn plain(index: &Expr) -> Option<usize> {
    match index {
        Expr::Var(v) => Some(v.index()),
        _ => None,
    }
}

fn loaded(e: &Expr) -> Option<(ansc_graph::BufId, &[Expr])> {
    match e {
        Expr::Cast(_, x) => loaded(x),
        Expr::Load(buffer, at) => Some((*buffer, at)),
        _ => None,
    }
}
