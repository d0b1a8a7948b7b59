//! What each kernel of an artifact takes on this machine.

use std::collections::BTreeMap;

use ansc_runtime::{Model, Session, StepKind, Tensor};
use ansc_tuner::outcome::median;

use crate::Error;
use crate::inputs::{self, Seed};

/// Runs before the first one that counts, and those that count.
const WARM_UP: usize = 3;
const RUNS: usize = 9;

/// Seconds of each kernel of the manifest in one run of the model: the median over some runs. Kernels of one
/// name share their time.
pub fn kernel_seconds(model: &Model, session: &mut Session) -> Result<Vec<f64>, Error> {
    let inputs = inputs::for_model(model, Seed(0));
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    for _ in 0..WARM_UP {
        session.run(&named)?;
    }
    let kernels = &model.manifest().kernels;
    let mut samples = vec![vec![]; kernels.len()];
    let mut before = vec![0.0; kernels.len()];
    session.profile(true);
    for _ in 0..RUNS {
        session.run(&named)?;
        let totals = totals(session, kernels.iter().map(|k| k.name.as_str()));
        for (i, total) in totals.into_iter().enumerate() {
            samples[i].push(total - before[i]);
            before[i] = total;
        }
    }
    session.profile(false);
    Ok(samples.iter().map(|of_kernel| median(of_kernel)).collect())
}

/// Seconds of all runs so far.
fn totals<'a>(session: &Session, names: impl Iterator<Item = &'a str> + Clone) -> Vec<f64> {
    let mut of_name: BTreeMap<String, f64> = BTreeMap::new();
    for step in session.step_times() {
        if step.kind == StepKind::Kernel {
            *of_name.entry(step.name).or_default() += step.total.as_secs_f64();
        }
    }
    let mut count: BTreeMap<&str, f64> = BTreeMap::new();
    names.clone().for_each(|name| *count.entry(name).or_default() += 1.0);
    names.map(|name| of_name.get(name).copied().unwrap_or(0.0) / count[name]).collect()
}
