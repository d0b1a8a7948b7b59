//! `ansc report`: one page of what tuning found.

use ansc_tuner::records::Sqlite;
use ansc_tuner::report;

use super::print_json;
use crate::Error;
use crate::cli::Report;

pub(super) fn run(args: &Report) -> Result<(), Error> {
    let records = Sqlite::open_existing(&args.records)?;
    let summary = report::summarise(&records)?;
    let output = args.output.clone().unwrap_or_else(|| args.records.with_extension("html"));
    let source = args.records.display().to_string();
    std::fs::write(&output, report::html::page(&summary, &source))
        .map_err(|e| Error::file(&output, e))?;
    if args.json {
        print_json(&serde_json::json!({ "page": output, "summary": summary }));
    } else {
        println!("{}", output.display());
    }
    Ok(())
}
