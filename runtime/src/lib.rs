//! Loads and runs models compiled by `ansc`.
//!
//! This crate is the leaf of the workspace: it knows neither the compiler, nor LLVM, nor ONNX.
//! It holds what both sides of the artifact must agree on (element types, host tensors, the
//! manifest) and what running needs (loading, sessions, the thread pool, host operators).

#![deny(missing_docs)]

/// The README's examples of Rust compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

mod artifact;
mod boxes;
pub mod c;
pub mod cuda;
mod driver;
pub mod dtype;
mod exec;
pub mod extent;
mod float;
pub mod gpu;
pub mod host;
pub mod load;
mod load_error;
pub mod manifest;
mod memory;
pub mod model;
pub mod npy;
mod pages;
mod parts;
pub mod pool;
mod ports;
pub mod precision;
mod prepare;
mod program;
pub mod quantization;
pub mod run_error;
mod seal;
mod select;
pub mod session;
pub mod source;
mod states;
mod tables;
pub mod target;
pub mod tensor;
pub mod trace;
mod validate;
pub mod view;

pub use dtype::{DType, Element};
pub use extent::Extent;
pub use load::{LoadError, LoadErrorKind, LoadOptions};
pub use load_error::PreparationError;
pub use model::Model;
pub use pool::{Pool, PoolError, PoolOptions};
pub use precision::{Precision, Precisions};
pub use program::StepKind;
pub use quantization::{Quantization, Scaling};
pub use run_error::{BadIndex, Named, PortKind, RunError, Taken};
pub use session::{Session, SessionError, SessionOptions, StepTime};
pub use target::TargetError;
pub use tensor::Tensor;
pub use trace::{Trace, TraceEvent};
pub use validate::ManifestError;
pub use view::{View, ViewMut};
