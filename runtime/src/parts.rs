//! The parts of a loaded model: its manifest, programs, functions and weights.

use std::sync::Arc;

use libloading::os::unix::Library;
use memmap2::Mmap;

use crate::artifact::Artifact;
use crate::cuda::Code;
use crate::exec::Kernel;
use crate::manifest::{BufferId, Manifest, Specialisation, State, Storage};
use crate::program::Program;
use crate::tensor::byte_len;
use crate::validate::bytes_of;

/// The parts that all clones of a model, and their sessions, share.
pub(crate) struct Parts {
    pub(crate) manifest: Manifest,
    /// One for each specialisation of the manifest.
    pub(crate) programs: Vec<Program>,
    /// As in the manifest.
    pub(crate) kernels: Vec<Kernel>,
    /// Keeps the functions of `kernels` mapped. Dropped before the file: while the library is
    /// loaded, no other file may get the descriptor's number, by which the linker knows it.
    pub(crate) _library: Option<Library>,
    /// Kernels and weights on a GPU, in place of `kernels`, if that is what the artifact is for.
    pub(crate) gpu: Option<Arc<Code>>,
    /// The constants that `manifest.preparation` made.
    pub(crate) prepared: Option<Mmap>,
    pub(crate) artifact: Artifact,
}

impl Parts {
    /// The first specialisation. All have the same inputs, outputs and states but for shapes.
    pub(crate) fn first(&self) -> &Specialisation {
        &self.manifest.specialisations[0]
    }

    /// The bytes of all states.
    pub(crate) fn state_bytes(&self) -> usize {
        let states = self.first().states.iter();
        let bytes = |state: &State| byte_len(state.input.dtype, &state.input.shape).unwrap_or(0);
        states.map(bytes).fold(0, usize::saturating_add)
    }

    /// The bytes of a buffer of a specialisation that is a weight.
    pub(crate) fn weight(&self, specialisation: usize, id: BufferId) -> &[u8] {
        let buffer = &self.manifest.specialisations[specialisation].buffers[id.0 as usize];
        match buffer.storage {
            Storage::Weight { offset } => &self.artifact.weights()[offset..][..bytes_of(buffer)],
            _ => &[],
        }
    }
}
