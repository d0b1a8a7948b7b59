//! `ansc lab`: compares search strategies.

use std::cell::RefCell;

use ansc_tuner::lab::{Comparison, LabRun, Watch, html};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{import_options, print_json};
use crate::Error;
use crate::cli::Lab;
use crate::lab;

pub(super) fn run(args: &Lab) -> Result<(), Error> {
    let table = Table::new(args);
    let comparison = lab::compare(args, import_options(&args.specialise)?, &table)?;
    table.lines.clear().ok();
    if let Some(path) = &args.html {
        std::fs::write(path, html::page(&comparison)).map_err(|e| Error::file(path, e))?;
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
    println!(
        "{}: space {} of {} decisions, {} trials, {} seeds, {} threads; untuned {} ms",
        comparison.task,
        comparison.space,
        comparison.space_size,
        comparison.trials,
        comparison.seeds,
        comparison.threads,
        ms(comparison.untuned_seconds)
    );
    println!(
        "{:13} {:>10} {:>10} {:>10} {:>8} {:>9} {:>6} {:>8}",
        "strategy", "mean, ms", "deviation", "median", "GFLOP/s", "mean rank", "failed", "search"
    );
    for s in &comparison.strategies {
        let failed: usize = s.runs.iter().map(|r| r.failed).sum();
        let gflops = s.mean.map(|mean| comparison.flops as f64 / mean / 1e9);
        println!(
            "{:13} {:>10} {:>10} {:>10} {:>8} {:>9} {failed:>6} {:>6.1} s",
            s.name,
            ms(s.mean),
            ms(s.deviation),
            ms(s.median),
            gflops.map_or("-".into(), |g| format!("{g:.1}")),
            s.mean_rank.map_or("-".into(), |r| format!("{r:.2}")),
            s.searching_seconds
        );
    }
}

fn ms(seconds: Option<f64>) -> String {
    seconds.map_or("-".into(), |s| format!("{:.4}", s * 1e3))
}
