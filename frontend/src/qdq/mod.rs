//! A model with integers of 8 bits, as pairs of `QuantizeLinear` and `DequantizeLinear`.
//!
//! In: a model of `f32`, and a [`Quantization`] that says which nodes compute with integers. Out:
//! the model in the form that ONNX Runtime calls QDQ, in which every engine finds the integers.
//!
//! ```text
//! x -> Conv(w: f32, b: f32) -> Relu -> y
//! ->  x -> Quantize -> Dequantize -> Conv(Dequantize(w: i8), Dequantize(b: i32)) -> Relu -> y
//! ```
//!
//! Files: `draft` is a model that is being rewritten, `batch_norm` folds what stands between a
//! convolution and its integers, `survey` finds nodes that can compute with integers, `integers`
//! quantises constants, `pairs` puts pairs around tensors, and `switches` lets one compiled model
//! compute each product with the operands of any precision.

mod batch_norm;
mod draft;
mod integers;
mod pairs;
mod survey;
mod switches;

use std::path::Path;

use ansc_runtime::Quantization;
use prost::Message;
use tract_onnx::pb::ModelProto;

use crate::external::External;
use crate::problem::{ImportError, Problem};
use crate::read::{self, Model};
use draft::Draft;

pub use survey::{Candidate, Chosen, Role, Survey};
pub use switches::{Alternative, Switch, Switches};

/// The nodes of the model in a file that can compute with integers.
pub fn survey(path: &Path) -> Result<Survey, ImportError> {
    at(path, |draft| Survey::of(&draft))
}

/// Writes the quantised model; its constants lie inside the file.
pub fn write(path: &Path, how: &Quantization, output: &Path) -> Result<(), ImportError> {
    at(path, |mut draft| {
        pairs::insert(&mut draft, how)?;
        draft.embed()?;
        save(&draft.finish(), output)
    })
}

/// Writes a model of floats with an input for each switch: see `switches`.
pub fn write_switched(path: &Path, how: &Switches, output: &Path) -> Result<(), ImportError> {
    at(path, |mut draft| {
        switches::insert(&mut draft, how)?;
        draft.embed()?;
        save(&draft.finish(), output)
    })
}

/// The quantised model, to be imported.
pub(crate) fn quantized(
    model: &Model,
    directory: Option<&Path>,
    how: &Quantization,
) -> Result<ModelProto, Problem> {
    let mut draft = Draft::new(model, External::beside(directory))?;
    pairs::insert(&mut draft, how)?;
    Ok(draft.finish())
}

fn at<T>(path: &Path, work: impl FnOnce(Draft) -> Result<T, Problem>) -> Result<T, ImportError> {
    let read = read::file(path);
    let draft = read.and_then(|model| Draft::new(&model, External::beside(path.parent())));
    draft
        .and_then(work)
        .map_err(|p| ImportError { file: path.display().to_string(), problems: vec![p] })
}

/// Protobuf cannot hold more.
const MAX_FILE_BYTES: usize = (1 << 31) - 1;

fn save(model: &ModelProto, output: &Path) -> Result<(), Problem> {
    let bytes = model.encoded_len();
    if bytes > MAX_FILE_BYTES {
        let reason =
            format!("the quantised model has {bytes} bytes; an ONNX file has 2 GiB at most");
        return Err(Problem::new(reason).remedy("quantise parts of the model, or keep fewer nodes"));
    }
    let failed =
        |e: std::io::Error| Problem::new(format!("{} cannot be written: {e}", output.display()));
    std::fs::write(output, model.encode_to_vec()).map_err(failed)
}
