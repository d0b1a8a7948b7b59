//! `ansc check`: every problem of a model at once.

use std::collections::BTreeSet;

use ansc_frontend::import::{self, Report};

use super::{print_json, specialisations};
use crate::Error;
use crate::cli::Check;
use crate::sizes;

pub(super) fn run(args: &Check) -> Result<(), Error> {
    let (import, choices) = specialisations(&args.model, &args.specialise)?;
    let all = sizes::wanted(&import, &choices, &BTreeSet::new()).into_iter();
    let reports: Vec<_> =
        all.map(|one| (import::check(&args.model, &one.largest()), one.name)).collect();
    let compiles = reports.iter().all(|(report, _)| report.problems.is_empty());
    // The same operators in all of them; the one to show is the one with problems.
    let shown = reports.iter().find(|(report, _)| !report.problems.is_empty());
    let (report, name) = shown.unwrap_or(&reports[0]);
    if args.json {
        print_json(&serde_json::json!({
            "compiles": compiles, "specialisation": name, "report": report,
        }));
    } else {
        print(name, report);
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

fn print(specialisation: &str, report: &Report) {
    report.operators.iter().for_each(|o| println!("{:6} {}", o.count, o.qualified()));
    if !report.problems.is_empty() && !specialisation.is_empty() {
        println!("with {specialisation}:");
    }
    report.problems.iter().for_each(|p| println!("{p}"));
}
