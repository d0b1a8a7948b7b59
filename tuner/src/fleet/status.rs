//! A look at a fleet: who is there, and what waits.

use std::time::Duration;

use futures_util::StreamExt;
use serde::Serialize;

use super::FleetError;
use super::census::{self, Member};
use super::road::{ANSWERS, DEAD, JOBS, Road};

/// For the answers of far machines.
const PATIENCE: Duration = Duration::from_millis(1000);

/// Who takes part in a fleet, and what waits there.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Workers and tuners, by kind and machine.
    pub members: Vec<Member>,
    /// Candidates that no worker has finished, by kind and tuner.
    pub queues: Vec<Waiting>,
    /// Answers that no tuner has written down.
    pub answers: u64,
    /// Candidates that ended what ran them, and jobs that were refused.
    pub dead: u64,
}

/// Jobs that one tuner has waiting for one kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Waiting {
    /// Digest of the kind.
    pub kind: String,
    /// The tuner.
    pub tuner: String,
    /// Candidates.
    pub jobs: usize,
}

/// Looks at the fleet.
pub fn status(road: &Road) -> Result<Status, FleetError> {
    road.runtime.wait(async {
        let members = census::call(road, PATIENCE).await?;
        let queues = || queues(road);
        let queues = road.again("looking at the queues", queues).await?;
        let (answers, dead) = (count(road, ANSWERS).await?, count(road, DEAD).await?);
        Ok(Status { members, queues, answers, dead })
    })
}

async fn count(road: &Road, name: &'static str) -> Result<u64, FleetError> {
    let stream = || road.context.get_stream(name);
    let stream = road.again("looking at a stream", stream).await?;
    Ok(stream.cached_info().state.messages)
}

async fn queues(road: &Road) -> Result<Vec<Waiting>, String> {
    let stream = road.context.get_stream(JOBS).await.map_err(|e| e.to_string())?;
    let mut all = stream.info_with_subjects(">").await.map_err(|e| e.to_string())?;
    let mut queues = vec![];
    while let Some(entry) = all.next().await {
        let (subject, jobs) = entry.map_err(|e| e.to_string())?;
        let mut words = subject.split('.').skip(2).map(str::to_owned);
        let (kind, tuner) = (words.next(), words.next());
        let (kind, tuner) = (kind.unwrap_or_default(), tuner.unwrap_or_default());
        queues.push(Waiting { kind, tuner, jobs });
    }
    queues.sort();
    Ok(queues)
}
