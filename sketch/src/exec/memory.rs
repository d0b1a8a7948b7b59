//! The buffers of a running program: elements, and which of them hold a value.

use ansc_graph::{Scalar, TensorType};
use ansc_runtime::{DType, Tensor};
use half::{bf16, f16};

pub(super) struct Memory {
    pub(super) tensor: Tensor,
    written: Vec<bool>,
}

impl Memory {
    /// Of zeros, which are there to be read if `written` holds.
    pub(super) fn zeros(ty: &TensorType, written: bool) -> Option<Memory> {
        let tensor = Tensor::try_zeros(ty.dtype, &ty.shape).ok()?;
        Some(Memory { written: vec![written; tensor.len()], tensor })
    }

    pub(super) fn holding(tensor: Tensor) -> Memory {
        Memory { written: vec![true; tensor.len()], tensor }
    }

    pub(super) fn forget(&mut self) {
        self.written.fill(false);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.written.iter().all(|&w| w)
    }

    /// `None` where nothing was written.
    pub(super) fn get(&self, offset: usize) -> Option<Scalar> {
        self.written[offset].then(|| element(&self.tensor, offset))
    }

    pub(super) fn set(&mut self, offset: usize, value: Scalar) {
        self.written[offset] = true;
        store(&mut self.tensor, offset, value);
    }
}

fn element(tensor: &Tensor, i: usize) -> Scalar {
    let dtype = tensor.dtype();
    let float = |v: f64| Scalar::from_f64(dtype, v);
    let int = |v: i64| Scalar::from_i64(dtype, v);
    match dtype {
        DType::Bool => Scalar::bool(tensor.as_slice::<bool>()[i]),
        DType::U8 => int(tensor.as_slice::<u8>()[i].into()),
        DType::U16 => int(tensor.as_slice::<u16>()[i].into()),
        DType::U32 => int(tensor.as_slice::<u32>()[i].into()),
        DType::U64 => int(tensor.as_slice::<u64>()[i] as i64),
        DType::I8 => int(tensor.as_slice::<i8>()[i].into()),
        DType::I16 => int(tensor.as_slice::<i16>()[i].into()),
        DType::I32 => int(tensor.as_slice::<i32>()[i].into()),
        DType::I64 => int(tensor.as_slice::<i64>()[i]),
        DType::F16 => float(tensor.as_slice::<f16>()[i].to_f64()),
        DType::BF16 => float(tensor.as_slice::<bf16>()[i].to_f64()),
        DType::F32 => float(tensor.as_slice::<f32>()[i].into()),
        DType::F64 => float(tensor.as_slice::<f64>()[i]),
    }
}

fn store(tensor: &mut Tensor, i: usize, value: Scalar) {
    let (float, int) = (value.as_f64(), value.as_i64());
    match tensor.dtype() {
        DType::Bool => tensor.as_mut_slice::<bool>()[i] = !value.is_zero(),
        DType::U8 => tensor.as_mut_slice::<u8>()[i] = int as u8,
        DType::U16 => tensor.as_mut_slice::<u16>()[i] = int as u16,
        DType::U32 => tensor.as_mut_slice::<u32>()[i] = int as u32,
        DType::U64 => tensor.as_mut_slice::<u64>()[i] = int as u64,
        DType::I8 => tensor.as_mut_slice::<i8>()[i] = int as i8,
        DType::I16 => tensor.as_mut_slice::<i16>()[i] = int as i16,
        DType::I32 => tensor.as_mut_slice::<i32>()[i] = int as i32,
        DType::I64 => tensor.as_mut_slice::<i64>()[i] = int,
        DType::F16 => tensor.as_mut_slice::<f16>()[i] = f16::from_f64(float),
        DType::BF16 => tensor.as_mut_slice::<bf16>()[i] = bf16::from_f64(float),
        DType::F32 => tensor.as_mut_slice::<f32>()[i] = float as f32,
        DType::F64 => tensor.as_mut_slice::<f64>()[i] = float,
    }
}
