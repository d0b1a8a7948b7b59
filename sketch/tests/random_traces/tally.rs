//! How many samples of which rules are valid, and what refuses the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use ansc_sketch::rules::Sketch;
use ansc_sketch::trace::{StepError, TraceError};
use ansc_sketch::verify::Report;

#[derive(Default)]
pub(crate) struct Tally {
    /// By rule: samples, and those that are valid.
    rules: BTreeMap<String, [usize; 2]>,
    /// By primitive and cause.
    refusals: BTreeMap<String, usize>,
    all: [usize; 2],
    /// The answers of the verifier, counted.
    pub(crate) answers: Report,
}

impl Tally {
    pub(crate) fn count(&mut self, sketch: &Sketch, refused: Option<&TraceError>) {
        let valid = usize::from(refused.is_none());
        let add = |counts: &mut [usize; 2]| {
            counts[0] += 1;
            counts[1] += valid;
        };
        add(&mut self.all);
        let rules: BTreeSet<&String> = sketch.rules.iter().collect();
        rules.into_iter().for_each(|rule| add(self.rules.entry(rule.clone()).or_default()));
        if let Some(error) = refused {
            *self.refusals.entry(cause(error)).or_default() += 1;
        }
    }
}

/// The primitive and the kind of cause, without the names of blocks and buffers.
fn cause(error: &TraceError) -> String {
    match &*error.cause {
        StepError::Schedule(e) => {
            let cause = format!("{:?}", e.cause);
            let kind = cause.split(['(', ' ', '{']).next().unwrap_or_default();
            format!("{}: {kind}", e.primitive)
        }
        StepError::Gpu(e) => {
            let cause = format!("{e:?}");
            let kind = cause.split(['(', ' ', '{']).next().unwrap_or_default();
            format!("lowering: {kind}")
        }
        StepError::TooLarge(_) => "code too large".into(),
        other => other.to_string(),
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let percent = |[all, valid]: [usize; 2]| 100.0 * valid as f64 / all.max(1) as f64;
        writeln!(f, "{:<18} {:>8} {:>8} {:>7}", "rule", "samples", "valid", "")?;
        let all = self.rules.iter().map(|(rule, counts)| (rule.as_str(), *counts));
        for (rule, counts) in all.chain([("all", self.all)]) {
            let [samples, valid] = counts;
            writeln!(f, "{rule:<18} {samples:>8} {valid:>8} {:>6.1}%", percent(counts))?;
        }
        for (cause, n) in &self.refusals {
            writeln!(f, "  refused by {cause}: {n}")?;
        }
        writeln!(f, "{}", self.answers)
    }
}
