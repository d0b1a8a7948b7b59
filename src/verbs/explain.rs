//! `ansc explain`: which kernels there are, what each takes, what limits it, and how it came to be
//! as it is.

use ansc_codegen::ptx::compile_ptx;
use ansc_codegen::{Listing, Target, listing};
use ansc_graph::cost;
use ansc_runtime::manifest::{Specialisation, Tuning};
use ansc_runtime::{Model, SessionOptions};
use ansc_sketch::gpu::GpuProgram;
use ansc_tuner::records::Limits;
use ansc_tuner::report::artifact::{Artifact, Kernel, algorithm_in_words, origin};
use ansc_tuner::roofline::{Copying, roofline};
use ansc_tuner::title::title;
use ansc_tuner::tune::Weighted;
use serde::Serialize;

use super::compile::aim;
use super::show::{counted, human_bytes, human_ops};
use super::{import_options, print_json};
use crate::Error;
use crate::choice::{Chosen, Form, rules_of};
use crate::cli::Explain;
use crate::kinds::{self, Kind};
use crate::pipeline::{self, Options};
use crate::quantize::asked;
use crate::{chosen, limits, profile, search};

pub(super) fn run(args: &Explain) -> Result<(), Error> {
    match kinds::expect(&args.file, &[Kind::Artifact, Kind::Model])? {
        Kind::Artifact => of_artifact(args),
        _ => of_model(args),
    }
}

/// Runs a specialisation of an artifact and says what became of each kernel.
pub(super) fn measured(
    model: &Model,
    one: &Specialisation,
    threads: usize,
) -> Result<Artifact, Error> {
    let mut session =
        model.session_with(&SessionOptions { threads, ..SessionOptions::default() })?;
    let seconds = profile::kernel_seconds(model, one, &mut session)?;
    let threads = session.threads();
    let manifest = model.manifest();
    // The limits of this CPU say nothing about a GPU.
    let is_cpu = manifest.target.gpus().is_none();
    let limits = is_cpu.then(|| limits::measure(threads)).transpose()?;
    let copies = if is_cpu { limits::copies(threads)? } else { vec![] };
    let tiles = if is_cpu { limits::tiles(threads)? } else { None };
    Ok(Artifact::new(manifest, one, &seconds, threads, limits, copies).with_tiles(tiles))
}

fn of_artifact(args: &Explain) -> Result<(), Error> {
    if args.listing().is_some() {
        let message = "an artifact holds no programs; explain the model to see listings";
        return Err(Error::Usage(message.into()));
    }
    if !args.specialise.values.is_empty() {
        return Err(Error::Usage("`--value` is for a model; an artifact has its values".into()));
    }
    let model = Model::load(&args.file)?;
    let wanted = args.specialise.size().wanted()?;
    let one = chosen::specialisation(&model, &wanted)?;
    let mut artifact = measured(&model, &one, args.tuned.threads)?;
    choose(&mut artifact.kernels, args, |k| (&k.name, std::slice::from_ref(&k.nodes)))?;
    if args.json {
        print_json(&artifact);
        return Ok(());
    }
    println!("{}", in_short(&artifact));
    chosen::which(&model, &one, &wanted).iter().for_each(|note| println!("{note}"));
    artifact.kernels.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    artifact.kernels.iter().for_each(|k| print_kernel(k, args.kernel.is_some()));
    Ok(())
}

fn in_short(artifact: &Artifact) -> String {
    let (took, threads) = (artifact.seconds * 1e3, counted(artifact.threads, "thread"));
    let space = if artifact.specialisation.is_empty() { "" } else { " " };
    let machine = artifact.limits.map_or(String::new(), |limits| {
        let (flops, bytes) = (limits.flops_per_second / 1e9, limits.bytes_per_second / 1e9);
        let tiles = artifact
            .tiles_per_second
            .map_or(String::new(), |tiles| format!(" ({:.0} by tiles of bf16)", tiles / 1e9));
        format!("; this machine can do {flops:.0} GFLOP/s{tiles} and {bytes:.1} GB/s")
    });
    let (model, size) = (&artifact.model, &artifact.specialisation);
    format!("{model}{space}{size}: {took:.3} ms in kernels on {threads}{machine}")
}

/// Where lines that belong to a kernel begin.
const INDENT: usize = 21;

fn print_kernel(kernel: &Kernel, in_full: bool) {
    println!("{:9.3} ms {:5.1}%  {}", kernel.seconds * 1e3, kernel.share * 100.0, kernel.title());
    let line = |text: &str| println!("{:INDENT$}{text}", "");
    if let Some(roofline) = kernel.roofline {
        line(&format!("limited by {}", roofline.in_words()));
    }
    kernel.algorithm_in_words().iter().for_each(|by| line(&format!("algorithm: {by}")));
    line(&format!("schedule: {}", origin(kernel.tuning.as_ref())));
    let Some(tuning) = kernel.tuning.as_ref().filter(|_| in_full) else { return };
    if !tuning.rules.is_empty() {
        line(&format!("made by the rules {}", tuning.rules.join(", ")));
    }
    tuning.steps.iter().for_each(|step| line(&format!("  {step}")));
}

/// A kernel of a model that was not compiled yet.
#[derive(Serialize)]
struct Planned {
    name: String,
    /// The nodes of the model where the kernel occurs first.
    nodes: Vec<String>,
    occurrences: f64,
    flops: u64,
    /// Operations of the program.
    work: u64,
    bytes: u64,
    /// How its schedule was found, and the machine that measured the times.
    tuning: Option<Tuning>,
    limited_by: Option<String>,
    /// How a sum of products is computed, as in the manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    rules: Vec<String>,
    steps: Vec<String>,
    /// The expression that it computes, as text.
    compute: String,
    /// The hash of a CPU program's code, hexadecimal: kernels of one machine code have one hash,
    /// whatever made them.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_hash: Option<String>,
    /// The program, or what was asked for in its place.
    listing: Option<String>,
}

fn of_model(args: &Explain) -> Result<(), Error> {
    let target = Target::parse(&args.machine.target_cpu)?;
    let mut options = Options::new(import_options(&args.file, &args.specialise)?, target);
    aim(&args.machine, &mut options)?;
    options.schedules.sums = args.accuracy.sums();
    asked::apply(&args.file, &args.accuracy.asked()?, &mut options)?;
    options.schedules.threads = search::threads(args.tuned.threads);
    if args.tuned.records.is_some() {
        options.schedules = search::best_schedules(&args.file, &options, &(&args.tuned).into())?;
    } else if !args.tuned.no_shipped {
        options.schedules.add_shipped(&options.target);
    }
    let mut tasks = pipeline::tasks(&args.file, &options)?;
    choose(&mut tasks, args, |t| (&t.task.name, &t.places))?;
    // The limits of this CPU say nothing about a GPU, nor about the machine that measured the
    // schedules that come with the compiler.
    let measured = args.tuned.records.is_some() && options.schedules.aim.is_cpu();
    let threads = options.schedules.threads;
    let roof = match measured {
        true => Some((limits::measure(threads)?, limits::copies(threads)?)),
        false => None,
    };
    let planned: Vec<Planned> = tasks
        .iter()
        .map(|t| planned(args, t, &options, roof.as_ref()))
        .collect::<Result<_, _>>()?;
    if args.json {
        print_json(&serde_json::json!({ "kernels": planned }));
    } else {
        planned.iter().for_each(|p| print_planned(p, args.kernel.is_some()));
    }
    Ok(())
}

fn planned(
    args: &Explain,
    weighted: &Weighted,
    options: &Options,
    roof: Option<&(Limits, Vec<Copying>)>,
) -> Result<Planned, Error> {
    let task = &weighted.task;
    let chosen = options.schedules.of(&task.name, &task.compute, &task.constant)?;
    let program = chosen.form.cpu().filter(|_| options.schedules.aim.is_cpu());
    let work = program.map_or(weighted.flops, ansc_sketch::work);
    let bytes = cost::bytes(&task.compute);
    let listing = listing_of(args, &chosen, options)?;
    let code_hash = chosen.form.cpu().map(|program| format!("{:016x}", program.code_hash()));
    let tuning = chosen.tuning;
    let own = tuning.as_ref().filter(|t| !t.shipped);
    let limited = own.zip(roof).and_then(|(t, (limits, copies))| {
        roofline(limits, copies, work, bytes, t.seconds).map(|r| r.in_words())
    });
    let known = options.schedules.tuned.get(&task.key()).filter(|_| tuning.is_some());
    let trace = known.map_or_else(|| task.untuned(), |k| k.trace.clone());
    Ok(Planned {
        name: task.name.clone(),
        nodes: weighted.nodes().to_vec(),
        occurrences: weighted.weight(),
        flops: weighted.flops,
        work,
        bytes,
        tuning,
        limited_by: limited,
        algorithm: chosen.algorithm,
        rules: rules_of(task, &trace),
        steps: trace.in_words(),
        compute: task.compute.to_string(),
        code_hash,
        listing,
    })
}

fn listing_of(args: &Explain, chosen: &Chosen, options: &Options) -> Result<Option<String>, Error> {
    let Some(wanted) = args.listing() else { return Ok(None) };
    Ok(Some(match (&chosen.form, wanted) {
        (Form::Gpu(kernels), wanted) => {
            let oldest = options.schedules.aim.gpus().and_then(|gpus| gpus.sms().first());
            gpu_listing(kernels, wanted, oldest.copied().unwrap_or_default())?
        }
        (Form::Cpu(program), None) => program.to_string(),
        (Form::Cpu(program), Some(kind)) => listing(program, "kernel", &options.target, kind)?,
    }))
}

/// The listing of the kernels: the code of each thread, or PTX of a generation.
fn gpu_listing(kernels: &GpuProgram, wanted: Option<Listing>, sm: u32) -> Result<String, Error> {
    match wanted {
        None => Ok(kernels.to_string()),
        Some(Listing::Assembly) => Ok(compile_ptx(kernels, "kernel", &Target::cuda(sm)?)?.text),
        Some(_) => Err(Error::Usage(
            "with `--target cuda`, `--loops` shows loops and `--asm` shows PTX".into(),
        )),
    }
}

fn print_planned(kernel: &Planned, in_full: bool) {
    println!(
        "{}: {} in a run, {}, {}",
        title(&kernel.nodes, &kernel.name),
        counted(kernel.occurrences as usize, "time"),
        human_ops(kernel.flops),
        human_bytes(kernel.bytes)
    );
    if let Some(by) = kernel.algorithm {
        println!("  algorithm: {}", algorithm_in_words(by));
    }
    println!("  schedule: {}", origin(kernel.tuning.as_ref()));
    if let Some(limited) = &kernel.limited_by {
        println!("  limited by {limited}");
    }
    if !kernel.rules.is_empty() {
        println!("  made by the rules {}", kernel.rules.join(", "));
    }
    kernel.steps.iter().for_each(|step| println!("    {step}"));
    if in_full {
        println!("{}", kernel.compute);
    }
    if let Some(listing) = &kernel.listing {
        println!("{listing}");
    }
}

/// Leaves the kernels that what was asked for names, itself or by a node of the model: those of
/// exactly this name, or if there are none, those whose names contain it.
fn choose<T>(
    all: &mut Vec<T>,
    args: &Explain,
    names: impl Fn(&T) -> (&String, &[Vec<String>]),
) -> Result<(), Error> {
    let Some(wanted) = args.kernel.as_deref() else { return Ok(()) };
    let any = |kernel: &T, fits: &dyn Fn(&str) -> bool| {
        let (name, places) = names(kernel);
        fits(name) || places.iter().flatten().any(|node| fits(node))
    };
    let exactly = all.iter().any(|kernel| any(kernel, &|name| name == wanted));
    let example = |kernel: &T| {
        let (name, places) = names(kernel);
        title(places.first().map_or(&[], Vec::as_slice), name)
    };
    let some = all.first().map(example);
    all.retain(|kernel| any(kernel, &|n| if exactly { n == wanted } else { n.contains(wanted) }));
    if all.is_empty() {
        let such = some.map_or(String::new(), |some| format!("; one of the kernels is {some}"));
        return Err(Error::Usage(format!(
            "no kernel or node of the model is named `{wanted}`{such}"
        )));
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
