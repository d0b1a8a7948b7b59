//! How a worker gets its part of a loop.
//!
//! The thread that holds the pool posts a job, which the worker takes up, or which is withdrawn
//! before it does. Exactly one of both happens, so a loop's caller waits for running workers only.
//!
//! ```text
//!          post             take up            end
//! IDLE ----------> POSTED ----------> RUNNING -----> IDLE
//! ASLEEP ----^        |
//!                     +-- withdraw --> IDLE
//! ```

use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::share::Shared;
use super::{DEFAULT_SPIN, Panic};

/// A worker's part of a parallel loop; what it points to lives on the stack of the caller, who
/// waits for the end.
pub(super) struct Job {
    call: unsafe fn(*const (), usize),
    shared: *const (),
}

impl Job {
    pub(super) fn new<F: Fn(usize, Range<u64>) + Sync>(shared: &Shared<'_, F>) -> Job {
        Job { call: call::<F>, shared: (&raw const *shared).cast() }
    }
}

/// # Safety
/// `shared` must point to a `Shared<F>` that outlives the call.
unsafe fn call<F: Fn(usize, Range<u64>) + Sync>(shared: *const (), thread: usize) {
    // SAFETY: the caller's promise.
    let shared = unsafe { &*shared.cast::<Shared<'_, F>>() };
    shared.work(thread);
}

/// The worker spins, or is about to.
const IDLE: u32 = 0;
/// There is a job that the worker has not taken up.
const POSTED: u32 = 1;
/// The cells belong to the worker until the state is `IDLE` again.
const RUNNING: u32 = 2;
/// The worker sleeps, or is about to.
const ASLEEP: u32 = 3;
/// The worker shall end.
const EXIT: u32 = 4;

#[repr(align(128))]
pub(super) struct Mailbox {
    state: AtomicU32,
    job: UnsafeCell<Option<Job>>,
    panic: UnsafeCell<Option<Panic>>,
}

// SAFETY: `state` says who may touch the cells: the worker while `RUNNING`, else the thread that
// holds the pool. A `Job` may go to another thread because `Pool::run` demands `F: Sync` and
// keeps it alive until the worker is done.
unsafe impl Sync for Mailbox {}
// SAFETY: as above.
unsafe impl Send for Mailbox {}

impl Default for Mailbox {
    fn default() -> Mailbox {
        Mailbox {
            state: AtomicU32::new(IDLE),
            job: UnsafeCell::new(None),
            panic: UnsafeCell::new(None),
        }
    }
}

impl Mailbox {
    /// Hands a job to the worker, which has none.
    pub(super) fn post(&self, job: Job, worker: &JoinHandle<()>) {
        // SAFETY: this thread holds the pool and the state is not `RUNNING`.
        unsafe { *self.job.get() = Some(job) };
        if self.state.swap(POSTED, Ordering::AcqRel) == ASLEEP {
            worker.thread().unpark();
        }
    }

    /// Takes the posted job back; false if the worker has taken it up.
    pub(super) fn withdraw(&self) -> bool {
        // To look first leaves the line to a worker that runs.
        self.state.load(Ordering::Relaxed) == POSTED && self.change(POSTED, IDLE).is_ok()
    }

    /// Waits for the end of the job that the worker has taken up; the panic that ended it, if one
    /// did.
    pub(super) fn wait(&self) -> Option<Panic> {
        if !spin_while(DEFAULT_SPIN, || self.state.load(Ordering::Acquire) == RUNNING) {
            while self.state.load(Ordering::Acquire) == RUNNING {
                thread::yield_now();
            }
        }
        // SAFETY: this thread holds the pool and the state is not `RUNNING`.
        unsafe { (*self.panic.get()).take() }
    }

    /// Lets the worker end.
    pub(super) fn close(&self, worker: &JoinHandle<()>) {
        self.state.store(EXIT, Ordering::Release);
        worker.thread().unpark();
    }

    /// The life of a worker.
    pub(super) fn serve(&self, thread: usize, spin: Duration) {
        while self.next(spin) != EXIT {
            // Not if it was withdrawn in the meantime.
            if self.change(POSTED, RUNNING).is_ok() {
                self.work(thread);
            }
        }
    }

    /// Waits for a job or `EXIT`.
    fn next(&self, spin: Duration) -> u32 {
        spin_while(spin, || self.state.load(Ordering::Acquire) == IDLE);
        if let Err(state) = self.change(IDLE, ASLEEP) {
            return state;
        }
        loop {
            thread::park();
            let state = self.state.load(Ordering::Acquire);
            if state != ASLEEP {
                return state;
            }
        }
    }

    fn change(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }

    fn work(&self, thread: usize) {
        // SAFETY: the state is `RUNNING`, so the cells belong to this worker.
        if let Some(job) = unsafe { (*self.job.get()).take() } {
            // SAFETY: `dispatch` keeps what it points to alive until the state changes.
            let run = || unsafe { (job.call)(job.shared, thread) };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                // SAFETY: as above.
                unsafe { *self.panic.get() = Some(panic) };
            }
        }
        self.state.store(IDLE, Ordering::Release);
    }
}

/// Spins while `pending` holds, for `limit` at most; whether it ended in time.
fn spin_while(limit: Duration, pending: impl Fn() -> bool) -> bool {
    let mut began = None;
    loop {
        // Reading the clock costs as much as a dispatch: seldom, and not on the fast path.
        for _ in 0..64 {
            if !pending() {
                return true;
            }
            std::hint::spin_loop();
        }
        if began.get_or_insert_with(Instant::now).elapsed() >= limit {
            return false;
        }
    }
}
