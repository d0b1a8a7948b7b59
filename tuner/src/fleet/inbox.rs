//! Answers as they come, each until it is acknowledged; those that an earlier life of the tuner
//! did not write down come first.

use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::stream::ConsumerErrorKind;
use futures_util::StreamExt;

use super::FleetError;
use super::road::{ANSWERS, Road, answers_of};

/// Answers that are asked for at a time.
const AT_ONCE: usize = 256;
/// An answer that is not written down by then comes again. It is known then.
const AGAIN_AFTER: Duration = Duration::from_secs(900);
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Inbox {
    road: Road,
    tuner: String,
    stream: Option<pull::Stream>,
    /// Answers that waited when it was opened.
    pub(super) waiting: u64,
}

impl Inbox {
    /// The consumer of an earlier life is removed: what that had in its hands comes now.
    pub(super) async fn open(road: &Road, tuner: &str) -> Result<Inbox, FleetError> {
        let forget = || async {
            match road.context.delete_consumer_from_stream(name(tuner), ANSWERS).await {
                Err(e) if !is_absent(&e.kind()) => Err(e.to_string()),
                _ => Ok(()),
            }
        };
        road.again("forgetting an earlier run", forget).await?;
        let mut inbox = Inbox { road: road.clone(), tuner: tuner.into(), stream: None, waiting: 0 };
        inbox.waiting = inbox.consumer().await?.cached_info().num_pending;
        Ok(inbox)
    }

    async fn consumer(&self) -> Result<PullConsumer, FleetError> {
        let config = pull::Config {
            durable_name: Some(name(&self.tuner)),
            filter_subject: answers_of(&self.tuner),
            ack_wait: AGAIN_AFTER,
            max_ack_pending: 100_000,
            ..pull::Config::default()
        };
        let create = || self.road.context.create_consumer_on_stream(config.clone(), ANSWERS);
        self.road.again("asking for answers", create).await
    }

    /// The next answer, and what acknowledges it.
    pub(super) async fn next(
        &mut self,
        limit: Duration,
    ) -> Result<Option<(Vec<u8>, Acker)>, FleetError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let consumer = self.consumer().await?;
                let open = || {
                    let stream = consumer.stream().max_messages_per_batch(AT_ONCE);
                    stream.heartbeat(Duration::from_secs(5)).messages()
                };
                let stream = self.road.again("asking for answers", open).await?;
                self.stream.insert(stream)
            }
        };
        match tokio::time::timeout(limit, stream.next()).await {
            Err(_) => Ok(None),
            Ok(Some(Ok(message))) => {
                let (message, acker) = message.split();
                Ok(Some((message.payload.to_vec(), acker)))
            }
            // The server is gone, or was.
            Ok(Some(Err(_)) | None) => {
                self.stream = None;
                tokio::time::sleep(PAUSE).await;
                Ok(None)
            }
        }
    }
}

fn is_absent(kind: &ConsumerErrorKind) -> bool {
    matches!(kind, ConsumerErrorKind::JetStream(e) if e.code() == 404)
}

fn name(tuner: &str) -> String {
    format!("tuner-{tuner}")
}
