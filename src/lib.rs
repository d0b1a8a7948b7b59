//! The compiler as a library: what the command `ansc` does, without the command line.

pub mod assemble;
pub mod candidate;
pub mod choice;
pub mod chosen;
pub mod cli;
pub mod command_line;
pub mod compare;
pub mod dataset;
pub mod error;
pub mod files;
#[cfg(feature = "fleet")]
pub mod fleet;
pub mod folder;
pub mod host;
pub mod idle;
mod imports;
pub mod inputs;
mod interrupt;
pub mod kinds;
pub mod lab;
pub mod layers;
pub mod limits;
pub mod literal;
mod machine_code;
mod measuring;
pub mod npz;
pub mod origins;
pub mod output;
pub mod pipeline;
pub mod precision;
pub mod profile;
pub mod quantize;
pub mod reference;
pub mod samples;
pub mod search;
pub mod shipped;
pub mod sizes;
pub mod states;
pub mod train;
pub mod verbs;
pub mod verify;
pub mod version;

pub use error::Error;
