//! ONNX file to graph.
//!
//! [`import::load`] reads a file, checks it (`validate`) and gives the [`ansc_graph::Graph`] with
//! every shape known; whatever stands in the way comes back as a list of [`Problem`]s, all at once.
//! This is the only crate that knows tract, and of tract it uses the protobuf types alone.

mod external;
pub mod import;
mod nibbles;
mod ops;
mod order;
mod problem;
pub mod qdq;
mod read;
mod similar;
mod sparse;
mod tensor;
pub mod tensor_file;
mod validate;

pub use import::{ImportOptions, Report};
pub use ops::{Operator, operators};
pub use problem::{ImportError, Problem};
pub use similar::similar;
