//! Made-up inputs for measuring and comparing: seeded, finite, and in the range where networks
//! work.

use ansc_runtime::host::HostOp;
use ansc_runtime::manifest::{BufferId, Port, Specialisation, Step};
use ansc_runtime::tensor::TensorError;
use ansc_runtime::{DType, Element, Model, Tensor};
use half::{bf16, f16};

#[derive(Clone, Copy, Debug)]
pub struct Seed(pub u64);

/// One tensor for each input of the first specialisation.
pub fn for_model(model: &Model, seed: Seed) -> Result<Vec<(String, Tensor)>, TensorError> {
    for_specialisation(model, &model.specialisations()[0], seed)
}

/// One tensor for each input; inputs whose value was fixed when compiling get that value.
pub fn for_specialisation(
    model: &Model,
    specialisation: &Specialisation,
    seed: Seed,
) -> Result<Vec<(String, Tensor)>, TensorError> {
    let ports = specialisation.inputs.iter().enumerate();
    ports
        .map(|(i, port)| {
            let seed = Seed(seed.0 ^ (i as u64) << 32);
            let tensor = match model.bound_value(i) {
                Some(bound) => bound,
                None if has_an_only_index(specialisation, port) => {
                    Tensor::try_zeros(port.dtype, &port.shape)?
                }
                None => for_port(port, seed)?,
            };
            Ok((port.name.clone(), tensor))
        })
        .collect()
}

/// Whether the port's integers are indices of an axis of one element.
fn has_an_only_index(specialisation: &Specialisation, port: &Port) -> bool {
    let storage = |id: BufferId| specialisation.buffers[id.0 as usize].storage;
    let mut found = false;
    specialisation.plan.visit(&mut |step| {
        if let Step::Host { call: HostOp::CheckIndices { extents }, inputs, .. } = step {
            let is_port = inputs.iter().any(|id| storage(*id) == storage(port.buffer));
            found |= is_port && extents.contains(&1);
        }
    });
    found
}

/// Floats are uniform in -1..1; integers are 0 or 1, which every table of embeddings has.
pub fn for_port(port: &Port, seed: Seed) -> Result<Tensor, TensorError> {
    let mut random = SplitMix(seed.0);
    let mut tensor = Tensor::try_zeros(port.dtype, &port.shape)?;
    let mut uniform = || (random.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    match port.dtype {
        DType::F32 => fill(&mut tensor, || uniform() as f32),
        DType::F64 => fill(&mut tensor, uniform),
        DType::F16 => fill(&mut tensor, || f16::from_f64(uniform())),
        DType::BF16 => fill(&mut tensor, || bf16::from_f64(uniform())),
        dtype => {
            // Little endian: the first byte of an element is its lowest.
            for element in tensor.bytes_mut().chunks_mut(dtype.size()) {
                element[0] = (random.next() & 1) as u8;
            }
        }
    }
    Ok(tensor)
}

fn fill<T: Element>(tensor: &mut Tensor, mut next: impl FnMut() -> T) {
    tensor.as_mut_slice::<T>().fill_with(&mut next);
}

/// Steele, Lea and Flood's generator: one addition and three multiplications a number.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
