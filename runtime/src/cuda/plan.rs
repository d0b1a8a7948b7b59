//! The plan as what a device does on its own.
//!
//! In: a checked [`Program`]. Out: launches and copies in their order, with loops of a fixed number
//! of iterations written out; or nothing, if the host takes part: it decides branches, counts loops
//! that end early and computes host operators.
//!
//! ```text
//! kernel a; loop 2 times { slice of x; kernel b; slice of y }
//! => launch a; copy x[0]; launch b; copy to y[0]; copy x[1]; launch b; copy to y[1]
//! ```

use std::ops::Range;

use crate::driver::Pieces;
use crate::manifest::{BufferId, BufferInfo, Specialisation, Storage};
use crate::program::{Action, Block, LoopAction, Moves, Program, Scan};
use crate::validate::bytes_of;

/// A plan is written out to at most this many operations, each of which is a node of a graph. If
/// there would be more, the host does the loops.
const MOST_OPS: usize = 20_000;

/// A byte in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) buffer: BufferId,
    pub(crate) offset: usize,
}

/// One thing that the device does, and the step that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) step: usize,
    pub(crate) work: Work,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Kernel {
        kernel: usize,
        /// Into the program's arguments.
        args: Range<usize>,
    },
    Copy {
        from: Spot,
        to: Spot,
        pieces: Pieces,
    },
    /// An iteration's number.
    Number {
        to: BufferId,
        value: u64,
    },
    /// A condition that holds.
    True {
        to: BufferId,
    },
}

/// All work of a run; `None` if the host takes part.
pub(crate) fn flatten(specialisation: &Specialisation, program: &Program) -> Option<Vec<Op>> {
    let mut flat = Flat { buffers: &specialisation.buffers, ops: vec![] };
    flat.block(&program.main)?;
    Some(flat.ops)
}

struct Flat<'a> {
    buffers: &'a [BufferInfo],
    ops: Vec<Op>,
}

impl Flat<'_> {
    fn push(&mut self, step: usize, work: Work) -> Option<()> {
        self.ops.push(Op { step, work });
        (self.ops.len() <= MOST_OPS).then_some(())
    }

    fn block(&mut self, block: &Block) -> Option<()> {
        block.iter().try_for_each(|(step, action)| match action {
            Action::Kernel { kernel, args, .. } => {
                self.push(*step, Work::Kernel { kernel: *kernel, args: args.clone() })
            }
            Action::Copy(moves) => self.moves(*step, moves),
            Action::Loop(l) => self.counted(*step, l),
            // The host looks at inputs before they go to the device: `input_checks`.
            Action::Check { indices, .. } if self.is_input(*indices) => Some(()),
            Action::Check { .. } | Action::Host { .. } | Action::If { .. } => None,
        })
    }

    fn moves(&mut self, step: usize, moves: &Moves) -> Option<()> {
        if moves.staged {
            return None;
        }
        moves.pairs.iter().try_for_each(|&(from, to)| {
            let bytes = self.bytes(to);
            match self.overlap(from, to) {
                _ if bytes == 0 => Some(()),
                Overlap::Same => Some(()),
                Overlap::Partly => None,
                Overlap::None => {
                    let pieces = Pieces { rows: 1, bytes, steps: [bytes; 2] };
                    let [from, to] = [from, to].map(|buffer| Spot { buffer, offset: 0 });
                    self.push(step, Work::Copy { from, to, pieces })
                }
            }
        })
    }

    /// A loop that nothing ends before its last iteration.
    fn counted(&mut self, step: usize, l: &LoopAction) -> Option<()> {
        if l.trip.is_some() || l.condition.is_some() || l.condition_out.is_some() {
            return None;
        }
        self.moves(step, &l.enter)?;
        for iteration in 0..l.max_trip {
            if let Some(to) = l.iteration {
                self.push(step, Work::Number { to, value: iteration })?;
            }
            if let Some(to) = l.condition_in {
                self.push(step, Work::True { to })?;
            }
            for scan in &l.scan_inputs {
                // Slices of the whole are taken, of which there may be more than iterations.
                let last = (scan.len as u64).saturating_sub(1);
                self.scan(
                    step,
                    scan,
                    if scan.reverse { last - iteration } else { iteration },
                    true,
                )?;
            }
            self.block(&l.body)?;
            for scan in &l.scan_outputs {
                let last = l.max_trip - 1;
                self.scan(
                    step,
                    scan,
                    if scan.reverse { last - iteration } else { iteration },
                    false,
                )?;
            }
            self.moves(step, &l.carry)?;
        }
        self.moves(step, &l.leave)
    }

    fn scan(&mut self, step: usize, scan: &Scan, at: u64, into_slice: bool) -> Option<()> {
        if scan.outer == 0 || scan.bytes == 0 {
            return Some(());
        }
        let at = usize::try_from(at).ok()?;
        let whole = Spot { buffer: scan.whole, offset: at * scan.bytes };
        let slice = Spot { buffer: scan.slice, offset: 0 };
        let (far, near) = (scan.len * scan.bytes, scan.bytes);
        let (from, to, steps) =
            if into_slice { (whole, slice, [far, near]) } else { (slice, whole, [near, far]) };
        let pieces = Pieces { rows: scan.outer, bytes: scan.bytes, steps };
        self.push(step, Work::Copy { from, to, pieces })
    }

    fn is_input(&self, id: BufferId) -> bool {
        matches!(self.buffers[id.0 as usize].storage, Storage::Input(_))
    }

    fn bytes(&self, id: BufferId) -> usize {
        bytes_of(&self.buffers[id.0 as usize])
    }

    fn overlap(&self, a: BufferId, b: BufferId) -> Overlap {
        let place = |id: BufferId| match self.buffers[id.0 as usize].storage {
            Storage::Arena { offset } => (0, 0, offset),
            Storage::Weight { offset } => (1, 0, offset),
            Storage::Input(port) => (2, port, 0),
            Storage::Output(port) => (3, port, 0),
            Storage::Prepared { offset } => (4, 0, offset),
            Storage::Size(size) => (5, size, 0),
            Storage::State(state) => (6, state, 0),
            Storage::NextState(state) => (7, state, 0),
        };
        let (a_place, b_place) = (place(a), place(b));
        let (a_end, b_end) = (a_place.2 + self.bytes(a), b_place.2 + self.bytes(b));
        if a_place == b_place {
            Overlap::Same
        } else if (a_place.0, a_place.1) == (b_place.0, b_place.1)
            && a_place.2 < b_end
            && b_place.2 < a_end
        {
            Overlap::Partly
        } else {
            Overlap::None
        }
    }
}

enum Overlap {
    None,
    Partly,
    Same,
}
