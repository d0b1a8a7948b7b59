//! The tensors that the model holds, decoded once each.
//!
//! In: a `TensorProto` of the model that is being imported. Out: the tensor, shared by everything
//! that was made of it. The body of a function or loop may be imported a hundred thousand times;
//! its constants still are in memory once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use ansc_runtime::Tensor;
use tract_onnx::pb::{SparseTensorProto, TensorProto};

use super::memory::Memory;
use crate::external::External;
use crate::{nibbles, sparse, tensor};

pub(super) struct Constants {
    external: External,
    pub(super) memory: Memory,
    decoded: Decoded,
}

/// By the address of what they were decoded from: the model stays where it is as long as it may be
/// imported, and nodes are never copied.
pub(super) type Decoded = Rc<RefCell<HashMap<usize, Arc<Tensor>>>>;

impl Constants {
    pub(super) fn new(external: External, memory: Memory, decoded: Decoded) -> Constants {
        Constants { external, memory, decoded }
    }

    pub(super) fn dense(&self, proto: &TensorProto) -> Result<Arc<Tensor>, String> {
        self.once(std::ptr::from_ref(proto).addr(), || {
            tensor::decode(proto, &self.external, &self.memory)
        })
    }

    /// The shape and the bytes of a tensor of 4 bits an element.
    pub(super) fn packed(&self, proto: &TensorProto) -> Result<(Vec<usize>, Arc<Tensor>), String> {
        let mut shape = None;
        let tensor = self.once(std::ptr::from_ref(proto).addr(), || {
            let (of, tensor) = nibbles::packed(proto, &self.external, &self.memory)?;
            shape = Some(of);
            Ok(tensor)
        })?;
        Ok((shape.map_or_else(|| tensor::extents(&proto.dims), Ok)?, tensor))
    }

    pub(super) fn sparse(&self, proto: &SparseTensorProto) -> Result<Arc<Tensor>, String> {
        self.once(std::ptr::from_ref(proto).addr(), || {
            sparse::decode(proto, &self.external, &self.memory)
        })
    }

    fn once(
        &self,
        address: usize,
        decode: impl FnOnce() -> Result<Tensor, String>,
    ) -> Result<Arc<Tensor>, String> {
        if let Some(tensor) = self.decoded.borrow().get(&address) {
            return Ok(Arc::clone(tensor));
        }
        let tensor = Arc::new(decode()?);
        self.decoded.borrow_mut().insert(address, Arc::clone(&tensor));
        Ok(tensor)
    }
}
