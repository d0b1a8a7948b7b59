//! Workspaces that live within an iteration of a loop become local to it.

use crate::program::Scope;
use crate::schedule::Schedule;
use crate::tree;

pub(super) fn privatise(schedule: &mut Schedule) {
    let common = tree::common_loops(schedule.program());
    let inner: Vec<String> = common
        .into_iter()
        .filter(|(_, loops)| !loops.is_empty())
        .map(|(buffer, _)| schedule.program().buffer(buffer))
        .filter(|buffer| buffer.scope == Scope::Global)
        .map(|buffer| buffer.name.clone())
        .collect();
    for buffer in inner {
        // A buffer that is read before it is written in an iteration stays shared.
        let _ = schedule.set_scope(&buffer, Scope::Local);
    }
}
