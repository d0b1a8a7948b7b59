//! `ansc report`: one page of what tuning found, or of what an artifact's kernels take.

use ansc_tuner::records::Sqlite;
use ansc_tuner::report;

use super::explain;
use super::inspect::is_artifact;
use super::print_json;
use crate::Error;
use crate::cli::Report;

pub(super) fn run(args: &Report) -> Result<(), Error> {
    let source = args.file.display().to_string();
    let (page, data) = if args.file.exists() && is_artifact(&args.file)? {
        let artifact = explain::measured(&args.file, args.threads)?;
        let page = report::artifact::page(&artifact, &source);
        (page, serde_json::json!({ "artifact": artifact }))
    } else {
        let summary = report::summarise(&Sqlite::open_existing(&args.file)?)?;
        let page = report::html::page(&summary, &source);
        (page, serde_json::json!({ "summary": summary }))
    };
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension("html"));
    std::fs::write(&output, page).map_err(|e| Error::file(&output, e))?;
    if args.json {
        let mut object = data;
        object["page"] = output.display().to_string().into();
        print_json(&object);
    } else {
        println!("{}", output.display());
    }
    Ok(())
}
