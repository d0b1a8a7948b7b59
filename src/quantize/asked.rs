//! The precisions that the options of a verb ask for, calibrated if they need to be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ansc_frontend::ImportOptions;
use ansc_runtime::Precisions;

use super::progress::Bar;
use super::{Report, Settings, decide};
use crate::pipeline::Options;
use crate::{Error, samples};

/// The precisions of a model's products.
#[derive(Clone, Debug)]
pub struct Asked {
    /// That of the model, and those of nodes with one of their own.
    pub precisions: Precisions,
    /// A precision of the model that samples decide on.
    pub calibrated: Option<Calibrated>,
    /// The folder of samples.
    pub samples: Option<PathBuf>,
    pub settings: Settings,
}

/// The choice that samples decide on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calibrated {
    Int8,
    /// The fastest precision for each node.
    Auto,
}

/// Sets the precision of a compilation. With `int8` and `auto` it is decided here, by samples.
pub fn apply(model: &Path, asked: &Asked, options: &mut Options) -> Result<Option<Report>, Error> {
    options.precision = asked.precisions.clone();
    let Some(calibrated) = asked.calibrated else {
        return match &asked.samples {
            None => Ok(None),
            Some(_) => Err(Error::Usage(
                "`--input-dir` holds samples to calibrate with: add `--precision int8` or `auto`"
                    .into(),
            )),
        };
    };
    let Some(folder) = &asked.samples else {
        let name = if calibrated == Calibrated::Auto { "auto" } else { "int8" };
        return Err(Error::Usage(format!(
            "`--precision {name}` is calibrated with samples of the model's inputs: add \
             `--input-dir DIR`, a folder of NAME.npz or of folders with NAME.npy"
        )));
    };
    let samples = samples::read(model, folder)?;
    // Shapes are those of the samples.
    let import = ImportOptions {
        shapes: Default::default(),
        dims: Default::default(),
        ..options.import.clone()
    };
    let decision = decide(model, &import, &samples, &asked.settings, &Bar::new())?;
    options.precision = decision.precisions;
    options.precision.nodes.extend(asked.precisions.nodes.clone());
    options.calibrated = true;
    options.import.quantization =
        Some(Arc::new(decision.quantization)).filter(|q| !q.nodes.is_empty());
    Ok(Some(decision.report))
}
