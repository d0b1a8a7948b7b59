//! A loaded model: what all its sessions share. It is cheap to clone, and never changes.

use std::fmt;
use std::sync::Arc;

use libloading::os::unix::Library;

use crate::artifact::Artifact;
use crate::manifest::{KernelFn, Manifest, Port, Storage};
use crate::program::Program;
use crate::session::{Session, SessionError, SessionOptions};
use crate::tensor::{Tensor, byte_len};

/// A compiled model, loaded and ready; see [`Model::load`].
///
/// Clones share everything. Sessions keep the model alive.
#[derive(Clone)]
pub struct Model {
    parts: Arc<Parts>,
}

pub(crate) struct Parts {
    pub(crate) manifest: Manifest,
    pub(crate) program: Program,
    /// As in the manifest.
    pub(crate) kernels: Vec<Kernel>,
    /// Keeps the functions of `kernels` mapped. Dropped before the file: while the library is
    /// loaded, no other file may get the descriptor's number, by which the linker knows it.
    pub(crate) _library: Library,
    pub(crate) artifact: Artifact,
}

pub(crate) struct Kernel {
    pub(crate) launches: Vec<Launch>,
}

pub(crate) struct Launch {
    pub(crate) run: KernelFn,
    pub(crate) extent: u64,
    pub(crate) scratch: usize,
}

impl Model {
    pub(crate) fn from_parts(parts: Parts) -> Model {
        Model { parts: Arc::new(parts) }
    }

    pub(crate) fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    /// The inputs, in the model's order.
    pub fn inputs(&self) -> &[Port] {
        &self.parts.manifest.inputs
    }

    /// The outputs, in the model's order.
    pub fn outputs(&self) -> &[Port] {
        &self.parts.manifest.outputs
    }

    /// Everything that the artifact says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.parts.manifest
    }

    /// The value that an input was fixed to when the model was compiled; `None` for an input that is free.
    pub fn bound_value(&self, input: usize) -> Option<Tensor> {
        let manifest = &self.parts.manifest;
        let port = manifest.inputs.get(input)?;
        let info = &manifest.buffers[port.bound?.0 as usize];
        let Storage::Weight { offset } = info.storage else { return None };
        let bytes = self
            .parts
            .artifact
            .weights()
            .get(offset..)?
            .get(..byte_len(info.dtype, &info.shape)?)?;
        Tensor::from_bytes(info.dtype, &info.shape, bytes).ok()
    }

    /// A session with a thread per available core.
    pub fn session(&self) -> Result<Session, SessionError> {
        self.session_with(&SessionOptions::default())
    }

    /// A session with options.
    pub fn session_with(&self, options: &SessionOptions) -> Result<Session, SessionError> {
        Session::new(self, options)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("name", &self.parts.manifest.model.name)
            .field("inputs", &self.inputs().len())
            .field("outputs", &self.outputs().len())
            .finish_non_exhaustive()
    }
}
