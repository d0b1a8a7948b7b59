//! Host operators of a plan. `TopK`, the scatters, `Append`, `Spread` and `Shrink` work on a run's
//! own memory and threads. Others take copies of their operands, which are small or take much
//! longer to compute with than to copy.

use super::{Exec, check};
use crate::dtype::DType;
use crate::host::append::Append;
use crate::host::scatter::Scatter;
use crate::host::topk::{self, TopK};
use crate::host::{self, HostError, HostOp, draw};
use crate::manifest::{BufferId, BufferInfo};
use crate::run_error::RunError;
use crate::tensor::Tensor;
use crate::validate::bytes_of;

impl Exec<'_> {
    pub(super) fn host(
        &mut self,
        step: usize,
        call: &HostOp,
        ids: &[BufferId],
        outputs: &[BufferId],
    ) -> Result<(), RunError> {
        if self.top_k(step, call, ids, outputs)?
            || self.scatter(step, call, ids, outputs)?
            || self.append(step, call, ids, outputs)?
            || self.spread(step, call, ids, outputs)?
            || self.shrink(step, call, ids, outputs)?
            || self.draw(step, call, outputs)?
        {
            return Ok(());
        }
        let inputs = ids.iter().map(|id| self.tensor(step, *id));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let results = host::run(call, &inputs.iter().collect::<Vec<_>>())
            .map_err(|source| self.host_error(step, ids, source))?;
        for (index, id) in outputs.iter().enumerate() {
            let result = results.get(index);
            self.result(step, index, *id, result.map(|result| (result.dtype(), result.shape())))?;
            self.put(*id, result.map_or(&[], Tensor::bytes));
        }
        Ok(())
    }

    /// Runs the call if it begins random numbers, and says whether it did.
    fn draw(&mut self, step: usize, call: &HostOp, outputs: &[BufferId]) -> Result<bool, RunError> {
        let (&HostOp::Draw { stream, seed }, &[id]) = (call, outputs) else { return Ok(false) };
        self.result(step, 0, id, Some((DType::I64, &[])))?;
        self.put(id, &draw::key(stream, seed, self.chance).to_ne_bytes());
        Ok(true)
    }

    /// Gives a buffer the shape of the result of a host operator, which must fit it.
    pub(super) fn result(
        &mut self,
        step: usize,
        index: usize,
        id: BufferId,
        result: Option<(DType, &[usize])>,
    ) -> Result<(), RunError> {
        let info = self.info(id);
        let Some((_, shape)) = result.filter(|(dtype, shape)| fits(*dtype, shape, info)) else {
            let result = result.map(|(dtype, shape)| (dtype, shape.to_vec()));
            return Err(RunError::HostResult { step: self.name(step), index, result });
        };
        self.actual[id.0 as usize] = (shape != info.shape).then(|| shape.into());
        Ok(())
    }

    /// Operators that take indices have them as their second operand.
    pub(super) fn host_error(
        &self,
        step: usize,
        inputs: &[BufferId],
        source: HostError,
    ) -> RunError {
        match (source, inputs.get(1)) {
            (HostError::Index { position, index, extent, .. }, Some(&indices)) => {
                let (node, buffers) = (&self.program.steps[step].name, self.buffers);
                check::out_of_range(node, buffers, indices, position, index, extent)
            }
            (source, _) => RunError::Host { step: self.name(step), source },
        }
    }

    /// Runs the call if it is a `TopK` whose operands lie as it needs them, and says whether it
    /// did.
    fn top_k(
        &mut self,
        step: usize,
        call: &HostOp,
        inputs: &[BufferId],
        outputs: &[BufferId],
    ) -> Result<bool, RunError> {
        let (&HostOp::TopK { axis, k, at_most, largest, .. }, &[x], &[values, indices]) =
            (call, inputs, outputs)
        else {
            return Ok(false);
        };
        let dtype = self.info(x).dtype;
        let are_apart = self.is_apart(values, &[x, indices]) && self.is_apart(indices, &[x]);
        if dtype == DType::Bool || !are_apart {
            return Ok(false);
        }
        let k = topk::kept(self.shape(x), axis, k, at_most);
        let call = TopK::new(dtype, self.shape(x), axis, k, largest)
            .map_err(|source| self.host_error(step, inputs, source))?;
        self.result(step, 0, values, Some((dtype, call.shape())))?;
        self.result(step, 1, indices, Some((DType::I64, call.shape())))?;
        let [to, at] = [values, indices].map(|id| (self.address(id), self.bytes(id)));
        // SAFETY: both are valid for their declared bytes, aligned, and share no memory with
        // anything else that is borrowed here, as was checked above. Any bytes are elements of
        // `i64`.
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

    /// Runs the call if it is a scatter whose operands lie as it needs them, and says whether it
    /// did.
    fn scatter(
        &mut self,
        step: usize,
        call: &HostOp,
        inputs: &[BufferId],
        outputs: &[BufferId],
    ) -> Result<bool, RunError> {
        let (&[data, indices, updates], &[y]) = (inputs, outputs) else { return Ok(false) };
        let forms = [data, indices, updates].map(|id| (self.info(id).dtype, self.shape(id)));
        let call = match *call {
            HostOp::ScatterElements { axis, mode } => Scatter::elements(forms, axis, mode),
            HostOp::ScatterNd { mode } => Scatter::nd(forms, mode),
            _ => return Ok(false),
        };
        let call = call.map_err(|source| self.host_error(step, inputs, source))?;
        if !self.is_apart(y, inputs) {
            return Ok(false);
        }
        let (dtype, shape) = (self.info(data).dtype, self.shape(data).to_vec());
        self.result(step, 0, y, Some((dtype, &shape)))?;
        // SAFETY: the memory is valid for the declared bytes, aligned, and shared with no operand,
        // as was checked above.
        let to = unsafe { std::slice::from_raw_parts_mut(self.address(y), self.bytes(y)) };
        let from = [data, indices, updates].map(|id| self.read(id));
        call.write(from, to, &|extent, body| self.kernels.share(extent, body))
            .map_err(|source| self.host_error(step, inputs, source))?;
        Ok(true)
    }

    /// Runs the call if it appends to the very memory that its result takes, and says whether it
    /// did.
    fn append(
        &mut self,
        step: usize,
        call: &HostOp,
        inputs: &[BufferId],
        outputs: &[BufferId],
    ) -> Result<bool, RunError> {
        let (HostOp::Append { axis, at, count, each }, &[past, new, ref rest @ ..], &[y]) =
            (call, inputs, outputs)
        else {
            return Ok(false);
        };
        let (ends, sizes) = rest.split_at(rest.len().min(usize::from(*each)));
        let in_place = self.address(past) == self.address(y) && self.bytes(past) == self.bytes(y);
        if !in_place || !self.is_apart(y, &[new]) {
            return Ok(false);
        }
        let numbers = |ids: &[BufferId]| -> Option<Vec<i64>> {
            let all = ids.iter().map(|id| self.numbers(*id)).collect::<Option<Vec<_>>>()?;
            Some(all.concat())
        };
        let (Some(ends), Some(sizes)) = (numbers(ends), numbers(sizes)) else { return Ok(false) };
        let ends = each.then_some(&ends[..]);
        let forms = [past, new].map(|id| (self.info(id).dtype, self.shape(id)));
        let call = Append::new(forms, ends, *axis, [at, count], &sizes)
            .map_err(|source| self.host_error(step, &[], source))?;
        let (dtype, shape) = (self.info(past).dtype, self.shape(past).to_vec());
        self.result(step, 0, y, Some((dtype, &shape)))?;
        // SAFETY: the memory is valid for the declared bytes, and not that of the new rows, as was
        // checked above.
        let to = unsafe { std::slice::from_raw_parts_mut(self.address(y), self.bytes(y)) };
        call.write(self.read(new), to, &|extent, body| self.kernels.share(extent, body));
        Ok(true)
    }

    /// The elements of a tensor of counts.
    pub(super) fn numbers(&self, id: BufferId) -> Option<Vec<i64>> {
        let (numbers, _) = self.read(id).as_chunks();
        let is_counts = self.info(id).dtype == DType::I64;
        is_counts.then(|| numbers.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect())
    }

    /// Whether a buffer shares no memory with the others, and each is aligned to its elements.
    pub(super) fn is_apart(&self, id: BufferId, others: &[BufferId]) -> bool {
        let place = |id: BufferId| {
            let begin = self.address(id).addr();
            begin..begin + bytes_of(self.info(id))
        };
        let is_aligned = |id: BufferId| place(id).start.is_multiple_of(self.info(id).dtype.size());
        let own = place(id);
        let is_apart = |other: BufferId| {
            let other = place(other);
            own.end <= other.start || other.end <= own.start
        };
        is_aligned(id) && others.iter().all(|&other| is_aligned(other) && is_apart(other))
    }

    fn tensor(&self, step: usize, id: BufferId) -> Result<Tensor, RunError> {
        Tensor::from_bytes(self.info(id).dtype, self.shape(id), self.read(id))
            .map_err(|source| RunError::Value { step: self.name(step), source })
    }
}

/// Whether an actual value fits the buffer declared for it.
fn fits(dtype: DType, shape: &[usize], buffer: &BufferInfo) -> bool {
    dtype == buffer.dtype
        && shape.len() == buffer.shape.len()
        && shape.iter().zip(&buffer.shape).all(|(actual, most)| actual <= most)
}
