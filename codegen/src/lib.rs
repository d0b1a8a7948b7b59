//! Machine code: programs to LLVM IR to objects to the artifact, or to a
//! bundle. The only crate that knows LLVM.

mod affine;
pub mod artifact;
pub mod bundle;
pub mod compile;
mod emit;
pub mod error;
mod ir;
mod link;
mod math;
mod ops;
pub mod ptx;
pub mod target;

pub use compile::{Batch, Emitted, Kernel, Listing, compile_all, compile_program, listing};
pub use error::CodegenError;
pub use target::Target;
