//! Constants of the model, as they will lie in the artifact's weight section.
//!
//! Equal tensors are stored once, whether they come from the model or from packing.

use std::collections::HashMap;
use std::sync::Arc;

use ansc_graph::{TensorType, interp};
use ansc_runtime::Tensor;
use ansc_runtime::manifest::{BufferId, Storage};
use ansc_runtime::tensor::ALIGN;
use ansc_sketch::packed::Packing;
use xxhash_rust::xxh3::xxh3_128;

use super::Assembly;
use crate::Error;

#[derive(Default)]
pub struct Weights {
    by_content: HashMap<(u128, TensorType), BufferId>,
    /// Offset in the section and content, in order.
    pub parts: Vec<(usize, Arc<Tensor>)>,
    pub bytes: usize,
}

impl Assembly {
    /// The buffer that holds a constant.
    pub(super) fn constant(&mut self, name: &str, tensor: &Arc<Tensor>) -> BufferId {
        let ty = TensorType::of(tensor);
        let key = (xxh3_128(tensor.bytes()), ty.clone());
        if let Some(&buffer) = self.weights.by_content.get(&key) {
            return buffer;
        }
        let buffer = self.new_buffer(name, &ty);
        let offset = self.weights.bytes.next_multiple_of(ALIGN);
        self.weights.bytes = offset + tensor.bytes().len();
        self.weights.parts.push((offset, tensor.clone()));
        self.classes.fix(buffer, Storage::Weight { offset });
        self.weights.by_content.insert(key, buffer);
        buffer
    }

    /// The buffer that holds a constant in the order in which a kernel reads it.
    pub(super) fn packed(
        &mut self,
        name: &str,
        tensor: &Arc<Tensor>,
        packing: &Packing,
    ) -> Result<BufferId, Error> {
        let mut packed = interp::eval(&packing.compute, &[tensor.as_ref()])?;
        let packed = packed.pop().expect("a packing has one result");
        Ok(self.constant(name, &Arc::new(packed)))
    }
}
