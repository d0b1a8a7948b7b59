//! `ansc records`: what is in a file of records, and carrying records from file to file.

use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use ansc_runtime::source::Source;
use ansc_tuner::Records;
use ansc_tuner::records::jsonl::{self, Imported, JsonlError};
use ansc_tuner::records::sqlite::Overview;
use ansc_tuner::records::{self, Merged, Sqlite, machine_name};
use serde_json::json;

use super::print_json;
use super::show::counted;
use crate::Error;
use crate::cli::{self, RecordsAction};
use crate::kinds::{self, Kind};

/// As many bad lines are shown.
const SHOWN: usize = 10;

pub(super) fn run(args: &cli::Records) -> Result<(), Error> {
    check(&args.action)?;
    match &args.action {
        RecordsAction::Ls { file } => ls(file, args.json),
        RecordsAction::Export { file, output, chosen } => {
            export(file, output.as_deref(), *chosen, args.json)
        }
        RecordsAction::Import { file, lines } => import(file, lines, args.json),
        RecordsAction::Merge { file, others } => merge(file, others, args.json),
        RecordsAction::Prune { file, keep } => prune(file, *keep, args.json),
    }
}

/// That files in the wrong place are named as what they are.
fn check(action: &RecordsAction) -> Result<(), Error> {
    let records = |file: &Path| kinds::expect_if_there(file, &[Kind::Records]);
    match action {
        RecordsAction::Ls { file }
        | RecordsAction::Export { file, .. }
        | RecordsAction::Prune { file, .. } => records(file),
        RecordsAction::Import { file, lines } => {
            records(file)?;
            lines.iter().try_for_each(|path| kinds::expect_if_there(path, &[Kind::Lines]))
        }
        RecordsAction::Merge { file, others } => {
            records(file)?;
            others.iter().try_for_each(|other| records(other))
        }
    }
}

fn ls(file: &Path, json: bool) -> Result<(), Error> {
    let records = Sqlite::open_existing(file)?;
    records.check()?;
    let mut overview = records.overview()?;
    overview.sort_by(|a, b| {
        let machine = |o: &Overview| (o.key.target.clone(), o.key.threads);
        machine(a).cmp(&machine(b))
    });
    if json {
        print_json(&json!({ "file": file, "keys": overview }));
        return Ok(());
    }
    let mut machine = None;
    for o in &overview {
        let own = (o.key.target.as_str(), o.key.threads);
        if machine.replace(own) != Some(own) {
            println!("on {}:", on(own, &overview));
            println!("{HEADING}");
        }
        print_overview(o);
    }
    Ok(())
}

const HEADING: &str = "  records  failed     best ms  GFLOP/s  subgraph";

/// A machine and its threads. Its features are only said where the name of the processor does not
/// tell it from others.
fn on((target, threads): (&str, usize), all: &[Overview]) -> String {
    let name = machine_name(target);
    let alike = |o: &&Overview| o.key.target != target && machine_name(&o.key.target) == name;
    let name = if all.iter().any(|o| alike(&o)) { target.to_owned() } else { name };
    format!("{name}, {}", counted(threads, "thread"))
}

fn print_overview(o: &Overview) {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let best = or_dash(o.best_seconds.map(|s| format!("{:.4}", s * 1e3)));
    let gflops = o.flops.zip(o.best_seconds).map(|(f, s)| format!("{:.1}", f as f64 / s / 1e9));
    let key = o.key.task.get(..12).unwrap_or(&o.key.task);
    println!(
        "  {:>7} {:>7} {best:>11} {:>8}  {}",
        o.records,
        o.failed,
        or_dash(gflops),
        o.name.as_deref().unwrap_or(key)
    );
}

fn export(file: &Path, output: Option<&Path>, chosen: bool, json: bool) -> Result<(), Error> {
    let all = Sqlite::open_existing(file)?;
    let few = if chosen { Some(records::chosen(&all)?) } else { None };
    let records: &dyn Records = few.as_ref().map_or(&all, |few| few);
    let Some(output) = output else {
        if json {
            let message = "`--json` prints one object, and the lines go there too; add `-o FILE`";
            return Err(Error::Usage(message.into()));
        }
        let stdout = &mut BufWriter::new(io::stdout().lock());
        jsonl::export(records, stdout).map_err(|e| lines_error(Path::new("-"), e))?;
        return Ok(());
    };
    let written = export_to(records, output)?;
    if json {
        print_json(&json!({ "file": output, "records": written }));
    } else {
        println!("{}: {written} records", output.display());
    }
    Ok(())
}

/// A file that is not complete does not take the place of another.
fn export_to(records: &dyn Records, output: &Path) -> Result<usize, Error> {
    let failed = |e: io::Error| Error::file(output, e);
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    let mut buffered = BufWriter::new(file.as_file_mut());
    let written = jsonl::export(records, &mut buffered).map_err(|e| lines_error(output, e))?;
    buffered.flush().map_err(failed)?;
    drop(buffered);
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(permissions).map_err(failed)?;
    file.persist(output).map_err(|e| failed(e.error))?;
    Ok(written)
}

fn import(file: &Path, lines: &[PathBuf], json: bool) -> Result<(), Error> {
    let mut records = Sqlite::open(file)?;
    let mut all = vec![];
    for path in lines {
        let done = jsonl::import(&mut *open_lines(path)?, &mut records);
        all.push((path, done.map_err(|e| lines_error(path, e))?));
    }
    if json {
        let each = |(path, done): &(&PathBuf, Imported)| json!({ "file": path, "imported": done });
        print_json(&json!({ "file": file, "from": all.iter().map(each).collect::<Vec<_>>() }));
    } else {
        all.iter().for_each(|(path, done)| print_imported(path, done));
    }
    match all.iter().map(|(_, done)| done.bad).sum() {
        0 => Ok(()),
        bad => Err(Error::Reported(format!("{}: {bad} lines were not imported", file.display()))),
    }
}

fn open_lines(path: &Path) -> Result<Box<dyn BufRead>, Error> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let source = Source::open(path).map_err(|e| Error::file(path, e))?;
    Ok(Box::new(BufReader::new(source)))
}

fn print_imported(path: &Path, done: &Imported) {
    println!(
        "{}: {} new records, {} known already, {} subgraphs, {} bad lines",
        path.display(),
        done.records,
        done.duplicates,
        done.tasks,
        done.bad
    );
    done.bad_lines.iter().take(SHOWN).for_each(|bad| println!("  {bad}"));
    if done.bad > SHOWN {
        println!("  ...");
    }
}

fn merge(file: &Path, others: &[PathBuf], json: bool) -> Result<(), Error> {
    let mut into = Sqlite::open(file)?;
    let mut all: Vec<(&PathBuf, Merged)> = vec![];
    for other in others {
        all.push((other, records::merge(&Sqlite::open_existing(other)?, &mut into)?));
    }
    if json {
        let each = |(path, done): &(&PathBuf, Merged)| json!({ "file": path, "merged": done });
        print_json(&json!({ "file": file, "from": all.iter().map(each).collect::<Vec<_>>() }));
        return Ok(());
    }
    for (path, done) in all {
        let (new, known) = (done.records, done.duplicates);
        println!("{}: {new} new records, {known} known already", path.display());
    }
    Ok(())
}

fn prune(file: &Path, keep: usize, json: bool) -> Result<(), Error> {
    let gone = Sqlite::open_existing(file)?.prune(keep)?;
    if json {
        print_json(&json!({ "file": file, "pruned": gone }));
    } else {
        println!("{}: {gone} records were removed", file.display());
    }
    Ok(())
}

/// An error of a file of lines names it; one of the file of records does already.
fn lines_error(path: &Path, error: JsonlError) -> Error {
    match error {
        JsonlError::Records(error) => Error::Records(error),
        JsonlError::Io(error) => Error::file(path, error),
    }
}
