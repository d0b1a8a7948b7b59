//! `ansc dataset`: data sets of measured traces, which cost models are trained on.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use ansc_tuner::dataset::{Dataset, Progress, Split, Stats, Watch};
use ansc_tuner::records::machine_name;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::print_json;
use super::show::counted;
use crate::cli::{self, Collect, DatasetAction};
use crate::search::Place;
use crate::{Error, dataset};

pub(super) fn run(args: &cli::Dataset) -> Result<(), Error> {
    match &args.action {
        DatasetAction::Collect(collect) => self::collect(collect, args.json),
        DatasetAction::Merge { dataset, others } => merge(dataset, others, args.json),
        DatasetAction::Split { dataset, networks, share, seed } => {
            split(dataset, networks, *share, *seed, args.json)
        }
        DatasetAction::Stats { dataset } => stats(dataset, args.json),
    }
}

fn collect(args: &Collect, json: bool) -> Result<(), Error> {
    let bar = Bar::new(json);
    #[cfg(feature = "fleet")]
    let fleet = args.fleet.options();
    #[cfg(feature = "fleet")]
    let place = Place::new(&args.target_cpu, fleet.as_ref());
    #[cfg(not(feature = "fleet"))]
    let place = Place::Here { target_cpu: &args.target_cpu };
    let collected = dataset::collect(&args.into(), place, &bar)?;
    bar.0.borrow().finish_and_clear();
    if json {
        print_json(&collected);
        return Ok(());
    }
    let p = &collected.progress;
    println!(
        "{}: {} of {} have labels of this machine, {} of {} are complete",
        args.dataset.display(),
        p.traces,
        counted(p.of_traces, "trace"),
        p.tasks,
        counted(p.of_tasks, "task")
    );
    println!("measured now: {}, of which {} have no time", counted(p.measured, "trace"), p.failed);
    if collected.interrupted {
        println!("the same command goes on from here");
    }
    Ok(())
}

struct Bar(RefCell<ProgressBar>);

impl Bar {
    fn new(json: bool) -> Bar {
        let target = if json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        let template = "{bar:12} {pos}/{len} {prefix}, {eta} left  {wide_msg}";
        bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        Bar(RefCell::new(bar))
    }
}

impl Watch for Bar {
    fn generated(&self, tasks: usize, of: usize) {
        let bar = self.0.borrow();
        bar.set_prefix("tasks");
        bar.set_length(of as u64);
        bar.set_position(tasks as u64);
        bar.set_message("making traces");
    }

    fn round(&self, p: &Progress) {
        let bar = self.0.borrow();
        if bar.prefix() != "traces" {
            // Labels of an earlier run say nothing about the speed of this run.
            bar.set_prefix("traces");
            bar.reset_elapsed();
        }
        bar.set_length(p.of_traces as u64);
        bar.set_position(p.traces as u64);
        bar.set_message(format!("{} without a time  {}", p.failed, p.name));
    }
}

fn merge(into: &Path, others: &[PathBuf], json: bool) -> Result<(), Error> {
    let dataset = Dataset::open(into)?;
    let (mut tasks, mut labels) = (0, 0);
    for other in others {
        let merged = dataset.merge(&Dataset::open(other)?)?;
        tasks += merged.tasks;
        labels += merged.labels;
    }
    if json {
        print_json(&json!({ "dataset": into, "tasks": tasks, "labels": labels }));
    } else {
        let (tasks, labels) = (counted(tasks, "task"), counted(labels, "label"));
        println!("{}: {tasks} and {labels} are new", into.display());
    }
    Ok(())
}

fn split(
    folder: &Path,
    networks: &[String],
    share: f64,
    seed: u64,
    json: bool,
) -> Result<(), Error> {
    let dataset = Dataset::open(folder)?;
    let entries = dataset.entries()?;
    let known = |n: &&String| entries.iter().any(|e| e.networks.contains_key(*n));
    if let Some(unknown) = networks.iter().find(|n| !known(n)) {
        let message = format!("no task of the data set is of a network `{unknown}`");
        return Err(Error::Usage(message));
    }
    let split = Split::of(&entries, networks, share, seed);
    dataset.set_split(&split)?;
    let (train, test) = (split.train.len(), split.test.len());
    if json {
        print_json(&json!({ "dataset": folder, "train": train, "test": test }));
    } else {
        println!("{}: {test} of {} are held out", folder.display(), counted(train + test, "task"));
    }
    Ok(())
}

fn stats(folder: &Path, json: bool) -> Result<(), Error> {
    let stats = Dataset::open(folder)?.stats()?;
    if json {
        let ids: Vec<String> = stats.platforms.iter().map(|p| p.platform.id()).collect();
        print_json(&json!({ "dataset": folder, "stats": stats, "names": ids }));
    } else {
        print(&stats);
    }
    Ok(())
}

fn print(stats: &Stats) {
    println!("{}, {}", counted(stats.tasks, "task"), counted(stats.traces, "trace"));
    if let Some(held_out) = stats.held_out {
        println!("held out: {}", counted(held_out, "task"));
    }
    let networks: Vec<String> =
        stats.networks.iter().map(|(name, tasks)| format!("{name} {tasks}")).collect();
    println!("tasks of networks: {}", networks.join(", "));
    for p in &stats.platforms {
        let (name, threads) = (machine_name(&p.platform.target), p.platform.threads);
        println!("{} ({name}, {}):", p.platform.id(), counted(threads, "thread"));
        let (labels, tasks) = (counted(p.labels, "label"), counted(p.tasks, "task"));
        println!("  {labels} of {tasks} in {:.2} hours", p.hours);
        for (why, count) in &p.failures {
            println!("  {count} {why}");
        }
    }
}
