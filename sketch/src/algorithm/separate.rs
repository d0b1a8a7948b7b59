//! A window of several axes, one axis after the other.
//!
//! ```text
//! y[n, c, i, j] = max{r: 7, s: 7} x[n, c, i * 2 + r, j * 2 + s]
//! =>
//! along[n, c, i, w] = max{r: 7} x[n, c, i * 2 + r, w]
//! y[n, c, i, j]     = max{s: 7} along[n, c, i, j * 2 + s]
//! ```
//!
//! Neighbouring windows share terms, which are combined once: of 49 terms 7 and 14 are left. The
//! first step goes through whole rows of elements that lie side by side, whatever the stride. Sums
//! are added up in another order.

use ansc_graph::{Compute, Expr, Reduce, Stage, TensorType, VarId};

use super::convolution::Term;
use super::{Replacing, Rewritten};
use crate::task::Task;

/// A reduction of one element at each place of a window.
#[derive(Debug)]
struct Windows {
    stage: usize,
    /// In the order of the axes of what they slide over.
    windows: Vec<Window>,
    /// The indices of the load.
    at: Vec<Expr>,
}

/// `axis * stride + term * dilation` is index `of` of the load.
#[derive(Debug)]
struct Window {
    of: usize,
    axis: usize,
    term: VarId,
    size: usize,
    /// Places that the window slides over.
    places: usize,
}

/// None where no stage is such a reduction of two axes or more.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let found = find(&task.compute)?;
    let compute = found.separate(&task.compute);
    Some(Rewritten { task: Task { compute, ..task.clone() }, prepared: vec![] })
}

fn find(compute: &Compute) -> Option<Windows> {
    (0..compute.stages.len()).find_map(|stage| Windows::of(compute, stage))
}

impl Windows {
    fn of(compute: &Compute, stage: usize) -> Option<Windows> {
        let s = &compute.stages[stage];
        let (rank, extents) = (s.ty.rank(), s.extents());
        let reduce = s.reduce.as_ref()?;
        reduce.combiner.identity(s.ty.dtype)?;
        let [(buffer, at)] = s.body.loads()[..] else { return None };
        if extents.contains(&0) {
            return None;
        }
        let shape = &compute.buffer_type(buffer).shape;
        let mut windows = vec![];
        let mut used = vec![];
        for (of, index) in at.iter().enumerate() {
            match Term::of(index, rank)? {
                Term::Spatial(axis) => used.push(axis),
                Term::Reduced(_) => return None,
                Term::Window { axis, kernel, .. } => {
                    used.push(axis);
                    let size = extents[kernel.index()];
                    windows.push(Window { of, axis, term: kernel, size, places: shape[of] });
                }
            }
        }
        used.sort_unstable();
        used.dedup();
        let each_once = used.len() == at.len() && at.len() == rank && only_loads_use_axes(&s.body);
        let all = windows.len() == reduce.extents.len() && windows.len() > 1;
        (each_once && all).then(|| Windows { stage, windows, at: at.to_vec() })
    }

    /// The shape of the result if no window had been reduced: places instead of windows.
    fn shape_before(&self, stage: &Stage) -> Vec<usize> {
        let mut shape = stage.ty.shape.clone();
        for window in &self.windows {
            shape[window.axis] = window.places;
        }
        shape
    }

    fn separate(&self, compute: &Compute) -> Compute {
        let stage = &compute.stages[self.stage];
        let mut result = Replacing::new(compute, self.stage);
        let mut shape = self.shape_before(stage);
        let mut body = stage.body.clone();
        for (number, window) in self.windows.iter().enumerate() {
            shape[window.axis] = stage.ty.shape[window.axis];
            let is_last = number + 1 == self.windows.len();
            let name = if is_last { stage.name.clone() } else { format!("{}_along", stage.name) };
            let ty = TensorType::new(stage.ty.dtype, shape.clone());
            let reduce = stage.reduce.as_ref().map(|r| Reduce { extents: vec![window.size], ..*r });
            let step = Stage { name, ty, reduce, body: self.step(&body, number) };
            let buffer = result.push(step);
            body = Expr::Load(buffer, self.own_place());
        }
        result.done()
    }

    /// The indices of the load in the order of the result's axes: those of what a step leaves.
    fn own_place(&self) -> Vec<Expr> {
        let rank = self.at.len();
        let mut place: Vec<Expr> = (0..rank).map(Expr::var).collect();
        for window in &self.windows {
            place[window.axis] = self.at[window.of].clone();
        }
        place
    }

    /// The body with the window of this number alone: places stand for those that come later, and
    /// for those that are done, their results.
    fn step(&self, body: &Expr, number: usize) -> Expr {
        let (own, rank) = (&self.windows[number], self.at.len());
        let index = |of: usize, e: &Expr, is_first: bool| {
            let window =
                self.windows.iter().position(|w| if is_first { w.of == of } else { w.axis == of });
            match window {
                Some(at) if at != number => Expr::var(self.windows[at].axis),
                Some(_) => e.substitute(&|v| (v == own.term).then(|| Expr::var(rank))),
                None => e.clone(),
            }
        };
        body.rewrite(&mut |e| match e {
            Expr::Load(buffer, at) => {
                let at = at.iter().enumerate().map(|(i, e)| index(i, e, number == 0)).collect();
                Some(Expr::Load(*buffer, at))
            }
            _ => None,
        })
    }
}

/// Whether the place decides what is loaded, and nothing else.
fn only_loads_use_axes(body: &Expr) -> bool {
    let without = body.rewrite(&mut |e| match e {
        Expr::Load(..) => Some(Expr::int(0)),
        _ => None,
    });
    without.vars().is_empty()
}
