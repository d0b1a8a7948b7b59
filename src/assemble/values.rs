//! Where the values of a graph lie, as far as its plan is made.

use std::collections::HashMap;

use ansc_graph::ValueId;
use ansc_runtime::manifest::BufferId;

use super::once::Place;

/// The buffers that hold values, and the places of those that no run changes: they get buffers when
/// a run first reads them.
#[derive(Default)]
pub(super) struct Values {
    buffers: HashMap<ValueId, BufferId>,
    places: HashMap<ValueId, Place>,
}

impl Values {
    pub(super) fn insert(&mut self, value: ValueId, buffer: BufferId) {
        self.buffers.insert(value, buffer);
    }

    pub(super) fn buffer(&self, value: ValueId) -> Option<BufferId> {
        self.buffers.get(&value).copied()
    }

    pub(super) fn settle(&mut self, value: ValueId, place: Place) {
        self.places.insert(value, place);
    }

    pub(super) fn place(&self, value: ValueId) -> Option<&Place> {
        self.places.get(&value)
    }
}
