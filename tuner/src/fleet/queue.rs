//! The jobs of a kind of machine: one consumer, which all its workers ask.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::{self, Batch};
use async_nats::jetstream::message::Acker;
use futures_util::StreamExt;

use super::FleetError;
use super::road::{JOBS, Road};

/// A job is given to so many workers, one after another, before the server keeps it to itself.
const MOST_DELIVERIES: i64 = 64;
/// How long the server keeps a worker's wish.
const WISH: Duration = Duration::from_secs(20);
/// Between two looks at whether the worker is to end.
const TICK: Duration = Duration::from_millis(200);
/// For a tuner to hand over some more, where nothing waits behind the first job.
const MOMENT: Duration = Duration::from_millis(10);
/// For jobs that are there.
const NOW: Duration = Duration::from_secs(3);

/// A job as it came.
pub(super) struct Taken {
    pub(super) bytes: Vec<u8>,
    pub(super) acker: Acker,
    pub(super) sequence: u64,
    /// No worker had it before.
    pub(super) is_first: bool,
}

pub(super) struct Queue {
    road: Road,
    kind: String,
    patience: Duration,
    consumer: PullConsumer,
    /// The wish for one job that the server has.
    wish: Option<Batch>,
    /// Jobs that wait behind the last one that was taken.
    waiting: u64,
}

impl Queue {
    pub(super) fn open(road: &Road, kind: &str, patience: Duration) -> Result<Queue, FleetError> {
        let consumer = road.runtime.wait(consumer(road, kind, patience))?;
        let (road, kind) = (road.clone(), kind.to_owned());
        Ok(Queue { road, kind, patience, consumer, wish: None, waiting: 0 })
    }

    /// Waits for a job; none if the worker is to end before that.
    pub(super) async fn first(&mut self, end: &AtomicBool) -> Result<Option<Taken>, FleetError> {
        while !end.load(Ordering::Relaxed) {
            let wish = match &mut self.wish {
                Some(wish) => wish,
                None => {
                    let batch = || self.consumer.batch().max_messages(1).expires(WISH).messages();
                    let wish = self.road.again("asking for jobs", batch).await?;
                    self.wish.insert(wish)
                }
            };
            match tokio::time::timeout(TICK, wish.next()).await {
                Err(_) => {}
                Ok(Some(Ok(message))) => {
                    self.wish = None;
                    if let Some(taken) = self.taken(message) {
                        return Ok(Some(taken));
                    }
                }
                // No job came in that time, or the server is gone, or the consumer is.
                Ok(ended) => {
                    self.wish = None;
                    if let Some(Err(_)) = ended {
                        self.consumer = consumer(&self.road, &self.kind, self.patience).await?;
                    }
                }
            }
        }
        self.wish = None;
        Ok(None)
    }

    /// Some more of what waits: the worker's share of it, so that all workers have something to do.
    pub(super) async fn more(&mut self, most: usize, workers: usize) -> Vec<Taken> {
        let mut all = vec![];
        if most > 1 {
            // A tuner that has just begun to hand over its round goes on with that.
            if self.waiting == 0 {
                tokio::time::sleep(MOMENT).await;
            }
            self.fetch(1, &mut all).await;
        }
        let share = (self.waiting as usize).div_ceil(workers.max(1));
        let count = share.min(most.saturating_sub(2));
        if count > 0 && !all.is_empty() {
            self.fetch(count, &mut all).await;
        }
        all
    }

    /// Up to so many that are there. What does not come now comes later, or to others.
    async fn fetch(&mut self, count: usize, all: &mut Vec<Taken>) {
        let Ok(mut jobs) = self.consumer.fetch().max_messages(count).messages().await else {
            return;
        };
        while let Ok(Some(Ok(message))) = tokio::time::timeout(NOW, jobs.next()).await {
            all.extend(self.taken(message));
        }
    }

    fn taken(&mut self, message: async_nats::jetstream::Message) -> Option<Taken> {
        let info = message.info().ok()?;
        let (sequence, is_first) = (info.stream_sequence, info.delivered <= 1);
        self.waiting = info.pending;
        let (message, acker) = message.split();
        Some(Taken { bytes: message.payload.to_vec(), acker, sequence, is_first })
    }
}

async fn consumer(road: &Road, kind: &str, patience: Duration) -> Result<PullConsumer, FleetError> {
    let config = pull::Config {
        durable_name: Some(kind.into()),
        filter_subject: format!("ansc.jobs.{kind}.*"),
        ack_wait: patience,
        max_deliver: MOST_DELIVERIES,
        max_ack_pending: 1_000_000,
        max_waiting: 65_536,
        ..pull::Config::default()
    };
    let create = || road.context.create_consumer_on_stream(config.clone(), JOBS);
    road.again("asking for jobs", create).await
}
