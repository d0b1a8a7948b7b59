//! Which schedule is best: search strategies, cost models, measuring, records.
//!
//! ```text
//! tasks --task scheduler--> one task --strategy, cost model--> candidates --measurer--> outcomes --> records
//! ```
//!
//! [`tune`] is that loop. What it learns are [`Record`]s: a task's key, a target, a trace and
//! what became of it. The crate knows neither LLVM nor ONNX: a [`Measurer`] builds and
//! runs candidates, and the command provides one. With the feature `fleet`, other machines do so:
//! `fleet` sends candidates there through a NATS server.

#![deny(missing_docs)]

pub mod candidate;
pub mod dataset;
#[cfg(feature = "fleet")]
pub mod fleet;
#[cfg(feature = "fleet")]
mod fleet_error;
pub mod lab;
pub mod measure;
pub mod model;
mod nn;
pub mod outcome;
pub mod records;
pub mod refusal;
pub mod report;
pub mod roofline;
pub mod scheduler;
pub mod strategy;
pub mod structure;
#[cfg(test)]
mod testing;
pub mod title;
pub mod tune;

pub use candidate::{Candidate, Search};
pub use measure::Measurer;
pub use model::CostModel;
pub use outcome::{Failure, Outcome};
pub use records::{Record, Records};
pub use refusal::Refusal;
pub use strategy::SearchStrategy;

/// The examples of the pages are compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/src/strategies.md")]
struct Strategies;

#[cfg(doctest)]
#[doc = include_str!("../../docs/src/learned-models.md")]
struct LearnedModels;
