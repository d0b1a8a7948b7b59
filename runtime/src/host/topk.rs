//! `TopK`: the k largest (or smallest) elements along an axis, best first.
//!
//! `[3, 9, 5, 9]`, k = 2, largest -> values `[9, 9]`, indices `[1, 3]`.
//!
//! Elements are compared by integers of the same order (`key`). Many lanes are read at a time where
//! they are neighbours in memory, or short (`lanes`). Of short lanes the best few are kept rank by
//! rank, without a branch (`ranks`). Most elements of long lanes fail at a limit (`candidates`),
//! and the best one has a way of its own (`first`).

mod candidates;
mod first;
mod key;
mod lanes;
mod ranks;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::number::with_type;
use super::shared::Shared;
use super::view::AxisView;
use super::{HostError, Share, check_axis, elements, zeros};
use crate::dtype::{DType, Element};
use crate::tensor::Tensor;
use candidates::Candidates;
use key::{Index, Key, Keyed};
use lanes::{Source, WIDE};

const OP: &str = "TopK";

/// A call on a tensor of a known shape.
pub(crate) struct TopK {
    dtype: DType,
    view: AxisView,
    k: usize,
    largest: bool,
    /// The shape of both results.
    shape: Vec<usize>,
}

/// How many elements of an axis of this shape are kept where `k` are wanted, or `at_most` so many.
pub(crate) fn kept(shape: &[usize], axis: usize, k: usize, at_most: bool) -> usize {
    shape.get(axis).map_or(k, |extent| if at_most { k.min(*extent) } else { k })
}

pub(super) fn run(
    x: &Tensor,
    axis: usize,
    k: usize,
    largest: bool,
) -> Result<Vec<Tensor>, HostError> {
    let call = TopK::new(x.dtype(), x.shape(), axis, k, largest)?;
    let mut values = zeros(OP, x.dtype(), call.shape())?;
    let mut indices = zeros(OP, DType::I64, call.shape())?;
    let alone: &Share<'_> = &|extent, body| body(0..extent);
    call.write(x.bytes(), values.bytes_mut(), indices.as_mut_slice(), alone)?;
    Ok(vec![values, indices])
}

impl TopK {
    pub(crate) fn new(
        dtype: DType,
        shape: &[usize],
        axis: usize,
        k: usize,
        largest: bool,
    ) -> Result<TopK, HostError> {
        check_axis(OP, shape.len(), axis)?;
        if k > shape[axis] {
            return Err(HostError::TooMany { op: OP, wanted: k, extent: shape[axis] });
        }
        if Index::try_from(shape[axis]).is_err() {
            return Err(HostError::Shape { op: OP, what: "x", shape: shape.to_vec() });
        }
        let view = AxisView::of(shape, axis);
        let mut shape = shape.to_vec();
        shape[axis] = k;
        Ok(TopK { dtype, view, k, largest, shape })
    }

    /// The shape of values and of indices.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Writes both results, of this call's shape, with whatever threads `share` has.
    ///
    /// # Panics
    /// If memory has another size than its shape says, or is not aligned to its elements.
    pub(crate) fn write(
        &self,
        x: &[u8],
        values: &mut [u8],
        indices: &mut [i64],
        share: &Share<'_>,
    ) -> Result<(), HostError> {
        // Their bytes are ordered as they are.
        let dtype = if self.dtype == DType::Bool { DType::U8 } else { self.dtype };
        with_type!(dtype, T => self.write_as::<T>(x, values, indices, share))
    }

    fn write_as<T: Keyed>(
        &self,
        x: &[u8],
        values: &mut [u8],
        indices: &mut [i64],
        share: &Share<'_>,
    ) -> Result<(), HostError> {
        let lanes = self.view.outer * self.view.inner;
        assert_eq!(size_of_val(x), lanes * self.view.extent * size_of::<T>(), "input");
        assert_eq!(size_of_val(values), lanes * self.k * size_of::<T>(), "values");
        assert_eq!(indices.len(), lanes * self.k, "indices");
        if indices.is_empty() {
            return Ok(());
        }
        let turn = T::Key::turn(self.largest);
        let (way, narrow) = Way::of(self.view, self.k);
        let source = Source::<T> { x: elements(x), view: self.view, k: self.k, turn, narrow };
        let results = Results::new(values, indices);
        let blocks = way.blocks(&source);
        let each = (TOGETHER * blocks / source.x.len()).max(1);
        let lacking = AtomicBool::new(false);
        share(blocks.div_ceil(each) as u64, &|parts| {
            let end = blocks.min(parts.end as usize * each);
            if run_on(way, &source, parts.start as usize * each..end, &results).is_err() {
                lacking.store(true, Ordering::Relaxed);
            }
        });
        let elements = self.k;
        if lacking.into_inner() { Err(HostError::Memory { op: OP, elements }) } else { Ok(()) }
    }
}

/// Elements that a thread takes at a time, about.
const TOGETHER: usize = 1 << 14;

/// Shorter lanes are read many at a time even if they are not neighbours.
const SHORT: usize = 64;

/// How blocks of lanes are computed.
#[derive(Clone, Copy)]
enum Way {
    Ranks,
    Candidates,
    /// As `Candidates`, lane by lane.
    Lane,
    /// The first rank, lane by lane.
    First,
}

impl Way {
    /// And how many neighbours in memory are a block of their own: of few lanes side by side most
    /// of a vector computes for nobody. Reading their elements one by one takes longer than that,
    /// unless it keeps the ranks of whole vectors.
    fn of(view: AxisView, k: usize) -> (Way, usize) {
        let AxisView { extent, inner, .. } = view;
        let is_ranked = ranks::fits(k, extent);
        let is_short = is_ranked && extent < SHORT;
        let narrow = if is_short { WIDE / 2 } else { WIDE / 4 };
        let way = match k {
            _ if is_short || is_ranked && inner >= narrow => Way::Ranks,
            _ if inner >= narrow => Way::Candidates,
            1 => Way::First,
            _ => Way::Lane,
        };
        (way, narrow)
    }

    fn blocks<T: Keyed>(self, source: &Source<'_, T>) -> usize {
        match self {
            Way::Ranks | Way::Candidates => source.blocks::<WIDE>(),
            Way::Lane | Way::First => source.blocks::<1>(),
        }
    }
}

fn run_on<T: Keyed>(
    way: Way,
    source: &Source<'_, T>,
    blocks: Range<usize>,
    results: &Results<'_, T>,
) -> Result<(), HostError> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: this processor has the feature.
        return unsafe { run_avx2(way, source, blocks, results) };
    }
    run_any(way, source, blocks, results)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<T: Keyed>(
    way: Way,
    source: &Source<'_, T>,
    blocks: Range<usize>,
    results: &Results<'_, T>,
) -> Result<(), HostError> {
    run_any(way, source, blocks, results)
}

/// Loops and not closures, for these would not be compiled for the features of the caller.
#[inline(always)]
fn run_any<T: Keyed>(
    way: Way,
    source: &Source<'_, T>,
    blocks: Range<usize>,
    results: &Results<'_, T>,
) -> Result<(), HostError> {
    match way {
        Way::Ranks => {
            for block in blocks {
                ranks::run(source, block, results);
            }
        }
        Way::First => {
            for block in blocks {
                first::run(source, block, results);
            }
        }
        Way::Candidates => {
            let mut all = Candidates::<T::Key, WIDE>::new(source.k, source.view.extent)?;
            for block in blocks {
                all.run(source, block, results);
            }
        }
        Way::Lane => {
            let mut all = Candidates::<T::Key, 1>::new(source.k, source.view.extent)?;
            for block in blocks {
                all.run(source, block, results);
            }
        }
    }
    Ok(())
}

/// Where threads write what they found.
struct Results<'a, T> {
    values: Shared<'a, T>,
    indices: Shared<'a, i64>,
}

impl<'a, T: Element> Results<'a, T> {
    fn new(values: &'a mut [u8], indices: &'a mut [i64]) -> Results<'a, T> {
        let (values, indices) = (Shared::of_bytes(values), Shared::new(indices));
        assert_eq!(values.len(), indices.len(), "results");
        Results { values, indices }
    }

    /// # Safety
    /// Only one thread writes to `at`.
    #[inline(always)]
    unsafe fn put(&self, at: usize, value: T, index: Index) {
        // SAFETY: as this function demands.
        unsafe {
            self.values.put(at, value);
            self.indices.put(at, index.into());
        }
    }
}

#[cfg(test)]
mod tests;
