//! `ansc check`: every problem of a model at once.

use ansc_frontend::import;

use super::{import_options, print_json};
use crate::Error;
use crate::cli::Check;

pub(super) fn run(args: &Check) -> Result<(), Error> {
    let report = import::check(&args.model, &import_options(&args.specialise)?);
    let compiles = report.problems.is_empty();
    if args.json {
        print_json(&serde_json::json!({ "compiles": compiles, "report": report }));
    } else {
        report.operators.iter().for_each(|o| println!("{:6} {}", o.count, o.qualified()));
        println!(
            "{}: {}",
            args.model.display(),
            if compiles { "can be compiled" } else { "cannot be compiled" }
        );
    }
    if compiles { Ok(()) } else { Err(Error::Check(report)) }
}
