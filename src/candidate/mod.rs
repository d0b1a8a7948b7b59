//! Candidates of a search as artifacts, and the worker process that builds and runs them.

mod artifact;
mod blame;
mod cold;
mod fenced;
pub mod offline;
mod pace;
mod spot;
mod timing;
pub mod worker;

use ansc_codegen::Target;

/// The processors that candidates are built for.
#[derive(Clone, Debug)]
pub struct Targets {
    /// The machine at hand.
    pub host: Target,
    /// The GPU that runs them, if one does.
    pub gpu: Option<Target>,
}
