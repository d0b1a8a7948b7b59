//! Goes down the ladders until the outputs are within the bound.
//!
//! Every product begins with its fastest precision. While the error is too large, the product that
//! costs most takes the next one of its ladder, at last `f32`. Steps are tried on the model with
//! switches first; the model as it will run has the last word.

use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_frontend::ImportOptions;
use ansc_runtime::Precision;

use super::Sample;
use super::calibrate::Calibrated;
use super::ladder::Ladders;
use super::loss::loss;
use super::runner::Runner;
use super::sensitivity::{Alone, Switched};
use super::{Choice, LayerLoss, Work, precisions};
use crate::Error;

/// A choice, and its error on the samples that it was made with.
pub(super) struct Found {
    pub(super) choice: Choice,
    pub(super) error: f64,
    /// Empty unless it was measured.
    pub(super) alone: Alone,
    ladders: Ladders,
    runner: Runner,
}

pub(super) fn search(
    work: &Work<'_>,
    calibrated: &Calibrated,
    ladders: &Ladders,
) -> Result<Found, Error> {
    let choice = ladders.fastest();
    let mut found = Found::of(work, calibrated, ladders, choice, Alone::new())?;
    if found.error <= work.settings.max_error {
        return Ok(found);
    }
    let mut switched = Switched::of(work, calibrated, ladders)?;
    let alone = switched.alone(work, calibrated)?;
    let mut choice = found.choice;
    work.watch.begin("search", choice.len());
    while switched.error(work, calibrated, &choice)? > work.settings.max_error {
        work.watch.step();
        if !demote(&mut choice, ladders, &alone) {
            break;
        }
    }
    drop(switched);
    loop {
        found = Found::of(work, calibrated, ladders, choice, alone.clone())?;
        choice = found.choice.clone();
        if found.error <= work.settings.max_error || !demote(&mut choice, ladders, &alone) {
            return Ok(found);
        }
        work.watch.step();
    }
}

/// Gives the product that costs most its next precision, if there is one.
fn demote(choice: &mut Choice, ladders: &Ladders, alone: &Alone) -> bool {
    let cost = |product: &String, precision: &Precision| {
        alone.get(product).and_then(|of| of.get(precision)).copied().unwrap_or(0.0)
    };
    let rounding = choice.iter().filter(|(_, precision)| **precision != Precision::F32);
    let worst = rounding.max_by(|a, b| cost(a.0, a.1).total_cmp(&cost(b.0, b.1)));
    let Some((product, now)) = worst.map(|(product, now)| (product.clone(), *now)) else {
        return false;
    };
    let below = ladders.by_product[&product].iter().skip_while(|p| **p != now).skip(1);
    let mut better = below.filter(|p| cost(&product, p) < cost(&product, &now));
    let next = better.next().copied().unwrap_or(Precision::F32);
    choice.insert(product, next);
    true
}

impl Found {
    fn of(
        work: &Work<'_>,
        calibrated: &Calibrated,
        ladders: &Ladders,
        choice: Choice,
        alone: Alone,
    ) -> Result<Found, Error> {
        let quantization = Some(Arc::new(work.quantization(calibrated, &choice)))
            .filter(|quantization| !quantization.nodes.is_empty());
        let import = ImportOptions { quantization, ..work.import.clone() };
        let runner = Runner::new(work.model, import, precisions(&choice))?;
        let ladders = ladders.clone();
        let mut found = Found { choice, error: 0.0, alone, ladders, runner };
        found.error = found.judged(work, calibrated, &work.samples.chosen)?;
        Ok(found)
    }

    /// The error on some samples.
    pub(super) fn judged(
        &mut self,
        work: &Work<'_>,
        calibrated: &Calibrated,
        samples: &[&Sample],
    ) -> Result<f64, Error> {
        work.watch.begin("compare with f32", samples.len());
        let mut worst = 0.0f64;
        for sample in samples {
            let outputs = self.runner.run(sample, &[])?;
            worst = worst.max(loss(&outputs, calibrated.reference(sample)));
            work.watch.step();
        }
        Ok(worst)
    }

    /// Measures what each product costs, if that is not known.
    pub(super) fn sensitivities(
        &mut self,
        work: &Work<'_>,
        calibrated: &Calibrated,
    ) -> Result<(), Error> {
        if self.alone.is_empty() {
            let mut switched = Switched::of(work, calibrated, &self.ladders)?;
            self.alone = switched.alone(work, calibrated)?;
        }
        Ok(())
    }

    /// The products whose rounding was measured, the worst first.
    pub(super) fn layers(&self) -> Vec<LayerLoss> {
        let layer = |(node, alone): (&String, &BTreeMap<Precision, f64>)| LayerLoss {
            node: node.clone(),
            precision: self.choice.get(node).copied().unwrap_or_default(),
            alone: alone.clone(),
        };
        let mut layers: Vec<LayerLoss> = self.alone.iter().map(layer).collect();
        let worst = |layer: &LayerLoss| layer.alone.values().copied().fold(0.0, f64::max);
        layers.sort_by(|a, b| worst(b).total_cmp(&worst(a)));
        layers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_takes_the_next_that_is_better() {
        use Precision::{Bf16, F16, F32, Int8};
        let by_product: BTreeMap<String, Vec<Precision>> =
            [("a", vec![Int8, Bf16, F16, F32]), ("b", vec![Int8, F32])]
                .map(|(name, ladder)| (name.to_owned(), ladder))
                .into();
        let ladders = Ladders { by_product };
        let alone = Alone::from([
            ("a".into(), BTreeMap::from([(Int8, 0.3), (Bf16, 0.4), (F16, 0.1)])),
            ("b".into(), BTreeMap::from([(Int8, 0.2)])),
        ]);
        let mut choice = ladders.fastest();
        let mut steps = vec![];
        while demote(&mut choice, &ladders, &alone) {
            steps.push((choice["a"], choice["b"]));
        }
        assert_eq!(steps, [(F16, Int8), (F16, F32), (F32, F32)]);
    }
}
