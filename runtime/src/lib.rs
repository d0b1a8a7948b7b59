//! Loads and runs models compiled by `ansc`.
//!
//! This crate is the leaf of the workspace: it knows neither the compiler, nor LLVM, nor ONNX.
//! It holds what both sides of the artifact must agree on (element types, host tensors, the
//! manifest) and what running needs (loading, sessions, the thread pool, host operators).

pub mod dtype;
pub mod host;
pub mod manifest;
pub mod npy;
pub mod pool;
pub mod tensor;

pub use dtype::{DType, Element};
pub use tensor::Tensor;
