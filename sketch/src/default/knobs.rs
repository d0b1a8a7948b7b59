//! What the default schedule leaves open to a search.
//!
//! Every [`Knob`] has a few candidates, the first of which is what nobody tuned gets. Which of them matter
//! for a subgraph is found by scheduling it: see [`schedule_with`](super::schedule_with).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::algorithm::Sums;

/// One choice of the default schedule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Which register tile: its rank among those that fit the registers, the one priced lowest first.
    Tile,
    /// Terms of the innermost reduction axis that are written out in a row.
    Unroll,
    /// Tiles of rows that one panel of columns meets before the next panel comes; 0 for all of them.
    RowBlock,
    /// Whether panels stand inside of the axes along which they do not vary, and not outside.
    PanelsInside,
    /// Vectors of partial results of a reduction that is no product.
    Partials,
    /// Vectors of an elementwise stage that are written out in a row.
    Vectors,
    /// Short rows of several stages that are done at a time.
    Rows,
    /// By how many axes fewer than they could stages share their rows, and so have longer ones.
    Apart,
}

impl Knob {
    /// Every knob once, in the order of the variants.
    pub const ALL: [Knob; 8] = [
        Knob::Tile,
        Knob::Unroll,
        Knob::RowBlock,
        Knob::PanelsInside,
        Knob::Partials,
        Knob::Vectors,
        Knob::Rows,
        Knob::Apart,
    ];

    /// Its values; the first one is that of the schedule that nobody tuned.
    pub fn candidates(self) -> &'static [i64] {
        match self {
            Knob::Tile => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            Knob::Unroll => &[4, 1, 2, 8],
            Knob::RowBlock => &[0, 4, 8, 16, 32, 64],
            Knob::PanelsInside => &[0, 1],
            Knob::Partials => &[4, 1, 2, 8],
            Knob::Vectors => &[1, 2, 4],
            Knob::Rows => &[2, 1, 4],
            Knob::Apart => &[0, 1, 2],
        }
    }

    /// As traces have it.
    pub fn name(self) -> &'static str {
        match self {
            Knob::Tile => "tile",
            Knob::Unroll => "unroll",
            Knob::RowBlock => "row_block",
            Knob::PanelsInside => "panels_inside",
            Knob::Partials => "partials",
            Knob::Vectors => "vectors",
            Knob::Rows => "rows",
            Knob::Apart => "apart",
        }
    }

    fn untuned(self) -> i64 {
        self.candidates()[0]
    }
}

/// A value for every knob, and which of them were asked for.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    /// Whose long sums are summed by blocks. No choice, but what a task asks for.
    pub(super) sums: Sums,
    set: BTreeMap<Knob, i64>,
    asked: RefCell<BTreeSet<Knob>>,
}

/// Choices that are set; any other knob has its first candidate.
impl Knobs {
    pub fn new(set: impl IntoIterator<Item = (Knob, i64)>) -> Knobs {
        Knobs { set: set.into_iter().collect(), ..Knobs::default() }
    }

    /// The same for a task that has only these algorithms.
    pub fn summing(self, sums: Sums) -> Knobs {
        Knobs { sums, ..self }
    }

    /// The same with nothing written out that need not be.
    pub(super) fn least_written_out(&self) -> Knobs {
        let mut set = self.set.clone();
        let once = [Knob::Unroll, Knob::Partials, Knob::Vectors, Knob::Rows];
        set.extend(once.map(|knob| (knob, 1)));
        Knobs::new(set)
    }

    /// A value below zero counts as zero.
    pub(super) fn get(&self, knob: Knob) -> usize {
        self.asked.borrow_mut().insert(knob);
        let value = self.set.get(&knob).copied().unwrap_or_else(|| knob.untuned());
        usize::try_from(value).unwrap_or(0)
    }

    /// The knobs that the schedule depended on.
    pub fn asked(&self) -> Vec<Knob> {
        self.asked.borrow().iter().copied().collect()
    }
}
