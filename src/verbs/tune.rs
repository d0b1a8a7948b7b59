//! `ansc tune`: searches for faster schedules of a model's kernels.

use std::cell::RefCell;

use ansc_codegen::Target;
use ansc_tuner::tune::{Report, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{import_options, print_json};
use crate::Error;
use crate::cli::Tune;
use crate::pipeline::Options;
use crate::search;

pub(super) fn run(args: &Tune) -> Result<(), Error> {
    let target = Target::parse(&args.machine.target_cpu)?;
    let options = Options::new(import_options(&args.specialise)?, target);
    let watch = Terminal::new(args.trials, args.json);
    let how = (&args.search, &args.tuned);
    let cpu = &args.machine.target_cpu;
    let report = search::tune(&args.model, &options, how, args.trials, cpu, &watch)?;
    watch.finish();
    if args.json {
        print_json(&report);
    } else {
        print(&report);
        println!("kept in {}", search::records_path(&args.tuned).display());
    }
    Ok(())
}

/// Progress on standard error.
pub(super) struct Terminal {
    bar: RefCell<ProgressBar>,
}

impl Terminal {
    pub(super) fn finish(&self) {
        self.bar.borrow().finish_and_clear();
    }

    pub(super) fn new(trials: usize, quiet: bool) -> Terminal {
        let target =
            if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(trials as u64), target);
        let template = "{bar:30} {pos}/{len} trials, {per_sec}, {eta} left  {msg}";
        bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        Terminal { bar: RefCell::new(bar) }
    }
}

impl Watch for Terminal {
    fn round(&self, report: &Report, task: usize) {
        let bar = self.bar.borrow();
        bar.set_position(report.trials as u64);
        let (untuned, best) = report.latency();
        let name = &report.tasks[task].name;
        bar.set_message(format!("{:.3} -> {:.3} ms  {name}", untuned * 1e3, best * 1e3));
    }
}

fn print(report: &Report) {
    println!(
        "{:>9} {:>9} {:>7} {:>6} {:>8}  kernel",
        "untuned", "best", "ratio", "trials", "GFLOP/s"
    );
    for task in &report.tasks {
        let ms = |s: Option<f64>| s.map_or("-".into(), |s| format!("{:.4}", s * 1e3));
        let ratio =
            task.best.zip(task.untuned).map_or("-".into(), |(b, u)| format!("{:.3}", b / u));
        let gflops =
            task.best.map_or("-".into(), |s| format!("{:.1}", task.flops as f64 / s / 1e9));
        println!(
            "{:>9} {:>9} {ratio:>7} {:>6} {gflops:>8}  {} x{}",
            ms(task.untuned),
            ms(task.best),
            task.trials,
            task.name,
            task.weight
        );
        for (failure, count) in &task.failures {
            println!("{:>42} {count} candidates: {failure}", "");
        }
    }
    let (untuned, best) = report.latency();
    if let Some(model) = &report.model {
        println!("cost model, last round: {model}");
    }
    println!(
        "all kernels: {:.3} ms -> {:.3} ms; {} trials in {:.0} s, of which {:.0} s searching ({:?})",
        untuned * 1e3,
        best * 1e3,
        report.trials,
        report.seconds,
        report.seconds_searching,
        report.stop
    );
}
