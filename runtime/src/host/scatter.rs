//! `ScatterElements` and `ScatterND`: a copy of the data with updates merged in at given indices.
//!
//! `ScatterElements` axis 0: `y[indices[i, j], j] = updates[i, j]`;
//! `ScatterND`: `y[indices[i], ..] = updates[i, ..]`. Repeated indices merge in row-major order.
//!
//! Threads share what indices do not move: of `ScatterElements` the other axes, of `ScatterND` the
//! elements of a slice. So no two threads write to one place, and the order of updates is kept.

mod elements;
mod nd;
mod targets;

use super::number::{Number, with_type};
use super::shared::Shared;
use super::{HostError, ScatterMode, Share, copy, indices};
use crate::dtype::DType;
use crate::tensor::Tensor;
use elements::Elements;
use nd::Slices;

/// Elements that a thread takes at a time, at least.
const TOGETHER: usize = 1 << 14;

/// A type of elements, and the extents of a tensor.
pub(crate) type Form<'a> = (DType, &'a [usize]);

/// A call on tensors of known forms.
pub(crate) struct Scatter {
    dtype: DType,
    mode: ScatterMode,
    indices: (DType, Vec<usize>),
    /// Lengths of the axes that are indexed.
    extents: Vec<usize>,
    way: Way,
}

enum Way {
    Elements(Elements),
    Slices(Slices),
}

/// Where updates of a block go, how many elements each has, and the updates.
type Block<'a, T> = (&'a [usize], usize, &'a [T]);

impl Scatter {
    pub(crate) fn elements(
        [data, indices, updates]: [Form<'_>; 3],
        axis: usize,
        mode: ScatterMode,
    ) -> Result<Scatter, HostError> {
        let way = Elements::new([data, indices, updates], axis)?;
        Ok(Scatter::new(data, indices, &[data.1[axis]], mode, Way::Elements(way)))
    }

    pub(crate) fn nd(
        [data, indices, updates]: [Form<'_>; 3],
        mode: ScatterMode,
    ) -> Result<Scatter, HostError> {
        let (way, depth) = Slices::new([data, indices, updates])?;
        Ok(Scatter::new(data, indices, &data.1[..depth], mode, Way::Slices(way)))
    }

    fn new(
        (dtype, _): Form<'_>,
        indices: Form<'_>,
        extents: &[usize],
        mode: ScatterMode,
        way: Way,
    ) -> Scatter {
        let indices = (indices.0, indices.1.to_vec());
        Scatter { dtype, mode, indices, extents: extents.to_vec(), way }
    }

    /// The name of the ONNX operator.
    fn op(&self) -> &'static str {
        match self.way {
            Way::Elements(_) => elements::OP,
            Way::Slices(_) => nd::OP,
        }
    }

    /// Writes the result, with whatever threads `share` has.
    ///
    /// # Panics
    /// If memory has another size than its shape says, or is not aligned to its elements.
    pub(crate) fn write(
        &self,
        [data, indices, updates]: [&[u8]; 3],
        y: &mut [u8],
        share: &Share<'_>,
    ) -> Result<(), HostError> {
        self.check(indices)?;
        assert_eq!(data.len(), y.len(), "result");
        {
            let (chunk, whole) = (TOGETHER * self.dtype.size(), Shared::new(y));
            share(data.len().div_ceil(chunk) as u64, &|parts| {
                let range =
                    parts.start as usize * chunk..data.len().min(parts.end as usize * chunk);
                // SAFETY: no two parts overlap.
                unsafe { whole.slice(range.clone()) }.copy_from_slice(&data[range]);
            });
        }
        // Bytes of truth values are 0 and 1.
        let (dtype, mode) = match (self.dtype, self.mode) {
            (DType::Bool, ScatterMode::Add) => (DType::U8, ScatterMode::Max),
            (DType::Bool, ScatterMode::Mul) => (DType::U8, ScatterMode::Min),
            (DType::Bool, mode) => (DType::U8, mode),
            other => other,
        };
        with_type!(dtype, T => self.merge_all::<T>(mode, indices, updates, y, share));
        Ok(())
    }

    fn check(&self, indices: &[u8]) -> Result<(), HostError> {
        let (op, (dtype, shape)) = (self.op(), &self.indices);
        match indices::first_outside(*dtype, indices, &self.extents) {
            None => Ok(()),
            Some(indices::Outside { position, index, extent }) => {
                let position = indices::point(position, shape);
                Err(HostError::Index { op, position, index, extent })
            }
        }
    }

    fn merge_all<T: Number>(
        &self,
        mode: ScatterMode,
        indices: &[u8],
        updates: &[u8],
        y: &mut [u8],
        share: &Share<'_>,
    ) {
        let (updates, y) = (super::elements::<T>(updates), Shared::of_bytes(y));
        let indices = (self.indices.0, indices);
        // SAFETY: parts write to places of their own, as both ways promise.
        let each = |block: Block<'_, T>| unsafe { merge(&y, block, mode) };
        match &self.way {
            Way::Elements(way) => way.share(indices, updates, share, &each),
            Way::Slices(way) => way.share(indices, updates, share, &each),
        }
    }
}

/// Merges consecutive runs of updates into `y`.
///
/// # Safety
/// No other thread reads or writes these places.
unsafe fn merge<T: Number>(y: &Shared<'_, T>, block: Block<'_, T>, mode: ScatterMode) {
    #[cfg(target_arch = "x86_64")]
    if block.1 > 1 && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2; else as this function demands.
        return unsafe { merge_avx2(y, block, mode) };
    }
    // SAFETY: as this function demands.
    unsafe { merge_any(y, block, mode) }
}

/// # Safety
/// As that of [`merge`], on a processor with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn merge_avx2<T: Number>(y: &Shared<'_, T>, block: Block<'_, T>, mode: ScatterMode) {
    // SAFETY: as this function demands.
    unsafe { merge_any(y, block, mode) }
}

/// # Safety
/// As that of [`merge`].
#[inline(always)]
unsafe fn merge_any<T: Number>(y: &Shared<'_, T>, block: Block<'_, T>, mode: ScatterMode) {
    use ScatterMode::{Add, Assign, Max, Min, Mul};
    // The mode is known in each loop, which then takes whole vectors.
    // SAFETY: as this function demands.
    unsafe {
        match mode {
            Assign => merge_by(y, block, |_, new| new),
            Add => merge_by(y, block, |old, new| old.merge(Add, new)),
            Mul => merge_by(y, block, |old, new| old.merge(Mul, new)),
            Max => merge_by(y, block, |old, new| old.merge(Max, new)),
            Min => merge_by(y, block, |old, new| old.merge(Min, new)),
        }
    }
}

/// The same by a function of what is there and what is new.
///
/// # Safety
/// As that of [`merge`].
#[inline(always)]
unsafe fn merge_by<T: Number>(
    y: &Shared<'_, T>,
    (targets, run, updates): Block<'_, T>,
    by: impl Fn(T, T) -> T,
) {
    if run == 1 {
        for (&to, &new) in targets.iter().zip(updates) {
            // SAFETY: as this function demands.
            unsafe { y.put(to, by(y.get(to), new)) };
        }
        return;
    }
    for (&target, from) in targets.iter().zip(updates.chunks_exact(run)) {
        // SAFETY: as this function demands.
        let to = unsafe { y.slice(target..target + run) };
        for (old, &new) in to.iter_mut().zip(from) {
            *old = by(*old, new);
        }
    }
}

pub(super) fn elements(
    inputs: [&Tensor; 3],
    axis: usize,
    mode: ScatterMode,
) -> Result<Tensor, HostError> {
    alone(&Scatter::elements(inputs.map(form), axis, mode)?, inputs)
}

pub(super) fn nd(inputs: [&Tensor; 3], mode: ScatterMode) -> Result<Tensor, HostError> {
    alone(&Scatter::nd(inputs.map(form), mode)?, inputs)
}

fn form(tensor: &Tensor) -> Form<'_> {
    (tensor.dtype(), tensor.shape())
}

/// On one thread, into memory of its own.
fn alone(call: &Scatter, inputs: [&Tensor; 3]) -> Result<Tensor, HostError> {
    let mut y = copy(call.op(), inputs[0])?;
    let one: &Share<'_> = &|extent, body| body(0..extent);
    call.write(inputs.map(Tensor::bytes), y.bytes_mut(), one)?;
    Ok(y)
}

/// Both operators take updates of the type of the data, and integers as indices.
fn check_types(op: &'static str, [data, indices, updates]: [DType; 3]) -> Result<(), HostError> {
    let bad = |what, dtype| Err(HostError::Type { op, what, dtype });
    match () {
        () if data != updates => bad("updates", updates),
        () if !indices.is_int() => bad("indices", indices),
        () => Ok(()),
    }
}

fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

#[cfg(test)]
mod tests;
