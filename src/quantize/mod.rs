//! Which nodes of a model compute with fewer bits, so that its outputs stay within a bound.
//!
//! In: a model of `f32`, samples of its inputs, and the error that outputs may have. Out: a
//! precision for each product, and scalings for those that compute with integers of 8 bits. `ansc
//! quantize` writes these into an ONNX file, `ansc compile --precision int8|auto` compiles them.
//!
//! ```text
//! samples --run f32--> ranges, reference outputs
//!         --ladders--> precisions of each product, the fastest first
//!         --compile, run--> error of the outputs;  too large: the worst product takes its next
//!                           precision
//!         --held-back samples--> accepted, or refused with the worst products
//! ```
//!
//! Files: [`range`] chooses ranges, `runner` compiles and runs, `calibrate` looks at all tensors,
//! `ladder` times precisions, `sensitivity` measures what each product costs, `search` goes down
//! the ladders, `refusal` says why nothing was found; [`asked`] reads the options of verbs.

pub mod asked;
mod calibrate;
mod ladder;
mod loss;
pub mod progress;
pub mod range;
mod refusal;
mod runner;
mod search;
mod sensitivity;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ansc_frontend::qdq::{self, Survey};
use ansc_frontend::{ImportOptions, similar};
use ansc_runtime::{DType, Precision, Precisions, Quantization};
use serde::Serialize;

use crate::Error;
pub use crate::samples::Sample;
use calibrate::Calibrated;
use ladder::Ladders;
pub use range::Calibration;
use search::Found;

/// The settings of a calibration, as the caller asks for them.
#[derive(Clone, Debug)]
pub struct Settings {
    pub calibration: Calibration,
    /// Each output channel of a weight has a scale of its own.
    pub per_channel: bool,
    /// `u8` or `i8`.
    pub activations: DType,
    /// Products that stay as they are.
    pub keep: BTreeSet<String>,
    /// The error that outputs may have, relative to the largest element of an output.
    pub max_error: f64,
    /// Products may take floats of 16 bits too, whichever is fastest here.
    pub any_precision: bool,
    /// Measure what each product costs, even if nothing has to be left out.
    pub sensitivity: bool,
}

/// Who wants to know how far it is.
pub trait Watch {
    fn begin(&self, phase: &str, steps: usize);
    fn step(&self);
}

/// The precisions that were decided, and the error that they cost.
#[derive(Clone, Debug)]
pub struct Decision {
    pub precisions: Precisions,
    pub quantization: Quantization,
    pub report: Report,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub calibration: String,
    pub samples: usize,
    pub held_back: usize,
    /// Products by precision.
    pub products: BTreeMap<Precision, usize>,
    /// Nodes that compute with integers, products and others.
    pub integer_nodes: usize,
    /// The error of the outputs on the samples that ranges were chosen with.
    pub error: f64,
    /// On those that were held back; none if there was one sample only.
    pub held_back_error: Option<f64>,
    pub max_error: f64,
    /// The products whose rounding was measured, the worst first.
    pub layers: Vec<LayerLoss>,
}

/// The error that a product costs.
#[derive(Clone, Debug, Serialize)]
pub struct LayerLoss {
    pub node: String,
    /// The one that was decided.
    pub precision: Precision,
    /// The error of the outputs if this product alone rounds what it reads, by precision.
    pub alone: BTreeMap<Precision, f64>,
}

/// Samples to choose with, and samples to judge by.
struct Samples<'a> {
    chosen: Vec<&'a Sample>,
    held_back: Vec<&'a Sample>,
}

impl<'a> Samples<'a> {
    /// Every fourth is held back, at least one of two.
    fn split(all: &'a [Sample]) -> Samples<'a> {
        let is_held = |i: usize| i % 4 == 1;
        let part = |held: bool| {
            let part = all.iter().enumerate().filter(|(i, _)| is_held(*i) == held);
            part.map(|(_, sample)| sample).collect()
        };
        Samples { chosen: part(false), held_back: part(true) }
    }
}

/// A precision for each product.
pub(crate) type Choice = BTreeMap<String, Precision>;

/// A model and all that is known of it.
struct Work<'a> {
    model: &'a Path,
    import: &'a ImportOptions,
    settings: &'a Settings,
    watch: &'a dyn Watch,
    samples: Samples<'a>,
    survey: Survey,
}

/// Decides on precisions.
pub fn decide(
    model: &Path,
    import: &ImportOptions,
    samples: &[Sample],
    settings: &Settings,
    watch: &dyn Watch,
) -> Result<Decision, Error> {
    if samples.is_empty() {
        return Err(Error::Data(
            "there is no sample of the model's inputs to calibrate with".into(),
        ));
    }
    let (survey, samples) = (qdq::survey(model)?, Samples::split(samples));
    let mut work = Work { model, import, settings, watch, samples, survey };
    work.check()?;
    let calibrated = Calibrated::of(&mut work)?;
    let ladders = Ladders::of(&work, &calibrated)?;
    let found = search::search(&work, &calibrated, &ladders)?;
    work.judge(&calibrated, found)
}

impl Work<'_> {
    /// Names of nodes that stay as they are must be those of products.
    fn check(&self) -> Result<(), Error> {
        let names: BTreeSet<&str> = self.survey.products().map(|c| c.name.as_str()).collect();
        if names.is_empty() {
            let reason =
                "has no Conv, ConvTranspose, Gemm or MatMul that could compute with integers";
            return Err(Error::file(self.model, reason));
        }
        let unknown = self.settings.keep.iter().find(|name| !names.contains(name.as_str()));
        let Some(name) = unknown else { return Ok(()) };
        let near = similar(name, names.iter().copied());
        let few: Vec<String> = match near.is_empty() {
            true => names.iter().take(3).map(|n| format!("`{n}`")).collect(),
            false => near.iter().map(|n| format!("`{n}`")).collect(),
        };
        let reason = format!(
            "has no convolution or matrix product `{name}` to keep as it is; such are {}",
            few.join(", ")
        );
        Err(Error::file(self.model, reason))
    }

    /// Scalings for a choice of precisions.
    fn quantization(&self, calibrated: &Calibrated, choice: &Choice) -> Quantization {
        let integers = choice.iter().filter(|(_, p)| **p == Precision::Int8);
        let chosen = self.survey.chosen(&integers.map(|(name, _)| name.clone()).collect());
        let scaling =
            |(name, origin): (String, String)| Some((name, *calibrated.scalings.get(&origin)?));
        let tensors = chosen.tensors.into_iter().filter_map(scaling).collect();
        Quantization { tensors, nodes: chosen.nodes, per_channel: self.settings.per_channel }
    }

    /// Accepts what was found if samples that it was not chosen with say so too.
    fn judge(&self, calibrated: &Calibrated, mut found: Found) -> Result<Decision, Error> {
        let held_back_error = match &self.samples.held_back[..] {
            [] => None,
            held => Some(found.judged(self, calibrated, held)?),
        };
        let is_beyond = |error: f64| error > self.settings.max_error;
        let integers = found.choice.values().any(|p| *p == Precision::Int8);
        let useless = !integers && !self.settings.any_precision;
        if is_beyond(found.error) || held_back_error.is_some_and(is_beyond) || useless {
            found.sensitivities(self, calibrated)?;
            return Err(refusal::refusal(self, &found, held_back_error));
        }
        if self.settings.sensitivity {
            found.sensitivities(self, calibrated)?;
        }
        let quantization = self.quantization(calibrated, &found.choice);
        let report = self.report(&found, held_back_error, &quantization);
        Ok(Decision { precisions: precisions(&found.choice), quantization, report })
    }

    fn report(
        &self,
        found: &Found,
        held_back_error: Option<f64>,
        quantization: &Quantization,
    ) -> Report {
        let mut products = BTreeMap::new();
        found.choice.values().for_each(|p| *products.entry(*p).or_default() += 1);
        Report {
            calibration: self.settings.calibration.to_string(),
            samples: self.samples.chosen.len(),
            held_back: self.samples.held_back.len(),
            products,
            integer_nodes: quantization.nodes.len(),
            error: found.error,
            held_back_error,
            max_error: self.settings.max_error,
            layers: found.layers(),
        }
    }
}

/// The precision of most products, and those of the others by name.
fn precisions(choice: &Choice) -> Precisions {
    let count = |precision: Precision| choice.values().filter(|p| **p == precision).count();
    let model = Precision::ALL.into_iter().max_by_key(|p| count(*p)).unwrap_or_default();
    let others = choice.iter().filter(|(_, precision)| **precision != model);
    Precisions { model, nodes: others.map(|(name, p)| (name.clone(), *p)).collect() }
}
