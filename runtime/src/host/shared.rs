//! Memory that several threads write, each in places of its own.

use std::marker::PhantomData;
use std::ops::Range;

use crate::dtype::Element;

pub(super) struct Shared<'a, T> {
    at: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: no two threads use one place at the same time, as all functions demand.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T: Copy> Shared<'a, T> {
    pub(super) fn new(memory: &'a mut [T]) -> Shared<'a, T> {
        Shared { at: memory.as_mut_ptr(), len: memory.len(), memory: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// # Safety
    /// No other thread uses this place meanwhile.
    #[inline(always)]
    pub(super) unsafe fn put(&self, at: usize, value: T) {
        assert!(at < self.len);
        // SAFETY: there are `len` elements, and they are borrowed uniquely as long as `self` lives.
        unsafe { self.at.add(at).write(value) }
    }

    /// # Safety
    /// No other thread writes to this place meanwhile.
    #[inline(always)]
    pub(super) unsafe fn get(&self, at: usize) -> T {
        assert!(at < self.len);
        // SAFETY: as in `put`.
        unsafe { self.at.add(at).read() }
    }

    /// # Safety
    /// Nobody else uses these places as long as the slice lives.
    #[allow(clippy::mut_from_ref, reason = "callers promise that slices do not overlap")]
    pub(super) unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: as in `put`.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(range.start), range.len()) }
    }
}

impl<'a, T: Element> Shared<'a, T> {
    /// Bytes as elements, which are only written, or were elements before.
    ///
    /// # Panics
    /// If the bytes are not aligned to elements, or no whole number of them.
    pub(super) fn of_bytes(bytes: &'a mut [u8]) -> Shared<'a, T> {
        // SAFETY: as this function demands.
        let (before, elements, after) = unsafe { bytes.align_to_mut::<T>() };
        assert!(before.is_empty() && after.is_empty(), "elements are aligned");
        Shared::new(elements)
    }
}
