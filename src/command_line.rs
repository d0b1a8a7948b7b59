//! The command `ansc`: words in, an exit code out.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::{Error, idle, verbs, version};

/// Runs the command that `words` are, the name of the program first, and returns its exit code.
///
/// It sets actions of signals, and may end the process: it is for programs that do nothing else.
pub fn main(words: impl IntoIterator<Item = OsString>) -> u8 {
    // `ansc inspect X | head` ends the program, as it does others, and not with a panic.
    // SAFETY: the default action is no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    end_without_a_reader();
    // A file that grows beyond a limit is an error that names it, as on a full disk, and not the
    // end. SAFETY: as above.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let given = Cli::command().get_matches_from(words);
    let cli = Cli::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let Some(command) = cli.command else { return without_a_verb(cli.version, cli.verbose) };
    let json = command.wants_json();
    match idle::refuse(&given).and_then(|()| verbs::run(command)) {
        Ok(()) => 0,
        Err(error) => {
            // A report is the one object on standard output.
            if json && !matches!(error, Error::Reported(_)) {
                println!("{}", error.to_json());
            }
            eprintln!("error: {error}");
            error.exit_code()
        }
    }
}

/// Whoever measures candidates goes on without the signal, since programs that run them may die.
/// Then it is the next line that ends this program, in the same way.
fn end_without_a_reader() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let words = panic.payload().downcast_ref::<String>();
        let prints = |words: &&String| words.starts_with("failed printing to stdout: Broken pipe");
        if words.filter(prints).is_some() {
            std::process::exit(128 + libc::SIGPIPE);
        }
        report(panic);
    }));
}

fn without_a_verb(version: bool, verbose: bool) -> u8 {
    match (version, verbose) {
        (false, _) => missing().exit(),
        (true, false) => println!("{}", version::line()),
        (true, true) => print!("{}", version::verbose()),
    }
    0
}

fn missing() -> clap::Error {
    Cli::command().error(ErrorKind::MissingSubcommand, "a command is missing")
}

/// The command that `words` are; if they are none, what is wrong with them.
pub fn command(words: impl IntoIterator<Item = OsString>) -> Result<Command, Error> {
    // Without the usage and the advice to ask for help, which are of use on a terminal only.
    let wrong = |error: clap::Error| {
        let text = error.to_string();
        let reason = text.split("\n\n").next().unwrap_or_default();
        Error::Usage(reason.trim_start_matches("error: ").to_owned())
    };
    let given = Cli::command().try_get_matches_from(words).map_err(wrong)?;
    idle::refuse(&given)?;
    let cli = Cli::from_arg_matches(&given).map_err(wrong)?;
    cli.command.ok_or_else(|| wrong(missing()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(words: &str) -> String {
        let error = command(words.split(' ').map(OsString::from)).unwrap_err();
        assert_eq!(error.exit_code(), crate::error::EXIT_USAGE);
        error.to_string()
    }

    #[test]
    fn wrong_words_are_errors_of_one_paragraph() {
        assert_eq!(wrong("ansc compile m --nosuch"), "unexpected argument '--nosuch' found");
        assert!(wrong("ansc compile m --sm 90").starts_with("--sm is for"));
        assert!(command(["ansc", "compile", "m"].map(OsString::from)).is_ok());
    }
}
