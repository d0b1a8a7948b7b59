//! Constants of the model, as they will lie in the artifact's weight section.
//!
//! Equal bytes are stored once, whether they come from the model or from packing, and whichever
//! specialisation reads them.

use std::collections::HashMap;
use std::sync::Arc;

use ansc_graph::{Compute, TensorType, interp};
use ansc_runtime::Tensor;
use ansc_runtime::manifest::{BufferId, Storage};
use ansc_runtime::tensor::ALIGN;
use ansc_sketch::packed::Packing;
use xxhash_rust::xxh3::xxh3_128;

use super::once::Place;
use super::{Builder, prepared};
use crate::Error;

#[derive(Default)]
pub struct Weights {
    /// Offsets by hash and length.
    by_content: HashMap<(u128, usize), usize>,
    /// The results of packings, by the hash of the tensor and the packing.
    packed: HashMap<(u128, Compute), Arc<Tensor>>,
    /// Offset in the section and content, in order.
    pub parts: Vec<(usize, Arc<Tensor>)>,
    pub bytes: usize,
    /// Everything is stored as kernels read it: nothing is made when the model is loaded.
    pub stores_all: bool,
}

impl Weights {
    /// The offset at which the bytes of a tensor lie.
    pub(super) fn place(&mut self, tensor: &Arc<Tensor>) -> usize {
        let key = (xxh3_128(tensor.bytes()), tensor.bytes().len());
        if let Some(&offset) = self.by_content.get(&key) {
            return offset;
        }
        let offset = self.bytes.next_multiple_of(ALIGN);
        self.bytes = offset + tensor.bytes().len();
        self.parts.push((offset, tensor.clone()));
        self.by_content.insert(key, offset);
        offset
    }

    /// Where a tensor lies, and as what.
    pub(super) fn place_of(&mut self, tensor: &Arc<Tensor>) -> Place {
        (Storage::Weight { offset: self.place(tensor) }, TensorType::of(tensor))
    }

    /// Evaluates a packing once, also where several specialisations ask for it.
    fn pack(&mut self, tensor: &Tensor, packing: &Compute) -> Result<Arc<Tensor>, Error> {
        let key = (xxh3_128(tensor.bytes()), packing.clone());
        if let Some(packed) = self.packed.get(&key) {
            return Ok(packed.clone());
        }
        let mut packed = interp::eval(packing, &[tensor])?;
        let packed = Arc::new(packed.pop().expect("a packing has one result"));
        self.packed.insert(key, packed.clone());
        Ok(packed)
    }
}

impl Builder<'_> {
    /// The buffer that holds a constant.
    pub(super) fn constant(&mut self, name: &str, tensor: &Arc<Tensor>) -> BufferId {
        let (storage, ty) = self.weights.place_of(tensor);
        self.constant_at(name, storage, ty)
    }

    /// The buffer of what no run changes.
    pub(super) fn constant_at(&mut self, name: &str, storage: Storage, ty: TensorType) -> BufferId {
        let key = (storage, ty);
        if let Some(&buffer) = self.constants.get(&key) {
            return buffer;
        }
        let buffer = self.new_buffer(name, &key.1);
        self.draft.classes.fix(buffer, storage);
        self.constants.insert(key, buffer);
        buffer
    }

    /// The buffer that holds a constant in the order in which a kernel reads it.
    pub(super) fn packed(
        &mut self,
        name: &str,
        tensor: &Arc<Tensor>,
        packing: &Packing,
    ) -> Result<BufferId, Error> {
        let (storage, ty) = self.packed_place(name, tensor, packing)?;
        Ok(self.constant_at(name, storage, ty))
    }

    /// Where it lies.
    pub(super) fn packed_place(
        &mut self,
        name: &str,
        tensor: &Arc<Tensor>,
        packing: &Packing,
    ) -> Result<Place, Error> {
        if !self.weights.stores_all && prepared::is_worthwhile(&packing.compute) {
            return self.prepared(name, tensor, &packing.compute);
        }
        let packed = self.weights.pack(tensor, &packing.compute)?;
        Ok(self.weights.place_of(&packed))
    }
}
