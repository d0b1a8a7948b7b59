//! The messages between the measurer and its worker processes: one JSON object a line.
//!
//! A worker answers every request with one reply. It may die instead; then the request was fatal.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A request to a worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Compile a program, given as text, into an artifact with this one kernel.
    Build {
        /// The text of the program.
        program: String,
        /// Where the artifact goes.
        output: PathBuf,
    },
    /// Load an artifact and time its runs.
    Time {
        /// The artifact of the candidate.
        artifact: PathBuf,
        /// How long and how often.
        timing: Timing,
    },
    /// Compute a subgraph on made-up inputs, and keep the results.
    Reference {
        /// The subgraph that is computed.
        subgraph: Subgraph,
        /// Where the results go.
        output: PathBuf,
        /// The kernel that computes it; without one the interpreter does.
        trusted: Option<Trusted>,
    },
    /// Run an artifact on the inputs of [`Request::Reference`], and compare.
    Check {
        /// The artifact of the candidate.
        artifact: PathBuf,
        /// The subgraph that it should compute.
        subgraph: Subgraph,
        /// Layouts of constants that it expects.
        packings: Vec<Packed>,
        /// The results to compare with.
        reference: PathBuf,
    },
}

/// A subgraph as text.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Subgraph {
    /// The subgraph as text, which parses back.
    pub compute: String,
}

/// A kernel whose results are taken for the definition's once enough of their elements were
/// compared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Trusted {
    /// The artifact of the kernel that is trusted.
    pub artifact: PathBuf,
    /// Layouts of constants that it expects.
    pub packings: Vec<Packed>,
    /// Largest difference, relative to the largest element.
    pub tolerance: f64,
}

/// A constant that the program reads in another order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Packed {
    /// The parameter of the kernel that is a constant in another layout.
    pub param: usize,
    /// The expression that makes it of the constant, as text.
    pub compute: String,
}

/// How to time an artifact.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// Threads that the candidate runs on.
    pub threads: usize,
    /// All samples together take about this long.
    pub seconds: f64,
    /// Short runs are repeated until a sample takes at least this long.
    pub sample_seconds: f64,
    /// As few samples at least.
    pub min_samples: usize,
    /// As many samples at most.
    pub max_samples: usize,
    /// A candidate whose second run is slower than this is not timed any further.
    pub give_up: Option<f64>,
    /// One of whose first samples none is faster than this is not timed any further.
    pub not_close: Option<f64>,
    /// Inputs that runs find in memory only.
    pub cold: Cold,
    /// Unless everything is cold: an artifact that is run in turns with the other one, whose times
    /// are given for a machine on which this one takes so long. It is always warm itself.
    pub beside: Option<Beside>,
}

/// The data that a run does not find in the caches.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cold {
    /// Everything is warm from the run before.
    #[default]
    Nothing,
    /// These inputs.
    Inputs(Vec<usize>),
    /// Every sample is a single run, before which the caches are emptied.
    Everything,
}

/// An artifact that tells how fast the machine is at the moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Beside {
    /// The artifact.
    pub artifact: PathBuf,
    /// Seconds of one of its runs at the usual speed of the machine.
    pub seconds: f64,
}

/// The reply to a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The artifact is written.
    Built {
        /// Seconds of reading the program, of the code generator, and of writing the artifact.
        parse: f64,
        /// Seconds of the code generator.
        codegen: f64,
        /// Seconds of writing the artifact.
        link: f64,
    },
    /// The artifact ran.
    Timed {
        /// Seconds of one run, in the order of the samples.
        seconds: Vec<f64>,
        /// Seconds until the first run.
        load: f64,
    },
    /// The reference is written.
    Computed,
    /// The largest difference relative to the largest element, infinite if other elements are not
    /// finite.
    Compared {
        /// That difference.
        difference: f64,
    },
    /// The candidate is at fault.
    Refused {
        /// The reason.
        message: String,
    },
    /// The machine fails, whatever the candidate is. May also come before the first request.
    Unfit {
        /// The reason.
        message: String,
    },
}
