//! The generated networks and operators on the schedules that a GPU gets, where there is no GPU: their kernels as PTX,
//! which NVIDIA's assembler takes without spilling registers; and the same schedules in their form for a CPU, compared
//! with the reference interpreter.
//!
//! ```text
//! cargo test --release --test gpu_networks -- --nocapture       the smaller ones
//! ANSC_GPU_ALL=1 cargo test --release --test gpu_networks ..    all of them, in full size
//! ```

#[path = "../codegen/tests/codegen/ptxas.rs"]
mod ptxas;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ansc::choice::Aim;
use ansc::compare::Difference;
use ansc::inputs::{self, Seed};
use ansc::pipeline::{self, Options, Silent};
use ansc_codegen::Target;
use ansc_frontend::{ImportOptions, import};
use ansc_graph::interp;
use ansc_models::Generator;
use ansc_runtime::{Model, Tensor};
use ansc_sketch::gpu::{GpuLimits, lower};
use ansc_sketch::{default, exec};

type Failure = Box<dyn std::error::Error>;

const SMS: [u32; 2] = [80, 90];
const TOLERANCE: f64 = 1e-4;

/// Those of every run: all others take the assembler or the interpreter minutes.
const SMALL: [&str; 9] = ["C1D", "DEP", "GMM", "GRP", "T2D", "TBG", "NRM", "SFM", "mlp"];

/// Inputs of the networks whose size may be anything.
const REDUCED: [(&str, &[usize]); 11] = [
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
];

/// The interpreter that watches for races takes a microsecond for an operation.
const WATCHED_FLOPS: u64 = 20_000_000;

fn chosen() -> impl Iterator<Item = &'static Generator> {
    let all = std::env::var_os("ANSC_GPU_ALL").is_some();
    ansc_models::all().filter(move |g| all || SMALL.contains(&g.name))
}

fn written(generator: &Generator, folder: &Path) -> Result<PathBuf, Failure> {
    let model = folder.join(format!("{}.onnx", generator.name));
    std::fs::write(&model, generator.build().to_bytes())?;
    Ok(model)
}

fn options(import: ImportOptions, aim: Aim) -> Result<Options, Failure> {
    let mut options = Options::new(import, Target::native()?);
    options.schedules.aim = aim;
    options.sms = SMS.to_vec();
    Ok(options)
}

/// Compiles, assembles, and tells how many kernels there are, and how many registers the largest takes.
fn assembled(generator: &Generator, folder: &Path) -> Result<(usize, usize), Failure> {
    let model = written(generator, folder)?;
    let artifact = model.with_extension("ansc");
    let options = options(ImportOptions::default(), Aim::Gpu(GpuLimits::default()))?;
    pipeline::compile(&model, &artifact, &options, &Silent)?;
    let code = Model::read_gpu_code(&artifact)?.ok_or("an artifact without GPU code")?;
    let (mut kernels, mut registers) = (0, 0);
    for text in &code.texts {
        let usages = ptxas::assemble(generator.name, text.sm, &text.ptx).unwrap_or_default();
        kernels = kernels.max(usages.len());
        for usage in usages {
            registers = registers.max(usage.registers);
            if usage.spilled > 0 {
                let (kernel, bytes) = (usage.kernel, usage.spilled);
                return Err(format!("sm_{}: {kernel} spills {bytes} bytes", text.sm).into());
            }
        }
    }
    Ok((kernels, registers))
}

/// Does `work` for every chosen model; what fails, or is not right, is reported for all of them at the end.
fn each_is_right<T: std::fmt::Debug>(
    what: &str,
    work: fn(&Generator, &Path) -> Result<T, Failure>,
    is_right: fn(&T) -> bool,
) {
    let folder = tempfile::tempdir().unwrap();
    let (mut tried, mut wrong) = (0, vec![]);
    for generator in chosen() {
        let start = std::time::Instant::now();
        let result = work(generator, folder.path());
        let seconds = start.elapsed().as_secs_f32();
        println!("{:14} {what} {result:?} in {seconds:.1} s", generator.name);
        if !result.as_ref().is_ok_and(is_right) {
            wrong.push(format!("{}: {result:?}", generator.name));
        }
        tried += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(tried >= SMALL.len(), "{tried} models only");
}

#[test]
fn kernels_are_assembled_without_spills() {
    each_is_right("(kernels, registers)", assembled, |_| true);
}

fn reduced(generator: &Generator) -> ImportOptions {
    let found = REDUCED.iter().find(|(name, _)| *name == generator.name);
    let shapes: BTreeMap<_, _> =
        found.into_iter().map(|(_, shape)| ("x".to_owned(), shape.to_vec())).collect();
    ImportOptions { shapes, ..ImportOptions::default() }
}

/// The largest difference of the form for a CPU from the interpreter.
fn difference(generator: &Generator, folder: &Path) -> Result<f64, Failure> {
    let model = written(generator, folder)?;
    let artifact = model.with_extension("form.ansc");
    let import = reduced(generator);
    let options = options(import.clone(), Aim::GpuOnCpu(GpuLimits::default()))?;
    pipeline::compile(&model, &artifact, &options, &Silent)?;
    let loaded = Model::load(&artifact)?;
    let inputs = inputs::for_model(&loaded, Seed(1));
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let outputs = loaded.session()?.run(&named)?;
    let graph = import::load(&model, &import)?;
    // The generators' inputs are in the graph's order.
    let tensors: Vec<Tensor> = inputs.into_iter().map(|(_, t)| t).collect();
    let reference = interp::run(&graph, &tensors)?;
    let pairs = outputs.iter().zip(&reference);
    let each = pairs.map(|((_, found), expected)| Difference::between(found, expected));
    Ok(each.map(|d| if d.non_finite > 0 { f64::INFINITY } else { d.max_rel }).fold(0.0, f64::max))
}

#[test]
fn schedules_compute_the_same_on_a_cpu() {
    each_is_right("difference", difference, |&difference| difference <= TOLERANCE);
}

/// Every kernel of a model that is not too large, run by the interpreter that watches for races.
fn watched(generator: &Generator, folder: &Path) -> Result<usize, Failure> {
    let model = written(generator, folder)?;
    let limits = GpuLimits::default();
    let mut count = 0;
    for subgraph in pipeline::subgraphs(&model, reduced(generator))? {
        if ansc_graph::cost::flops(&subgraph.compute) > WATCHED_FLOPS {
            continue;
        }
        let program = default::gpu_program("k", &subgraph.compute, &limits)?;
        let form = lower(&program, &limits)?.checked_form();
        let types = subgraph.compute.inputs.iter();
        let inputs: Vec<Tensor> = types.map(|ty| Tensor::zeros(ty.dtype, &ty.shape)).collect();
        let found = exec::run(&form, &inputs.iter().collect::<Vec<_>>());
        found.map_err(|e| format!("{}: {e}\n{form}", subgraph.name))?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn schedules_have_no_races() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = vec![];
    for generator in chosen() {
        let result = watched(generator, folder.path());
        println!("{:14} kernels watched: {:?}", generator.name, result.as_ref().ok());
        wrong.extend(result.err().map(|e| format!("{}: {e}", generator.name)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
