//! `ansc tune`: searches for faster schedules of a model's kernels.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ansc_codegen::Target;
use ansc_tuner::Refusal;
use ansc_tuner::model::Quality;
use ansc_tuner::title::title_in;
use ansc_tuner::tune::{Report, TaskReport, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::show::counted;
use super::{compile_options, print_as, print_json};
use crate::Error;
use crate::cli::{Device, PrecisionOf, Tune};
use crate::pipeline::Options;
use crate::quantize::asked;
use crate::search::{Asked, Kept, Place};
use crate::{host, search};

pub(super) fn run(args: &Tune) -> Result<(), Error> {
    let asked = args.models.iter().map(|model| asked(args, model));
    let asked = asked.collect::<Result<Vec<Options>, Error>>()?;
    let models: Vec<Asked<'_>> = args.models.iter().map(PathBuf::as_path).zip(&asked).collect();
    let say = match (args.json_lines, args.quiet) {
        (true, _) => Say::Lines,
        (_, true) => Say::Nothing,
        _ => Say::progress(args.json),
    };
    let kept = Kept::from(&args.tuned);
    let records = &kept.records;
    let watch = Terminal::new(args.trials, say, records);
    let how = (&(&args.search).into(), &kept);
    #[cfg(feature = "fleet")]
    let fleet = args.fleet.options();
    #[cfg(feature = "fleet")]
    let place = Place::new(&args.machine.target_cpu, fleet.as_ref());
    #[cfg(not(feature = "fleet"))]
    let place = Place::Here { target_cpu: &args.machine.target_cpu };
    let report = search::tune(&models, how, args.trials, place, &watch)?;
    watch.finish();
    if args.json || args.json_lines {
        print_json(&report);
    } else if !args.quiet {
        print_tasks(&report);
        print_refusals(&report);
        if args.phases {
            print_phases(&report);
        }
        print_end(&report);
        println!("measurements are in {}; to compile with them:", records.display());
        args.models.iter().for_each(|model| println!("  {}", next(args, model, records)));
    }
    Ok(())
}

/// How a model is to be compiled.
fn asked(args: &Tune, model: &Path) -> Result<Options, Error> {
    let target = Target::parse(&args.machine.target_cpu)?;
    let mut options = compile_options(model, &args.specialise, target)?;
    options.schedules.sums = args.accuracy.sums();
    asked::apply(model, &args.accuracy.asked()?, &mut options)?;
    super::compile::aim(&args.machine, &mut options)?;
    Ok(options)
}

/// The command that compiles what was tuned.
fn next(args: &Tune, model: &Path, records: &Path) -> String {
    let mut words = vec!["ansc".into(), "compile".into(), model.display().to_string()];
    if args.accuracy.accurate {
        words.push("--accurate".into());
    }
    for PrecisionOf { node, precision } in &args.accuracy.precisions {
        let node = node.as_ref().map_or(String::new(), |node| format!("{node}="));
        words.extend(["--precision".into(), format!("{node}{precision}")]);
    }
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    let calibrate = &args.accuracy.calibrate;
    if let Some(folder) = &calibrate.input_dir {
        option("--input-dir", folder.display().to_string());
        option("--calibration", calibrate.calibration.option());
    }
    if let Some(error) = calibrate.max_error {
        option("--max-error", error.to_string());
    }
    let specialise = &args.specialise;
    for (name, shape) in &specialise.shapes {
        option("--shape", format!("{name}={}", joined(shape, "x")));
    }
    for (name, sizes) in &specialise.dims {
        option("--dim", format!("{name}={sizes}"));
    }
    for pattern in &specialise.states {
        option("--state", pattern.to_string());
    }
    for (name, value) in &specialise.values {
        option("--value", format!("{name}={value}"));
    }
    let machine = &args.machine;
    if machine.target != Device::Cpu {
        option("--target", machine.target.to_string());
    }
    if !machine.sms.is_empty() {
        option("--sm", joined(&machine.sms, ","));
    }
    if machine.target_cpu != "native" {
        option("--target-cpu", machine.target_cpu.clone());
    }
    if args.tuned.threads != 0 {
        option("--threads", args.tuned.threads.to_string());
    }
    option("--records", records.display().to_string());
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn joined(all: &[impl ToString], by: &str) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(by)
}

/// As a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// How progress is shown while tuning goes on.
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
    records: PathBuf,
}

/// The result of one round.
#[derive(Serialize)]
struct Round<'a> {
    task: &'a str,
    /// The nodes of the model where the kernel occurs first.
    nodes: &'a [String],
    trials: usize,
    seconds: f64,
    /// Seconds of all tasks together, each as often as it occurs.
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

    pub(super) fn new(trials: usize, say: Say, records: &Path) -> Terminal {
        let target = match say {
            Say::Progress => ProgressDrawTarget::stderr(),
            Say::Nothing | Say::Lines => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(trials as u64), target);
        // The message is cut off where the line ends.
        let template = "{bar:12} {pos}/{len} trials, {eta} left  {wide_msg}";
        bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        Terminal { bar: RefCell::new(bar), say, records: records.to_owned() }
    }
}

impl Watch for Terminal {
    fn begins(&self, tasks: usize) {
        if self.say == Say::Progress {
            let (kernels, records) = (counted(tasks, "kernel"), self.records.display());
            eprintln!("{kernels} to tune; measurements go to {records}");
        }
    }

    fn round(&self, report: &Report, task: usize) {
        let (untuned, best) = report.latency();
        let task = &report.tasks[task];
        if self.say == Say::Lines {
            print_as(
                host::Report::Round,
                &Round {
                    task: &task.name,
                    nodes: &task.nodes,
                    trials: report.trials,
                    seconds: report.seconds,
                    untuned_seconds: untuned,
                    best_seconds: best,
                    expected_gain: report.expected_gain,
                    task_best: task.best,
                    model: report.model,
                },
            );
        }
        let bar = self.bar.borrow();
        bar.set_position(report.trials as u64);
        bar.set_message(in_short(report));
    }
}

/// The time that was gained so far, and the number of kernels that it is gained on. The sum of the
/// kernels' times is not shown, since it rises with each kernel that is measured for the first
/// time.
fn in_short(report: &Report) -> String {
    let (measured, all) = (report.measured(), report.tasks.len());
    let gained = report.gained() * 1e3;
    let kernels = if measured < all { format!("{measured} of {all}") } else { all.to_string() };
    format!("{gained:.3} ms faster, {kernels} kernels")
}

/// Characters of a line.
const WIDTH: usize = 80;

fn print_tasks(report: &Report) {
    println!(
        "{:>11} {:>11} {:>6} {:>6}  nodes (kernel), times in a run",
        "before", "best", "faster", "trials"
    );
    for task in &report.tasks {
        println!("{}", row(task));
        for (failure, count) in &task.failures {
            println!("{:36}{} {failure}", "", counted(*count, "candidate"));
        }
    }
}

fn row(task: &TaskReport) -> String {
    let ms = |s: Option<f64>| s.map_or("-".into(), |s| format!("{:.4} ms", s * 1e3));
    let both = task.best.zip(task.untuned);
    let faster = both.map_or("-".into(), |(b, u)| format!("{:.1}%", (1.0 - b / u) * 100.0));
    let times = if task.weight > 1.0 { format!(" x{}", task.weight) } else { String::new() };
    let front =
        format!("{:>11} {:>11} {faster:>6} {:>6}  ", ms(task.untuned), ms(task.best), task.trials);
    let room = WIDTH.saturating_sub(front.chars().count() + times.len());
    format!("{front}{}{times}", title_in(&task.nodes, &task.name, room))
}

/// Traces that the searches tried and never measured, all kernels together.
fn print_refusals(report: &Report) {
    let tried: usize = report.tasks.iter().map(|task| task.tried).sum();
    let mut reasons: BTreeMap<Refusal, usize> = BTreeMap::new();
    let all = report.tasks.iter().flat_map(|task| &task.refusals);
    all.for_each(|(reason, count)| *reasons.entry(*reason).or_default() += count);
    if reasons.is_empty() {
        return;
    }
    let each: Vec<String> = reasons.iter().map(|(reason, n)| format!("{n}: {reason}")).collect();
    let refused: usize = reasons.values().sum();
    println!("{} of {} make no program ({})", refused, counted(tried, "trace"), each.join("; "));
}

fn print_phases(report: &Report) {
    if let Some(model) = &report.model {
        println!("cost model, last round: {model}");
    }
    println!("{:>9} {:>7} {:>12}  phase", "seconds", "times", "median, ms");
    for phase in &report.phases {
        let ms = phase.median_seconds * 1e3;
        println!("{:>9.2} {:>7} {ms:>12.2}  {}", phase.seconds, phase.times, phase.name);
    }
}

fn print_end(report: &Report) {
    let (untuned, best) = report.latency();
    let (seconds, trials) = (report.seconds, counted(report.trials, "trial"));
    println!("stopped: {} ({trials} in {seconds:.0} s)", report.stop);
    let (measured, all) = (report.measured(), report.tasks.len());
    if measured < all {
        println!("{} of {all} kernels were not measured", all - measured);
    }
    if measured == 0 {
        return;
    }
    let gained = report.gained();
    let share = gained / untuned.max(f64::MIN_POSITIVE) * 100.0;
    println!(
        "gained: {:.3} ms of {:.3} ms ({share:.1}%), now {:.3} ms in a run",
        gained * 1e3,
        untuned * 1e3,
        best * 1e3
    );
    let expected = report.expected_gain * 100.0;
    println!("another round may gain up to {expected:.1}% of the time of a run");
}

#[cfg(test)]
mod tests {
    use ansc_tuner::tune::StopReason;
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn task(best: Option<f64>) -> TaskReport {
        TaskReport {
            name: "conv_map_178".into(),
            nodes: vec!["/features/features.0/Conv".into(), "/features/features.2/Relu".into()],
            key: String::new(),
            weight: 12.0,
            flops: 1,
            trials: 1000,
            untuned: best.map(|_| 0.5),
            best,
            failures: vec![],
            tried: 0,
            refusals: vec![],
        }
    }

    fn report(tasks: Vec<TaskReport>) -> Report {
        Report {
            stop: StopReason::Trials,
            trials: 100_000,
            seconds: 1.0,
            seconds_searching: 1.0,
            seconds_measuring: 1.0,
            phases: vec![],
            expected_gain: 0.5,
            model: None,
            tasks,
        }
    }

    #[test]
    fn lines_fit_a_terminal() {
        for best in [None, Some(0.25)] {
            let line = row(&task(best));
            assert!(line.chars().count() <= WIDTH && line.contains("Conv"), "{line}");
        }
    }

    #[test]
    fn progress_does_not_rise_when_kernels_join() {
        let one = report(vec![task(Some(0.25)), task(None)]);
        let both = report(vec![task(Some(0.25)), task(Some(0.5))]);
        assert_eq!(in_short(&one), "3000.000 ms faster, 1 of 2 kernels");
        assert_eq!(in_short(&both), "3000.000 ms faster, 2 kernels");
    }

    #[test]
    fn the_next_command_repeats_what_matters() {
        let words = [
            "ansc",
            "tune",
            "my model.onnx",
            "--dim",
            "batch=1,4",
            "--shape",
            "x=1x3",
            "--value",
            "n=16",
            "--threads",
            "2",
            "--trials",
            "10",
        ];
        let Ok(Cli { command: Some(Command::Tune(args)), .. }) = Cli::try_parse_from(words) else {
            panic!("a command that is right")
        };
        assert_eq!(
            next(&args, &args.models[0], Path::new("r.db")),
            "ansc compile 'my model.onnx' --shape x=1x3 --dim batch=1,4 --value n=16 --threads 2 --records r.db"
        );
    }
}
