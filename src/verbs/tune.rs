//! `ansc tune`: searches for faster schedules of a model's kernels.

use std::cell::RefCell;

use ansc_codegen::Target;
use ansc_tuner::model::Quality;
use ansc_tuner::tune::{Report, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::{compile_options, print_json};
use crate::Error;
use crate::cli::Tune;
use crate::search;

pub(super) fn run(args: &Tune) -> Result<(), Error> {
    let target = Target::parse(&args.machine.target_cpu)?;
    let mut options = compile_options(&args.specialise, target)?;
    super::compile::aim(&args.machine, &mut options)?;
    let say = match (args.json_lines, args.quiet) {
        (true, _) => Say::Lines,
        (_, true) => Say::Nothing,
        _ => Say::progress(args.json),
    };
    let watch = Terminal::new(args.trials, say);
    let how = (&args.search, &args.tuned);
    let cpu = &args.machine.target_cpu;
    let report = search::tune(&args.model, &options, how, args.trials, cpu, &watch)?;
    watch.finish();
    if args.json || args.json_lines {
        print_json(&report);
    } else if !args.quiet {
        print(&report);
        println!("kept in {}", search::records_path(&args.tuned).display());
    }
    Ok(())
}

/// What is told while tuning goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Say {
    Nothing,
    /// On standard error, if that is a terminal.
    Progress,
    /// A line of JSON for each round on standard output.
    Lines,
}

impl Say {
    pub(super) fn progress(json: bool) -> Say {
        if json { Say::Nothing } else { Say::Progress }
    }
}

pub(super) struct Terminal {
    bar: RefCell<ProgressBar>,
    say: Say,
}

/// What one round came to.
#[derive(Serialize)]
struct Round<'a> {
    task: &'a str,
    trials: usize,
    seconds: f64,
    /// Of all tasks together, each as often as it occurs.
    untuned_seconds: f64,
    best_seconds: f64,
    expected_gain: f64,
    task_best: Option<f64>,
    model: Option<Quality>,
}

impl Terminal {
    pub(super) fn finish(&self) {
        self.bar.borrow().finish_and_clear();
    }

    pub(super) fn new(trials: usize, say: Say) -> Terminal {
        let target = match say {
            Say::Progress => ProgressDrawTarget::stderr(),
            Say::Nothing | Say::Lines => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(trials as u64), target);
        let template = "{bar:30} {pos}/{len} trials, {per_sec}, {eta} left  {msg}";
        bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        Terminal { bar: RefCell::new(bar), say }
    }
}

impl Watch for Terminal {
    fn round(&self, report: &Report, task: usize) {
        let (untuned, best) = report.latency();
        let task = &report.tasks[task];
        if self.say == Say::Lines {
            print_json(&Round {
                task: &task.name,
                trials: report.trials,
                seconds: report.seconds,
                untuned_seconds: untuned,
                best_seconds: best,
                expected_gain: report.expected_gain,
                task_best: task.best,
                model: report.model,
            });
        }
        let bar = self.bar.borrow();
        bar.set_position(report.trials as u64);
        bar.set_message(format!(
            "{:.3} -> {:.3} ms, expected gain of a round {:.1}%  {}",
            untuned * 1e3,
            best * 1e3,
            report.expected_gain * 100.0,
            task.name
        ));
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
    if !report.phases.is_empty() {
        println!("{:>9} {:>7} {:>12}  phase", "seconds", "times", "median, ms");
    }
    for phase in &report.phases {
        let ms = phase.median_seconds * 1e3;
        println!("{:>9.2} {:>7} {ms:>12.2}  {}", phase.seconds, phase.times, phase.name);
    }
    println!(
        "all kernels: {:.3} ms -> {:.3} ms; {} trials in {:.0} s, of which {:.0} s searching ({:?}); another round would bring {:.1}%",
        untuned * 1e3,
        best * 1e3,
        report.trials,
        report.seconds,
        report.seconds_searching,
        report.stop,
        report.expected_gain * 100.0
    );
}
