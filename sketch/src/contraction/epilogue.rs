//! The elementwise reader of a stage, computed where the stage is.
//!
//! ```text
//! the axes in another order:   c[i, j] = sum ..; y[j, i] = max(c[i, j] + d[j], 0)
//! several axes for the first:  c[p, k] = sum ..;
//!                              y[n, h, w, k] = max(c[(n * 5 + h) * 7 + w, k] + d[k], 0)
//! one axis for two:            c[i, g, j] = sum ..;
//!                              y[k, i] = max(c[i, k // 53, k % 53] + d[k], 0)
//! =>
//! y[j, i] = max(c + d[j], 0);    y[p // 35, p // 7 % 5, p % 7, k] = max(c + d[k], 0)
//! y[g * 53 + j, i] = max(c + d[g * 53 + j], 0)
//! ```

use ansc_graph::{BufId, Compute, Expr, Stage, VarId};

use crate::index_map::IndexMap;
use crate::trace::StepError;
use crate::usage::readers;
use ansc_graph::flat::flattened;

pub(crate) struct Epilogue {
    pub(crate) stage: usize,
    places: Places,
}

/// Which place of the reader belongs to one of the stage.
enum Places {
    /// For each axis of the stage the axis of the reader that walks it.
    Axes(Vec<usize>),
    /// The first axis of the stage numbers the places along these leading axes of the reader.
    Numbered(Vec<usize>),
    /// The same as with axes, once this axis of the reader is two, the second of which is so long.
    Divided { axis: usize, columns: usize, axes: Vec<usize> },
}

impl Epilogue {
    /// The only reader of the stage, if it reads each element once, at its own place or at that of
    /// another order of axes, and all else it reads is there.
    pub(crate) fn of(compute: &Compute, stage: usize, done: &[bool]) -> Option<Epilogue> {
        let buffer = compute.stage_buffer(stage);
        let [reader] = readers(compute, buffer)[..] else { return None };
        let (s, e) = (&compute.stages[stage], &compute.stages[reader]);
        let loads = e.body.loads();
        let mut own = loads.iter().filter(|(l, _)| *l == buffer).map(|(_, indices)| *indices);
        let indices = own.next()?;
        let is_there = |l: &BufId| compute.stage_of(*l).is_none_or(|s| s == stage || done[s]);
        let fits = e.reduce.is_none()
            && own.all(|other| other == indices)
            && loads.iter().all(|(l, _)| is_there(l))
            && !compute.outputs.contains(&stage);
        let places = Places::of(s, e, indices).filter(|_| fits)?;
        Some(Epilogue { stage: reader, places })
    }

    /// Whether every element is read at its own place.
    pub(crate) fn is_in_place(&self) -> bool {
        matches!(&self.places, Places::Axes(axes) if axes.is_sorted())
    }

    /// Whether the last axis of the reader walks this axis of the stage.
    pub(crate) fn walks_last(&self, axis: usize) -> bool {
        match &self.places {
            Places::Axes(axes) | Places::Divided { axes, .. } => axes[axis] + 1 == axes.len(),
            Places::Numbered(_) => false,
        }
    }

    /// How the axes of the reader become those that [`Epilogue::axis`] means, if they are not.
    /// The reader has `rank` of them, under `outer` others.
    pub(crate) fn layout(&self, outer: usize, rank: usize) -> Result<Option<IndexMap>, StepError> {
        let all: Vec<Expr> = (0..outer + rank).map(Expr::var).collect();
        let (outer, own) = all.split_at(outer);
        let outputs = match &self.places {
            Places::Axes(_) => return Ok(None),
            Places::Numbered(rows) => {
                let (numbered, rest) = own.split_at(rows.len());
                [outer, &[flattened(numbered, rows)], rest].concat()
            }
            Places::Divided { axis, columns, .. } => {
                let both = divided(&own[*axis], *columns);
                [outer, &own[..*axis], &both, &own[axis + 1..]].concat()
            }
        };
        IndexMap::new(all.len(), outputs).map(Some).map_err(|_| StepError::Unfit)
    }

    /// The axis of the reader that walks this axis of the stage, in its [layout](Self::layout).
    pub(crate) fn axis(&self, axis: usize) -> usize {
        match &self.places {
            Places::Axes(axes) | Places::Divided { axes, .. } => axes[axis],
            Places::Numbered(_) => axis,
        }
    }
}

impl Places {
    fn of(s: &Stage, e: &Stage, indices: &[Expr]) -> Option<Places> {
        match order_of_axes(indices) {
            Some(axes) if e.ty.rank() == s.ty.rank() => {
                let same = |(&axis, extent): (&usize, &usize)| e.ty.shape[axis] == *extent;
                axes.iter().zip(&s.ty.shape).all(same).then_some(Places::Axes(axes))
            }
            _ => numbered(s, e, indices)
                .map(Places::Numbered)
                .or_else(|| Places::of_divided(s, e, indices)),
        }
    }

    fn of_divided(s: &Stage, e: &Stage, indices: &[Expr]) -> Option<Places> {
        (e.ty.rank() + 1 == s.ty.rank()).then_some(())?;
        let indices = &with_axes_of_one(s, e, indices);
        (0..e.ty.rank()).find_map(|axis| {
            let at = (1..s.ty.rank())
                .find(|&at| indices[at - 1..=at] == divided(&Expr::var(axis), s.ty.shape[at]))?;
            let columns = s.ty.shape[at];
            let mut shape = e.ty.shape.to_vec();
            shape.splice(axis..=axis, [s.ty.shape[at - 1], columns]);
            let moved = |v: VarId| (v.index() > axis).then(|| Expr::var(v.index() + 1));
            let mut indices: Vec<Expr> = indices.iter().map(|i| i.substitute(&moved)).collect();
            (indices[at - 1], indices[at]) = (Expr::var(axis), Expr::var(axis + 1));
            let axes = order_of_axes(&indices)?;
            let same = |(&axis, extent): (&usize, &usize)| shape[axis] == *extent;
            let fits = axes.iter().zip(&s.ty.shape).all(same)
                && e.ty.shape[axis] == s.ty.shape[at - 1] * columns;
            fits.then_some(Places::Divided { axis, columns, axes })
        })
    }
}

/// The indices, with an axis of the reader in place of a zero where both walk a single element.
fn with_axes_of_one(s: &Stage, e: &Stage, indices: &[Expr]) -> Vec<Expr> {
    let used = |v: &VarId| indices.iter().any(|index| index.vars().contains(v));
    let of_one = |v: &VarId| e.ty.shape[v.index()] == 1 && !used(v);
    let mut free = (0..e.ty.rank()).map(VarId::new).filter(of_one);
    let named = |(index, &extent): (&Expr, &usize)| match index.as_const() {
        Some(_) if extent == 1 => free.next().map_or_else(|| index.clone(), Expr::Var),
        _ => index.clone(),
    };
    indices.iter().zip(&s.ty.shape).map(named).collect()
}

/// An axis as two, the second of which is so long.
fn divided(axis: &Expr, columns: usize) -> [Expr; 2] {
    let columns = columns as i64;
    [axis.clone().floor_div(columns), axis.clone().floor_mod(columns)]
}

/// The variables that the indices are, if they are all different: `[v0, v2, v1]` gives `[0, 2, 1]`.
fn order_of_axes(indices: &[Expr]) -> Option<Vec<usize>> {
    let variable = |e: &Expr| match e {
        Expr::Var(v) if v.index() < indices.len() => Some(v.index()),
        _ => None,
    };
    let axes: Vec<usize> = indices.iter().map(variable).collect::<Option<_>>()?;
    (0..axes.len()).all(|axis| axes.contains(&axis)).then_some(axes)
}

/// Extents of the axes of `e` whose places the first axis of `s` numbers, the others being the
/// same.
fn numbered(s: &Stage, e: &Stage, indices: &[Expr]) -> Option<Vec<usize>> {
    let (&count, columns) = s.ty.shape.split_first()?;
    let rows = e.ty.shape.strip_suffix(columns)?;
    let axes: Vec<Expr> = (0..rows.len()).map(Expr::var).collect();
    let (first, rest) = indices.split_first()?;
    let own = |(i, index): (usize, &Expr)| *index == Expr::var(rows.len() + i);
    let numbers = *first == flattened(&axes, rows) && rest.iter().enumerate().all(own);
    (numbers && rows.iter().product::<usize>() == count).then(|| rows.to_vec())
}
