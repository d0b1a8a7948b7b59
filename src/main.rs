//! The command `ansc`.

use std::process::ExitCode;

/// A search makes and drops thousands of small programs in a second.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(ansc::command_line::main(std::env::args_os()))
}
