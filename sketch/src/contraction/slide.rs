//! Windows that slide over rows: what one row of a result reads for a term, another one reads for
//! another term.
//!
//! ```text
//! y[r, c] = sum[t, u] x[r + t, c + u] * w[t, u], 9 x 9 terms
//! =>
//! seven rows of y read 15 rows of x for each u, and not 7 * 9
//! ```
//! They do if a tile of rows is written out for all `t`: then each vector is loaded once.

use std::collections::BTreeSet;
use std::ops::Range;
use std::slice;

use ansc_graph::{Expr, Stage, VarId};

use crate::affine::{Digit, Extents, Source, Sum};
use crate::usage::mentions;

/// So many rows of a result share a quarter of what they read at least.
const ROWS: usize = 8;

/// Row `r` of the result reads row `r * step + t * gap` for the term `t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slide {
    /// The axis of terms, by its place among them.
    pub(crate) axis: usize,
    pub(crate) terms: usize,
    step: i64,
    gap: i64,
}

impl Slide {
    /// The slide of a window over the rows of this axis, if all vectors that rows do not share are
    /// read so, and rows next to one another read much of the same.
    pub(super) fn of(s: &Stage, row: usize, vector: usize) -> Option<Slide> {
        let loads = s.body.loads().into_iter().map(|(_, indices)| indices);
        let own = |indices: &&[Expr]| mentions(indices, vector) && mentions(indices, row);
        let mut slides = loads.filter(own).map(|indices| Slide::at(s, indices, row));
        let first = slides.next()??;
        let is_shared = 4 * first.rows(ROWS) < 3 * ROWS * first.terms;
        (is_shared && slides.all(|other| other == Some(first))).then_some(first)
    }

    fn at(s: &Stage, indices: &[Expr], row: usize) -> Option<Slide> {
        let mut extents = Extents::default();
        let all = s.extents();
        all.iter().enumerate().for_each(|(axis, &n)| extents.set(VarId::new(axis), n));
        let mut places = indices.iter().filter(|i| mentions(slice::from_ref(*i), row));
        let (place, None) = (places.next()?, places.next()) else { return None };
        let sum = Sum::of(place, &extents);
        let factor = |axis| {
            let digit = Digit::whole(Source::Var(VarId::new(axis)));
            sum.terms.get(&digit).filter(|&factor| factor > 0)
        };
        let reduced: Range<usize> = s.ty.rank()..all.len();
        let axis = reduced.into_iter().find(|&axis| all[axis] > 1 && factor(axis).is_some())?;
        let (step, gap) = (factor(row)?, factor(axis)?);
        Some(Slide { axis: axis - s.ty.rank(), terms: all[axis], step, gap })
    }

    /// How many rows of the image so many rows of the result read for all terms.
    pub(crate) fn rows(&self, rows: usize) -> usize {
        let place = |row: usize, term: usize| row as i64 * self.step + term as i64 * self.gap;
        let all = (0..rows).flat_map(|row| (0..self.terms).map(move |term| place(row, term)));
        all.collect::<BTreeSet<i64>>().len()
    }
}

#[cfg(test)]
mod tests {
    use ansc_graph::Compute;

    use super::*;

    fn slide(y: &str) -> Option<Slide> {
        let text = format!(
            "compute(in0: f32[8, 80, 80], in1: f32[8, 9, 9]) -> y {{ y: f32[8, 20, 20] = sum{{r0: 9, r1: 9}} mul({y}, in1[i0, r0, r1]) }}"
        );
        let compute = Compute::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        Slide::of(&compute.stages[0], 1, 2)
    }

    #[test]
    fn rows_that_windows_share() {
        let plain = slide("in0[i0, add(i1, r0), add(i2, r1)]").unwrap();
        assert_eq!((plain.axis, plain.rows(1), plain.rows(7)), (0, 9, 15));
        let strided = slide("in0[i0, add(mul(i1, 2), r0), add(i2, r1)]").unwrap();
        assert_eq!((strided.axis, strided.rows(7)), (0, 21));
        let dilated = slide("in0[i0, add(i1, mul(r0, 3)), add(i2, r1)]").unwrap();
        assert_eq!(dilated.rows(4), 3 * 9 + 1);
        let turned = slide("in0[i0, add(i1, r1), add(i2, r0)]").unwrap();
        assert_eq!((turned.axis, turned.rows(7)), (1, 15));
    }

    #[test]
    fn windows_that_share_nothing() {
        assert_eq!(slide("in0[i0, i1, add(i2, r1)]"), None);
        assert_eq!(slide("in0[i0, add(i1, mul(r0, 12)), add(i2, r1)]"), None);
    }
}
