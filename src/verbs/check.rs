//! `ansc check`: every problem of a model at once.

use ansc_frontend::import;

use super::{import_options, print_json};
use crate::Error;
use crate::cli::Check;

pub(super) fn run(args: &Check) -> Result<(), Error> {
    let report = import::check(&args.model, &import_options(&args.specialise)?)?;
    if let Some(error) = report.error {
        return Err(error.into());
    }
    if args.json {
        print_json(&serde_json::json!({ "compiles": true, "operators": report.operators }));
        return Ok(());
    }
    println!("{}: every operator can be compiled", args.model.display());
    for (operator, count) in &report.operators {
        println!("{count:6} {operator}");
    }
    Ok(())
}
