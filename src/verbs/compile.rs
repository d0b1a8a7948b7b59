//! `ansc compile`: a model to an artifact.

use std::time::Duration;

use ansc_codegen::Target;
use ansc_graph::Graph;
use ansc_sketch::gpu::GpuLimits;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{compile_options, default_artifact, human_bytes, print_json};
use crate::Error;
use crate::choice::{Aim, Form};
use crate::cli::{Compile, Machine};
use crate::pipeline::{self, Options, Report, Watch};
use crate::search;

pub(super) fn run(args: &Compile) -> Result<(), Error> {
    let output = args.output.clone().unwrap_or_else(|| default_artifact(&args.model));
    let target = Target::parse(&args.machine.target_cpu)?;
    let mut options = compile_options(&args.specialise, target)?;
    options.verify = !args.no_verify;
    aim(&args.machine, &mut options)?;
    if args.trials > 0 {
        let watch = super::tune::Terminal::new(args.trials, super::tune::Say::progress(args.json));
        let how = (&args.search, &args.tuned);
        let cpu = &args.machine.target_cpu;
        search::tune(&args.model, &options, how, args.trials, cpu, &watch)?;
        watch.finish();
    }
    if args.trials > 0 || args.tuned.records.is_some() {
        options.schedules = search::best_schedules(&args.model, &options, &args.tuned)?;
    } else if !args.untuned {
        options.schedules.threads = search::threads(args.tuned.threads);
        options.schedules.add_shipped(&options.target);
    }
    options.schedules.small = args.small;
    let watch = Terminal::new(args);
    let report = pipeline::compile(&args.model, &output, &options, &watch)?;
    watch.bar.finish_and_clear();
    if args.json {
        print_json(&serde_json::json!({ "artifact": output, "report": report }));
    } else {
        print_report(&output.display().to_string(), &report, args.time_passes);
    }
    Ok(())
}

/// What `--target` says beside the CPU, on which every artifact is loaded.
pub(super) fn aim(machine: &Machine, options: &mut Options) -> Result<(), Error> {
    let limits = GpuLimits::default();
    options.schedules.aim = match machine.target.as_str() {
        "cuda" => Aim::Gpu(limits),
        "cuda-on-cpu" => Aim::GpuOnCpu(limits),
        _ => return Ok(()),
    };
    let mut sms = machine.sms.clone();
    sms.sort_unstable();
    sms.dedup();
    sms.iter().try_for_each(|&sm| Target::cuda(sm).map(drop))?;
    options.sms = sms;
    Ok(())
}

fn print_report(output: &str, report: &Report, times: bool) {
    println!("{output}: {} in {:.1} s", human_bytes(report.artifact_bytes), report.seconds);
    println!(
        "  {} nodes -> {} kernels ({} distinct), {:.2} GFLOP",
        report.nodes,
        report.kernels,
        report.distinct_kernels,
        report.flops as f64 / 1e9
    );
    let prepared = match report.prepared_bytes {
        0 => String::new(),
        bytes => format!(" ({} made of them when loading)", human_bytes(bytes as u64)),
    };
    println!(
        "  weights {}{prepared}, activations {} (without reuse {})",
        human_bytes(report.weight_bytes as u64),
        human_bytes(report.arena_bytes as u64),
        human_bytes(report.arena_bytes_without_reuse as u64)
    );
    if let [_, _, ..] = report.specialisations[..] {
        println!("  for {}", report.specialisations.join("; "));
    }
    if times {
        for (stage, seconds) in &report.stages {
            println!("  {stage:10} {:9.1} ms", seconds * 1e3);
        }
    }
}

/// Progress on standard error; what was asked to be printed goes there too, away from results.
struct Terminal {
    bar: ProgressBar,
    print_after: Option<String>,
    print_programs: bool,
}

impl Terminal {
    fn new(args: &Compile) -> Terminal {
        // Hidden where standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a valid template"),
        );
        bar.enable_steady_tick(Duration::from_millis(200));
        Terminal { bar, print_after: args.print_after.clone(), print_programs: args.print_programs }
    }
}

impl Watch for Terminal {
    fn stage(&self, name: &'static str) {
        self.bar.set_message(name);
    }

    fn after_pass(&self, pass: &str, graph: &Graph, changed: bool) {
        if self.print_after.as_deref().is_some_and(|wanted| wanted == pass || wanted == "all") {
            match changed {
                true => eprintln!("after {pass}:\n{graph}"),
                false => eprintln!("after {pass}: (unchanged)"),
            }
        }
    }

    fn program(&self, program: &Form) {
        if self.print_programs {
            eprintln!("{program}");
        }
    }
}
