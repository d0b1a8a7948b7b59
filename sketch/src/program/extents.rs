//! The extents of a program's variables, and what its iterators stand for.

use super::{Iter, Program, Stmt};
use crate::affine::Extents;

impl Extents {
    /// Those of all loops and iterators.
    pub(crate) fn of(program: &Program) -> Extents {
        let mut extents = Extents::unknown(program.vars.len());
        program.body.iter().for_each(|s| extents.collect(s));
        extents
    }

    fn collect(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For(l) => {
                self.set(l.var, l.extent);
                l.body.iter().for_each(|s| self.collect(s));
            }
            Stmt::Block(b) => b.iters.iter().for_each(|i| self.set(i.var, i.extent)),
        }
    }

    /// From now on sums are over what the iterators are bound to, which are expressions over loops;
    /// and no longer over those of before.
    pub(crate) fn bind(&mut self, iters: &[Iter]) {
        let _ = self.stand_for(iters.iter().map(|i| (i.var, i.binding.clone())));
    }

    /// As [`bind`](Extents::bind), and simplifies what iterators are bound to.
    pub(crate) fn simplify_and_bind(&mut self, iters: &mut [Iter]) {
        let bound: Vec<_> = iters.iter().map(|i| (i.var, i.binding.clone())).collect();
        let sums = self.stand_for(bound.into_iter());
        iters.iter_mut().zip(sums).for_each(|(iter, sum)| iter.binding = sum.to_expr());
    }
}
