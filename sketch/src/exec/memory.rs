//! The buffers of a running program: elements, and which of them hold a value.

use ansc_graph::{Scalar, TensorType};
use ansc_runtime::{DType, Tensor};
use half::{bf16, f16};

pub(super) struct Memory {
    pub(super) ty: TensorType,
    /// `None` where nothing was written.
    cells: Vec<Option<Scalar>>,
}

impl Memory {
    /// A memory of zeros, which may be read if `written` holds. `None` if it is too large.
    pub(super) fn zeros(ty: &TensorType, written: bool) -> Option<Memory> {
        let len = ty.shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent))?;
        let mut cells = vec![];
        cells.try_reserve_exact(len).ok()?;
        cells.resize(len, written.then(|| Scalar::zero(ty.dtype)));
        Some(Memory { ty: ty.clone(), cells })
    }

    /// The elements of a tensor, in a shape with as many.
    pub(super) fn holding(tensor: &Tensor, ty: &TensorType) -> Memory {
        let cells = (0..tensor.len()).map(|at| Some(Scalar::at(tensor, at))).collect();
        Memory { ty: ty.clone(), cells }
    }

    pub(super) fn forget(&mut self) {
        self.cells.fill(None);
    }

    /// `None` where nothing was written.
    #[inline]
    pub(super) fn get(&self, offset: usize) -> Option<Scalar> {
        self.cells[offset]
    }

    #[inline]
    pub(super) fn set(&mut self, offset: usize, value: Scalar) {
        let dtype = self.ty.dtype;
        let kept = match value.dtype() {
            same if same == dtype => value,
            _ if dtype == DType::Bool => Scalar::bool(!value.is_zero()),
            _ if dtype.is_float() => Scalar::from_f64(dtype, value.as_f64()),
            _ => Scalar::from_i64(dtype, value.as_i64()),
        };
        self.cells[offset] = Some(kept);
    }

    /// `None` if an element is missing.
    pub(super) fn tensor(&self) -> Option<Tensor> {
        let mut tensor = Tensor::zeros(self.ty.dtype, &self.ty.shape);
        for (at, cell) in self.cells.iter().enumerate() {
            store(&mut tensor, at, (*cell)?);
        }
        Some(tensor)
    }
}

fn store(tensor: &mut Tensor, at: usize, value: Scalar) {
    let (float, int) = (value.as_f64(), value.as_i64());
    match tensor.dtype() {
        DType::Bool => tensor.as_mut_slice::<bool>()[at] = !value.is_zero(),
        DType::U8 => tensor.as_mut_slice::<u8>()[at] = int as u8,
        DType::U16 => tensor.as_mut_slice::<u16>()[at] = int as u16,
        DType::U32 => tensor.as_mut_slice::<u32>()[at] = int as u32,
        DType::U64 => tensor.as_mut_slice::<u64>()[at] = int as u64,
        DType::I8 => tensor.as_mut_slice::<i8>()[at] = int as i8,
        DType::I16 => tensor.as_mut_slice::<i16>()[at] = int as i16,
        DType::I32 => tensor.as_mut_slice::<i32>()[at] = int as i32,
        DType::I64 => tensor.as_mut_slice::<i64>()[at] = int,
        DType::F16 => tensor.as_mut_slice::<f16>()[at] = f16::from_f64(float),
        DType::BF16 => tensor.as_mut_slice::<bf16>()[at] = bf16::from_f64(float),
        DType::F32 => tensor.as_mut_slice::<f32>()[at] = float as f32,
        DType::F64 => tensor.as_mut_slice::<f64>()[at] = float,
    }
}
