//! The lengths of a tile and of what is around it, each a choice.
//!
//! ```text
//! tiles by price: 14 x 2 vectors, 7 x 4, 12 x 2     rows: [14, 7, 12]   vectors: [2, 4]
//! 512 terms, 4 at a time, or 1, 2, 8                written out: [4, 1, 2, 8]
//! ```

use ansc_graph::{Expr, Stage};

use super::super::Nests;
use super::PANELS;
use super::order::Order;
use crate::contraction::operands::Operands;
use crate::contraction::shapes::Shape;
use crate::contraction::slide::Slide;
use crate::trace::{Number, StepError};

/// Tiles whose lengths are candidates.
const SHAPES: usize = 16;
/// Terms of the innermost axis that are written out.
const UNROLLED: [usize; 4] = [4, 1, 2, 8];
/// The same where products are added by instructions of their own: written out, code generation
/// adds up the products of several terms first, for which there are no registers.
const ONE_BY_ONE: [usize; 4] = [2, 1, 4, 8];
/// Terms of a window that are written out, as a multiple of the terms of one axis.
const WINDOW: usize = 3;
/// Terms that are written out at most where a window slides.
const LONGEST_SLIDE: usize = 32;
/// Tiles of rows that one panel meets before the next panel comes.
pub(super) const BLOCKS: [usize; 5] = [4, 8, 16, 32, 64];
/// Iterations around tiles below which tiles of rows are iterations, too.
const ENOUGH: i64 = 24;
/// So many for each of several threads are enough where terms are chosen, as those of padding are:
/// tiles of rows that are no iterations are parted where padding begins. So are as many panels that
/// threads copy for themselves.
pub(super) const FOR_EACH: usize = 4;

/// Rows are many if they are so many times as many as a window has.
const MANY_WINDOWS: usize = 4;

/// Numbers of iterations around tiles that may be enough.
pub(super) fn enough(s: &Stage, threads: usize) -> [i64; 2] {
    if !s.body.any(&mut |e| matches!(e, Expr::Select(..))) {
        return [ENOUGH, 0];
    }
    match i64::try_from(threads).unwrap_or(ENOUGH) {
        0 | 1 => [0, ENOUGH],
        threads => [ENOUGH.min(threads.saturating_mul(FOR_EACH as i64)), 0],
    }
}

/// Candidates, the first ones of which are the best tile's.
pub(super) struct Lengths {
    pub(super) upper: Vec<i64>,
    pub(super) rows: Vec<i64>,
    pub(super) vectors: Vec<i64>,
    /// Tiles of rows of a block.
    block: Vec<i64>,
    /// For each axis of terms.
    terms: Vec<Vec<i64>>,
    pub(super) panels: Vec<i64>,
}

/// The lengths that are chosen of them.
pub(super) struct Tile {
    pub(super) upper: Number,
    pub(super) rows: Number,
    pub(super) vectors: Number,
    pub(super) block: Number,
    pub(super) terms: Vec<Number>,
    pub(super) panels: Number,
}

/// A stage, and what of its terms one sum has.
pub(super) struct Summed<'a> {
    pub(super) stage: &'a Stage,
    /// Extents of the axes of terms: the last ones of the stage.
    pub(super) terms: &'a [usize],
    /// Whether the last ones may be a window that is written out as a whole.
    pub(super) windows: bool,
    /// Whether the machine adds products by other instructions than it multiplies.
    pub(super) adds_apart: bool,
}

impl Lengths {
    pub(super) fn of(
        summed: &Summed<'_>,
        operands: &Operands,
        shapes: &[Shape],
        lanes: usize,
        order: Option<Order>,
    ) -> Lengths {
        let s = summed.stage;
        let shapes = &shapes[..shapes.len().min(SHAPES)];
        let all = |length: fn(&Shape) -> usize| distinct(shapes.iter().map(length));
        let best = &shapes[0];
        let extent = |axis: Option<usize>| axis.map_or(1, |a| s.ty.shape[a]);
        let rows = extent(best.row_axis);
        let tiles = |shape: &Shape| rows.div_ceil(shape.rows);
        let most = shapes.iter().map(tiles).max().unwrap_or(1);
        let blocks = BLOCKS.into_iter().filter(|&n| n < tiles(best));
        let panel = distinct(shapes.iter().map(|shape| shape.panel / lanes));
        let (columns, rank) = (s.ty.shape[s.ty.rank() - 1], s.ty.rank());
        let is_around = |a: usize| !operands.fixed_axes.contains(&a) && Some(a) != best.row_axis;
        let around = (0..rank - 1).filter(|a| is_around(*a)).map(|a| s.ty.shape[a]);
        let around = around.product::<usize>();
        let has_panels = columns / best.panel > 1;
        // Rows that share nothing but a panel read other columns for each of them: next to one
        // another these are the same lines, and threads have rows, as they have in other nests.
        // Where rows are few, threads would read most of them twice, for their windows.
        let window = summed.terms.iter().max().copied().unwrap_or(1);
        let within_rows = !operands.shared && around >= MANY_WINDOWS * window;
        let places = if within_rows { [PANELS[1], PANELS[0]] } else { PANELS };
        let cheapest = order.map(|order| order.panels as usize);
        let places = distinct(cheapest.into_iter().chain(places.map(|place| place as usize)));
        let block = order.and_then(|order| order.block);
        Lengths {
            upper: all(|shape| shape.upper),
            rows: all(|shape| shape.rows),
            vectors: panel,
            block: distinct(block.into_iter().chain([tiles(best), most]).chain(blocks)),
            terms: summed.written_out(operands, best),
            panels: if around > 1 && has_panels { places } else { places[..1].to_vec() },
        }
    }

    pub(super) fn choose(&self, nests: &mut Nests) -> Result<Tile, StepError> {
        let mut choose = |candidates: &Vec<i64>| match candidates[..] {
            [only] => Ok(Number::Known(only)),
            _ => nests.choose(candidates),
        };
        Ok(Tile {
            upper: choose(&self.upper)?,
            rows: choose(&self.rows)?,
            vectors: choose(&self.vectors)?,
            block: choose(&self.block)?,
            terms: self.terms.iter().map(&mut choose).collect::<Result<_, _>>()?,
            panels: choose(&self.panels)?,
        })
    }
}

impl Summed<'_> {
    /// Terms that are written out along each axis: a part of the last axis; or, if rows read
    /// vectors of their own, the last axes as a whole, which is a window whose terms share them, or
    /// else the axis along which it slides over rows.
    fn written_out(&self, operands: &Operands, best: &Shape) -> Vec<Vec<i64>> {
        let extents = self.terms;
        let most = if self.adds_apart { ONE_BY_ONE } else { UNROLLED };
        let windows = Some(operands).filter(|operands| self.windows && !operands.shared);
        let whole = match (windows, best.upper > 1) {
            (None, _) => vec![false],
            (Some(_), several) => vec![!several, several],
        };
        let ways = whole.iter().flat_map(|&window| most.map(|n| written_out(extents, window, n)));
        let mut ways: Vec<Vec<usize>> = ways.collect();
        let slide = windows.and_then(|operands| self.slide(operands.slide?));
        if let Some((axis, terms)) = slide.filter(|&(axis, terms)| ways[0][axis] < terms) {
            let mut slides = vec![1; extents.len()];
            slides[axis] = terms;
            if terms <= LONGEST_SLIDE {
                ways.insert(0, slides);
            }
        }
        (0..extents.len()).map(|axis| distinct(ways.iter().map(|way| way[axis]))).collect()
    }

    /// The axis of a slide among those of the sum, and its terms, if the sum has all of them.
    fn slide(&self, slide: Slide) -> Option<(usize, usize)> {
        let left_out = self.stage.extents().len() - self.stage.ty.rank() - self.terms.len();
        let axis = slide.axis.checked_sub(left_out)?;
        (self.terms[axis] == slide.terms).then_some((axis, slide.terms))
    }
}

fn written_out(extents: &[usize], window: bool, most: usize) -> Vec<usize> {
    let mut factors = vec![1; extents.len()];
    let mut terms = 1;
    let fits = |&&extent: &&usize| {
        terms *= extent;
        terms <= WINDOW * most
    };
    let axes = extents.iter().rev().take_while(fits).count();
    if window && axes > 1 {
        let first = extents.len() - axes;
        factors[first..].copy_from_slice(&extents[first..]);
        return factors;
    }
    if let (Some(&last), Some(factor)) = (extents.last(), factors.last_mut()) {
        let part = (1..=most).rev().find(|u| last.is_multiple_of(*u)).unwrap_or(1);
        *factor = if last <= 2 * most { last } else { part };
    }
    factors
}

/// Each once, in order.
fn distinct(all: impl IntoIterator<Item = usize>) -> Vec<i64> {
    let mut found: Vec<i64> = vec![];
    for n in all {
        if !found.contains(&(n as i64)) {
            found.push(n as i64);
        }
    }
    found
}
