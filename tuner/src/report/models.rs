//! The share of each subgraph in the time of a model.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Task;
use crate::records::ModelRecord;

/// A model as the sum of its subgraphs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Model {
    /// The name of the model's file.
    pub name: String,
    /// The time of all subgraphs together, each as often as it occurs; only those count that were
    /// measured both ways.
    pub untuned_seconds: f64,
    /// The same with the best schedules.
    pub best_seconds: f64,
    /// Subgraphs of which a time is missing.
    pub missing: usize,
    /// The longest at best first.
    pub parts: Vec<Part>,
}

/// A subgraph as a part of a model.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Part {
    /// [`ansc_sketch::Task::key`].
    pub task: String,
    /// Its name for people.
    pub title: String,
    /// How often a run executes it.
    pub count: u64,
    /// Seconds of all its occurrences together, with the untuned schedule.
    pub untuned_seconds: f64,
    /// The same with the best schedule.
    pub best_seconds: f64,
}

/// Those models of which at least one task was measured.
pub(super) fn of(models: &[ModelRecord], tasks: &[Task]) -> Vec<Model> {
    let tasks: BTreeMap<&str, &Task> = tasks.iter().map(|t| (t.key.as_str(), t)).collect();
    models.iter().map(|m| model(m, &tasks)).filter(|m| !m.parts.is_empty()).collect()
}

fn model(record: &ModelRecord, tasks: &BTreeMap<&str, &Task>) -> Model {
    let part = |o: &crate::records::Occurrence| {
        let task = tasks.get(o.task.as_str())?;
        let count = o.count as f64;
        Some(Part {
            task: o.task.clone(),
            title: task.title().to_owned(),
            count: o.count,
            untuned_seconds: task.untuned_seconds? * count,
            best_seconds: task.best_seconds? * count,
        })
    };
    let mut parts: Vec<Part> = record.tasks.iter().filter_map(part).collect();
    parts.sort_by(|a, b| b.best_seconds.total_cmp(&a.best_seconds));
    Model {
        name: record.name.clone(),
        untuned_seconds: parts.iter().map(|p| p.untuned_seconds).sum(),
        best_seconds: parts.iter().map(|p| p.best_seconds).sum(),
        missing: record.tasks.len() - parts.len(),
        parts,
    }
}
