//! The generated networks and operators on the schedules that a GPU gets, where there is no GPU:
//! their kernels as PTX, which NVIDIA's assembler takes without spilling registers; the same
//! schedules in their form for a CPU, compared with the reference interpreter; and some thread
//! blocks of every kernel, watched for races. All of that in float32, and with operands of 16 bits,
//! which tensor cores multiply. A run of all has them in full size; where they are executed, in
//! their reduced form.
//!
//! ```text
//! cargo test --release --test end_to_end gpu_networks:: ..    the smaller ones
//! ANSC_GPU_ALL=1 cargo test ..                                all of them
//! ANSC_GPU_ALL=C1,CAP cargo test ..                           some
//! ```

#[path = "../../codegen/tests/codegen/ptxas.rs"]
mod ptxas;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ansc::choice::{Aim, Gpus};
use ansc::compare::Difference;
use ansc::inputs::{self, Seed};
use ansc::pipeline::{self, Options, Silent};
use ansc::precision::{tolerance, tolerance_of};
use ansc_codegen::Target;
use ansc_frontend::{ImportOptions, import};
use ansc_graph::{Graph, interp};
use ansc_models::{Generator, Scale};
use ansc_runtime::{DType, Model, Precision, Tensor};
use ansc_sketch::gpu::{Blocks, Watched, watch};
use rayon::prelude::*;

type Failure = Box<dyn std::error::Error>;

const SMS: [u32; 2] = [80, 90];

/// Those that every run assembles and executes: all others take the assembler or the interpreter
/// minutes.
const SMALL: [&str; 9] = ["C1D", "DEP", "GMM", "GRP", "T2D", "TBG", "NRM", "SFM", "mlp"];

/// Those that only a run of all watches for races: gigabytes of weights or activations take their
/// time.
const LARGE: [&str; 14] = [
    "vgg16",
    "bert_base",
    "gpt2",
    "resnet3d_18",
    "C1",
    "C2",
    "deeplabv3_mobilenet_v3",
    "yolov8n",
    "unet",
    "unet_fp16",
    "wav2vec2",
    "llama_step",
    "minilm",
    "minilm_int8",
];

/// Inputs of the networks whose size may be anything.
const REDUCED: [(&str, &[usize]); 13] = [
    ("resnet18", &[1, 3, 64, 64]),
    ("resnet50", &[1, 3, 64, 64]),
    ("mobilenet_v2", &[1, 3, 64, 64]),
    ("inception_v1", &[1, 3, 64, 64]),
    ("resnet3d_18", &[1, 3, 4, 32, 32]),
    ("C1D", &[1, 64, 67]),
    ("C2D", &[1, 3, 61, 61]),
    ("C3D", &[1, 3, 5, 29, 29]),
    ("DEP", &[1, 32, 31, 31]),
    ("DIL", &[1, 3, 61, 61]),
    ("CBR", &[1, 3, 61, 61]),
    ("C1", &[2, 3, 227, 227]),
    ("C2", &[2, 64, 27, 27]),
];

fn is_small(generator: &Generator) -> bool {
    SMALL.contains(&generator.name)
}

fn is_not_large(generator: &Generator) -> bool {
    !LARGE.contains(&generator.name)
}

/// All that a run is asked for, or those that every run tries.
fn chosen(always: fn(&Generator) -> bool) -> impl Iterator<Item = &'static Generator> {
    let asked = std::env::var("ANSC_GPU_ALL").ok();
    ansc_models::all().filter(move |g| match asked.as_deref() {
        None => always(g),
        Some("1") => true,
        Some(names) => names.split(',').any(|name| name == g.name),
    })
}

/// A run that is asked for networks has them as published. Only what executes all of them is
/// content with their reduced form.
fn scale() -> Scale {
    if std::env::var_os("ANSC_GPU_ALL").is_some() { Scale::Full } else { Scale::Reduced }
}

fn written(generator: &Generator, folder: &Path, scale: Scale) -> Result<PathBuf, Failure> {
    let model = folder.join(format!("{}.onnx", generator.name));
    std::fs::write(&model, generator.build_at(scale).to_bytes())?;
    Ok(model)
}

fn options(import: ImportOptions, aim: Aim, precision: Precision) -> Result<Options, Failure> {
    let mut options = Options::new(import, Target::native()?);
    options.schedules.aim_at(aim);
    options.precision.model = precision;
    Ok(options)
}

/// Compiles, assembles, and tells how many kernels there are and, where there is an assembler, how
/// many registers the largest takes.
fn assembled(
    generator: &Generator,
    folder: &Path,
    precision: Precision,
) -> Result<(usize, Option<usize>), Failure> {
    let model = written(generator, folder, scale())?;
    let artifact = model.with_extension("ansc");
    let options = options(ImportOptions::default(), Aim::Gpu(Gpus::of(&SMS)), precision)?;
    pipeline::compile(&model, &artifact, &options, &Silent)?;
    let code = Model::read_gpu_code(&artifact)?.ok_or("an artifact without GPU code")?;
    let (mut kernels, mut registers) = (0, None);
    for text in &code.texts {
        let entries = text.ptx.matches(".entry ").count();
        kernels = kernels.max(entries);
        let Some(usages) = ptxas::assemble(generator.name, text.sm, &text.ptx) else { continue };
        if usages.len() != entries {
            return Err(format!("sm_{}: {} of {entries} kernels", text.sm, usages.len()).into());
        }
        for usage in usages {
            registers = registers.max(Some(usage.registers));
            if usage.spilled > 0 {
                let (kernel, bytes) = (usage.kernel, usage.spilled);
                return Err(format!("sm_{}: {kernel} spills {bytes} bytes", text.sm).into());
            }
        }
    }
    Ok((kernels, registers))
}

/// Does `work` for every chosen model; what fails, or is not right, is reported for all of them at
/// the end.
fn each_is_right<T: std::fmt::Debug>(
    what: &str,
    always: fn(&Generator) -> bool,
    precision: Precision,
    work: fn(&Generator, &Path, Precision) -> Result<T, Failure>,
    is_right: impl Fn(&T) -> bool,
) {
    let (mut tried, mut wrong) = (0, vec![]);
    for generator in chosen(always) {
        // One for each: together the models take more room than a disk may have.
        let folder = tempfile::tempdir().unwrap();
        let start = std::time::Instant::now();
        let result = work(generator, folder.path(), precision);
        let seconds = start.elapsed().as_secs_f32();
        println!("{:14} {precision} {what} {result:?} in {seconds:.1} s", generator.name);
        if !result.as_ref().is_ok_and(&is_right) {
            wrong.push(format!("{}: {result:?}", generator.name));
        }
        tried += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let least = if std::env::var_os("ANSC_GPU_ALL").is_some() { 1 } else { SMALL.len() };
    assert!(tried >= least, "{tried} models only");
}

/// Whether there are kernels, which take registers if they were assembled.
fn is_assembled((kernels, registers): &(usize, Option<usize>)) -> bool {
    *kernels > 0 && *registers != Some(0)
}

#[test]
fn kernels_are_assembled_without_spills() {
    each_is_right("(kernels, registers)", is_small, Precision::F32, assembled, is_assembled);
}

#[test]
fn kernels_of_halves_are_assembled_without_spills() {
    each_is_right("(kernels, registers)", is_small, Precision::F16, assembled, is_assembled);
}

#[test]
fn kernels_of_tf32_are_assembled_without_spills() {
    each_is_right("(kernels, registers)", is_small, Precision::Tf32, assembled, is_assembled);
}

fn reduced(generator: &Generator) -> ImportOptions {
    let found = REDUCED.iter().find(|(name, _)| *name == generator.name);
    let shapes: BTreeMap<_, _> =
        found.into_iter().map(|(_, shape)| ("x".to_owned(), shape.to_vec())).collect();
    ImportOptions { shapes, ..ImportOptions::default() }
}

/// The largest difference of the form for a CPU from the interpreter, and what it may be.
fn difference(
    generator: &Generator,
    folder: &Path,
    precision: Precision,
) -> Result<[f64; 2], Failure> {
    let model = written(generator, folder, Scale::Reduced)?;
    let artifact = model.with_extension("form.ansc");
    let import = reduced(generator);
    let options = options(import.clone(), Aim::GpuOnCpu(Gpus::of(&SMS)), precision)?;
    pipeline::compile(&model, &artifact, &options, &Silent)?;
    let loaded = Model::load(&artifact)?;
    let inputs = inputs::for_model(&loaded, Seed(1)).unwrap();
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let outputs = loaded.session()?.run(&named)?;
    let graph = import::load(&model, &import)?;
    // The generators' inputs are in the graph's order.
    let tensors: Vec<Tensor> = inputs.into_iter().map(|(_, t)| t).collect();
    let reference = interp::run(&graph, &tensors)?;
    let pairs = outputs.iter().zip(&reference);
    let each = pairs.map(|((_, found), expected)| Difference::between(found, expected));
    let each = each.map(|d| if d.non_finite > 0 { f64::INFINITY } else { d.max_rel });
    let own = if has_halves(&graph) { Precision::F16 } else { precision };
    let most = tolerance_of(&graph, precision).max(tolerance(own));
    Ok([each.fold(0.0, f64::max), most])
}

/// Whether values of the model itself are half floats, which the interpreter rounds wherever the
/// model does.
fn has_halves(graph: &Graph) -> bool {
    let values = graph.node_ids().into_iter().flat_map(|node| graph.values(node));
    values.into_iter().any(|value| graph.ty(value).dtype == DType::F16)
}

#[test]
fn schedules_compute_the_same_on_a_cpu() {
    each_is_right("difference", is_small, Precision::F32, difference, |&[d, most]| d <= most);
}

#[test]
fn schedules_of_halves_compute_the_same_on_a_cpu() {
    each_is_right("difference", is_small, Precision::F16, difference, |&[d, most]| d <= most);
}

#[test]
fn schedules_of_tf32_compute_the_same_on_a_cpu() {
    each_is_right("difference", is_small, Precision::Tf32, difference, |&[d, most]| d <= most);
}

/// Some thread blocks of every kernel of a model in full size.
fn watched(generator: &Generator, folder: &Path, precision: Precision) -> Result<Watched, Failure> {
    let model = written(generator, folder, scale())?;
    let gpus = Gpus::of(&SMS);
    let limits = gpus.limits().clone();
    let options = options(ImportOptions::default(), Aim::Gpu(gpus), precision)?;
    let subgraphs = pipeline::subgraphs(&model, &options)?;
    let each = subgraphs.par_iter().map(|subgraph| {
        let constant = vec![false; subgraph.compute.inputs.len()];
        let task = Arc::new(options.schedules.task("k", &subgraph.compute, &constant));
        let (gpu, _) = task.untuned_on_gpu(&limits).map_err(|e| e.to_string())?;
        watch(&gpu, Blocks::Sampled).map_err(|e| format!("{}: {e}\n{gpu}", subgraph.name))
    });
    Ok(each.collect::<Result<Vec<_>, String>>()?.into_iter().sum())
}

#[test]
fn schedules_have_no_races() {
    each_is_right("races", is_not_large, Precision::F32, watched, |watched| watched.kernels > 0);
}

#[test]
fn schedules_of_halves_have_no_races() {
    each_is_right("races", is_small, Precision::F16, watched, |watched| watched.kernels > 0);
}

#[test]
fn schedules_of_tf32_have_no_races() {
    each_is_right("races", is_small, Precision::Tf32, watched, |watched| watched.kernels > 0);
}
