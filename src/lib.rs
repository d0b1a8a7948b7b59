//! The compiler as a library: what the command `ansc` does, without the command line.

pub mod assemble;
pub mod candidate;
pub mod choice;
pub mod cli;
pub mod compare;
pub mod error;
pub mod idle;
pub mod inputs;
pub mod lab;
pub mod limits;
mod machine_code;
pub mod pipeline;
pub mod profile;
pub mod search;
pub mod shipped;
pub mod verbs;

pub use error::Error;
