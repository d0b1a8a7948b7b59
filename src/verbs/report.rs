//! `ansc report`: one page of what tuning found, or of what an artifact's kernels take.

use ansc_runtime::Model;
use ansc_tuner::records::Sqlite;
use ansc_tuner::report;

use super::{explain, here, print_json};
use crate::cli::Report;
use crate::kinds::{self, Kind};
use crate::{Error, chosen, output};

pub(super) fn run(args: &Report) -> Result<(), Error> {
    let source = args.file.display().to_string();
    let mut note = None;
    let output = args.output.clone().unwrap_or_else(|| here(&args.file, "html"));
    output::check(&output, &[&args.file])?;
    let (page, data) = if args.file.exists() && is_artifact(args)? {
        let model = Model::load(&args.file)?;
        let wanted = args.size.wanted()?;
        let one = chosen::specialisation(&model, &wanted)?;
        note = chosen::which(&model, &one, &wanted);
        let artifact = explain::measured(&model, &one, args.threads)?;
        let page = report::artifact::page(&artifact, &source);
        (page, serde_json::json!({ "artifact": artifact }))
    } else {
        let summary = report::summarise(&Sqlite::open_existing(&args.file)?)?;
        let page = report::html::page(&summary, &source);
        (page, serde_json::json!({ "summary": summary }))
    };
    output::write_bytes(&output, page)?;
    if args.json {
        let mut object = data;
        object["page"] = output.display().to_string().into();
        print_json(&object);
    } else {
        note.iter().for_each(|note| println!("{note}"));
        println!("{}", output.display());
    }
    Ok(())
}

fn is_artifact(args: &Report) -> Result<bool, Error> {
    let kind = kinds::expect(&args.file, &[Kind::Artifact, Kind::Records])?;
    if kind != Kind::Artifact && !(args.size.shapes.is_empty() && args.size.dims.is_empty()) {
        return Err(Error::Usage("`--shape` and `--dim` choose a size of an artifact".into()));
    }
    Ok(kind == Kind::Artifact)
}
