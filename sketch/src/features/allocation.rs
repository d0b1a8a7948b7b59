//! Group 4: where the stored buffer is allocated. Inputs and outputs are not.
//!
//! A workspace is allocated once, a local or shared buffer in each iteration of the loops that
//! contain all of its accesses.

use ansc_graph::{BufId, VarId};

use super::nest::Nest;
use super::store::Store;
use crate::program::{Program, Scope};

pub(super) const LEN: usize = 4;

pub(super) const NAMES: [&str; LEN] =
    ["alloc_size", "alloc_prod", "alloc_outer_prod", "alloc_inner_prod"];

/// For each buffer that is accessed, the loops around all of its accesses with their extents.
pub(super) struct Allocations(Vec<Option<Vec<(VarId, f64)>>>);

impl Allocations {
    pub(super) fn new(program: &Program) -> Allocations {
        Allocations(vec![None; program.buffers.len()])
    }

    pub(super) fn record(&mut self, nest: &Nest<'_>, store: &Store<'_>) {
        for access in &store.accesses {
            let home = &mut self.0[access.buffer.index()];
            match home {
                None => {
                    *home = Some(nest.levels.iter().map(|l| (l.l.var, l.extent())).collect());
                }
                Some(loops) => {
                    let common = loops.iter().zip(&nest.levels);
                    let length = common.take_while(|((var, _), level)| *var == level.l.var).count();
                    loops.truncate(length);
                }
            }
        }
    }

    /// `iterations` are those of the store.
    pub(super) fn write(&self, program: &Program, buffer: BufId, iterations: f64, out: &mut [f64]) {
        let ty = &program.buffer(buffer).ty;
        let outer = match program.buffer(buffer).scope {
            Scope::Input | Scope::Output => return,
            Scope::Global => 1.0,
            Scope::Local | Scope::Shared | Scope::Fragment => {
                self.0[buffer.index()].iter().flatten().map(|(_, extent)| extent).product()
            }
        };
        let elements: f64 = ty.shape.iter().map(|&length| length as f64).product();
        let size = elements * ty.dtype.size() as f64;
        out.copy_from_slice(&[size, elements * outer, outer, iterations / outer]);
    }
}
