//! The connection to a server, and what it keeps for a fleet.
//!
//! | stream | subjects | keeps |
//! | --- | --- | --- |
//! | `ANSC_JOBS` | `ansc.jobs.KIND.TUNER` | candidates until a worker acknowledges them |
//! | `ANSC_ANSWERS` | `ansc.answers.TUNER` | answers until the tuner has written them down |
//! | `ANSC_TRIED` | `ansc.tried.WORKER.JOB` | what each worker began last |
//! | `ANSC_DEAD` | `ansc.dead.KIND` | candidates that ended what ran them, and why |
//!
//! All of it survives the end of the server. The client is asynchronous, and nothing else of ansc
//! is: it has a thread of its own, and whoever asks waits.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_nats::Client;
use async_nats::jetstream::context::{Context, PublishError};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::wire::MOST_BYTES;
use super::{Access, FleetError};

/// Candidates that one tuner may have waiting for one kind of machine. The server refuses more, so
/// that no tuner keeps the others from their turn.
pub const MOST_WAITING: usize = 256;
/// Within this time the server knows a message by its name and drops a second one.
const DUPLICATES: Duration = Duration::from_secs(300);
/// How long anything is tried.
const PATIENCE: Duration = Duration::from_secs(120);
/// A try counts for no more: in a longer one the process stood still, and not the server.
const LONGEST_TRY: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) const JOBS: &str = "ANSC_JOBS";
pub(super) const ANSWERS: &str = "ANSC_ANSWERS";
pub(super) const TRIED: &str = "ANSC_TRIED";
pub(super) const DEAD: &str = "ANSC_DEAD";

/// The thread that connections live on.
pub struct Runtime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// Starts the thread.
    pub fn new() -> Result<Arc<Runtime>, FleetError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(FleetError::Runtime)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new()
            .name("ansc-fleet".into())
            .spawn(move || {
                // Either way it is time to end.
                let _ = runtime.block_on(stopped);
            })
            .map_err(FleetError::Runtime)?;
        Ok(Arc::new(Runtime { handle, stop: Some(stop), thread: Some(thread) }))
    }

    /// Waits for something that happens on the thread.
    pub(super) fn wait<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Lets something happen on the thread.
    pub(super) fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was told where it happened.
            let _ = thread.join();
        }
    }
}

/// A connection to a server that has the streams of a fleet.
#[derive(Clone)]
pub struct Road {
    pub(super) runtime: Arc<Runtime>,
    pub(super) client: Client,
    pub(super) context: Context,
    server: String,
}

impl Road {
    /// Connects, and makes the streams where there are none.
    pub fn connect(runtime: &Arc<Runtime>, access: &Access) -> Result<Road, FleetError> {
        let client = runtime.wait(access.connect())?;
        // It starts a task of its own.
        let make = async { async_nats::jetstream::new(client.clone()) };
        let context = runtime.wait(make);
        let road = Road { runtime: runtime.clone(), client, context, server: access.server() };
        for config in streams() {
            let make = || road.context.get_or_create_stream(config.clone());
            runtime.wait(road.again("making a stream", make))?;
        }
        Ok(road)
    }

    /// The address, without secrets.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Tries until it succeeds: a server that is gone comes back.
    pub(super) async fn again<T, E: Display, F>(
        &self,
        what: &'static str,
        mut f: impl FnMut() -> F,
    ) -> Result<T, FleetError>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut tried = Duration::ZERO;
        loop {
            let start = Instant::now();
            let error = match f().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            tried += start.elapsed().min(LONGEST_TRY) + PAUSE;
            if tried >= PATIENCE {
                return Err(FleetError::Server {
                    server: self.server.clone(),
                    what,
                    seconds: PATIENCE.as_secs(),
                    reason: error.to_string(),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Hands a message over, and tries until it is kept: the server drops a second one of the same
    /// name. False if it has no room, because the tuner has as many candidates waiting as it may.
    pub(super) async fn hand_over(
        &self,
        subject: &str,
        name: &str,
        message: &[u8],
    ) -> Result<bool, FleetError> {
        let put = || async {
            match self.put(subject, name, message).await {
                Ok(()) => Ok(true),
                Err(e) if e.to_string().contains("maximum messages per subject") => Ok(false),
                Err(e) => Err(e),
            }
        };
        self.again("handing over a message", put).await
    }

    async fn put(&self, subject: &str, name: &str, message: &[u8]) -> Result<(), PublishError> {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Msg-Id", name);
        let (subject, message) = (subject.to_owned(), message.to_vec());
        self.context.publish_with_headers(subject, headers, message.into()).await?.await?;
        Ok(())
    }
}

pub(super) fn jobs_of(kind: &str, tuner: &str) -> String {
    format!("ansc.jobs.{kind}.{tuner}")
}

pub(super) fn answers_of(tuner: &str) -> String {
    format!("ansc.answers.{tuner}")
}

fn streams() -> [Config; 4] {
    let stream = |name: &str, subject: &str| Config {
        name: name.into(),
        subjects: vec![subject.into()],
        max_message_size: MOST_BYTES as i32 + 4096,
        duplicate_window: DUPLICATES,
        ..Config::default()
    };
    let queue = RetentionPolicy::WorkQueue;
    [
        Config {
            retention: queue,
            discard: DiscardPolicy::New,
            max_messages_per_subject: MOST_WAITING as i64,
            discard_new_per_subject: true,
            max_age: 7 * DAY,
            ..stream(JOBS, "ansc.jobs.*.*")
        },
        Config { retention: queue, max_age: 30 * DAY, ..stream(ANSWERS, "ansc.answers.*") },
        Config {
            max_messages_per_subject: 1,
            max_age: Duration::from_secs(3600),
            ..stream(TRIED, "ansc.tried.*.*")
        },
        Config {
            max_messages: 10_000,
            max_bytes: 256 << 20,
            max_age: 30 * DAY,
            ..stream(DEAD, "ansc.dead.*")
        },
    ]
}
