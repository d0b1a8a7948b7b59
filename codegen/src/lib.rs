//! Machine code: programs to LLVM IR to objects to the artifact. The only crate that knows LLVM.

mod affine;
pub mod compile;
mod emit;
pub mod error;
mod math;
mod ops;
pub mod target;

pub use compile::{Emitted, Listing, compile_program, listing};
pub use error::CodegenError;
pub use target::Target;
