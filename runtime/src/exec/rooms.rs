//! `Spread` and `Shrink` on a run's own memory.

use super::Exec;
use crate::boxes::{self, Corner};
use crate::dtype::DType;
use crate::host::{HostOp, rooms};
use crate::manifest::BufferId;
use crate::run_error::RunError;
use crate::validate::bytes_of;

impl Exec<'_> {
    /// Runs the call if it spreads a tensor to memory of its own, and says whether it did.
    pub(super) fn spread(
        &mut self,
        step: usize,
        call: &HostOp,
        inputs: &[BufferId],
        outputs: &[BufferId],
    ) -> Result<bool, RunError> {
        let (HostOp::Spread { shape, count }, &[x], &[y, ref numbers @ ..]) =
            (call, inputs, outputs)
        else {
            return Ok(false);
        };
        let is_simple = numbers.len() == usize::from(count.is_some()) && self.is_apart(y, &[x]);
        if !is_simple {
            return Ok(false);
        }
        let dtype = self.info(x).dtype;
        let counted = rooms::counted(self.shape(x), shape, *count)
            .map_err(|source| self.host_error(step, &[], source))?;
        self.result(step, 0, y, Some((dtype, shape)))?;
        for (id, counted) in numbers.iter().zip(counted) {
            self.result(step, 1, *id, Some((DType::I64, &[])))?;
            self.put(*id, &counted.to_ne_bytes());
        }
        let corner = Corner { shape: self.shape(x), room: self.shape(y), size: dtype.size() };
        // SAFETY: the memory is valid for the declared bytes, and not that of `x`, as was checked
        // above.
        let to = unsafe { std::slice::from_raw_parts_mut(self.address(y), self.bytes(y)) };
        boxes::spread(self.read(x), corner, to, &|n, body| self.kernels.share(n, body));
        Ok(true)
    }

    /// Runs the call if it copies a part of a tensor to memory of its own, and says whether it did.
    pub(super) fn shrink(
        &mut self,
        step: usize,
        call: &HostOp,
        inputs: &[BufferId],
        outputs: &[BufferId],
    ) -> Result<bool, RunError> {
        let (HostOp::Shrink { extents }, &[x, ref sizes @ ..], &[y]) = (call, inputs, outputs)
        else {
            return Ok(false);
        };
        let all = sizes.iter().map(|id| self.numbers(*id).filter(|all| all.len() == 1));
        let sizes: Option<Vec<Vec<i64>>> = all.collect();
        let Some(sizes) = sizes.filter(|_| self.is_apart(y, &[x])) else { return Ok(false) };
        let dtype = self.info(x).dtype;
        let shape = rooms::part(self.shape(x), extents, &sizes.concat())
            .map_err(|source| self.host_error(step, &[], source))?;
        self.result(step, 0, y, Some((dtype, &shape)))?;
        let corner = Corner { shape: &shape, room: self.shape(x), size: dtype.size() };
        debug_assert!(self.bytes(y) <= bytes_of(self.info(y)));
        // SAFETY: the memory is valid for the declared bytes, which are no less, and not that of
        // `x`, as was checked above.
        let to = unsafe { std::slice::from_raw_parts_mut(self.address(y), self.bytes(y)) };
        boxes::gather(self.read(x), corner, to, &|n, body| self.kernels.share(n, body));
        Ok(true)
    }
}
