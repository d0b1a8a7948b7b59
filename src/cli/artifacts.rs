//! The options of verbs that run an artifact.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::parse::{parse_count, parse_input, parse_seconds, parse_streams, parse_threads};
use super::{InputFile, Size, Specialise};
use crate::verify::Against;

#[derive(Args, Debug)]
pub struct Run {
    /// The artifact, which `ansc compile` wrote
    pub artifact: PathBuf,
    #[command(flatten)]
    pub size: Size,
    /// A value for an input: `x=FILE.npy`, `x=FILE.npz:KEY` or a tensor of ONNX, `x=FILE.pb`; or
    /// `FILE.npz`, an archive with values for all by name [default: made-up values]
    #[arg(long = "input", value_name = "NAME=FILE|FILE.npz", value_parser = parse_input)]
    pub inputs: Vec<InputFile>,
    /// The seed of made-up values
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "inputs")]
    pub seed: u64,
    /// Where NAME.npy is written for every output
    #[arg(long, default_value = ".")]
    pub output_dir: PathBuf,
    /// Write all outputs to one archive instead
    #[arg(long, value_name = "FILE.npz", conflicts_with = "output_dir")]
    pub output: Option<PathBuf>,
    #[arg(long, default_value_t = 0, value_parser = parse_threads, help = "Threads; 0 takes all cores")]
    pub threads: usize,
    /// Compute with numbers below the smallest normal one (1.2e-38), which is slow; else they are
    /// zeros
    #[arg(long)]
    pub keep_denormals: bool,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Bench {
    /// The artifact, which `ansc compile` wrote
    pub artifact: PathBuf,
    /// Threads of each stream; 0 takes all cores [default: all cores; with several streams one]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<usize>,
    #[command(flatten)]
    pub size: Size,
    /// A value for an input: `x=FILE.npy`, `x=FILE.npz:KEY` or a tensor of ONNX, `x=FILE.pb`; or
    /// `FILE.npz`, an archive with values for all by name [default: made-up values]
    #[arg(long = "input", value_name = "NAME=FILE|FILE.npz", value_parser = parse_input)]
    pub inputs: Vec<InputFile>,
    /// Sessions that run at a time, for throughput
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_streams)]
    pub streams: usize,
    /// Timed runs of each stream [default: as many as fit 3 seconds, at least 10]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub runs: Option<usize>,
    /// How long to measure, in seconds, in place of a number of runs
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "runs")]
    pub duration: Option<Duration>,
    /// Runs before the first timed one [default: 20, or as many as fit half a second]
    #[arg(long, value_name = "N")]
    pub warmup: Option<usize>,
    /// Also show where the time goes
    #[arg(long)]
    pub per_kernel: bool,
    /// Write what each thread does when in the timed runs, as JSON that Perfetto and
    /// chrome://tracing open
    #[arg(long, value_name = "FILE.json", conflicts_with = "streams")]
    pub trace: Option<PathBuf>,
    /// List the time of every run in the JSON
    #[arg(long, requires = "json")]
    pub raw: bool,
    /// Compute with numbers below the smallest normal one (1.2e-38), which is slow; else they are
    /// zeros
    #[arg(long)]
    pub keep_denormals: bool,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Verify {
    /// The ONNX model
    pub model: PathBuf,
    /// The artifact that was compiled from it
    pub artifact: PathBuf,
    #[command(flatten)]
    pub specialise: Specialise,
    /// A value for an input in place of a made-up one: `x=FILE.npy`, `x=FILE.npz:KEY` or a tensor
    /// of ONNX, `x=FILE.pb`; or `FILE.npz`, an archive with values by name
    #[arg(long = "input", value_name = "NAME=FILE|FILE.npz", value_parser = parse_input)]
    pub inputs: Vec<InputFile>,
    /// A folder with NAME.npy for some or all inputs, or with ONNX's test data: `input_0.pb`,
    /// `output_0.pb` and so on, by the order of the model's inputs and outputs
    #[arg(long = "input-dir", value_name = "DIR")]
    pub input_dir: Option<PathBuf>,
    /// The reference to compare with [default: `recorded` if --input-dir has outputs, else
    /// `reference`]
    #[arg(long, value_enum)]
    pub against: Option<Against>,
    /// The Python that has ONNX Runtime
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: PathBuf,
    /// Write what was compared to a folder: every output, with `--layers` also the results of every
    /// kernel
    #[arg(long, value_name = "DIR")]
    pub dump_tensors: Option<PathBuf>,
    /// Largest error allowed, relative to the largest element of an output [default: by the
    /// artifact's precision: 1e-4 for f32, 6.2e-2 for bf16, 7.8e-3 for f16, 6.3e-2
    /// for int8]
    #[arg(long, allow_negative_numbers = true)]
    pub tolerance: Option<f64>,
    /// Compare after every kernel too, and name the first that diverges
    #[arg(long)]
    pub layers: bool,
    /// Compute with numbers below the smallest normal one (1.2e-38), which is slow; else they are
    /// zeros
    #[arg(long)]
    pub keep_denormals: bool,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}
