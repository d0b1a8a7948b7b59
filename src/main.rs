//! The command `ansc`.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

/// A search makes and drops thousands of small programs in a second.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // `ansc inspect X | head` ends the program, as it does others, and not with a panic.
    // SAFETY: no other thread runs yet, and the default action is no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // A file that grows beyond a limit is an error that names it, as on a full disk, and not the end.
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let given = ansc::cli::Cli::command().get_matches();
    let cli = ansc::cli::Cli::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let json = cli.command.wants_json();
    match ansc::idle::refuse(&given).and_then(|()| ansc::verbs::run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A report is the one object on standard output.
            if json && !matches!(error, ansc::Error::Reported(_)) {
                println!("{}", error.to_json());
            }
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
