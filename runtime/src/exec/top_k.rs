//! `TopK` on a run's own memory and threads. Other host operators take copies of their operands, which are small or take
//! much longer to compute with than to copy.

use super::Exec;
use crate::dtype::DType;
use crate::host::HostOp;
use crate::host::topk::TopK;
use crate::manifest::BufferId;
use crate::run_error::RunError;
use crate::validate::bytes_of;

impl Exec<'_> {
    /// Runs the call if it is a `TopK` whose operands lie as it needs them, and says whether it did.
    pub(super) fn top_k(
        &mut self,
        step: usize,
        call: &HostOp,
        inputs: &[BufferId],
        outputs: &[BufferId],
    ) -> Result<bool, RunError> {
        let (&HostOp::TopK { axis, k, largest, .. }, &[x], &[values, indices]) =
            (call, inputs, outputs)
        else {
            return Ok(false);
        };
        let dtype = self.info(x).dtype;
        if dtype == DType::Bool || !self.are_apart([x, values, indices]) {
            return Ok(false);
        }
        let call = TopK::new(dtype, self.shape(x), axis, k, largest)
            .map_err(|source| self.host_error(step, inputs, source))?;
        self.result(step, 0, values, Some((dtype, call.shape())))?;
        self.result(step, 1, indices, Some((DType::I64, call.shape())))?;
        let [to, at] = [values, indices].map(|id| (self.address(id), self.bytes(id)));
        // SAFETY: both are valid for their declared bytes, aligned, and share no memory with anything else that
        // is borrowed here, as was checked above. Any bytes are elements of `i64`.
        let (to, at) = unsafe {
            (
                std::slice::from_raw_parts_mut(to.0, to.1),
                std::slice::from_raw_parts_mut(at.0.cast::<i64>(), at.1 / size_of::<i64>()),
            )
        };
        call.write(self.read(x), to, at, &|extent, body| self.kernels.share(extent, body))
            .map_err(|source| self.host_error(step, inputs, source))?;
        Ok(true)
    }

    /// Whether no two buffers share memory, and each is aligned to its elements.
    fn are_apart(&self, ids: [BufferId; 3]) -> bool {
        let places = ids.map(|id| {
            let begin = self.address(id).addr();
            begin..begin + bytes_of(self.info(id))
        });
        let size = |id: &BufferId| self.info(*id).dtype.size();
        let aligned = |id: &BufferId| self.address(*id).addr().is_multiple_of(size(id));
        let apart = |a: usize, b: usize| {
            places[a].end <= places[b].start || places[b].end <= places[a].start
        };
        ids.iter().all(aligned) && apart(0, 1) && apart(0, 2) && apart(1, 2)
    }
}
