//! The precisions that each product may take, the fastest first.
//!
//! The model is compiled once in each precision, and its kernels are timed on this machine. A
//! precision that is not faster than `f32` is not on the ladder, whose end is `f32`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ansc_frontend::ImportOptions;
use ansc_runtime::{Precision, Precisions};

use super::calibrate::Calibrated;
use super::runner::Runner;
use super::{Choice, Work, precisions};
use crate::{Error, profile};

#[derive(Clone)]
pub(super) struct Ladders {
    pub(super) by_product: BTreeMap<String, Vec<Precision>>,
}

impl Ladders {
    pub(super) fn of(work: &Work<'_>, calibrated: &Calibrated) -> Result<Ladders, Error> {
        let products = || work.survey.products().map(|c| c.name.clone());
        let by_product = match work.settings.any_precision {
            false => products().map(|name| (name, vec![Precision::Int8, Precision::F32])).collect(),
            true => timed(work, calibrated, &products().collect::<Vec<_>>())?,
        };
        let mut ladders = Ladders { by_product };
        for name in &work.settings.keep {
            ladders.by_product.insert(name.clone(), vec![Precision::F32]);
        }
        Ok(ladders)
    }

    /// The first of each.
    pub(super) fn fastest(&self) -> Choice {
        self.by_product.iter().map(|(name, ladder)| (name.clone(), ladder[0])).collect()
    }
}

fn timed(
    work: &Work<'_>,
    calibrated: &Calibrated,
    products: &[String],
) -> Result<BTreeMap<String, Vec<Precision>>, Error> {
    let of_cpus = || Precision::ALL.into_iter().filter(|p| !p.is_of_gpus());
    work.watch.begin("time precisions", of_cpus().count());
    let mut seconds: BTreeMap<&str, Vec<(f64, Precision)>> = BTreeMap::new();
    for precision in of_cpus() {
        let of_nodes = node_seconds(work, calibrated, products, precision)?;
        for product in products {
            let time = of_nodes.get(product.as_str()).copied().unwrap_or(f64::INFINITY);
            seconds.entry(product).or_default().push((time, precision));
        }
        work.watch.step();
    }
    Ok(seconds.into_iter().map(|(product, times)| (product.to_owned(), ladder(times))).collect())
}

/// The precisions that are faster than `f32`, and that.
fn ladder(mut times: Vec<(f64, Precision)>) -> Vec<Precision> {
    let wide = times.iter().find(|(_, p)| *p == Precision::F32).map_or(f64::INFINITY, |(t, _)| *t);
    times.retain(|(time, precision)| *time < wide && *precision != Precision::F32);
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    times.into_iter().map(|(_, precision)| precision).chain([Precision::F32]).collect()
}

/// The seconds of the kernels that a node is in, by its name.
fn node_seconds(
    work: &Work<'_>,
    calibrated: &Calibrated,
    products: &[String],
    precision: Precision,
) -> Result<BTreeMap<String, f64>, Error> {
    let choice: Choice = products.iter().map(|name| (name.clone(), precision)).collect();
    let quantization =
        (precision == Precision::Int8).then(|| Arc::new(work.quantization(calibrated, &choice)));
    let import = ImportOptions { quantization, ..work.import.clone() };
    let precisions: Precisions = precisions(&choice);
    let mut runner = Runner::new(work.model, import, precisions)?;
    let (model, session) = runner.compiled(work.samples.chosen[0])?;
    let times = profile::kernel_seconds(model, &model.specialisations()[0], session)?;
    let mut of_nodes = BTreeMap::new();
    for (kernel, seconds) in model.manifest().kernels.iter().zip(times) {
        for node in &kernel.nodes {
            *of_nodes.entry(node.clone()).or_default() += seconds;
        }
    }
    Ok(of_nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slower_than_f32_is_not_on_the_ladder() {
        use Precision::{Bf16, F16, F32, Int8};
        assert_eq!(
            ladder(vec![(3.0, F32), (2.0, Bf16), (4.0, F16), (1.0, Int8)]),
            [Int8, Bf16, F32]
        );
        assert_eq!(ladder(vec![(3.0, F32), (f64::INFINITY, Int8)]), [F32]);
    }
}
