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
        report.problems.iter().for_each(|p| println!("{p}"));
        if compiles {
            println!("{}: can be compiled", args.model.display());
        }
    }
    if compiles {
        Ok(())
    } else {
        Err(Error::Reported(format!("{}: cannot be compiled", args.model.display())))
    }
}
