//! Constants that are made when the artifact is loaded.
//!
//! Winograd's convolutions read up to eight times the bytes of the weights that these are made of.
//! Such packings are not evaluated when compiling: they become kernels of a plan of its own, which
//! the runtime runs once.
//!
//! ```text
//! packed weights: 147 KB -> 590 KB   =>   the artifact holds 147 KB, and a kernel that makes 590 KB of them
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use ansc_graph::demand::Demand;
use ansc_graph::{Compute, TensorType, cost};
use ansc_runtime::Tensor;
use ansc_runtime::manifest::{BufferId, Step, Storage};
use ansc_runtime::tensor::ALIGN;

use super::{Builder, Draft, KernelUse};
use crate::Error;

/// The plan that makes them, for all specialisations.
#[derive(Default)]
pub struct Prepared {
    /// The kernel that each of its steps runs.
    pub uses: Vec<KernelUse>,
    pub draft: Draft,
    pub bytes: usize,
    /// Offsets of what is made, by the weights and what is done to them.
    known: HashMap<(usize, Compute), usize>,
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
    fn step(&mut self, name: &str, weights: usize, packing: &Compute, kernel: usize) -> usize {
        let offset = self.bytes.next_multiple_of(ALIGN);
        self.bytes = offset + result(packing).bytes();
        let ends = [
            (&packing.inputs[0], Storage::Weight { offset: weights }),
            (result(packing), Storage::Prepared { offset }),
        ];
        let args = ends.map(|(ty, storage)| {
            let buffer = self.draft.new_buffer(name, ty);
            self.draft.classes.fix(buffer, storage);
            buffer
        });
        let step = Step::Kernel { kernel: self.uses.len() as u32, args: args.to_vec() };
        self.draft.specialisation.plan.steps.push(step);
        self.uses.push(KernelUse {
            kernel,
            name: name.into(),
            nodes: vec![],
            flops: cost::flops(packing),
            bytes: cost::bytes(packing),
            reads: 1,
            precision: None,
        });
        offset
    }
}

impl Builder<'_> {
    /// The buffer of what a packing will make of a constant.
    pub(super) fn prepared(
        &mut self,
        name: &str,
        tensor: &Arc<Tensor>,
        packing: &Compute,
    ) -> Result<BufferId, Error> {
        let key = (self.weights.place(tensor), packing.clone());
        let offset = match self.prepared.known.get(&key) {
            Some(&offset) => offset,
            None => {
                let kernel = self.packing_kernel(name, packing)?;
                let offset = self.prepared.step(name, key.0, packing, kernel);
                self.prepared.known.insert(key, offset);
                offset
            }
        };
        Ok(self.constant_at(name, Storage::Prepared { offset }, result(packing).clone()))
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
