//! Candidates of a search as artifacts, and the worker process that builds and runs them.

mod artifact;
mod fenced;
mod spot;
mod timing;
pub mod worker;
