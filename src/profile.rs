//! The time that each kernel of an artifact takes on this machine.

use ansc_runtime::manifest::{Specialisation, Step};
use ansc_runtime::{Model, Session, StepKind, Tensor};
use ansc_tuner::outcome::median;

use crate::Error;
use crate::inputs::{self, Seed};

/// Runs before the first one that counts, and those that count.
const WARM_UP: usize = 3;
const RUNS: usize = 9;

/// Seconds of each kernel of the manifest in one run of a specialisation: the median over some
/// runs. Kernels of other specialisations do not run.
pub fn kernel_seconds(
    model: &Model,
    one: &Specialisation,
    session: &mut Session,
) -> Result<Vec<f64>, Error> {
    let inputs = inputs::for_specialisation(model, one, Seed(0))?;
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    for _ in 0..WARM_UP {
        session.run(&named)?;
    }
    let mut of_steps = Vec::new();
    one.plan.visit(&mut |step| {
        if let Step::Kernel { kernel, .. } = step {
            of_steps.push(*kernel as usize);
        }
    });
    let kernels = model.manifest().kernels.len();
    let mut samples = vec![vec![]; kernels];
    let mut before = vec![0.0; kernels];
    session.profile(true);
    for _ in 0..RUNS {
        session.run(&named)?;
        let totals = totals(session, &of_steps, kernels);
        for (i, total) in totals.into_iter().enumerate() {
            samples[i].push(total - before[i]);
            before[i] = total;
        }
    }
    session.profile(false);
    Ok(samples.iter().map(|of_kernel| median(of_kernel)).collect())
}

/// Seconds of all runs so far. `of_steps` are the kernels of the plan's kernel steps, in its order.
fn totals(session: &Session, of_steps: &[usize], kernels: usize) -> Vec<f64> {
    let mut totals = vec![0.0; kernels];
    let steps = session.step_times().into_iter().filter(|step| step.kind == StepKind::Kernel);
    for (step, &kernel) in steps.zip(of_steps) {
        totals[kernel] += step.total.as_secs_f64();
    }
    totals
}
