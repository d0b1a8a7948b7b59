//! Dense tensors in host memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::dtype::{DType, Element};

/// Alignment of tensor data: a cache line, and the widest vector register.
pub const ALIGN: usize = 64;

/// A dense row-major tensor that owns its elements.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: AlignedBytes,
}

/// Why bytes could not become a tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The number of bytes does not fit an address.
    #[error("shape {shape:?} has more elements than this machine can address")]
    TooLarge {
        /// The shape that was asked for.
        shape: Vec<usize>,
    },
    /// The data is not as long as type and shape say.
    #[error("{dtype} {shape:?} needs {expected} bytes, but {found} were given")]
    WrongLength {
        /// The type of the elements.
        dtype: DType,
        /// The shape that was asked for.
        shape: Vec<usize>,
        /// Bytes that type and shape need.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// A byte of a tensor of `Bool` is neither 0 nor 1.
    #[error("a bool must be 0 or 1, but byte {index} is {value}")]
    NotABool {
        /// Which element it is, in row-major order.
        index: usize,
        /// The byte.
        value: u8,
    },
    /// The system gave no memory.
    #[error("there is no memory for {dtype} {shape:?}, which needs {bytes} bytes")]
    NoMemory {
        /// The type of the elements.
        dtype: DType,
        /// The shape that was asked for.
        shape: Vec<usize>,
        /// Bytes that it needs.
        bytes: usize,
    },
}

/// Bytes of a dense tensor, or `None` where the product overflows.
pub fn byte_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    elements.checked_mul(dtype.size()).filter(|&bytes| bytes <= isize::MAX as usize - ALIGN)
}

/// The error if there is no memory for a tensor of this type and shape, which fits the address
/// space.
pub(crate) fn no_memory(dtype: DType, shape: &[usize]) -> TensorError {
    let bytes = byte_len(dtype, shape).unwrap_or(usize::MAX);
    TensorError::NoMemory { dtype, shape: shape.to_vec(), bytes }
}

/// For callers that promised to give a tensor: without memory the process ends, as with `Vec`.
fn or_end(data: Option<AlignedBytes>, bytes: usize) -> AlignedBytes {
    data.unwrap_or_else(|| handle_alloc_error(AlignedBytes::layout(bytes)))
}

/// That all bytes are valid elements of `Bool`.
pub(crate) fn check_bools(bytes: &[u8]) -> Result<(), TensorError> {
    match bytes.iter().enumerate().find(|(_, b)| **b > 1) {
        Some((index, &value)) => Err(TensorError::NotABool { index, value }),
        None => Ok(()),
    }
}

impl Tensor {
    /// A tensor of zeros.
    ///
    /// # Panics
    /// If the shape overflows the address space. Without memory the process ends; use
    /// [`Tensor::try_zeros`] for shapes that somebody else chose.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Tensor {
        let bytes = byte_len(dtype, shape).expect("shape fits the address space");
        Tensor { dtype, shape: shape.to_vec(), data: or_end(AlignedBytes::zeroed(bytes), bytes) }
    }

    /// A tensor of zeros, or an error if the shape is too large or there is no memory.
    pub fn try_zeros(dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let bytes = byte_len(dtype, shape)
            .ok_or_else(|| TensorError::TooLarge { shape: shape.to_vec() })?;
        let data = AlignedBytes::zeroed(bytes).ok_or_else(|| no_memory(dtype, shape))?;
        Ok(Tensor { dtype, shape: shape.to_vec(), data })
    }

    /// As `clone`, which ends the process if there is no memory.
    pub fn try_clone(&self) -> Result<Tensor, TensorError> {
        let lacking = || no_memory(self.dtype, &self.shape);
        let data = AlignedBytes::copy_of(&self.data).ok_or_else(lacking)?;
        Ok(Tensor { dtype: self.dtype, shape: self.shape.clone(), data })
    }

    /// A tensor with a copy of these bytes, which are row-major and in the machine's own byte
    /// order.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Tensor, TensorError> {
        let expected = byte_len(dtype, shape)
            .ok_or_else(|| TensorError::TooLarge { shape: shape.to_vec() })?;
        if expected != bytes.len() {
            return Err(TensorError::WrongLength {
                dtype,
                shape: shape.to_vec(),
                expected,
                found: bytes.len(),
            });
        }
        if dtype == DType::Bool {
            check_bools(bytes)?;
        }
        let data = AlignedBytes::copy_of(bytes).ok_or_else(|| no_memory(dtype, shape))?;
        Ok(Tensor { dtype, shape: shape.to_vec(), data })
    }

    /// # Panics
    /// If `values` does not have as many elements as `shape`.
    pub fn from_slice<T: Element>(shape: &[usize], values: &[T]) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "elements of shape {shape:?}");
        // SAFETY: `T: Element` is plain data; the slice is valid for its size in bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        let data = or_end(AlignedBytes::copy_of(bytes), bytes.len());
        Tensor { dtype: T::DTYPE, shape: shape.to_vec(), data }
    }

    /// A tensor of rank 0 with one element.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::from_slice(&[], &[value])
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its extents, the outermost axis first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of axes; 0 for a scalar.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.size()
    }

    /// Whether an extent is 0, so that there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// All elements in row-major order and the machine's own byte order.
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// The raw bytes; a `Bool` tensor must be left with zeros and ones only.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    pub(crate) fn parts_mut(&mut self) -> (&[usize], &mut [u8]) {
        (&self.shape, &mut self.data)
    }

    /// # Panics
    /// If `T` is not the tensor's element type.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.dtype, "element type of the tensor");
        // SAFETY: dtype equality was just checked, data is aligned to `ALIGN`, and
        // `len * size_of::<T>()` is the length of the allocation.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr().cast::<T>(), self.len()) }
    }

    /// # Panics
    /// If `T` is not the tensor's element type.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(T::DTYPE, self.dtype, "element type of the tensor");
        let len = self.len();
        // SAFETY: as in `as_slice`, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_mut_ptr().cast::<T>(), len) }
    }

    /// The same elements under another shape.
    ///
    /// # Panics
    /// If the number of elements differs.
    #[must_use]
    pub fn reshaped(mut self, shape: &[usize]) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), self.len(), "elements of shape {shape:?}");
        self.shape = shape.to_vec();
        self
    }

    /// The first elements, under a shape that has no more of them.
    pub(crate) fn shrunk(self, shape: &[usize]) -> Result<Tensor, TensorError> {
        if self.shape == shape {
            return Ok(self);
        }
        self.first(shape)
    }

    /// A copy of the first elements, with this shape.
    pub(crate) fn first(&self, shape: &[usize]) -> Result<Tensor, TensorError> {
        let elements: usize = shape.iter().product();
        let (dtype, bytes) = (self.dtype, &self.data[..elements * self.dtype.size()]);
        let data = AlignedBytes::copy_of(bytes).ok_or_else(|| no_memory(dtype, shape))?;
        Ok(Tensor { dtype, shape: shape.to_vec(), data })
    }

    /// Every element as `f64` (lossy for 64-bit integers).
    pub fn to_f64_vec(&self) -> Vec<f64> {
        fn all<T: Element>(tensor: &Tensor, to: impl Fn(T) -> f64) -> Vec<f64> {
            tensor.as_slice::<T>().iter().map(|&v| to(v)).collect()
        }
        match self.dtype {
            DType::Bool => all::<bool>(self, |v| f64::from(u8::from(v))),
            DType::U8 => all::<u8>(self, f64::from),
            DType::U16 => all::<u16>(self, f64::from),
            DType::U32 => all::<u32>(self, f64::from),
            DType::U64 => all::<u64>(self, |v| v as f64),
            DType::I8 => all::<i8>(self, f64::from),
            DType::I16 => all::<i16>(self, f64::from),
            DType::I32 => all::<i32>(self, f64::from),
            DType::I64 => all::<i64>(self, |v| v as f64),
            DType::F16 => all::<half::f16>(self, |v| v.to_f64()),
            DType::BF16 => all::<half::bf16>(self, |v| v.to_f64()),
            DType::F32 => all::<f32>(self, f64::from),
            DType::F64 => all::<f64>(self, |v| v),
        }
    }

    /// Every element as `i64`, if the tensor is of integers or booleans and each of them fits.
    pub fn to_i64_vec(&self) -> Option<Vec<i64>> {
        Some(self.i64_values()?.collect())
    }

    /// The same one after another.
    pub(crate) fn i64_values(&self) -> Option<Box<dyn Iterator<Item = i64> + '_>> {
        fn all<T: Element + TryInto<i64>>(
            tensor: &Tensor,
        ) -> Option<Box<dyn Iterator<Item = i64> + '_>> {
            let values = tensor.as_slice::<T>().iter();
            let fits = |v: &T| TryInto::<i64>::try_into(*v).is_ok();
            let fit = values.clone().all(fits);
            fit.then(|| Box::new(values.map(|&v| v.try_into().unwrap_or_default())) as Box<_>)
        }
        match self.dtype {
            DType::Bool => Some(Box::new(self.data.iter().map(|&b| i64::from(b)))),
            DType::U8 => all::<u8>(self),
            DType::U16 => all::<u16>(self),
            DType::U32 => all::<u32>(self),
            DType::U64 => all::<u64>(self),
            DType::I8 => all::<i8>(self),
            DType::I16 => all::<i16>(self),
            DType::I32 => all::<i32>(self),
            DType::I64 => all::<i64>(self),
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => None,
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}{:?}", self.dtype, self.shape)?;
        if self.len() <= 16 {
            write!(f, " {:?}", self.to_f64_vec())?;
        }
        f.write_str(")")
    }
}

/// Bytes aligned to [`ALIGN`].
struct AlignedBytes {
    ptr: std::ptr::NonNull<u8>,
    len: usize,
}

impl AlignedBytes {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len.max(1), ALIGN).expect("length checked by byte_len")
    }

    /// Nothing if there is no memory.
    fn zeroed(len: usize) -> Option<AlignedBytes> {
        let layout = AlignedBytes::layout(len);
        // SAFETY: the layout has a size of at least one byte.
        let ptr = unsafe { alloc_zeroed(layout) };
        Some(AlignedBytes { ptr: std::ptr::NonNull::new(ptr)?, len })
    }

    fn copy_of(bytes: &[u8]) -> Option<AlignedBytes> {
        let mut copy = AlignedBytes::zeroed(bytes.len())?;
        copy.copy_from_slice(bytes);
        Some(copy)
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout.
        unsafe { dealloc(self.ptr.as_ptr(), AlignedBytes::layout(self.len)) }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` is valid and initialised for `len` bytes.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Clone for AlignedBytes {
    fn clone(&self) -> AlignedBytes {
        or_end(AlignedBytes::copy_of(self), self.len)
    }
}

impl PartialEq for AlignedBytes {
    fn eq(&self, other: &AlignedBytes) -> bool {
        **self == **other
    }
}

// SAFETY: `AlignedBytes` owns its memory like a `Box<[u8]>`.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above; shared access is read-only.
unsafe impl Sync for AlignedBytes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_must_match_the_shape() {
        assert!(Tensor::from_bytes(DType::F32, &[2], &[0; 8]).is_ok());
        assert!(matches!(
            Tensor::from_bytes(DType::F32, &[2], &[0; 7]),
            Err(TensorError::WrongLength { .. })
        ));
        assert!(matches!(
            Tensor::from_bytes(DType::Bool, &[1], &[2]),
            Err(TensorError::NotABool { .. })
        ));
        assert!(matches!(
            Tensor::try_zeros(DType::F64, &[usize::MAX, 2]),
            Err(TensorError::TooLarge { .. })
        ));
    }

    /// An exabyte can be addressed, and is on no machine.
    #[test]
    fn without_memory_there_is_an_error() {
        let error = Tensor::try_zeros(DType::U16, &[1 << 30, 1 << 29]).unwrap_err();
        let lacking = TensorError::NoMemory {
            dtype: DType::U16,
            shape: vec![1 << 30, 1 << 29],
            bytes: 1 << 60,
        };
        assert_eq!(error, lacking);
        assert!(error.to_string().contains("1152921504606846976 bytes"), "{error}");
    }

    #[test]
    fn slices_round_trip() {
        let t = Tensor::from_slice(&[2, 2], &[1i64, 2, 3, 4]);
        assert_eq!(t.as_slice::<i64>(), [1, 2, 3, 4]);
        assert_eq!(t.to_i64_vec().unwrap(), [1, 2, 3, 4]);
        assert_eq!(t.bytes().as_ptr() as usize % ALIGN, 0);
    }
}
