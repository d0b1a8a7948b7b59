//! Labels as samples of models.

use std::sync::Arc;

use rayon::prelude::*;

use super::{Dataset, DatasetError, Platform, TaskFile, trace_id};
use crate::candidate::Candidate;
use crate::model::{Needs, Sample, Subject};

/// The samples of one task.
#[derive(Clone, Debug)]
pub struct TaskSamples {
    /// [`ansc_sketch::Task::key`].
    pub key: String,
    /// How often all networks together execute it in a run each.
    pub weight: f64,
    /// The samples of all platforms that were asked for.
    pub samples: Vec<Sample>,
}

/// The samples of tasks on platforms, which are numbered in their order. Tasks are numbered in that
/// of their keys. A trace that makes no program on a platform is no sample of it.
pub fn samples(
    dataset: &Dataset,
    keys: &[String],
    platforms: &[Platform],
    needs: Needs,
) -> Result<Vec<TaskSamples>, DatasetError> {
    let mut all = vec![];
    for (number, key) in keys.iter().enumerate() {
        let task = dataset.task(key)?;
        let mut found = vec![];
        for (place, platform) in platforms.iter().enumerate() {
            found.extend(of_platform(dataset, &task, number, (place, platform), needs)?);
        }
        let weight = task.entry.networks.values().sum::<u64>().max(1) as f64;
        all.push(TaskSamples { key: key.clone(), weight, samples: found });
    }
    Ok(all)
}

fn of_platform(
    dataset: &Dataset,
    file: &TaskFile,
    number: usize,
    (place, platform): (usize, &Platform),
    needs: Needs,
) -> Result<Vec<Sample>, DatasetError> {
    let Some(labels) = dataset.labels(platform, &file.entry.key)? else { return Ok(vec![]) };
    let Some(task) = file.entry.task(platform.machine(), platform.threads) else {
        return Ok(vec![]);
    };
    let subject = Arc::new(Subject::of(&task));
    let sample = |trace| {
        let label = labels.labels.get(&trace_id(trace))?;
        let features = match needs {
            Needs::Trace => None,
            Needs::Program => Some(Candidate::exactly(&task, trace)?.features().clone()),
        };
        Some(Sample {
            task: number,
            platform: place,
            subject: subject.clone(),
            trace: Arc::new(trace.clone()),
            features,
            seconds: label.seconds(),
        })
    };
    let measured = file.traces.par_iter().filter_map(sample);
    Ok(measured.collect())
}
