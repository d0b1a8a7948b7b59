//! How often a candidate was begun: a worker says what it begins before it begins, and what it said
//! last stays when it dies.
//!
//! ```text
//! ansc.tried.WORKER.now   the candidate that the worker began last
//! ansc.tried.WORKER.JOB   one that failed in a way that is the machine's, though the worker lives
//! ```
//!
//! Deliveries are no measure of that: a worker that is killed has many candidates in its hands, and
//! only one of them may have to do with its end.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use futures_util::StreamExt;

use super::FleetError;
use super::road::{Road, TRIED};

/// A candidate that was begun so often is not begun again.
pub(super) const MOST_TRIES: usize = 2;
/// For reading what workers said.
const LIMIT: Duration = Duration::from_secs(5);
/// For words to leave this process.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// Workers, dead and living, whose words are read.
const MOST: usize = 100_000;

/// Says that the worker begins a candidate. What runs it starts after the words are on their way.
pub(super) async fn begin(road: &Road, worker: &str, job: &str) {
    say(road, worker, "now", job).await;
}

/// Says that a candidate was begun and had no outcome, though the worker lives.
pub(super) async fn spoilt(road: &Road, worker: &str, job: &str) {
    say(road, worker, job, job).await;
}

async fn say(road: &Road, worker: &str, place: &str, job: &str) {
    let subject = format!("ansc.tried.{worker}.{place}");
    // The count is one less where the server is gone at that moment.
    let _ = road.client.publish(subject, job.to_owned().into()).await;
    let _ = tokio::time::timeout(ON_ITS_WAY, road.client.flush()).await;
}

/// How often a candidate was begun by workers that did not come to its end.
pub(super) async fn tries(road: &Road, job: &str) -> Result<usize, FleetError> {
    let config = pull::Config {
        deliver_policy: DeliverPolicy::LastPerSubject,
        ack_policy: AckPolicy::None,
        inactive_threshold: Duration::from_secs(10),
        filter_subject: "ansc.tried.*.*".into(),
        memory_storage: true,
        ..pull::Config::default()
    };
    let create = || road.context.create_consumer_on_stream(config.clone(), TRIED);
    let consumer: PullConsumer = road.again("reading what was tried", create).await?;
    let count = (consumer.cached_info().num_pending as usize).min(MOST);
    let fetch = || consumer.fetch().max_messages(count.max(1)).messages();
    let mut words = road.again("reading what was tried", fetch).await?;
    let mut tries = 0;
    for _ in 0..count {
        let Ok(Some(Ok(message))) = tokio::time::timeout(LIMIT, words.next()).await else { break };
        tries += usize::from(message.payload[..] == *job.as_bytes());
    }
    Ok(tries)
}
