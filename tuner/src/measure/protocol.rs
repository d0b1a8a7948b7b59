//! What the measurer and its worker processes say to each other: one JSON object a line.
//!
//! A worker answers every request with one reply. It may die instead; then the request was fatal.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a worker is asked to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Compile a program, given as text, into an artifact with this one kernel.
    Build { program: String, output: PathBuf },
    /// Load an artifact and time its runs.
    Time { artifact: PathBuf, timing: Timing },
    /// Compute a subgraph by definition, and keep the results.
    Reference { subgraph: Subgraph, output: PathBuf },
    /// Run an artifact on the inputs of [`Request::Reference`], and compare.
    Check { artifact: PathBuf, subgraph: Subgraph, packings: Vec<Packed>, reference: PathBuf },
}

/// A subgraph as text.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Subgraph {
    pub compute: String,
}

/// A constant that the program reads in another order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Packed {
    pub param: usize,
    /// What makes it of the constant, as text.
    pub compute: String,
}

/// How to time an artifact.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timing {
    pub threads: usize,
    /// All samples together take about this long.
    pub seconds: f64,
    /// Short runs are repeated until a sample takes at least this long.
    pub sample_seconds: f64,
    pub min_samples: usize,
    pub max_samples: usize,
    /// A candidate whose second run is slower than this is not timed any further.
    pub give_up: Option<f64>,
    /// Empty the caches before every sample, which is then a single run.
    pub flush: bool,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    Built {
        /// Seconds of the code generator and of writing the artifact.
        codegen: f64,
        link: f64,
    },
    Timed {
        seconds: Vec<f64>,
    },
    Computed,
    /// The largest difference relative to the largest element, infinite if other elements are not finite.
    Compared {
        difference: f64,
    },
    Refused {
        message: String,
    },
}
