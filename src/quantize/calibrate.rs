//! The values that the tensors of a model hold when it runs on the samples.

use std::collections::{BTreeMap, BTreeSet};

use ansc_frontend::{ImportOptions, import};
use ansc_runtime::{DType, Precisions, Scaling, Tensor};

use super::Sample;
use super::Work;
use super::range::Seen;
use super::runner::Runner;
use crate::Error;

/// The scaling of each tensor, and the outputs of the model of `f32`.
pub(super) struct Calibrated {
    pub(super) scalings: BTreeMap<String, Scaling>,
    /// By the sample's name.
    pub(super) outputs: BTreeMap<String, BTreeMap<String, Tensor>>,
}

impl Calibrated {
    /// Looks at all tensors that may be quantised; those that are no `f32` are left out of the
    /// survey.
    pub(super) fn of(work: &mut Work<'_>) -> Result<Calibrated, Error> {
        let own: Vec<String> =
            import::declared(work.model)?.outputs.into_iter().map(|port| port.name).collect();
        let own = if work.import.outputs.is_empty() { own } else { work.import.outputs.clone() };
        let mut outputs = own.clone();
        let inputs: BTreeSet<&str> =
            work.samples.chosen.iter().flat_map(|s| s.inputs.keys()).map(String::as_str).collect();
        let tensors = work.survey.tensors().into_iter().filter(|name| !inputs.contains(name));
        outputs.extend(tensors.filter(|name| !own.iter().any(|o| o == name)).map(str::to_owned));
        let import = ImportOptions { outputs, ..work.import.clone() };
        let mut runner = Runner::new(work.model, import, Precisions::default())?;
        let runs = if work.settings.calibration.counts() { 2 } else { 1 };
        let samples = work.samples.chosen.len();
        work.watch.begin("calibrate", runs * samples + work.samples.held_back.len());
        let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
        let mut others = BTreeSet::new();
        let mut results = BTreeMap::new();
        for run in 0..runs {
            for sample in &work.samples.chosen {
                let tensors = runner.run(sample, &[])?;
                for (name, tensor) in tensors.iter().chain(&sample.inputs) {
                    if tensor.dtype() != DType::F32 {
                        others.insert(name.clone());
                        continue;
                    }
                    let seen = seen.entry(name.clone()).or_default();
                    match run {
                        0 => seen.extremes(tensor.as_slice::<f32>()),
                        _ => seen.count(tensor.as_slice::<f32>()),
                    }
                }
                results.insert(sample.name.clone(), only(&own, tensors));
                work.watch.step();
            }
        }
        for sample in &work.samples.held_back {
            results.insert(sample.name.clone(), only(&own, runner.run(sample, &[])?));
            work.watch.step();
        }
        work.survey.leave_out(&others);
        let scaling = |(name, seen): (String, Seen)| {
            let (low, high) = seen.range(work.settings.calibration);
            (name, Scaling::over(work.settings.activations, low, high))
        };
        Ok(Calibrated { scalings: seen.into_iter().map(scaling).collect(), outputs: results })
    }

    pub(super) fn reference(&self, sample: &Sample) -> &BTreeMap<String, Tensor> {
        &self.outputs[&sample.name]
    }
}

fn only(names: &[String], tensors: BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    tensors.into_iter().filter(|(name, _)| names.contains(name)).collect()
}
