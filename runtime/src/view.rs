//! Tensors in memory that belongs to somebody else: what a session reads and writes without a copy.

use crate::dtype::{DType, Element};
use crate::tensor::{Tensor, TensorError, byte_len, check_bools};

/// A dense row-major tensor in borrowed memory, to read from.
///
/// Any alignment is allowed; what is not aligned to its element is copied once per run.
///
/// ```
/// use ansc_runtime::{DType, View};
///
/// let samples = [1f32, 2.0, 3.0, 4.0];
/// let view = View::of_slice(&[2, 2], &samples)?;
/// assert_eq!((view.dtype(), view.shape()), (DType::F32, &[2, 2][..]));
/// # Ok::<(), ansc_runtime::tensor::TensorError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a [u8],
}

/// A dense row-major tensor in borrowed memory, to write to.
///
/// ```
/// use ansc_runtime::ViewMut;
///
/// let mut scores = [0f32; 1000];
/// let view = ViewMut::of_slice(&[1, 1000], &mut scores)?;
/// # let _ = view;
/// # Ok::<(), ansc_runtime::tensor::TensorError>(())
/// ```
#[derive(Debug)]
pub struct ViewMut<'a> {
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a mut [u8],
}

impl<'a> View<'a> {
    /// The bytes must be exactly those of the type and shape, and a bool 0 or 1.
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a [u8]) -> Result<View<'a>, TensorError> {
        check_len(dtype, shape, bytes.len())?;
        if dtype == DType::Bool {
            check_bools(bytes)?;
        }
        Ok(View { dtype, shape, bytes })
    }

    /// A slice, seen as a tensor.
    pub fn of_slice<T: Element>(
        shape: &'a [usize],
        values: &'a [T],
    ) -> Result<View<'a>, TensorError> {
        check_len(T::DTYPE, shape, size_of_val(values))?;
        // SAFETY: `T: Element` is plain data; the slice is valid for its size in bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        Ok(View { dtype: T::DTYPE, shape, bytes })
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The elements.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> From<&'a Tensor> for View<'a> {
    fn from(tensor: &'a Tensor) -> View<'a> {
        View { dtype: tensor.dtype(), shape: tensor.shape(), bytes: tensor.bytes() }
    }
}

impl<'a> ViewMut<'a> {
    /// The bytes must be exactly those of the type and shape.
    pub fn new(
        dtype: DType,
        shape: &'a [usize],
        bytes: &'a mut [u8],
    ) -> Result<ViewMut<'a>, TensorError> {
        check_len(dtype, shape, bytes.len())?;
        Ok(ViewMut { dtype, shape, bytes })
    }

    /// A slice, seen as a tensor.
    pub fn of_slice<T: Element>(
        shape: &'a [usize],
        values: &'a mut [T],
    ) -> Result<ViewMut<'a>, TensorError> {
        check_len(T::DTYPE, shape, size_of_val(values))?;
        // SAFETY: `T: Element` is plain data, the borrow is unique, and sessions leave only valid
        // elements there.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), size_of_val(values))
        };
        Ok(ViewMut { dtype: T::DTYPE, shape, bytes })
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &[usize] {
        self.shape
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

impl<'a> From<&'a mut Tensor> for ViewMut<'a> {
    fn from(tensor: &'a mut Tensor) -> ViewMut<'a> {
        let dtype = tensor.dtype();
        let (shape, bytes) = tensor.parts_mut();
        ViewMut { dtype, shape, bytes }
    }
}

fn check_len(dtype: DType, shape: &[usize], found: usize) -> Result<(), TensorError> {
    match byte_len(dtype, shape) {
        None => Err(TensorError::TooLarge { shape: shape.to_vec() }),
        Some(expected) if expected != found => {
            Err(TensorError::WrongLength { dtype, shape: shape.to_vec(), expected, found })
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_bools_are_checked() {
        assert!(View::of_slice(&[3], &[1i32, 2]).is_err());
        assert!(ViewMut::of_slice(&[1], &mut [1i32, 2]).is_err());
        assert!(View::new(DType::Bool, &[2], &[1, 2]).is_err());
        assert!(View::new(DType::U8, &[usize::MAX, 2], &[]).is_err());
        assert_eq!(View::of_slice(&[2], &[true, false]).unwrap().bytes(), [1, 0]);
    }

    #[test]
    fn tensors_are_views() {
        let mut tensor = Tensor::from_slice(&[2], &[1u16, 2]);
        assert_eq!(View::from(&tensor).bytes(), tensor.bytes());
        let mut view = ViewMut::from(&mut tensor);
        assert_eq!(view.shape(), [2]);
        view.bytes_mut().fill(0);
        assert_eq!(tensor.as_slice::<u16>(), [0, 0]);
    }
}
