//! The tensors that the model holds, decoded once each, and what is made of them alone.
//!
//! In: a `TensorProto` of the model that is being imported. Out: the tensor, shared by everything
//! that was made of it. The body of a function or loop may be imported a hundred thousand times,
//! and a model at a hundred sizes; its constants still are in memory once.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ansc_graph::Compute;
use ansc_runtime::Tensor;
use tract_onnx::pb::{SparseTensorProto, TensorProto};

use crate::external::External;
use crate::memory::Memory;
use crate::tensor_type::extents;
use crate::{nibbles, sparse, tensor};

/// Fewer bytes are evaluated anew more quickly than they are found.
const FEW_BYTES: usize = 1 << 12;
/// So many results are kept of the same operands. Operators with sizes in them may give another one
/// in each import.
const MOST: usize = 4;

pub(super) struct Constants {
    external: External,
    pub(super) memory: Memory,
    shared: Arc<Shared>,
}

/// All imports of a model share these tensors.
#[derive(Default)]
pub(crate) struct Shared {
    /// By the address of what they were decoded from: the model stays where it is as long as it may
    /// be imported, and nodes are never copied.
    decoded: Mutex<HashMap<usize, Arc<Tensor>>>,
    /// By the addresses of their operands, which are decoded or evaluated themselves.
    evaluated: Mutex<HashMap<Vec<usize>, Vec<Evaluated>>>,
    /// The addresses of all these tensors.
    kept: Mutex<HashSet<usize>>,
}

struct Evaluated {
    expr: Arc<Compute>,
    results: Vec<Arc<Tensor>>,
}

impl Shared {
    fn keep(&self, tensor: &Arc<Tensor>) {
        locked(&self.kept).insert(address(tensor));
    }

    fn keeps(&self, addresses: &[usize]) -> bool {
        let kept = locked(&self.kept);
        addresses.iter().all(|address| kept.contains(address))
    }

    fn find(&self, operands: &[usize], expr: &Compute) -> Option<Vec<Arc<Tensor>>> {
        let evaluated = locked(&self.evaluated);
        let found = evaluated.get(operands)?.iter().find(|one| *one.expr == *expr);
        found.map(|one| one.results.clone())
    }

    fn add(&self, operands: Vec<usize>, one: Evaluated) {
        let mut evaluated = locked(&self.evaluated);
        let all = evaluated.entry(operands).or_default();
        // Another thread may have been faster.
        let is_known = all.iter().any(|known| *known.expr == *one.expr);
        if all.len() < MOST && !is_known {
            one.results.iter().for_each(|tensor| self.keep(tensor));
            all.push(one);
        }
    }
}

/// A map into which a thread that panicked wrote is as good as before: each entry is whole.
fn locked<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(tensor: &Arc<Tensor>) -> usize {
    Arc::as_ptr(tensor).addr()
}

impl Constants {
    pub(super) fn new(external: External, memory: Memory, shared: Arc<Shared>) -> Constants {
        Constants { external, memory, shared }
    }

    /// The results of `expr` for these operands: those of an earlier time, if the model has the
    /// operands.
    pub(super) fn evaluated<E>(
        &self,
        expr: &Arc<Compute>,
        operands: &[Arc<Tensor>],
        evaluate: impl FnOnce() -> Result<Vec<Tensor>, E>,
    ) -> Result<Vec<Arc<Tensor>>, E> {
        let at: Vec<usize> = operands.iter().map(address).collect();
        if let Some(results) = self.shared.find(&at, expr) {
            return Ok(results);
        }
        let results: Vec<Arc<Tensor>> = evaluate()?.into_iter().map(Arc::new).collect();
        let bytes: usize = results.iter().map(|tensor| tensor.bytes().len()).sum();
        let stay = self.shared.keeps(&at);
        if stay && bytes > FEW_BYTES {
            let one = Evaluated { expr: Arc::clone(expr), results: results.clone() };
            self.shared.add(at, one);
        }
        Ok(results)
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
        Ok((shape.map_or_else(|| extents(&proto.dims), Ok)?, tensor))
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
        if let Some(tensor) = locked(&self.shared.decoded).get(&address) {
            return Ok(Arc::clone(tensor));
        }
        let tensor = Arc::new(decode()?);
        // Another thread may have been faster. Its tensor is the one that all share.
        let mut decoded = locked(&self.shared.decoded);
        let tensor = Arc::clone(decoded.entry(address).or_insert(tensor));
        self.shared.keep(&tensor);
        Ok(tensor)
    }
}
