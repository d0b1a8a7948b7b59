//! The thread pool: a parallel loop is handed out within about a microsecond.
//!
//! In: a loop of `extent` iterations and a function that runs a range of them. Out: every iteration
//! has run exactly once, and what it wrote is visible to the caller.
//!
//! * The range is cut once into contiguous chunks whose sizes differ by at most one; the calling
//!   thread runs the first chunk itself. The same extent always gives the same chunks, so a thread
//!   meets the same part of a buffer again while it is still in its cache.
//! * Chunks are run in pieces: a thread that has ended its own takes over what others have left,
//!   where that would take long (`share`).
//! * Each worker has a mailbox on a cache line of its own (`mailbox`). It spins on it for
//!   [`PoolOptions::spin`], then sleeps. A worker that does not wake in time misses the loop.
//! * Several sessions may share a pool. A caller that finds it in use does not wait: it runs its
//!   chunks one after another on its own thread and hands out the rest as soon as the workers
//!   are free. So nothing here can deadlock.
//! * A panic in the function reaches the caller after all chunks have ended; the pool stays usable.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use ansc_runtime::pool::{Pool, PoolOptions};
//!
//! let pool = Pool::new(&PoolOptions { threads: 2, ..PoolOptions::default() })?;
//! let sum = AtomicU64::new(0);
//! pool.run(1000, &|_thread, range| {
//!     sum.fetch_add(range.sum(), Ordering::Relaxed);
//! });
//! assert_eq!(sum.into_inner(), 499_500);
//! # Ok::<(), ansc_runtime::pool::PoolError>(())
//! ```

mod cores;
mod mailbox;
mod share;

use std::any::Any;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use cores::cores;
use mailbox::{Job, Mailbox};
use share::{Share, Shared};

/// Threads of a pool at most: more than any machine has cores.
pub const MOST_THREADS: usize = 4096;

/// How long a worker looks for work before it sleeps, where every thread has a core.
pub const DEFAULT_SPIN: Duration = Duration::from_micros(100);

/// How a [`Pool`] is made.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolOptions {
    /// Threads that run a parallel loop, the calling one included; 0 for what [`cores`] counts.
    /// At most [`MOST_THREADS`].
    pub threads: usize,
    /// How long a worker spins before it sleeps. `None` for [`DEFAULT_SPIN`], or no spinning at
    /// all if there are more threads than cores.
    pub spin: Option<Duration>,
    /// Cores to pin threads to: thread `i` to `affinity[i % len]`. Thread 0 is the caller's and is
    /// left alone. Empty for no pinning.
    pub affinity: Vec<usize>,
}

/// Why a [`Pool`] could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// More than [`MOST_THREADS`].
    #[error("{threads} threads are too many: {MOST_THREADS} at most")]
    TooMany {
        /// How many were asked for.
        threads: usize,
    },
    /// The system gave no thread.
    #[error(
        "worker thread {thread} could not be started: {source}; ask for fewer, or raise the limits on processes and memory"
    )]
    Spawn {
        /// Which one; the first is 1.
        thread: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refused to pin a thread.
    #[error("a worker thread could not be pinned to core {cpu}: {source}")]
    Affinity {
        /// The core that was asked for.
        cpu: usize,
        /// The error of the system.
        source: io::Error,
    },
}

/// A fixed number of threads that run parallel loops; see the [module](self).
pub struct Pool {
    mailboxes: Arc<[Mailbox]>,
    shares: Box<[Share]>,
    workers: Vec<JoinHandle<()>>,
    in_use: Padded<AtomicBool>,
    spin: Duration,
    /// The process that has the workers: a fork of it has none.
    process: u32,
}

impl Pool {
    /// Starts the threads, one less than [`PoolOptions::threads`].
    pub fn new(options: &PoolOptions) -> Result<Pool, PoolError> {
        let cores = cores();
        let threads = match options.threads {
            0 => cores.min(MOST_THREADS),
            threads if threads > MOST_THREADS => return Err(PoolError::TooMany { threads }),
            threads => threads,
        };
        let default_spin = if threads > cores { Duration::ZERO } else { DEFAULT_SPIN };
        let mut pool = Pool {
            mailboxes: (1..threads).map(|_| Mailbox::default()).collect(),
            shares: (0..threads).map(|_| Share::default()).collect(),
            workers: Vec::new(),
            in_use: Padded(AtomicBool::new(false)),
            spin: options.spin.unwrap_or(default_spin),
            process: process::id(),
        };
        for thread in 1..threads {
            let worker =
                pool.spawn(thread).map_err(|source| PoolError::Spawn { thread, source })?;
            pool.workers.push(worker);
            if !options.affinity.is_empty() {
                let cpu = options.affinity[thread % options.affinity.len()];
                pin(&pool.workers[thread - 1], cpu)
                    .map_err(|source| PoolError::Affinity { cpu, source })?;
            }
        }
        Ok(pool)
    }

    fn spawn(&self, thread: usize) -> io::Result<JoinHandle<()>> {
        let (mailboxes, spin) = (self.mailboxes.clone(), self.spin);
        thread::Builder::new()
            .name(format!("ansc-worker-{thread}"))
            .spawn(move || mailboxes[thread - 1].serve(thread, spin))
    }

    /// Threads that run a parallel loop, the calling one included.
    pub fn threads(&self) -> usize {
        self.mailboxes.len() + 1
    }

    /// Calls `body(thread, range)` with ranges that together are `0..extent`. `thread` is below
    /// [`Pool::threads`], and no two calls with the same number run at the same time within one
    /// `run`. Returns when all have returned.
    ///
    /// `body` must not call `run` of the same pool: the inner loop would run on one thread.
    ///
    /// # Panics
    /// If `body` panics.
    pub fn run<F: Fn(usize, Range<u64>) + Sync>(&self, extent: u64, body: &F) {
        let chunks = extent.min(self.threads() as u64);
        if chunks <= 1 {
            if extent > 0 {
                body(0, 0..extent);
            }
            return;
        }
        for chunk in 0..chunks {
            let begin = chunk_of(extent, chunks, chunk).start;
            if let Some(_in_use) = self.acquire() {
                return self.dispatch(begin..extent, body);
            }
            body(0, chunk_of(extent, chunks, chunk));
        }
    }

    fn acquire(&self) -> Option<InUse<'_>> {
        let flag = &self.in_use.0;
        let was = flag.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        was.is_ok().then(|| InUse(flag))
    }

    /// Runs `range` on all threads. The caller holds the pool.
    fn dispatch<F: Fn(usize, Range<u64>) + Sync>(&self, range: Range<u64>, body: &F) {
        let threads = (range.end - range.start).min(self.threads() as u64) as usize;
        let shared = Shared::new(body, &self.shares[..threads], range);
        let helpers = &self.mailboxes[..threads - 1];
        for (mailbox, worker) in helpers.iter().zip(&self.workers) {
            mailbox.post(Job::new(&shared), worker);
        }
        let mut panic = catch_unwind(AssertUnwindSafe(|| shared.work(0))).err();
        for (mailbox, thread) in helpers.iter().zip(1..) {
            let late = mailbox.withdraw();
            let ended = if late { run_late(&shared, thread, &panic) } else { mailbox.wait() };
            panic = panic.or(ended);
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// Runs the chunk of a worker that has not begun, unless there was a panic already.
fn run_late<F: Fn(usize, Range<u64>) + Sync>(
    shared: &Shared<'_, F>,
    thread: usize,
    panic: &Option<Panic>,
) -> Option<Panic> {
    if panic.is_some() {
        return None;
    }
    catch_unwind(AssertUnwindSafe(|| shared.work_for(0, thread))).err()
}

impl Drop for Pool {
    fn drop(&mut self) {
        if process::id() != self.process {
            // The workers are the parent's: here is nobody to wait for, and no thread to detach.
            self.workers.drain(..).for_each(std::mem::forget);
            return;
        }
        for (mailbox, worker) in self.mailboxes.iter().zip(self.workers.drain(..)) {
            mailbox.close(&worker);
            // A worker catches the panics of its jobs, so it ends in peace.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads())
            .field("spin", &self.spin)
            .finish_non_exhaustive()
    }
}

/// The `index`-th of `chunks` contiguous parts of `0..extent`.
fn chunk_of(extent: u64, chunks: u64, index: u64) -> Range<u64> {
    let (size, longer) = (extent / chunks, extent % chunks);
    let begin = index * size + index.min(longer);
    begin..begin + size + u64::from(index < longer)
}

/// Gives the pool back, also when a panic passes.
struct InUse<'a>(&'a AtomicBool);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

type Panic = Box<dyn Any + Send>;

/// Two cache lines: the hardware fetches them in pairs.
#[repr(align(128))]
struct Padded<T>(T);

#[cfg(target_os = "linux")]
fn pin(worker: &JoinHandle<()>, cpu: usize) -> io::Result<()> {
    use std::os::unix::thread::JoinHandleExt;
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: an all-zero `cpu_set_t` is the empty set; `cpu` is below `CPU_SETSIZE`; the thread
    // has not been joined.
    let error = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::pthread_setaffinity_np(worker.as_pthread_t(), size_of_val(&set), &raw const set)
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

#[cfg(not(target_os = "linux"))]
fn pin(_worker: &JoinHandle<()>, _cpu: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn pool(threads: usize, spin: u64) -> Pool {
        let spin = Some(Duration::from_micros(spin));
        Pool::new(&PoolOptions { threads, spin, affinity: Vec::new() }).unwrap()
    }

    #[test]
    fn chunks_tile_the_extent_evenly() {
        for extent in [1, 2, 3, 7, 64, 1000, u64::MAX] {
            for chunks in 1..=extent.min(9) {
                let sizes: Vec<_> = (0..chunks).map(|i| chunk_of(extent, chunks, i)).collect();
                assert_eq!((sizes[0].start, sizes[chunks as usize - 1].end), (0, extent));
                assert!(sizes.windows(2).all(|w| w[0].end == w[1].start));
                let len = |r: &Range<u64>| r.end - r.start;
                assert!(sizes.iter().all(|r| len(r).abs_diff(extent / chunks) <= 1));
            }
        }
    }

    #[test]
    fn every_iteration_runs_once_on_a_thread_of_its_own() {
        for (threads, spin) in [(1, 0), (2, 0), (3, 50), (8, 0)] {
            let pool = pool(threads, spin);
            for extent in [0, 1, 2, 5, 100] {
                let seen: Vec<AtomicUsize> = (0..extent).map(|_| AtomicUsize::new(0)).collect();
                let busy: Vec<AtomicBool> = (0..threads).map(|_| AtomicBool::new(false)).collect();
                pool.run(extent as u64, &|thread, range| {
                    assert!(!busy[thread].swap(true, Ordering::AcqRel));
                    for i in range {
                        seen[i as usize].fetch_add(1, Ordering::Relaxed);
                    }
                    busy[thread].store(false, Ordering::Release);
                });
                assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let pool = pool(2, 0);
        for _ in 0..20 {
            thread::sleep(Duration::from_micros(300));
            let ran = AtomicUsize::new(0);
            pool.run(2, &|_, _| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 2);
        }
    }

    #[test]
    fn panics_reach_the_caller_and_the_pool_survives() {
        let pool = pool(3, 10);
        for victim in 0..3 {
            let finished = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(3, &|_thread, range| {
                    assert!(!range.contains(&victim), "iteration {victim}");
                    finished.fetch_add(1, Ordering::Relaxed);
                });
            }));
            let message = *result.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(message, format!("iteration {victim}"));
            assert!(finished.into_inner() <= 2);
        }
        let all = Mutex::new(Vec::new());
        pool.run(3, &|_, range| all.lock().unwrap().extend(range));
        assert_eq!(all.into_inner().unwrap().len(), 3);
    }

    #[test]
    fn there_is_a_bound_on_threads() {
        for threads in [MOST_THREADS + 1, 1 << 62, usize::MAX] {
            let error = Pool::new(&PoolOptions { threads, ..PoolOptions::default() }).unwrap_err();
            assert!(matches!(error, PoolError::TooMany { threads: n } if n == threads), "{error}");
            assert!(error.to_string().contains("4096 at most"), "{error}");
        }
    }

    /// A fork has a copy of the pool, and none of its workers.
    #[test]
    #[cfg(unix)]
    fn a_pool_ends_in_a_forked_process() {
        let pool = pool(3, 0);
        pool.run(3, &|_, _| {});
        // SAFETY: the child runs this code only, and ends without destructors or handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no pointers. The alarm ends the child if it waits for a thread.
            unsafe { libc::alarm(20) };
            let sound = catch_unwind(AssertUnwindSafe(|| drop(pool))).is_ok();
            // SAFETY: no pointers.
            unsafe { libc::_exit(if sound { 7 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the pointer is to a local that outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
    }

    #[test]
    fn many_callers_share_a_pool() {
        let pool = pool(4, 20);
        let total = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for extent in 1..200 {
                        let sum = AtomicUsize::new(0);
                        pool.run(extent, &|_, range| {
                            sum.fetch_add(range.map(|i| i as usize).sum(), Ordering::Relaxed);
                        });
                        total.fetch_add(sum.into_inner(), Ordering::Relaxed);
                    }
                });
            }
        });
        let expected: usize = (1..200).map(|n: usize| n * (n - 1) / 2).sum();
        assert_eq!(total.into_inner(), 8 * expected);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn workers_are_pinned() {
        // SAFETY: no arguments, no state.
        let here = || usize::try_from(unsafe { libc::sched_getcpu() }).unwrap();
        let allowed = here();
        let options = PoolOptions { threads: 2, affinity: vec![allowed], spin: None };
        let pool = Pool::new(&options).unwrap();
        let cpu = AtomicUsize::new(usize::MAX);
        pool.run(2, &|thread, _| {
            if thread == 1 {
                cpu.store(here(), Ordering::Relaxed);
            }
            // A worker that is late has no part in the loop.
            while thread == 0 && cpu.load(Ordering::Relaxed) == usize::MAX {
                thread::yield_now();
            }
        });
        assert_eq!(cpu.into_inner(), allowed);
        let options = PoolOptions { affinity: vec![1 << 20], ..options };
        assert!(matches!(Pool::new(&options), Err(PoolError::Affinity { cpu: 1_048_576, .. })));
    }
}
