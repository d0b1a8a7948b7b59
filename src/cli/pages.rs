//! The options of verbs that print pages about the command itself.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
pub struct Operators {
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub struct Man {
    /// Where the pages go, one for each verb [default: one page on standard output]
    #[arg(short, long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
}
