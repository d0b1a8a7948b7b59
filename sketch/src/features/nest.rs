//! The loops around the store that is looked at, and what the stores under each have touched so
//! far.

use ansc_graph::{BufId, Expr, VarId};

use super::reach::{self, Interval};
use super::store::{Accesses, Store};
use crate::program::{For, Program};

/// The part of a buffer that one store statement touches while a loop runs once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Touch {
    pub(super) buffer: BufId,
    pub(super) elements: f64,
    pub(super) element_bytes: f64,
}

/// A loop, with the touches by all stores seen under it.
pub(super) struct Level<'a> {
    pub(super) l: &'a For,
    pub(super) touches: Vec<Touch>,
}

impl Level<'_> {
    /// An empty loop counts as one iteration: ratios stay finite.
    pub(super) fn extent(&self) -> f64 {
        self.l.extent.max(1) as f64
    }

    pub(super) fn touched_bytes(&self) -> f64 {
        self.touches.iter().map(|t| t.elements * t.element_bytes).sum()
    }
}

pub(super) struct Nest<'a> {
    /// Outermost first.
    pub(super) levels: Vec<Level<'a>>,
    /// The values of each variable; a loop stands at its first iteration unless it is said to run.
    bounds: Vec<Interval>,
    iterations: f64,
}

impl<'a> Nest<'a> {
    pub(super) fn new(program: &Program) -> Nest<'a> {
        Nest { levels: vec![], bounds: vec![(0, 0); program.vars.len()], iterations: 1.0 }
    }

    pub(super) fn enter(&mut self, l: &'a For) {
        self.levels.push(Level { l, touches: vec![] });
        self.iterations = self.product();
    }

    pub(super) fn leave(&mut self) {
        self.levels.pop();
        self.iterations = self.product();
    }

    fn product(&self) -> f64 {
        self.levels.iter().map(Level::extent).product()
    }

    /// How often a statement here is executed.
    pub(super) fn iterations(&self) -> f64 {
        self.iterations
    }

    /// Records at every level what `store` touches. Returns the bytes of each level, innermost
    /// first.
    pub(super) fn touch(&mut self, program: &Program, store: &Store<'_>) -> Vec<f64> {
        let mut bytes = Vec::with_capacity(self.levels.len());
        let mut extents: Vec<Vec<usize>> = store.accesses.iter().map(|_| vec![]).collect();
        for level in self.levels.iter_mut().rev() {
            let var = level.l.var;
            self.bounds[var.index()] = running(level.l);
            let before = level.touches.len();
            for (access, extents) in store.accesses.iter().zip(&mut extents) {
                let ty = &program.buffer(access.buffer).ty;
                update(extents, access, &ty.shape, var, &self.bounds);
                let elements = extents.iter().map(|&extent| extent as f64).product();
                let element_bytes = ty.dtype.size() as f64;
                level.touches.push(Touch { buffer: access.buffer, elements, element_bytes });
            }
            let new = &level.touches[before..];
            bytes.push(new.iter().map(|t| t.elements * t.element_bytes).sum());
        }
        for level in &self.levels {
            self.bounds[level.l.var.index()] = (0, 0);
        }
        bytes
    }

    /// The values of every variable while all loops run.
    pub(super) fn all_running(&self) -> Vec<Interval> {
        let mut bounds = self.bounds.clone();
        for level in &self.levels {
            bounds[level.l.var.index()] = running(level.l);
        }
        bounds
    }
}

/// The extents along each axis, now that `var` runs, too: those of axes that do not depend on it
/// stay as they are.
fn update(
    extents: &mut Vec<usize>,
    access: &Accesses<'_>,
    shape: &[usize],
    var: VarId,
    bounds: &[Interval],
) {
    let is_first = extents.is_empty();
    extents.resize(shape.len(), 0);
    let is_var = &mut |e: &Expr| matches!(e, Expr::Var(v) if *v == var);
    for (axis, extent) in extents.iter_mut().enumerate() {
        if is_first || access.indices.iter().any(|at| at.get(axis).is_some_and(|e| e.any(is_var))) {
            *extent = reach::extent(&access.indices, axis, shape[axis], bounds);
        }
    }
}

fn running(l: &For) -> Interval {
    (0, i64::try_from(l.extent.max(1) - 1).unwrap_or(i64::MAX))
}
