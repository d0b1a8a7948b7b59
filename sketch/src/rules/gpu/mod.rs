//! Ansor's rules as they are on a GPU.
//!
//! In their order:
//!
//! 1. `inline`: what is no reduction and no result is computed where it is read;
//! 2. `cross_thread`: a reduction with few results is shared by the threads of a block;
//! 3. `cache_write`: a stage with data reuse and no stage to be fused with writes to registers
//!    first;
//! 4. `tiling`: tiles `SSSRRSRS`, of which the first three levels are thread blocks, virtual
//!    threads and threads; the elementwise consumer is computed by the thread, and operands are
//!    read through shared memory (`cache_read`);
//! 5. `skip`.
//!
//! Loops are bound by the trace where a rule says so; what is left, and the threads that copy to
//! shared memory together, is bound by the [postprocessor](crate::postprocess).

mod cache_read;
mod cache_write;
mod cross_thread;
mod inline;
pub(crate) mod mma;
#[cfg(test)]
mod tests;
mod tiling;

use super::skip::SkipStage;
use super::{Space, with_registered};
use crate::gpu::GpuLimits;

impl Space {
    /// Ansor's rules for GPUs.
    pub fn gpu(limits: GpuLimits) -> Space {
        let rules = with_registered(vec![
            Box::new(inline::AlwaysInline),
            Box::new(cross_thread::CrossThreadReduction),
            Box::new(cache_write::AddCacheWrite),
            Box::new(tiling::Tiling),
            Box::new(SkipStage),
        ]);
        Space {
            cores: 1,
            structure: "SSSRRSRS".into(),
            max_innermost: 64,
            near_tiles: false,
            unroll_steps: vec![0, 16, 64, 512, 1024],
            vector_registers: vec![],
            gpu: Some(limits),
            rules,
        }
    }
}
