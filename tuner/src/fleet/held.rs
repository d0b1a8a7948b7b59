//! Jobs that a worker has in its hands: as long as it lives, the server is told that they are being
//! worked on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::message::Acker;

use super::road::Runtime;

type All = Arc<Mutex<HashMap<u64, Arc<Acker>>>>;

pub(super) struct Held {
    all: All,
    telling: tokio::task::JoinHandle<()>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.telling.abort();
    }
}

impl Held {
    /// Three messages within the time after which the server gives a job to another worker.
    pub(super) fn new(runtime: &Runtime, ack_wait: Duration) -> Held {
        let all = All::default();
        let held = all.clone();
        let telling = runtime.spawn(async move {
            loop {
                tokio::time::sleep(ack_wait / 3).await;
                let ackers: Vec<Arc<Acker>> = lock(&held).values().cloned().collect();
                for acker in ackers {
                    // A server that is gone gives it to another worker, which does no harm.
                    let _ = acker.ack_with(AckKind::Progress).await;
                }
            }
        });
        Held { all, telling }
    }

    pub(super) fn take(&self, sequence: u64, acker: Acker) -> Hold {
        let acker = Arc::new(acker);
        lock(&self.all).insert(sequence, acker.clone());
        Hold { sequence, acker, all: self.all.clone() }
    }
}

/// One job in the hands of a worker.
#[derive(Clone)]
pub(super) struct Hold {
    sequence: u64,
    acker: Arc<Acker>,
    all: All,
}

impl Hold {
    /// Lets go of the job: it is done, goes back, or is not to be tried again.
    pub(super) async fn end(self, how: AckKind) {
        lock(&self.all).remove(&self.sequence);
        // If that is lost, the job comes again, and its answer is known then.
        let _ = self.acker.ack_with(how).await;
    }
}

fn lock(all: &All) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Acker>>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}
