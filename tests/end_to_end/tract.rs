//! The generated networks against tract, which reads the same files but shares no code beyond the
//! reading of protobuf, and whose results do not come from our interpreter.
//!
//! ```text
//! cargo test --release --test end_to_end tract:: ..    the smaller ones
//! ANSC_TRACT_ALL=1 cargo test ..                       all of them
//! ```

use std::path::Path;

use ansc::compare::Difference;
use ansc::inputs::{self, Seed};
use ansc::pipeline::{self, Options, Silent};
use ansc_codegen::Target;
use ansc_frontend::ImportOptions;
use ansc_models::{Generator, Kind, Scale};
use ansc_runtime::{DType, Model, Tensor};
use tract_onnx::prelude as tract;
use tract_onnx::prelude::{Framework, InferenceModelExt, IntoRunnable, IntoTValue};

/// Relative to the largest element of an output.
const TOLERANCE: f64 = 1e-4;

/// Networks that tract, built without optimisation, takes longer than all other tests together for.
const LARGE: [&str; 8] =
    ["resnet50", "vgg16", "bert_base", "gpt2", "resnet3d_18", "C3D", "C1", "C2"];

/// Networks that `tests/networks.py` compares with ONNX Runtime, in all their precisions.
const ELSEWHERE: [&str; 16] = [
    "shufflenet_v1",
    "shufflenet_v2",
    "efficientnet_b0",
    "densenet121",
    "convnext_t",
    "vit_b16",
    "swin_t",
    "mobilevit_s",
    "deeplabv3_mobilenet_v3",
    "yolov8n",
    "unet",
    "unet_fp16",
    "wav2vec2",
    "llama_step",
    "minilm",
    "minilm_int8",
];

type Failure = Box<dyn std::error::Error>;

fn ours(model: &Path, artifact: &Path) -> Result<(Vec<Tensor>, Vec<Tensor>), Failure> {
    let target = Target::native()?;
    let import = ImportOptions::default();
    pipeline::compile(model, artifact, &Options::new(import, target), &Silent)?;
    let model = Model::load(artifact)?;
    let inputs = inputs::for_model(&model, Seed(1)).unwrap();
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let outputs = model.session()?.run(&named)?;
    let tensors = |list: Vec<(String, Tensor)>| list.into_iter().map(|(_, t)| t).collect();
    Ok((tensors(inputs), tensors(outputs)))
}

fn theirs(model: &Path, inputs: &[Tensor]) -> Result<Vec<Tensor>, Failure> {
    let plan = tract_onnx::onnx().model_for_path(model)?.into_optimized()?.into_runnable()?;
    let inputs = inputs.iter().map(to_tract).collect::<Result<_, _>>()?;
    plan.run(inputs)?.iter().map(|value| from_tract(value)).collect()
}

fn to_tract(tensor: &Tensor) -> Result<tract::TValue, Failure> {
    let shape = tensor.shape();
    let value = match tensor.dtype() {
        DType::F32 => tract::Tensor::from_shape(shape, tensor.as_slice::<f32>())?,
        DType::I64 => tract::Tensor::from_shape(shape, tensor.as_slice::<i64>())?,
        other => return Err(format!("an input of {other}").into()),
    };
    Ok(value.into_tvalue())
}

fn from_tract(tensor: &tract::Tensor) -> Result<Tensor, Failure> {
    let floats = tensor.cast_to::<f32>()?;
    Ok(Tensor::from_slice(tensor.shape(), floats.try_as_plain_ram()?.as_slice::<f32>()?))
}

/// The largest relative difference over all outputs.
fn difference(generator: &Generator, folder: &Path) -> Result<f64, Failure> {
    let model = folder.join(format!("{}.onnx", generator.name));
    std::fs::write(&model, generator.build_at(Scale::Reduced).to_bytes())?;
    let (inputs, outputs) = ours(&model, &model.with_extension("ansc"))?;
    let reference = theirs(&model, &inputs)?;
    if outputs.len() != reference.len() {
        return Err(format!("{} outputs, not {}", outputs.len(), reference.len()).into());
    }
    let mut largest = 0.0f64;
    for (ours, theirs) in outputs.iter().zip(&reference) {
        if ours.shape() != theirs.shape() {
            return Err(format!("{:?}, not {:?}", ours.shape(), theirs.shape()).into());
        }
        let difference = Difference::between(ours, theirs);
        if difference.non_finite > 0 {
            return Err(format!("{} elements are not finite", difference.non_finite).into());
        }
        largest = largest.max(difference.max_rel);
    }
    Ok(largest)
}

#[test]
fn networks_agree_with_tract() {
    let all = std::env::var_os("ANSC_TRACT_ALL").is_some();
    let folder = tempfile::tempdir().unwrap();
    let chosen = ansc_models::all()
        .filter(|g| !ELSEWHERE.contains(&g.name) && (all || !LARGE.contains(&g.name)));
    let mut wrong = Vec::new();
    for generator in chosen {
        let start = std::time::Instant::now();
        let result = difference(generator, folder.path());
        let kind = if generator.kind == Kind::Network { "network" } else { "operator" };
        let seconds = start.elapsed().as_secs_f32();
        println!("{kind:8} {:14} {result:?} in {seconds:.1} s", generator.name);
        match result {
            Ok(difference) if difference <= TOLERANCE => {}
            other => wrong.push(format!("{}: {other:?}", generator.name)),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
