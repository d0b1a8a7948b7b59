//! ONNX file to graph.
//!
//! [`import::load`] reads a file, checks it (`validate`) and gives the [`ansc_graph::Graph`] with
//! every shape known; whatever stands in the way comes back as a list of [`Problem`]s, all at once.
//! This is the only crate that knows tract, and of tract it uses the protobuf types alone.

mod containers;
mod external;
pub mod import;
mod memory;
mod nibbles;
mod ops;
mod opsets;
mod order;
mod problem;
mod problems;
pub mod qdq;
mod read;
mod similar;
mod sparse;
mod tensor;
pub mod tensor_file;
mod tensor_type;
mod validate;
mod walk;

pub use import::{ImportOptions, Report};
pub use ops::{Operator, operators};
pub use problem::{ImportError, Problem};
pub use similar::similar;
