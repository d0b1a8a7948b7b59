//! Executes a plan, step after step.
//!
//! In: a checked [`Program`] and the address of every buffer. Out: outputs are written, and
//! `actual` holds the shape of every buffer that is smaller than declared. What the manifest can
//! promise was checked when loading; what is checked here depends on data. Kernels are somebody
//! else's business ([`Kernels`]): the threads of a pool run them, or a GPU does.

mod check;
mod host;
mod loops;
mod rooms;

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::dtype::DType;
use crate::float::{Denormals, FloatMode};
use crate::host::Chance;
use crate::manifest::{BufferId, BufferInfo, KernelFn, Needed};
use crate::pool::Pool;
use crate::program::{Action, Block, Moves, Program};
use crate::run_error::RunError;
use crate::tensor::{Tensor, byte_len};
use crate::trace::Recorder;

pub(crate) use check::IndexCheck;

pub(crate) struct Exec<'a> {
    pub(crate) program: &'a Program,
    /// Runs kernels, which the steps of the program name by index.
    pub(crate) kernels: &'a mut dyn Kernels,
    pub(crate) buffers: &'a [BufferInfo],
    /// The address of every buffer. It is valid for the buffer's declared bytes, and for writing
    /// unless the buffer is an input or a weight.
    pub(crate) addresses: &'a [*mut u8],
    /// Addresses of the arguments of all kernel steps.
    pub(crate) args: &'a [*mut u8],
    /// Shapes of buffers that hold less than declared.
    pub(crate) actual: &'a mut [Option<Box<[usize]>>],
    /// Time and number of runs of each step, if wanted.
    pub(crate) times: Option<&'a mut [(Duration, u64)]>,
    /// Decides random numbers.
    pub(crate) chance: Chance,
}

/// Runs the kernels of a program on some device.
pub(crate) trait Kernels {
    /// Runs the kernel of a step on the buffers at these addresses, or begins to.
    fn run(&mut self, step: usize, kernel: usize, args: &[*mut u8]) -> Result<(), RunError>;

    /// Where other steps are noted, if they are.
    fn trace(&self) -> Option<&Recorder> {
        None
    }

    /// Calls `body` with ranges that together are `0..extent`, on whatever threads there are.
    fn share(&self, extent: u64, body: &(dyn Fn(Range<u64>) + Sync)) {
        body(0..extent);
    }

    /// Returns when all kernels that were begun are done.
    fn wait(&mut self) -> Result<(), RunError>;
}

/// The functions of a kernel, which run one after the other.
pub(crate) struct Kernel {
    pub(crate) launches: Vec<Launch>,
}

/// One of them, and the iterations of its parallel loop.
pub(crate) struct Launch {
    pub(crate) run: KernelFn,
    pub(crate) extent: u64,
    pub(crate) scratch: usize,
    pub(crate) needed: Option<Needed>,
}

/// The threads of a pool.
pub(crate) struct OnThreads<'a> {
    pub(crate) kernels: &'a [Kernel],
    pub(crate) pool: &'a Pool,
    pub(crate) scratch: Scratch,
    pub(crate) denormals: Denormals,
    pub(crate) trace: Option<&'a Recorder>,
}

impl Kernels for OnThreads<'_> {
    fn run(&mut self, step: usize, kernel: usize, args: &[*mut u8]) -> Result<(), RunError> {
        let args = Args(args.as_ptr());
        self.kernels[kernel].launches.iter().for_each(|launch| self.launch(step, launch, &args));
        Ok(())
    }

    fn trace(&self) -> Option<&Recorder> {
        self.trace
    }

    fn share(&self, extent: u64, body: &(dyn Fn(Range<u64>) + Sync)) {
        self.pool.run(extent, &|_, range| body(range));
    }

    fn wait(&mut self) -> Result<(), RunError> {
        Ok(())
    }
}

impl OnThreads<'_> {
    fn launch(&self, step: usize, launch: &Launch, args: &Args) {
        let scratch = &self.scratch;
        self.pool.run(args.needed(launch), &|thread, range| {
            let began = self.trace.map(|_| Instant::now());
            // Below `extent`, which fits.
            let (begin, end) = (range.start as i64, range.end as i64);
            let _mode = FloatMode::enter(self.denormals);
            // SAFETY: the session allotted `stride` bytes to each thread of the pool; addresses
            // are valid as `Exec::addresses` says; the code is trusted, see `Model::load`.
            unsafe { (launch.run)(args.0, scratch.base.add(thread * scratch.stride), begin, end) };
            if let (Some(trace), Some(began)) = (self.trace, began) {
                trace.record(thread, step, began);
            }
        });
    }
}

/// Memory of the threads: thread `i` has `stride` bytes from `base + i * stride`.
#[derive(Clone, Copy)]
pub(crate) struct Scratch {
    pub(crate) base: *mut u8,
    pub(crate) stride: usize,
}

// SAFETY: threads use disjoint parts.
unsafe impl Sync for Scratch {}

/// Arguments of a kernel, for all threads.
struct Args(*const *mut u8);

impl Args {
    /// How many iterations of a launch a run needs.
    fn needed(&self, launch: &Launch) -> u64 {
        let Some(Needed { sizes, extent }) = &launch.needed else { return launch.extent };
        // SAFETY: each of these arguments has the bytes of an `i64`, as was checked when it was
        // loaded, and `Exec::addresses` says that they may be read.
        let size = |&arg: &usize| unsafe { (*self.0.add(arg)).cast::<i64>().read_unaligned() };
        let sizes: Vec<i64> = sizes.iter().map(size).collect();
        let needed = extent.at(&sizes).and_then(|needed| u64::try_from(needed.max(0)).ok());
        needed.map_or(launch.extent, |needed| needed.min(launch.extent))
    }
}

// SAFETY: the table is only read; what it points to is the kernel's business, whose iterations are
// independent.
unsafe impl Sync for Args {}

impl Exec<'_> {
    pub(crate) fn run(&mut self) -> Result<(), RunError> {
        let program = self.program;
        self.block(&program.main)
    }

    fn block(&mut self, block: &Block) -> Result<(), RunError> {
        for (step, action) in block {
            if self.times.is_none() {
                self.action(*step, action)?;
                continue;
            }
            let began = Instant::now();
            self.action(*step, action)?;
            self.kernels.wait()?;
            if let Some(times) = &mut self.times {
                times[*step].0 += began.elapsed();
                times[*step].1 += 1;
            }
        }
        Ok(())
    }

    fn action(&mut self, step: usize, action: &Action) -> Result<(), RunError> {
        if !matches!(action, Action::Kernel { .. }) {
            self.kernels.wait()?;
        }
        match action {
            Action::Kernel { kernel, args, sized } => {
                // No kernel reads a value of unknown size, so it overwrites these.
                sized.iter().for_each(|id| self.actual[id.0 as usize] = None);
                self.kernels.run(step, *kernel, &self.args[args.clone()])
            }
            Action::Host { .. } | Action::Check { .. } | Action::Copy(_) => {
                let began = self.kernels.trace().map(|_| Instant::now());
                self.by_caller(step, action)?;
                if let (Some(trace), Some(began)) = (self.kernels.trace(), began) {
                    trace.record(0, step, began);
                }
                Ok(())
            }
            Action::If { condition, then_block, else_block } => {
                let block = if self.bool_at(*condition) { then_block } else { else_block };
                self.block(block)
            }
            Action::Loop(action) => self.run_loop(step, action),
        }
    }

    /// The calling thread does these steps itself.
    fn by_caller(&mut self, step: usize, action: &Action) -> Result<(), RunError> {
        match action {
            Action::Host { call, inputs, outputs } => self.host(step, call, inputs, outputs),
            Action::Check { indices, extents } => self.check(step, *indices, extents),
            Action::Copy(moves) => self.moves(step, moves),
            Action::Kernel { .. } | Action::If { .. } | Action::Loop(_) => Ok(()),
        }
    }

    fn check(&mut self, step: usize, id: BufferId, extents: &[usize]) -> Result<(), RunError> {
        let check = IndexCheck {
            node: &self.program.steps[step].name,
            buffers: self.buffers,
            indices: id,
            extents,
        };
        check.run(self.read(id), &|extent, body| self.kernels.share(extent, body))
    }

    fn moves(&mut self, step: usize, moves: &Moves) -> Result<(), RunError> {
        if moves.staged {
            return self.staged_moves(step, moves);
        }
        for &(from, to) in &moves.pairs {
            self.move_size(step, from, to, self.actual[from.0 as usize].clone())?;
            // SAFETY: both are valid for the declared bytes, which are equal and no less.
            unsafe { std::ptr::copy(self.address(from), self.address(to), self.bytes(to)) };
        }
        Ok(())
    }

    /// Reads all sources before it writes any target.
    fn staged_moves(&mut self, step: usize, moves: &Moves) -> Result<(), RunError> {
        let read = |&(from, _): &(BufferId, BufferId)| {
            Ok((self.actual[from.0 as usize].clone(), self.copy_of(from)?))
        };
        let sources: Vec<_> = moves.pairs.iter().map(read).collect::<Result<_, RunError>>()?;
        for (&(from, to), (actual, bytes)) in moves.pairs.iter().zip(sources) {
            self.move_size(step, from, to, actual)?;
            self.put(to, bytes.bytes());
        }
        Ok(())
    }

    /// Gives `to` the actual size of `from`.
    fn move_size(
        &mut self,
        step: usize,
        from: BufferId,
        to: BufferId,
        actual: Option<Box<[usize]>>,
    ) -> Result<(), RunError> {
        if actual.is_some() && self.info(from).shape != self.info(to).shape {
            return Err(self.dynamic(step, from));
        }
        self.actual[to.0 as usize] = actual;
        Ok(())
    }

    fn dynamic(&self, step: usize, id: BufferId) -> RunError {
        RunError::Dynamic { step: self.name(step), buffer: self.info(id).name.clone() }
    }

    fn name(&self, step: usize) -> String {
        self.program.steps[step].name.clone()
    }

    fn info(&self, id: BufferId) -> &BufferInfo {
        &self.buffers[id.0 as usize]
    }

    fn address(&self, id: BufferId) -> *mut u8 {
        self.addresses[id.0 as usize]
    }

    fn shape(&self, id: BufferId) -> &[usize] {
        self.actual[id.0 as usize].as_deref().unwrap_or(&self.info(id).shape)
    }

    /// The actual size, never more than the declared one.
    fn bytes(&self, id: BufferId) -> usize {
        byte_len(self.info(id).dtype, self.shape(id)).expect("no extent exceeds the declared one")
    }

    fn read(&self, id: BufferId) -> &[u8] {
        // SAFETY: valid for the declared bytes; nothing writes there while the borrow lives, as
        // writing happens in steps and each takes `self` by unique reference.
        unsafe { std::slice::from_raw_parts(self.address(id), self.bytes(id)) }
    }

    /// The bytes of a buffer, whatever they are elements of.
    fn copy_of(&self, id: BufferId) -> Result<Tensor, RunError> {
        let bytes = self.read(id);
        Tensor::from_bytes(DType::U8, &[bytes.len()], bytes)
            .map_err(|source| RunError::Memory { name: self.info(id).name.clone(), source })
    }

    /// Writes the first bytes of a buffer that the plan may write, and that holds as many.
    fn put(&mut self, id: BufferId, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.bytes(id));
        // SAFETY: as the program checked; `bytes` is the caller's own copy.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address(id), bytes.len()) };
    }

    fn bool_at(&self, id: BufferId) -> bool {
        // SAFETY: the program checked that it is a bool scalar.
        unsafe { *self.address(id) != 0 }
    }

    fn i64_at(&self, id: BufferId) -> i64 {
        // SAFETY: the program checked that it is an `i64` scalar.
        unsafe { self.address(id).cast::<i64>().read_unaligned() }
    }
}
