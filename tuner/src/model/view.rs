//! A candidate as models see it, measured or not.
//!
//! ```text
//! a task's stages, a trace      what a model of traces reads
//! + features of the program     what a model of programs reads
//! ```

use std::sync::{Arc, LazyLock};

use ansc_sketch::features::LEN;
use ansc_sketch::{Features, Trace};

use super::Subject;

/// The parts of a candidate that a model reads. A caller makes no other parts for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// The trace and the subgraph. No program has to be made of the trace.
    Trace,
    /// The features of the program as well.
    Program,
}

/// A candidate that a model is asked about.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The subgraph.
    pub subject: &'a Subject,
    /// The schedule, with all its decisions.
    pub trace: &'a Trace,
    /// The features of the program. They are there wherever a model needs programs.
    pub features: Option<&'a Features>,
}

/// A measured candidate.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Candidates of the same task compute the same; only they are compared.
    pub task: usize,
    /// The machine that measured it, counted from 0. Models for one platform learn from 0 alone.
    pub platform: usize,
    /// The subgraph.
    pub subject: Arc<Subject>,
    /// The schedule, with all its decisions.
    pub trace: Arc<Trace>,
    /// The features of the program. They are there wherever the model that learns needs programs.
    pub features: Option<Arc<Features>>,
    /// Seconds of one run; `None` if it failed.
    pub seconds: Option<f64>,
}

static NOTHING: LazyLock<(Subject, Trace)> = LazyLock::new(Default::default);

impl<'a> View<'a> {
    /// A program of an unknown task, for models that read nothing else.
    pub fn of_program(features: &'a Features) -> View<'a> {
        let (subject, trace) = &*NOTHING;
        View { subject, trace, features: Some(features) }
    }

    /// The natural logarithm of the analytic price and one cycle; 0 where there is none.
    pub fn price(&self) -> f32 {
        self.features.map_or(0.0, |f| f.parts.cycles().ln_1p() as f32)
    }

    /// The rows of the features, of which there are none where no program was made.
    pub fn rows(&self) -> &'a [[f32; LEN]] {
        self.features.map_or(&[], |f| &f.rows)
    }
}

impl Sample {
    /// A program of an unknown schedule, for models that read nothing else.
    pub fn of_program(task: usize, features: Arc<Features>, seconds: Option<f64>) -> Sample {
        let (subject, trace) = Default::default();
        Sample { task, platform: 0, subject, trace, features: Some(features), seconds }
    }

    /// The candidate that was measured.
    pub fn view(&self) -> View<'_> {
        let features = self.features.as_deref();
        View { subject: &self.subject, trace: &self.trace, features }
    }
}
