//! Groups that read constants alone: they run once, when the artifact is loaded.
//!
//! Constant folding leaves what would take the compiler's interpreter long, as a product of a table
//! of positions and a weight in each layer of a DeBERTa. No run changes the result.
//!
//! ```text
//! %5 = matmul(table, weight); y = add(x, %5)   =>   when loading: %5 = matmul(table, weight)
//!                                                   in each run:  y = add(x, %5)
//! ```
//!
//! The result is kept if it is at most twice as large as what it is made of. A larger one stays in
//! the memory of a run, which other values use after it.

use ansc_graph::demand::Demand;
use ansc_graph::fuse::Group;
use ansc_graph::{Graph, TensorType, ValueId};
use ansc_runtime::manifest::Storage;

use super::kernels::KernelUse;
use super::{Builder, Values, subgraph};
use crate::Error;

/// Where a constant lies, and as what.
pub(super) type Place = (Storage, TensorType);

impl Builder<'_> {
    /// Whether no run has to compute the group: `values` have the places of its results then.
    pub(super) fn once(
        &mut self,
        graph: &Graph,
        group: &Group,
        values: &mut Values,
    ) -> Result<bool, Error> {
        // Artifacts for GPUs and bundles prepare nothing.
        let prepares = self.kernels.aim().is_cpu() && !self.weights.stores_all;
        if !prepares || !self.is_of_constants(graph, group, values) || !is_small(graph, group) {
            return Ok(false);
        }
        let whole = self.kernels.find(&subgraph(graph, group)).expect("all groups have kernels");
        let index = self.kernels.make(whole, &Demand::default());
        let mut read = Vec::new();
        for (param, value) in group.inputs.iter().enumerate() {
            read.push(self.place_of(graph, *value, (index, param), values)?);
        }
        let use_of = || KernelUse::new(graph, group, index, 0);
        let written: Vec<TensorType> =
            group.outputs.iter().map(|value| graph.ty(*value).clone()).collect();
        let places = self.prepared.run(&group.name, (index, read), written, use_of);
        for (value, place) in group.outputs.iter().zip(places) {
            values.settle(*value, place);
        }
        Ok(true)
    }

    fn is_of_constants(&self, graph: &Graph, group: &Group, values: &Values) -> bool {
        let is_constant = |value: &ValueId| {
            graph.const_of(*value).is_some() || self.constant_place(graph, *value, values).is_some()
        };
        !group.inputs.is_empty() && group.inputs.iter().all(is_constant)
    }

    /// Where a value lies that is no constant of the graph, if no run changes it.
    fn constant_place(&self, graph: &Graph, value: ValueId, values: &Values) -> Option<Place> {
        if let Some(place) = values.place(value) {
            return Some(place.clone());
        }
        let storage = self.draft.classes.fixed(values.buffer(value)?)?;
        matches!(storage, Storage::Weight { .. } | Storage::Prepared { .. })
            .then(|| (storage, graph.ty(value).clone()))
    }

    /// Where a parameter of a kernel lies, a constant.
    fn place_of(
        &mut self,
        graph: &Graph,
        value: ValueId,
        (kernel, param): (usize, usize),
        values: &Values,
    ) -> Result<Place, Error> {
        let Some(tensor) = graph.const_of(value) else {
            let place = self.constant_place(graph, value, values);
            return Ok(place.expect("the group reads constants alone"));
        };
        match self.kernels.packing(kernel, param).cloned() {
            Some(packing) => self.packed_place(&graph.value(value).name, tensor, &packing),
            None => Ok(self.weights.place_of(tensor)),
        }
    }
}

fn is_small(graph: &Graph, group: &Group) -> bool {
    let bytes = |values: &[ValueId]| {
        values.iter().fold(0usize, |sum, value| sum.saturating_add(graph.ty(*value).bytes()))
    };
    bytes(&group.outputs) <= bytes(&group.inputs).saturating_mul(2)
}
