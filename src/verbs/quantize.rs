//! `ansc quantize`: a model of floats to one with integers of 8 bits, in the form QDQ.

use ansc_frontend::{ImportOptions, qdq};
use ansc_runtime::Precision;

use super::show::counted;
use super::{here, print_json};
use crate::cli::Quantize;
use crate::kinds::{self, Kind};
use crate::quantize::progress::Bar;
use crate::quantize::{Report, Settings, decide};
use crate::{Error, output, samples};

/// Layers that the report names.
const NAMED: usize = 5;

pub(super) fn run(args: &Quantize) -> Result<(), Error> {
    kinds::expect(&args.model, &[Kind::Model])?;
    let Some(folder) = args.inputs.as_ref().or(args.calibrate.input_dir.as_ref()) else {
        return Err(Error::Usage(
            "ranges are those of samples of the model's inputs: add `--inputs DIR`, a folder of \
             NAME.npz or of folders with NAME.npy"
                .into(),
        ));
    };
    let output = args.output.clone().unwrap_or_else(|| here(&args.model, "int8.onnx"));
    output::check(&output, &[&args.model])?;
    let samples = samples::read(&args.model, folder)?;
    let settings = Settings {
        keep: args.keep.iter().cloned().collect(),
        sensitivity: args.sensitivity,
        ..args.calibrate.settings()
    };
    let import = ImportOptions::default();
    let decision = decide(&args.model, &import, &samples, &settings, &Bar::new())?;
    qdq::write(&args.model, &decision.quantization, &output)?;
    if args.json {
        print_json(&serde_json::json!({ "model": output, "report": decision.report }));
    } else {
        print(&output.display().to_string(), &decision.report);
    }
    Ok(())
}

fn print(output: &str, report: &Report) {
    let count = |precision| report.products.get(&precision).copied().unwrap_or(0);
    let (integers, floats) = (count(Precision::Int8), count(Precision::F32));
    println!("{output}: {integers} products in int8, {floats} in f32");
    println!("  calibrated by {} of {}", report.calibration, counted(report.samples, "sample"));
    println!("  error of the outputs {:.2e} of {:.1e} allowed", report.error, report.max_error);
    match report.held_back_error {
        Some(error) => {
            println!("  on {} held back {error:.2e}", counted(report.held_back, "sample"))
        }
        None => println!("  no sample was held back to judge by: give more than one"),
    }
    for layer in report.layers.iter().take(NAMED) {
        let alone = layer.alone.values().copied().fold(0.0, f64::max);
        println!("  {} costs {alone:.2e} alone: {}", layer.node, layer.precision);
    }
}
