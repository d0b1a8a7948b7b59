//! `ansc completions`: what makes a shell complete the words of this command.

use std::io::Write;

use clap::{Command, CommandFactory};

use crate::Error;
use crate::cli::{Cli, Completions};

pub(super) fn run(args: &Completions) -> Result<(), Error> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut public(), "ansc", &mut text);
    std::io::stdout().write_all(&text).map_err(|e| Error::Machine(format!("standard output: {e}")))
}

/// The command line that users see. Some generators would list hidden verbs too.
pub(super) fn public() -> Command {
    let whole = Cli::command();
    let seen = |verb: &&Command| !verb.is_hide_set();
    let about = whole.get_about().cloned().unwrap_or_default();
    Command::new("ansc")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .args_conflicts_with_subcommands(true)
        .args(whole.get_arguments())
        .subcommands(whole.get_subcommands().filter(seen))
}
