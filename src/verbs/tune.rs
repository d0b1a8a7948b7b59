//! `ansc tune`: searches for faster schedules of a model's kernels.

use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ansc_codegen::Target;
use ansc_tuner::measure::{LocalMeasurer, LocalOptions, WorkerCommand};
use ansc_tuner::records::InMemory;
use ansc_tuner::strategy::{EvolutionOptions, Evolutionary};
use ansc_tuner::tune::{self, Report, TuneError, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{import_options, print_json};
use crate::Error;
use crate::choice::{Schedules, target_name};
use crate::cli::Tune;
use crate::pipeline::{self, Options};

/// Address space of a worker: enough for LLVM and a large kernel's operands.
const WORKER_MEMORY: u64 = 16 << 30;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub(super) fn run(args: &Tune) -> Result<(), Error> {
    let target = Target::parse(&args.machine.target_cpu)?;
    let threads = threads(args.search.threads);
    let schedules = Schedules { threads, ..Schedules::untuned(&target) };
    let import = import_options(&args.specialise)?;
    let options = Options { schedules, ..Options::new(import, target.clone()) };
    let tasks = pipeline::tasks(&args.model, &options)?;
    let worker = worker_command(&args.machine.target_cpu)?;
    let mut measurer =
        LocalMeasurer::new(LocalOptions::new(worker, threads)).map_err(TuneError::from)?;
    let mut records = InMemory::default();
    let tune_options = tune::Options {
        trials: args.trials,
        per_round: args.search.per_round.max(1),
        time: args.search.minutes.map(|m| Duration::from_secs_f64(m * 60.0)),
        seed: args.search.seed,
        target: target_name(&target),
        version: env!("CARGO_PKG_VERSION").into(),
        threads,
    };
    let watch = Terminal::new(args.trials, args.json);
    let strategy = |task: usize| -> Box<dyn ansc_tuner::SearchStrategy> {
        let seed = args.search.seed ^ (task as u64) << 32;
        Box::new(Evolutionary::new(EvolutionOptions::default(), seed))
    };
    let report = tune::tune(
        &tasks,
        &strategy,
        &mut measurer,
        &mut records,
        &tune_options,
        &watch,
        &INTERRUPTED,
    )?;
    watch.bar.borrow().finish_and_clear();
    if args.json {
        print_json(&report);
    } else {
        print(&report);
    }
    Ok(())
}

fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}

/// This very program, which also serves as the worker.
fn worker_command(target_cpu: &str) -> Result<WorkerCommand, Error> {
    let program = std::env::current_exe()
        .map_err(|e| Error::Machine(format!("the path of this program is unknown: {e}")))?;
    let memory = WORKER_MEMORY.to_string();
    let args = ["worker", "--target-cpu", target_cpu, "--memory", &memory].map(String::from);
    Ok(WorkerCommand { program, args: args.to_vec() })
}

/// Progress on standard error.
struct Terminal {
    bar: RefCell<ProgressBar>,
}

impl Terminal {
    fn new(trials: usize, quiet: bool) -> Terminal {
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
