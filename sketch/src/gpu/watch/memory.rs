//! The buffers that a thread block sees: which elements hold something, and who touched them since
//! the last barrier.

use ansc_graph::BufId;

use super::lanes::{Mask, Value};
use crate::program::{Program, Scope};

pub(super) struct Memory {
    buffers: Vec<Buffer>,
    threads: usize,
    /// Counts barriers; what was touched in an earlier one was not touched.
    phase: u32,
}

/// Local memory has the elements of all threads side by side.
enum Buffer {
    /// Only read, or of another kernel.
    Constant,
    Local {
        written: Vec<bool>,
    },
    Shared {
        written: Vec<bool>,
        touched: Vec<Touched>,
    },
    Global {
        touched: Vec<Touched>,
    },
}

/// In one word, so that memory of which little is touched costs little: the phase, the first thread
/// that touched the element, whether others did, whether it was written.
type Touched = u64;

const BY_OTHERS: Touched = 2;
const WRITTEN: Touched = 1;

/// Why a thread may not do what it does, and which one.
pub(super) enum Fault {
    Uninitialised(usize),
    Race(usize),
    WritesInput,
}

impl Memory {
    /// The memory of a kernel that uses the buffers for which `used` holds. `None` if there is not
    /// enough of it.
    pub(super) fn new(
        program: &Program,
        threads: usize,
        used: impl Fn(BufId) -> bool,
    ) -> Result<Memory, BufId> {
        let mut buffers = Vec::with_capacity(program.buffers.len());
        for (i, buffer) in program.buffers.iter().enumerate() {
            let id = BufId::new(i);
            let made = match buffer.scope {
                Scope::Input => Some(Buffer::Constant),
                _ if !used(id) => Some(Buffer::Constant),
                scope => made(scope, &buffer.ty.shape, threads),
            };
            buffers.push(made.ok_or(id)?);
        }
        Ok(Memory { buffers, threads, phase: 1 })
    }

    /// Another thread block begins.
    pub(super) fn begin(&mut self) {
        self.barrier();
        (0..self.buffers.len()).for_each(|i| self.forget(BufId::new(i)));
    }

    pub(super) fn barrier(&mut self) {
        self.phase += 1;
    }

    pub(super) fn forget(&mut self, buffer: BufId) {
        if let Buffer::Local { written } | Buffer::Shared { written, .. } =
            &mut self.buffers[buffer.index()]
        {
            written.fill(false);
        }
    }

    /// The threads in `mask` access the elements at `offset`, which are in bounds.
    pub(super) fn access(
        &mut self,
        buffer: BufId,
        offset: &Value,
        mask: &Mask,
        write: bool,
    ) -> Result<(), Fault> {
        let threads = self.threads;
        let phase = Phase { now: self.phase, threads };
        match &mut self.buffers[buffer.index()] {
            Buffer::Constant if write => Err(Fault::WritesInput),
            Buffer::Constant => Ok(()),
            Buffer::Local { written } => local(written, offset, mask, write, threads),
            Buffer::Global { touched } => phase.touch(touched, offset, mask, write),
            Buffer::Shared { written, touched } => {
                shared(written, offset, mask, write, threads)?;
                phase.touch(touched, offset, mask, write)
            }
        }
    }
}

fn made(scope: Scope, shape: &[usize], threads: usize) -> Option<Buffer> {
    let elements = shape.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent))?;
    let written = |n| vec![false; n];
    let touched = || vec![0; elements];
    Some(match scope {
        Scope::Local | Scope::Fragment => {
            Buffer::Local { written: written(elements.checked_mul(threads)?) }
        }
        Scope::Shared => Buffer::Shared { written: written(elements), touched: touched() },
        _ => Buffer::Global { touched: touched() },
    })
}

fn local(
    written: &mut [bool],
    offset: &Value,
    mask: &Mask,
    write: bool,
    threads: usize,
) -> Result<(), Fault> {
    if let (Value::Same(offset), Mask::All) = (offset, mask) {
        let all = &mut written[*offset as usize * threads..][..threads];
        if write {
            all.fill(true);
        }
        return all.iter().position(|w| !w).map_or(Ok(()), |lane| Err(Fault::Uninitialised(lane)));
    }
    hold(written, mask, write, threads, |lane| offset.lane(lane) as usize * threads + lane)
}

fn shared(
    written: &mut [bool],
    offset: &Value,
    mask: &Mask,
    write: bool,
    threads: usize,
) -> Result<(), Fault> {
    hold(written, mask, write, threads, |lane| offset.lane(lane) as usize)
}

fn hold(
    written: &mut [bool],
    mask: &Mask,
    write: bool,
    threads: usize,
    place: impl Fn(usize) -> usize,
) -> Result<(), Fault> {
    for lane in (0..threads).filter(|&lane| mask.has(lane)) {
        let written = &mut written[place(lane)];
        *written |= write;
        if !*written {
            return Err(Fault::Uninitialised(lane));
        }
    }
    Ok(())
}

struct Phase {
    now: u32,
    threads: usize,
}

impl Phase {
    fn touch(
        &self,
        touched: &mut [Touched],
        offset: &Value,
        mask: &Mask,
        write: bool,
    ) -> Result<(), Fault> {
        let mut lanes = (0..self.threads).filter(|&lane| mask.has(lane));
        let one = |lane: usize| self.one(&mut touched[offset.lane(lane) as usize], lane, write);
        let clash = match offset {
            // Two tell as much as all of them.
            Value::Same(_) => lanes.by_ref().take(2).find(negated(one)),
            Value::Lanes(_) => lanes.find(negated(one)),
        };
        clash.map_or(Ok(()), |lane| Err(Fault::Race(lane)))
    }

    /// False if two threads touch the element and one of them writes it.
    fn one(&self, touched: &mut Touched, lane: usize, write: bool) -> bool {
        let first = Touched::from(self.now) << 32 | (lane as Touched) << 2;
        if *touched >> 32 != Touched::from(self.now) {
            *touched = first;
        }
        if *touched & !(BY_OTHERS | WRITTEN) != first {
            *touched |= BY_OTHERS;
        }
        if write {
            *touched |= WRITTEN;
        }
        *touched & (BY_OTHERS | WRITTEN) != BY_OTHERS | WRITTEN
    }
}

fn negated(mut f: impl FnMut(usize) -> bool) -> impl FnMut(&usize) -> bool {
    move |&lane| !f(lane)
}
