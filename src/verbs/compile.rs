//! `ansc compile`: a model to an artifact.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ansc_codegen::Target;
use ansc_codegen::bundle::Files;
use ansc_graph::Graph;
use ansc_graph::passes::PASSES;
use ansc_sketch::machine::Correction;
use ansc_tuner::model::file;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::show::{human_bytes, human_ops};
use super::{compile_options, here, print_json};
use crate::choice::{Aim, Form, Gpus};
use crate::cli::{Compile, Device, Emit, Machine};
use crate::host;
use crate::pipeline::{self, Bundle, KernelTime, Options, Report, Watch};
use crate::quantize::{self, asked};
use crate::search::{self, Kept, Place};
use crate::{Error, output, shipped};

/// In place of a file with prices: those that come with the compiler, and none.
const LEARNED: &str = "learned";
const ANALYTIC: &str = "analytic";
/// The generation of GPUs that code is for if nothing is said.
const DEFAULT_SM: u32 = 80;
/// Specialisations that the report names, if there are many.
const SHOWN: usize = 4;

pub(super) fn run(args: &Compile) -> Result<(), Error> {
    check(args)?;
    let bundle = bundle(args)?;
    let extension = if bundle.is_some() { "o" } else { "ansc" };
    let output = args.output.clone().unwrap_or_else(|| here(&args.model, extension));
    let target = Target::parse(&args.machine.target_cpu)?;
    let mut options = compile_options(&args.model, &args.specialise, target)?;
    output::check(&output, &[&args.model])?;
    options.verify = !args.no_verify;
    options.bundle = bundle;
    options.schedules.sums = args.accuracy.sums();
    let calibrated = asked::apply(&args.model, &args.accuracy.asked()?, &mut options)?;
    aim(&args.machine, &mut options)?;
    let kept = Kept::from(&args.tuned);
    if args.trials > 0 {
        let say = super::tune::Say::progress(args.json);
        let watch = super::tune::Terminal::new(args.trials, say, &kept.records);
        let how = (&(&args.search).into(), &kept);
        let here = Place::Here { target_cpu: &args.machine.target_cpu };
        search::tune(&[(&args.model, &options)], how, args.trials, here, &watch)?;
        watch.finish();
    }
    if args.trials > 0 || args.tuned.records.is_some() {
        options.schedules = search::best_schedules(&args.model, &options, &kept)?;
    } else {
        options.schedules.threads = search::threads(kept.threads);
        if !args.untuned && kept.shipped {
            options.schedules.add_shipped(&options.target);
        }
    }
    options.schedules.small = args.small;
    let watch = Terminal::new(args);
    let report = pipeline::compile(&args.model, &output, &options, &watch)?;
    watch.bar.finish_and_clear();
    let files = bundle.map(|how| Files::beside(&output, how.weights_beside));
    if args.json {
        print_json(&json(&output, files.as_ref(), &report, calibrated.as_ref()));
    } else {
        print_report(&output.display().to_string(), &report, args.time_passes);
        calibrated.iter().for_each(print_calibrated);
        if let Some(files) = files {
            let weights = files.weights.map(|p| format!(", weights {}", p.display()));
            println!("  header {}{}", files.header.display(), weights.unwrap_or_default());
        }
    }
    Ok(())
}

fn json(
    output: &Path,
    files: Option<&Files>,
    report: &Report,
    calibrated: Option<&quantize::Report>,
) -> serde_json::Value {
    let mut json = match files {
        None => serde_json::json!({ "artifact": output, "report": report }),
        Some(Files { object, header, weights }) => serde_json::json!({
            "object": object, "header": header, "weights": weights, "report": report
        }),
    };
    if let Some(calibrated) = calibrated {
        json["calibration"] = serde_json::json!(calibrated);
    }
    json
}

/// The precisions that samples decided.
fn print_calibrated(report: &quantize::Report) {
    let products: Vec<String> =
        report.products.iter().map(|(precision, n)| format!("{n} in {precision}")).collect();
    let error = report.held_back_error.unwrap_or(report.error);
    println!(
        "  products {}; error of the outputs {error:.1e} of {:.1e} allowed",
        products.join(", "),
        report.max_error
    );
}

/// How to write a bundle, if that is wanted.
fn bundle(args: &Compile) -> Result<Option<Bundle>, Error> {
    if args.emit == Emit::Artifact {
        return match args.weights_beside {
            false => Ok(None),
            true => Err(Error::Usage("`--weights-beside` goes with `--emit bundle`".into())),
        };
    }
    if args.machine.target == Device::Cuda {
        let message = "a bundle is for a CPU: GPUs need the runtime; leave out `--target cuda`, \
                       or `--emit bundle`";
        return Err(Error::Usage(message.into()));
    }
    if args.output.as_ref().is_some_and(|path| path.extension().is_none_or(|e| e != "o")) {
        let message = "a bundle's object is named NAME.o, as in `-o NAME.o`; NAME.h goes beside it";
        return Err(Error::Usage(message.into()));
    }
    Ok(Some(Bundle { weights_beside: args.weights_beside }))
}

/// A name of a pass that there is none of would print nothing.
fn check(args: &Compile) -> Result<(), Error> {
    let known = |pass: &str| pass == "all" || PASSES.iter().any(|p| p.name == pass);
    match args.print_after.as_deref().filter(|pass| !known(pass)) {
        None => Ok(()),
        Some(pass) => {
            let names: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
            let names = names.join(", ");
            Err(Error::Usage(format!("there is no pass `{pass}`; the passes are all, {names}")))
        }
    }
}

/// Takes the prices that are asked for; those that this kind of processor taught, where nobody
/// asks.
fn corrected(machine: &Machine, options: &mut Options) -> Result<(), Error> {
    let asked = machine.prices.as_deref().map(|path| (path, path.to_str()));
    options.schedules.machine.correction = match asked {
        None => shipped::own_prices(&options.target),
        Some((_, Some(LEARNED))) => shipped::prices(&options.target),
        Some((_, Some(ANALYTIC))) => Correction::default(),
        Some((path, _)) => {
            let bytes = std::fs::read(path).map_err(|e| Error::file(path, e))?;
            let (model, _) = file::prices(&bytes).map_err(|e| Error::file(path, e))?;
            Correction(Some(Arc::new(model)))
        }
    };
    Ok(())
}

/// Takes up `--target`, beside the CPU on which every artifact is loaded.
pub(super) fn aim(machine: &Machine, options: &mut Options) -> Result<(), Error> {
    let aim = match machine.target {
        Device::Cuda => Aim::Gpu,
        Device::CudaOnCpu => Aim::GpuOnCpu,
        Device::Cpu => return corrected(machine, options),
    };
    let gpus = Gpus::of(match &machine.sms[..] {
        [] => &[DEFAULT_SM],
        some => some,
    });
    gpus.sms().iter().try_for_each(|&sm| Target::cuda(sm).map(drop))?;
    options.schedules.aim_at(aim(gpus));
    Ok(())
}

fn print_report(output: &str, report: &Report, times: bool) {
    println!("{output}: {} in {:.1} s", human_bytes(report.artifact_bytes), report.seconds);
    println!(
        "  {} nodes -> {} kernels ({} distinct), {}",
        report.nodes,
        report.kernels,
        report.distinct_kernels,
        human_ops(report.flops)
    );
    println!("  schedules: {}", report.schedules);
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
        println!("  for {}", first_of(&report.specialisations));
    }
    if times {
        for (stage, seconds) in &report.stages {
            println!("  {stage:10} {:9.1} ms", seconds * 1e3);
        }
        if let Some(KernelTime { name, schedule, codegen }) = &report.slowest_kernel {
            println!(
                "  slowest kernel: {name}, {:.1} ms to schedule, {:.1} ms of code generation",
                schedule * 1e3,
                codegen * 1e3
            );
        }
    }
}

/// The names, or the first of many.
///
/// ```text
/// n=1; n=2..16; n=17..32; n=33..64; and 3 more
/// ```
fn first_of(names: &[String]) -> String {
    match names.len() - names.len().min(SHOWN) {
        0 | 1 => names.join("; "),
        more => format!("{}; and {more} more", names[..SHOWN].join("; ")),
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
        // Hidden where standard error is not a terminal, or not ours.
        let target = match host::is_there() {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
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
