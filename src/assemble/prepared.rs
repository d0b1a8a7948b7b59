//! Constants that are made when the artifact is loaded.
//!
//! Winograd's convolutions read up to eight times the bytes of the weights that these are made of.
//! Such packings are not evaluated when compiling: they become kernels of a plan of its own, which
//! the runtime runs once.
//!
//! ```text
//! packed weights: 147 KB -> 590 KB   =>   the artifact holds 147 KB, and a kernel that makes 590 KB of them
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ansc_graph::demand::Demand;
use ansc_graph::{Compute, TensorType, cost};
use ansc_runtime::Tensor;
use ansc_runtime::manifest::{BufferId, Step, Storage};
use ansc_runtime::tensor::ALIGN;

use super::once::Place;
use super::{Builder, Draft, KernelUse};
use crate::Error;

/// The plan that makes them, for all specialisations.
#[derive(Default)]
pub struct Prepared {
    /// The kernel that each of its steps runs.
    pub uses: Vec<KernelUse>,
    pub draft: Draft,
    pub bytes: usize,
    /// The results of all steps, by their offsets.
    made: Vec<(usize, TensorType)>,
    /// The first buffer of each place.
    first: HashMap<Storage, BufferId>,
    /// Where results of kernels lie, by what these read.
    computed: HashMap<(usize, Vec<Place>), Vec<Place>>,
}

/// Whether a packing is worth being done at loading time. If its result is hardly larger than the
/// weights, the result is stored instead: that costs nothing when loading.
pub(super) fn is_worthwhile(packing: &Compute) -> bool {
    let (from, to) = (packing.inputs[0].bytes(), result(packing).bytes());
    to > from + from / 4
}

/// The type of the tensor that a packing makes of its constant.
pub(super) fn result(packing: &Compute) -> &TensorType {
    &packing.stages[packing.outputs[0]].ty
}

impl Prepared {
    /// The places of what a kernel makes of constants, which runs once for all who ask for it.
    pub(super) fn run(
        &mut self,
        name: &str,
        (kernel, read): (usize, Vec<Place>),
        written: Vec<TensorType>,
        use_of: impl FnOnce() -> KernelUse,
    ) -> Vec<Place> {
        let key = (kernel, read);
        if let Some(places) = self.computed.get(&key) {
            return places.clone();
        }
        let places: Vec<Place> = written.into_iter().map(|ty| self.reserve(ty)).collect();
        let args = key.1.iter().chain(&places).map(|place| self.buffer(name, place)).collect();
        let step = Step::Kernel { kernel: self.uses.len() as u32, args };
        self.draft.specialisation.plan.steps.push(step);
        self.uses.push(use_of());
        self.computed.insert(key, places.clone());
        places
    }

    /// A buffer of its own plan. All that lie in one place share their memory, wherever that is in
    /// the end.
    fn buffer(&mut self, name: &str, (storage, ty): &Place) -> BufferId {
        let buffer = self.draft.new_buffer(name, ty);
        match self.first.get(storage) {
            Some(&first) => self.draft.classes.join(buffer, first),
            None => {
                self.draft.classes.fix(buffer, *storage);
                self.first.insert(*storage, buffer);
            }
        }
        buffer
    }

    /// Keeps what runs read, close together; the rest lies in the arena of the plan.
    pub fn settle(&mut self, drafts: &mut [Draft]) {
        let read = drafts.iter_mut().flat_map(|draft| draft.classes.all_fixed());
        let read: BTreeSet<usize> = read.filter_map(|storage| offset(*storage)).collect();
        let made = std::mem::take(&mut self.made);
        self.bytes = 0;
        let kept = made
            .into_iter()
            .map(|(offset, ty)| (offset, read.contains(&offset).then(|| self.reserve(ty).0)));
        let kept: HashMap<usize, Option<Storage>> = kept.collect();
        let own = std::iter::once(&mut self.draft);
        for storage in drafts.iter_mut().chain(own).flat_map(|draft| draft.classes.all_fixed()) {
            if let Some(offset) = offset(*storage) {
                *storage = kept[&offset];
            }
        }
    }

    fn reserve(&mut self, ty: TensorType) -> Place {
        let offset = self.bytes.next_multiple_of(ALIGN);
        // Each has a place of its own, those without elements too.
        self.bytes = offset + ty.bytes().max(1);
        self.made.push((offset, ty.clone()));
        (Storage::Prepared { offset }, ty)
    }
}

fn offset(storage: Option<Storage>) -> Option<usize> {
    match storage {
        Some(Storage::Prepared { offset }) => Some(offset),
        _ => None,
    }
}

impl Builder<'_> {
    /// The place of what a packing will make of a constant.
    pub(super) fn prepared(
        &mut self,
        name: &str,
        tensor: &Arc<Tensor>,
        packing: &Compute,
    ) -> Result<Place, Error> {
        let weights = self.weights.place_of(tensor);
        let kernel = self.packing_kernel(name, packing)?;
        let use_of = || KernelUse {
            kernel,
            name: name.into(),
            nodes: vec![],
            flops: cost::flops(packing),
            bytes: cost::bytes(packing),
            reads: 1,
            precision: None,
        };
        let read = (kernel, vec![weights]);
        let mut places = self.prepared.run(name, read, vec![result(packing).clone()], use_of);
        Ok(places.pop().expect("a packing has one result"))
    }

    fn packing_kernel(&mut self, name: &str, packing: &Compute) -> Result<usize, Error> {
        let subgraph = (packing.clone(), vec![false]);
        if self.kernels.find(&subgraph).is_none() {
            self.verifier.compute("scheduling", name, packing)?;
            self.kernels.add(vec![subgraph.clone()])?;
        }
        let whole = self.kernels.find(&subgraph).expect("it was made");
        Ok(self.kernels.make(whole, &Demand::default()))
    }
}
