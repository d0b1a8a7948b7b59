//! `ansc man`: the manual pages, made of the help of the options.

use std::io::Write;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use super::completions::public;
use crate::Error;
use crate::cli;

pub(super) fn run(args: &cli::Man) -> Result<(), Error> {
    let mut command = public();
    // It gives each verb its full name.
    command.build();
    let Some(directory) = &args.output_dir else {
        let page = render(command).map_err(|e| Error::Machine(format!("the manual page: {e}")))?;
        let written = std::io::stdout().write_all(&page);
        return written.map_err(|e| Error::Machine(format!("standard output: {e}")));
    };
    std::fs::create_dir_all(directory).map_err(|e| Error::io(directory, e))?;
    write(command, directory)
}

/// A page for the command and one for each verb of it: `ansc.1`, `ansc-check.1`, ..
fn write(command: Command, directory: &Path) -> Result<(), Error> {
    for verb in command.get_subcommands().cloned() {
        write(verb, directory)?;
    }
    let path = directory.join(Man::new(command.clone()).get_filename());
    let page = render(command).and_then(|page| std::fs::write(&path, page));
    page.map_err(|e| Error::io(&path, e))?;
    println!("{}", path.display());
    Ok(())
}

fn render(command: Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}
