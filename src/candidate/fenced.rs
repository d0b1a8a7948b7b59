//! One run of an artifact between fences: a kernel that writes beside its outputs, or over its
//! inputs, is found out.
//!
//! ```text
//! | fence | output | fence |      one byte of a fence that changed is enough
//! ```
//! Memory farther away is not mapped, or belongs to the worker, which a wild write takes down with
//! it.

use ansc_runtime::{DType, Session, Tensor, View, ViewMut};

use crate::Error;

/// Bytes before and after each output.
const FENCE: usize = 4096;
/// Neither zero nor a float that a kernel is likely to write.
const POST: u8 = 0xa5;

/// The outputs of the artifact for `inputs`. The program may have collapsed axes of the inputs, but
/// their elements lie in memory as before.
pub(super) fn outputs(session: &mut Session, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
    let given: Vec<(String, Vec<usize>)> =
        session.inputs().iter().map(|p| (p.name.clone(), p.shape.clone())).collect();
    let ports: Vec<(String, DType, Vec<usize>)> =
        session.outputs().iter().map(|p| (p.name.clone(), p.dtype, p.shape.clone())).collect();
    let mut memory: Vec<Tensor> = ports.iter().map(|(_, ty, shape)| fenced(*ty, shape)).collect();
    let before = inputs.to_vec();
    let mut views: Vec<(&str, View<'_>)> = vec![];
    for ((name, shape), tensor) in given.iter().zip(inputs) {
        views.push((name.as_str(), View::new(tensor.dtype(), shape, tensor.bytes())?));
    }
    let mut targets = vec![];
    for ((name, dtype, shape), memory) in ports.iter().zip(&mut memory) {
        let inside = FENCE..memory.len() - FENCE;
        let view = ViewMut::new(*dtype, shape, &mut memory.bytes_mut()[inside])?;
        targets.push((name.as_str(), view));
    }
    session.run_into(&views, &mut targets)?;
    if before.iter().zip(inputs).any(|(a, b)| a.bytes() != b.bytes()) {
        return Err(Error::Mismatch("the kernel writes over its inputs".into()));
    }
    ports
        .iter()
        .zip(&memory)
        .map(|((_, ty, shape), memory)| taken_out(*ty, shape, memory))
        .collect()
}

/// Memory for a tensor with its fences.
fn fenced(dtype: DType, shape: &[usize]) -> Tensor {
    let bytes = Tensor::zeros(dtype, shape).bytes().len();
    let mut memory = Tensor::zeros(DType::U8, &[bytes + 2 * FENCE]);
    memory.bytes_mut()[..FENCE].fill(POST);
    memory.bytes_mut()[FENCE + bytes..].fill(POST);
    memory
}

fn taken_out(dtype: DType, shape: &[usize], memory: &Tensor) -> Result<Tensor, Error> {
    let bytes = memory.bytes();
    let (front, rest) = bytes.split_at(FENCE);
    let (inside, back) = rest.split_at(rest.len() - FENCE);
    if front.iter().chain(back).any(|b| *b != POST) {
        return Err(Error::Mismatch("the kernel writes beside its outputs".into()));
    }
    Ok(Tensor::from_bytes(dtype, shape, inside)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_beside_is_seen() {
        let mut memory = fenced(DType::F32, &[3]);
        assert_eq!(memory.len(), 2 * FENCE + 12);
        memory.bytes_mut()[FENCE..FENCE + 4].copy_from_slice(&1f32.to_le_bytes());
        let tensor = taken_out(DType::F32, &[3], &memory).unwrap();
        assert_eq!(tensor.as_slice::<f32>(), [1.0, 0.0, 0.0]);
        for at in [FENCE - 1, FENCE + 12] {
            let mut memory = memory.clone();
            memory.bytes_mut()[at] = 0;
            assert!(taken_out(DType::F32, &[3], &memory).is_err(), "{at}");
        }
    }
}
