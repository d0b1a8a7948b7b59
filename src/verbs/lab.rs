//! `ansc lab`: compares search strategies.

use std::cell::RefCell;
use std::path::Path;

use ansc_codegen::Target;
use ansc_tuner::lab::{Comparison, LabRun, Watch, html};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::show::counted;
use super::{import_options, print_json};
use crate::cli::Lab;
use crate::lab;
use crate::pipeline::Options;
use crate::quantize::asked;
use crate::search::Kept;
use crate::{Error, output};

pub(super) fn run(args: &Lab) -> Result<(), Error> {
    if !args.json && (!args.simulated || args.tuned.records.is_some()) {
        eprintln!("measurements go to {}", Kept::from(&args.tuned).records.display());
    }
    let table = Table::new(args);
    let compiled = |model: &Path| {
        let target = Target::parse(&args.machine.target_cpu)?;
        let mut options = Options::new(import_options(model, &args.specialise)?, target);
        options.schedules.sums = args.accuracy.sums();
        asked::apply(model, &args.accuracy.asked()?, &mut options)?;
        super::compile::aim(&args.machine, &mut options)?;
        Ok(options)
    };
    let comparison = lab::compare(&args.searches()?, compiled, &table)?;
    table.lines.clear().ok();
    if let Some(path) = &args.html {
        output::write_bytes(path, html::page(&comparison))?;
    }
    if args.json {
        print_json(&comparison);
    } else {
        print(&comparison);
    }
    Ok(())
}

/// A line for each strategy on standard error.
struct Table {
    lines: MultiProgress,
    bars: RefCell<Vec<ProgressBar>>,
    trials: u64,
}

impl Table {
    fn new(args: &Lab) -> Table {
        let target =
            if args.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let lines = MultiProgress::with_draw_target(target);
        Table { lines, bars: RefCell::new(vec![]), trials: args.trials as u64 }
    }

    fn bar(&self) -> ProgressBar {
        let style = ProgressStyle::with_template("{prefix:13} {bar:24} {pos}/{len}  {msg}");
        let bar = ProgressBar::new(self.trials).with_style(style.expect("a valid template"));
        self.lines.add(bar)
    }
}

impl Watch for Table {
    fn progress(&self, runs: &[LabRun]) {
        let mut bars = self.bars.borrow_mut();
        while bars.len() < runs.len() {
            bars.push(self.bar());
        }
        for (bar, run) in bars.iter().zip(runs) {
            bar.set_prefix(run.strategy().to_owned());
            bar.set_position(run.trials().len() as u64);
            let best = run.best().map_or("-".into(), |s| format!("{:.4} ms", s * 1e3));
            bar.set_message(format!("{best}  seed {}", run.seed()));
        }
    }
}

fn print(comparison: &Comparison) {
    println!("{}, on {}", comparison.task, counted(comparison.threads, "thread"));
    println!("the untuned schedule takes {} ms", ms(comparison.untuned_seconds));
    if comparison.interrupted {
        println!("interrupted; the same command goes on from here. Without that,");
    }
    println!(
        "each strategy measures {} of {} schedules (space {}), once with each of {}",
        comparison.trials,
        comparison.space_size,
        comparison.space,
        counted(comparison.seeds as usize, "seed")
    );
    println!(
        "{:13} {:>9} {:>9} {:>9} {:>8} {:>5} {:>6} {:>9}",
        "strategy", "mean ms", "+- ms", "median", "GFLOP/s", "rank", "failed", "search s"
    );
    for s in &comparison.strategies {
        let failed: usize = s.runs.iter().map(|r| r.failed).sum();
        let gflops = s.mean.map(|mean| comparison.flops as f64 / mean / 1e9);
        println!(
            "{:13} {:>9} {:>9} {:>9} {:>8} {:>5} {failed:>6} {:>9.1}",
            s.name,
            ms(s.mean),
            ms(s.deviation),
            ms(s.median),
            gflops.map_or("-".into(), |g| format!("{g:.1}")),
            s.mean_rank.map_or("-".into(), |r| format!("{r:.2}")),
            s.searching_seconds
        );
    }
    print!("{LEGEND}");
}

const LEGEND: &str = "\
mean, +-, median: the best schedule that each of the runs found; less is better
rank: the place among the strategies, 1 is the best, on average over the runs
failed: candidates that did not build, crashed, took too long or were wrong
search: seconds that the strategy itself took, without building and measuring
";

fn ms(seconds: Option<f64>) -> String {
    seconds.map_or("-".into(), |s| format!("{:.4}", s * 1e3))
}
