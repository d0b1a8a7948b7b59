//! A loaded model: what all its sessions share. It is cheap to clone, and never changes.

use std::fmt;
use std::sync::Arc;

use crate::manifest::{Manifest, Port, Specialisation};
use crate::parts::Parts;
use crate::run_error::RunError;
use crate::select::Held;
use crate::tensor::Tensor;

/// A compiled model, loaded and ready; see [`Model::load`].
///
/// Clones share everything. Sessions keep the model alive.
#[derive(Clone)]
pub struct Model {
    parts: Arc<Parts>,
}

impl Model {
    pub(crate) fn from_parts(parts: Parts) -> Model {
        Model { parts: Arc::new(parts) }
    }

    pub(crate) fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    /// The inputs, in the model's order, with the shapes of the first specialisation; the largest
    /// ones, where that has sizes to choose.
    pub fn inputs(&self) -> &[Port] {
        &self.specialisations()[0].inputs
    }

    /// The outputs, in the model's order, with shapes as [`Model::inputs`].
    pub fn outputs(&self) -> &[Port] {
        &self.specialisations()[0].outputs
    }

    /// The shapes that the model was compiled for; never empty. A session runs the one that its
    /// inputs fit.
    pub fn specialisations(&self) -> &[Specialisation] {
        &self.parts.manifest.specialisations
    }

    /// The specialisation that takes inputs of these shapes: the first one without sizes to choose
    /// that does, or else the first one with them. Inputs that are not named may have any shape.
    pub fn specialisation(&self, inputs: &[(&str, &[usize])]) -> Result<&Specialisation, RunError> {
        let choice = self.parts.choose(inputs, Held::Anything)?;
        Ok(&self.specialisations()[choice.specialisation])
    }

    /// The shapes that inputs of these shapes give outputs, in the model's order. Where the data
    /// decides too, they are the largest ones. Inputs may be left out that tell no size.
    /// Where states of a session tell one, ask
    /// [`Session::output_shapes`](crate::Session::output_shapes).
    ///
    /// ```no_run
    /// # use ansc_runtime::Model;
    /// let model = Model::load("tagger.ansc")?;
    /// let shapes = model.output_shapes(&[("tokens", &[1, 17])])?;
    /// let mut tags = vec![0f32; shapes[0].iter().product()];
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn output_shapes(&self, inputs: &[(&str, &[usize])]) -> Result<Vec<Vec<usize>>, RunError> {
        self.parts.output_shapes(inputs, Held::Anything)
    }

    /// Everything that the artifact says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.parts.manifest
    }

    /// The value that an input was fixed to when the model was compiled; `None` for an input that
    /// is free.
    pub fn bound_value(&self, input: usize) -> Option<Tensor> {
        let specialisation = &self.specialisations()[0];
        let id = specialisation.inputs.get(input)?.bound?;
        let info = &specialisation.buffers[id.0 as usize];
        Tensor::from_bytes(info.dtype, &info.shape, self.parts.weight(0, id)).ok()
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
