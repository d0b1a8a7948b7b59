//! `ansc explain`: which kernels there are, what each takes, what limits it, and how it came to be as it is.

use std::sync::Arc;

use ansc_codegen::ptx::compile_ptx;
use ansc_codegen::{Listing, Target, listing};
use ansc_runtime::{Model, SessionOptions};
use ansc_sketch::Task;
use ansc_sketch::gpu::GpuProgram;
use ansc_tuner::report::artifact::{Artifact, Kernel};
use ansc_tuner::roofline::roofline;
use serde::Serialize;

use super::compile::aim;
use super::inspect::is_artifact;
use super::{import_options, print_json};
use crate::Error;
use crate::choice::{Aim, Form, rules_of};
use crate::cli::Explain;
use crate::pipeline::{self, Options};
use crate::{limits, profile, search};

pub(super) fn run(args: &Explain) -> Result<(), Error> {
    if is_artifact(&args.file)? { of_artifact(args) } else { of_model(args) }
}

/// Runs an artifact and says what became of each kernel.
pub(super) fn measured(path: &std::path::Path, threads: usize) -> Result<Artifact, Error> {
    let model = Model::load(path)?;
    let mut session =
        model.session_with(&SessionOptions { threads, ..SessionOptions::default() })?;
    let seconds = profile::kernel_seconds(&model, &mut session)?;
    let threads = session.threads();
    Ok(Artifact::new(
        model.manifest(),
        &seconds,
        threads,
        limits::measure(threads)?,
        limits::copies(threads)?,
    ))
}

fn of_artifact(args: &Explain) -> Result<(), Error> {
    if args.listing().is_some() {
        let message = "an artifact holds no program any more: explain the model for listings";
        return Err(Error::Usage(message.into()));
    }
    let mut artifact = measured(&args.file, args.tuned.threads)?;
    choose(&mut artifact.kernels, args, |k| &k.name)?;
    if args.json {
        print_json(&artifact);
        return Ok(());
    }
    let limits = &artifact.limits;
    println!(
        "{}: {:.3} ms in kernels on {} threads; the machine: {:.0} GFLOP/s, {:.1} GB/s",
        artifact.model,
        artifact.seconds * 1e3,
        artifact.threads,
        limits.flops_per_second / 1e9,
        limits.bytes_per_second / 1e9
    );
    artifact.kernels.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    artifact.kernels.iter().for_each(|k| print_kernel(k, args.kernel.is_some()));
    Ok(())
}

fn print_kernel(kernel: &Kernel, in_full: bool) {
    let limited = kernel.roofline.map_or("-".into(), |r| r.in_words());
    println!(
        "{:9.3} ms {:5.1}%  {}: limited by {limited}",
        kernel.seconds * 1e3,
        kernel.share * 100.0,
        kernel.name
    );
    println!("{:19}fused: {}", "", kernel.nodes.join(" + "));
    match &kernel.tuning {
        None => println!("{:19}default schedule, not tuned", ""),
        Some(tuning) => {
            let untuned = tuning.untuned_seconds.map_or("?".into(), |s| format!("{:.3}", s * 1e3));
            println!(
                "{:19}tuned: {:.3} ms, untuned {untuned} ms; rules: {}",
                "",
                tuning.seconds * 1e3,
                tuning.rules.join(", ")
            );
            if in_full {
                tuning.steps.iter().for_each(|step| println!("{:21}{step}", ""));
            }
        }
    }
}

/// A kernel of a model that was not compiled yet.
#[derive(Serialize)]
struct Planned {
    name: String,
    occurrences: f64,
    flops: u64,
    bytes: u64,
    /// From records.
    seconds: Option<f64>,
    untuned_seconds: Option<f64>,
    limited_by: Option<String>,
    rules: Vec<String>,
    steps: Vec<String>,
    /// What it computes, as text.
    compute: String,
    /// The program, or what was asked for in its place.
    listing: Option<String>,
}

fn of_model(args: &Explain) -> Result<(), Error> {
    let target = Target::parse(&args.machine.target_cpu)?;
    let mut options = Options::new(import_options(&args.specialise)?, target);
    aim(&args.machine, &mut options)?;
    options.schedules.threads = search::threads(args.tuned.threads);
    if args.tuned.records.is_some() {
        options.schedules = search::best_schedules(&args.file, &options, &args.tuned)?;
    } else {
        options.schedules.add_shipped(&options.target);
    }
    let mut tasks = pipeline::tasks(&args.file, &options)?;
    choose(&mut tasks, args, |t| &t.task.name)?;
    // What this CPU can do says nothing of a GPU.
    let measured = args.tuned.records.is_some() && options.schedules.aim == Aim::Cpu;
    let threads = options.schedules.threads;
    let limits = measured.then(|| limits::measure(threads)).transpose()?;
    let copies = if measured { limits::copies(threads)? } else { vec![] };
    let mut planned = vec![];
    for weighted in &tasks {
        let known = options.schedules.tuned.get(&weighted.task.key());
        let seconds = known.map(|k| k.seconds);
        let bytes = ansc_graph::cost::bytes(&weighted.task.compute);
        let roof =
            limits.zip(seconds).and_then(|(l, s)| roofline(&l, &copies, weighted.flops, bytes, s));
        let trace = known.map_or_else(|| weighted.task.untuned(), |k| k.trace.clone());
        planned.push(Planned {
            name: weighted.task.name.clone(),
            occurrences: weighted.weight,
            flops: weighted.flops,
            bytes,
            seconds,
            untuned_seconds: known.and_then(|k| k.untuned_seconds),
            limited_by: roof.map(|r| r.in_words()),
            rules: rules_of(&weighted.task, &trace),
            steps: trace.in_words(),
            compute: weighted.task.compute.to_string(),
            listing: listing_of(args, &weighted.task, &options)?,
        });
    }
    if args.json {
        print_json(&planned);
    } else {
        planned.iter().for_each(|p| print_planned(p, args.kernel.is_some()));
    }
    Ok(())
}

fn listing_of(
    args: &Explain,
    task: &Arc<Task>,
    options: &Options,
) -> Result<Option<String>, Error> {
    let Some(wanted) = args.listing() else { return Ok(None) };
    let chosen = options.schedules.of(&task.name, &task.compute, &task.constant)?;
    Ok(Some(match (&chosen.form, wanted) {
        (Form::Gpu(kernels), wanted) => gpu_listing(kernels, wanted, &options.sms)?,
        (Form::Cpu(program), None) => program.to_string(),
        (Form::Cpu(program), Some(kind)) => listing(program, "kernel", &options.target, kind)?,
    }))
}

/// What each thread does, or PTX of the oldest generation that is compiled for.
fn gpu_listing(
    kernels: &GpuProgram,
    wanted: Option<Listing>,
    sms: &[u32],
) -> Result<String, Error> {
    match wanted {
        None => Ok(kernels.to_string()),
        Some(Listing::Assembly) => {
            let sm = sms.first().copied().unwrap_or_default();
            Ok(compile_ptx(kernels, "kernel", &Target::cuda(sm)?)?.text)
        }
        Some(_) => {
            Err(Error::Usage("with `--target cuda` there is --loops, and --asm for PTX".into()))
        }
    }
}

fn print_planned(kernel: &Planned, in_full: bool) {
    let ms = |s: Option<f64>| s.map_or("-".into(), |s| format!("{:.4} ms", s * 1e3));
    println!(
        "{} x{}: {:.3} MFLOP, {:.3} MB",
        kernel.name,
        kernel.occurrences,
        kernel.flops as f64 / 1e6,
        kernel.bytes as f64 / 1e6
    );
    if kernel.seconds.is_some() {
        let limited = kernel.limited_by.as_deref().unwrap_or("-");
        println!(
            "  measured {}, untuned {}; limited by {limited}",
            ms(kernel.seconds),
            ms(kernel.untuned_seconds)
        );
    }
    println!("  rules: {}", kernel.rules.join(", "));
    kernel.steps.iter().for_each(|step| println!("    {step}"));
    if in_full {
        println!("{}", kernel.compute);
    }
    if let Some(listing) = &kernel.listing {
        println!("{listing}");
    }
}

/// Leaves the kernels whose names contain what was asked for.
fn choose<T>(all: &mut Vec<T>, args: &Explain, name: impl Fn(&T) -> &String) -> Result<(), Error> {
    let Some(wanted) = &args.kernel else { return Ok(()) };
    all.retain(|kernel| name(kernel).contains(wanted.as_str()));
    if all.is_empty() {
        return Err(Error::Usage(format!("no kernel's name contains `{wanted}`")));
    }
    Ok(())
}

impl Explain {
    /// The program itself, or a listing of its code; none if neither is wanted.
    fn listing(&self) -> Option<Option<Listing>> {
        match (self.loops, self.llvm, self.asm) {
            (true, ..) => Some(None),
            (_, true, _) => Some(Some(Listing::Ir)),
            (_, _, true) => Some(Some(Listing::Assembly)),
            _ => None,
        }
    }
}
