//! `ansc train`: trains cost models on a data set.

use ansc_tuner::dataset::choice::Choices;
use ansc_tuner::model::Quality;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::print_json;
use super::show::counted;
use crate::Error;
use crate::cli::Train;
use crate::train::{self, Begun, Report, Row};

pub(super) fn run(args: &Train) -> Result<(), Error> {
    let target =
        if args.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, target).with_message("reading the data set");
    let style = |template| ProgressStyle::with_template(template).expect("a valid template");
    bar.set_style(style("{spinner} {elapsed} {wide_msg}"));
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    let watch = |begun: Begun<'_>| {
        bar.set_style(style("{bar:12} {pos}/{len} trainings, {eta} left  {wide_msg}"));
        bar.set_length(begun.all as u64);
        bar.set_position(begun.done as u64);
        bar.set_message(format!("{}, seed {}", title(begun.row), begun.seed));
    };
    let report = train::train(&args.into(), &watch)?;
    bar.finish_and_clear();
    if args.json {
        print_json(&report);
        return Ok(());
    }
    print(&report);
    if let Some(output) = &args.output {
        println!("the first model is in {}; to search with it:", output.display());
        println!("  ansc tune MODEL.onnx --model {}", output.display());
    }
    Ok(())
}

fn print(report: &Report) {
    let trained = &report.trained;
    let (tasks, traces) = (counted(trained.tasks, "task"), counted(trained.traces, "label"));
    println!("trained on {traces} of {tasks}, for {}", trained.platforms[0]);
    let (tasks, traces) = (counted(report.tasks, "task"), counted(report.traces, "trace"));
    println!("judged by {traces} of {tasks} that were held out");
    println!(
        "{:22} {:>15} {:>15} {:>15} {:>15} {:>9} {:>12}",
        "model", "top-1", "top-5", "choice", "worst 5%", "train s", "ms per 1000"
    );
    for row in &report.models {
        let Row { top_1, top_5, choices, train_seconds, milliseconds, .. } = row;
        let of = |f: fn(&Choices) -> f64| choices.iter().map(f).collect::<Vec<f64>>();
        println!(
            "{:22} {:>15} {:>15} {:>15} {:>15} {train_seconds:>9.1} {milliseconds:>12.1}",
            title(row),
            figure(top_1),
            figure(top_5),
            figure(&of(|c| c.mean)),
            figure(&of(|c| c.worst)),
        );
    }
    for row in &report.models {
        let of = |f: fn(&Quality) -> f64| figure(&row.quality.iter().map(f).collect::<Vec<f64>>());
        println!(
            "{:22} pairs in order {}, recall@30 {}",
            title(row),
            of(|q| q.pairwise_accuracy),
            of(|q| q.recall_at_30)
        );
    }
    if let Some(Choices { tasks, mean, worst }) = report.best {
        println!("the best choices of {} are {mean:.4} {worst:.4}", counted(tasks, "task"));
    }
    print!("{LEGEND}");
}

/// The model, and what it saw if that is not all.
fn title(row: &Row) -> String {
    match row.labels < 1.0 {
        true => format!("{}, {:.0}%", row.name, 100.0 * row.labels),
        false => row.name.clone(),
    }
}

const LEGEND: &str = "\
top-k: the least times of the held-out tasks over those of the k highest scores, all tasks together; 1 is best
choice: the times of the schedules that it would choose, untuned, over those that the analytic price chooses, as a
geometric mean; worst 5%: the worst twentieth of its choices, over the fastest schedule that there was to choose
pairs in order: of two traces of a task, how often the faster one has the higher score; recall@30: the share of the
30 fastest traces of a task that are among its 30 highest scores
ms per 1000: from traces to scores, programs and all where the model reads programs
";

/// The mean, and how far seeds are apart.
fn figure(all: &[f64]) -> String {
    let n = all.len().max(1) as f64;
    let mean = all.iter().sum::<f64>() / n;
    let squares: f64 = all.iter().map(|v| (v - mean).powi(2)).sum();
    match all.len() {
        0 | 1 => format!("{mean:.4}"),
        _ => format!("{mean:.4} +-{:.4}", (squares / (n - 1.0)).sqrt()),
    }
}
