//! The command and the crates together, from a model to its results.
//!
//! One program holds all of them: each of its own would link the compiler, with LLVM, once more.
//! `cargo test --release --test end_to_end bench::` runs those of one file.

mod common;

mod accuracy;
mod architecture;
mod bad_artifacts;
mod bad_models;
mod bench;
mod book;
mod bundle;
mod c_program;
mod code_size;
mod command_line;
mod contrib;
mod denormals;
mod deterministic;
mod faults;
mod gpu_networks;
mod indices;
mod lab;
mod learned;
mod modules;
mod mutations;
mod operators_page;
mod precision;
mod prepared;
mod quantize;
mod random;
mod ranges;
mod records;
mod resealed_artifacts;
mod specialisations;
mod states;
mod tract;
mod tuning;
mod what_it_says;
mod zero_extents;
