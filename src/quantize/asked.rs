//! The precisions that the options of a verb ask for, calibrated if they need to be.

use std::path::Path;
use std::sync::Arc;

use ansc_frontend::ImportOptions;
use ansc_runtime::Precision;

use super::progress::Bar;
use super::{Report, Settings, decide};
use crate::cli::{Accuracy, Calibrate, Wanted};
use crate::pipeline::Options;
use crate::{Error, precision, samples};

impl Calibrate {
    pub fn settings(&self) -> Settings {
        Settings {
            calibration: self.calibration,
            per_channel: self.per_channel,
            activations: self.activations.into(),
            keep: Default::default(),
            max_error: self.max_error.unwrap_or_else(|| precision::tolerance(Precision::Int8)),
            any_precision: false,
            sensitivity: false,
        }
    }
}

/// Sets the precision of a compilation. With `int8` and `auto` it is decided here, by samples.
pub fn apply(
    model: &Path,
    accuracy: &Accuracy,
    options: &mut Options,
) -> Result<Option<Report>, Error> {
    options.precision = accuracy.precision()?;
    let calibrate = &accuracy.calibrate;
    let wanted = accuracy.wanted();
    if wanted.is_none() {
        return match &calibrate.input_dir {
            None => Ok(None),
            Some(_) => Err(Error::Usage(
                "`--input-dir` holds samples to calibrate with: add `--precision int8` or `auto`"
                    .into(),
            )),
        };
    }
    let Some(folder) = &calibrate.input_dir else {
        let name = if wanted == Some(Wanted::Auto) { "auto" } else { "int8" };
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
    let settings = Settings {
        keep: accuracy.kept(),
        any_precision: wanted == Some(Wanted::Auto),
        ..calibrate.settings()
    };
    let decision = decide(model, &import, &samples, &settings, &Bar::new())?;
    let asked = std::mem::take(&mut options.precision.nodes);
    options.precision = decision.precisions;
    options.precision.nodes.extend(asked);
    options.calibrated = true;
    options.import.quantization =
        Some(Arc::new(decision.quantization)).filter(|q| !q.nodes.is_empty());
    Ok(Some(decision.report))
}
