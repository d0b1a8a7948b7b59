//! Who is there: whoever takes part answers a call at once, and nothing is kept.
//!
//! ```text
//! ansc.fleet.call --all hear it--> {"role":"worker","kind":{..},"machine":"build-7","jobs":812,..}
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::road::Road;
use super::{FleetError, wire};

const CALL: &str = "ansc.fleet.call";
/// No fleet that one call reaches is larger.
const MOST: usize = 100_000;

/// A process that takes part in a fleet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It measures.
    Worker,
    /// It asks.
    Tuner,
}

/// One that takes part in a fleet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The part that it has.
    pub role: Role,
    /// A word that no other has.
    pub id: String,
    /// The name of the machine that it runs on.
    pub machine: String,
    /// The kind that it measures, or wants to be measured on.
    pub kind: Kind,
    /// Candidates that were measured.
    pub jobs: u64,
    /// Candidates that failed.
    pub failed: u64,
    /// Since it began.
    pub seconds: f64,
    /// Whether it measures, or waits for measurements.
    pub busy: bool,
}

/// A member's own entry, which it changes as it goes.
#[derive(Clone)]
pub(super) struct Entry(Arc<Mutex<(Member, std::time::Instant)>>);

impl Entry {
    /// Answers calls from now on.
    pub(super) fn announce(road: &Road, member: Member) -> Result<Entry, FleetError> {
        let entry = Entry(Arc::new(Mutex::new((member, std::time::Instant::now()))));
        let (own, client) = (entry.clone(), road.client.clone());
        let subscribe = || road.client.subscribe(CALL);
        let mut calls = road.runtime.wait(road.again("listening for calls", subscribe))?;
        road.runtime.spawn(async move {
            while let Some(call) = calls.next().await {
                let Some(reply) = call.reply else { continue };
                let text = serde_json::to_vec(&own.member()).expect("plain data");
                // Whoever called calls again.
                let _ = client.publish(reply, text.into()).await;
            }
        });
        Ok(entry)
    }

    fn member(&self) -> Member {
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Member { seconds: guard.1.elapsed().as_secs_f64(), ..guard.0.clone() }
    }

    pub(super) fn change(&self, f: impl FnOnce(&mut Member)) {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).0);
    }
}

/// Calls, and collects answers until none came for a while.
pub(super) async fn call(road: &Road, patience: Duration) -> Result<Vec<Member>, FleetError> {
    let inbox = road.client.new_inbox();
    let subscribe = || road.client.subscribe(inbox.clone());
    let mut answers = road.again("listening for answers", subscribe).await?;
    let publish = || road.client.publish_with_reply(CALL, inbox.clone(), "".into());
    road.again("calling the fleet", publish).await?;
    let mut found: Vec<Member> = vec![];
    while let Ok(Some(answer)) = tokio::time::timeout(patience, answers.next()).await {
        // A server says so if nobody listens; others say what they like.
        found.extend(wire::parse::<Member>(&answer.payload).ok());
        if found.len() >= MOST {
            break;
        }
    }
    found.sort_by(|a, b| (&a.kind, &a.machine, &a.id).cmp(&(&b.kind, &b.machine, &b.id)));
    Ok(found)
}
