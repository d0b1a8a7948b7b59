//! The command `ansc`: words in, an exit code out.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::error::EXIT_MACHINE;
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
    let words: Vec<OsString> = words.into_iter().collect();
    let given = Cli::command().try_get_matches_from(&words);
    let read = given.and_then(|given| Ok((Cli::from_arg_matches(&given)?, given)));
    let (cli, given) = read.unwrap_or_else(|error| unread(&error, &words));
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

/// Ends the program for words that are no command, or that ask for help.
fn unread(error: &clap::Error, words: &[OsString]) -> ! {
    if error.use_stderr() && words.iter().any(|word| word == "--json") {
        println!("{}", Error::Usage(paragraph(error)).to_json());
    }
    error.exit()
}

/// The reason, without the usage and the advice to ask for help.
fn paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let reason = text.split("\n\n").next().unwrap_or_default();
    reason.trim_start_matches("error: ").to_owned()
}

/// A line that cannot be printed ends the program.
///
/// Whoever measures candidates goes on without the signal of a reader that is gone, since programs
/// that run them may die. Then it is the next line that ends this program, in the same way.
fn end_without_a_reader() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let words = panic.payload().downcast_ref::<String>();
        match words.and_then(|words| words.strip_prefix("failed printing to stdout: ")) {
            Some(why) if why.starts_with("Broken pipe") => {
                std::process::exit(128 + libc::SIGPIPE);
            }
            Some(why) => {
                eprintln!("error: standard output: {why}");
                std::process::exit(EXIT_MACHINE.into());
            }
            None => report(panic),
        }
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
    // The rest of the text is of use on a terminal only.
    let wrong = |error: clap::Error| Error::Usage(paragraph(&error));
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
