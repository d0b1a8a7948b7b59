//! Whether iterations of a parallel loop stay out of each other's way.

use ansc_graph::BufId;
use foldhash::HashMap;

/// Who touched the elements of shared buffers since the parallel loop began.
#[derive(Default)]
pub(super) struct Tracker {
    /// The iteration that runs, while a parallel loop does.
    iteration: Option<usize>,
    touched: HashMap<(BufId, usize), Touch>,
}

#[derive(Clone, Copy)]
struct Touch {
    /// The first iteration that touched the element.
    by: usize,
    by_others: bool,
    written: bool,
}

impl Tracker {
    pub(super) fn begin(&mut self, iteration: usize) {
        self.iteration = Some(iteration);
    }

    /// False if two iterations touch the element and one of them writes it.
    pub(super) fn touch(&mut self, buffer: BufId, offset: usize, write: bool) -> bool {
        let Some(by) = self.iteration else { return true };
        let fresh = Touch { by, by_others: false, written: false };
        let touch = self.touched.entry((buffer, offset)).or_insert(fresh);
        touch.by_others |= touch.by != by;
        touch.written |= write;
        !(touch.by_others && touch.written)
    }
}
