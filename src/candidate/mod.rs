//! Candidates of a search as artifacts, and the worker process that builds and runs them.

mod artifact;
mod timing;
pub mod worker;
