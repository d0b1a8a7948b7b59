//! Groups of similar tasks: of one structure, and with operations within a factor of 1.618.

use std::collections::BTreeMap;

use super::{Progress, TaskId, TaskSpec};

const GOLDEN_RATIO: f64 = 1.618;
/// Rounds by which a task must be ahead of its group before it is judged.
const HEAD_START: usize = 5;

#[derive(Debug)]
pub(super) struct Groups {
    /// None of a task that is alone.
    pub(super) of: Vec<Option<usize>>,
    members: Vec<Vec<TaskId>>,
}

impl Groups {
    pub(super) fn new(tasks: &[TaskSpec]) -> Groups {
        let mut tags = BTreeMap::new();
        let mut groups = Groups { of: vec![], members: vec![] };
        for (id, task) in tasks.iter().enumerate() {
            let group = task.structure.as_ref().map(|structure| {
                let next = groups.members.len();
                *tags.entry((structure, magnitude(task.flops))).or_insert(next)
            });
            if let Some(group) = group {
                groups.members.resize(groups.members.len().max(group + 1), vec![]);
                groups.members[group].push(id);
            }
            groups.of.push(group);
        }
        groups
    }

    /// Every task alone.
    pub(super) fn none(tasks: &[TaskSpec]) -> Groups {
        Groups { of: vec![None; tasks.len()], members: vec![] }
    }

    /// Among the tasks of the group, if there are others in it.
    pub(super) fn best_throughput(&self, task: TaskId, tasks: &[Progress]) -> Option<f64> {
        let members = self.members_with(task)?;
        members.iter().filter_map(|&i| tasks[i].throughput()).reduce(f64::max)
    }

    /// A task that had many more rounds than the others and is far behind all the same is not
    /// similar to them.
    pub(super) fn leave_if_slower(&mut self, task: TaskId, tasks: &[Progress], beta: f64) {
        let Some(members) = self.members_with(task) else { return };
        let others = members.iter().filter(|&&i| i != task).map(|&i| tasks[i].rounds());
        let judged = tasks[task].rounds() > HEAD_START + others.max().unwrap_or(0);
        let best = self.best_throughput(task, tasks).unwrap_or(0.0);
        let slow = tasks[task].throughput().is_none_or(|own| own < best / beta);
        if judged
            && slow
            && let Some(group) = self.of[task].take()
        {
            self.members[group].retain(|&i| i != task);
        }
    }

    fn members_with(&self, task: TaskId) -> Option<&[TaskId]> {
        let members = &self.members[self.of[task]?];
        (members.len() > 1).then_some(members)
    }
}

fn magnitude(flops: u64) -> u64 {
    ((flops as f64 + 1.0).ln() / GOLDEN_RATIO.ln()) as u64
}
