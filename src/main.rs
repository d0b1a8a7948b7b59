//! The command `ansc`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = ansc::cli::Cli::parse();
    let json = cli.command.wants_json();
    match ansc::verbs::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if json {
                println!("{}", error.to_json());
            }
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
