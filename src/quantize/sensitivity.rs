//! The error that each product costs if it alone rounds what it reads.
//!
//! One model is compiled, with a switch for each product and precision ([`qdq::Switches`]). A run
//! with one switch on tells the error of that product. A run with several tells the error of a
//! choice, nearly.

use std::collections::BTreeMap;

use ansc_frontend::ImportOptions;
use ansc_frontend::qdq::{self, Alternative, Switch, Switches};
use ansc_runtime::{DType, Precision, Precisions, Tensor};
use tempfile::TempDir;

use super::calibrate::Calibrated;
use super::ladder::Ladders;
use super::loss::loss;
use super::runner::Runner;
use super::{Choice, Work};
use crate::Error;

/// Samples that a choice is tried on. All are used before one is accepted.
const SAMPLES: usize = 4;

/// The error of the outputs by product and precision.
pub(super) type Alone = BTreeMap<String, BTreeMap<Precision, f64>>;

pub(super) struct Switched {
    switches: Vec<(String, Precision, String)>,
    runner: Runner,
    /// Holds the model.
    _folder: TempDir,
}

impl Switched {
    pub(super) fn of(
        work: &Work<'_>,
        calibrated: &Calibrated,
        ladders: &Ladders,
    ) -> Result<Switched, Error> {
        let folder = tempfile::tempdir().map_err(|e| Error::file(work.model, e))?;
        let path = folder.path().join("switched.onnx");
        let mut switches = vec![];
        for (product, ladder) in &ladders.by_product {
            for precision in ladder.iter().filter(|p| **p != Precision::F32) {
                let input = format!("ansc_switch_{}", switches.len());
                switches.push((product.clone(), *precision, input));
            }
        }
        let all = switches.iter().filter_map(|(product, precision, input)| {
            let (product, input) = (product.clone(), input.clone());
            Some(Switch { product, input, to: alternative(*precision)? })
        });
        let how = Switches {
            all: all.collect(),
            tensors: calibrated.scalings.clone(),
            per_channel: work.settings.per_channel,
        };
        qdq::write_switched(work.model, &how, &path)?;
        let import = ImportOptions { ..work.import.clone() };
        let runner = Runner::new(&path, import, Precisions::default())?;
        Ok(Switched { switches, runner, _folder: folder })
    }

    /// The error that each product costs alone, in each precision that it may take.
    pub(super) fn alone(
        &mut self,
        work: &Work<'_>,
        calibrated: &Calibrated,
    ) -> Result<Alone, Error> {
        work.watch.begin("measure layers", self.switches.len());
        let mut alone = Alone::new();
        for (product, precision, _) in self.switches.clone() {
            let choice = Choice::from([(product.clone(), precision)]);
            let error = self.error(work, calibrated, &choice)?;
            alone.entry(product).or_default().insert(precision, error);
            work.watch.step();
        }
        Ok(alone)
    }

    /// The error that a choice costs. Products that it does not name read `f32`.
    pub(super) fn error(
        &mut self,
        work: &Work<'_>,
        calibrated: &Calibrated,
        choice: &Choice,
    ) -> Result<f64, Error> {
        let is_on =
            |product: &String, precision: &Precision| choice.get(product) == Some(precision);
        let on = self.switches.iter();
        let on = on.map(|(product, p, input)| (input.clone(), Tensor::scalar(is_on(product, p))));
        let on: Vec<(String, Tensor)> = on.collect();
        let mut worst = 0.0f64;
        for sample in work.samples.chosen.iter().take(SAMPLES) {
            let outputs = self.runner.run(sample, &on)?;
            worst = worst.max(loss(&outputs, calibrated.reference(sample)));
        }
        Ok(worst)
    }
}

fn alternative(precision: Precision) -> Option<Alternative> {
    match precision {
        Precision::F32 | Precision::Tf32 => None,
        Precision::Bf16 => Some(Alternative::Halves(DType::BF16)),
        Precision::F16 => Some(Alternative::Halves(DType::F16)),
        Precision::Int8 => Some(Alternative::Integers),
    }
}
