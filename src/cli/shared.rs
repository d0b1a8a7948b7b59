//! Options that several verbs have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ansc_runtime::{DType, Precision, Precisions};
use ansc_sketch::task::Sums;
use ansc_tuner::scheduler::{self, Objective, Policy};
use ansc_tuner::{model, strategy};
use clap::Args;

use super::parse::{
    cost_models, minutes, parse_calibration, parse_count, parse_dim, parse_error, parse_extent,
    parse_minutes, parse_most, parse_objective, parse_precision, parse_shape, parse_share,
    parse_threads, parse_value, policies, strategies,
};
use crate::literal::Literal;
use crate::quantize::asked::{Asked, Calibrated};
use crate::quantize::{Calibration, Settings};
use crate::search::{self, Constants};
use crate::sizes::Span;
use crate::states::Pattern;
use crate::{Error, chosen, precision};

/// Sizes of a dimension, at least one. (A `Vec` would mean to clap that the option takes several
/// values.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(pub Vec<Span>);

/// A value of `--dim` where a model is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    Sizes(Sizes),
    /// It follows from other dimensions: a sum or product of their names.
    Follows(String),
}

/// As on the command line.
impl std::fmt::Display for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Extent::Sizes(sizes) => {
                let all: Vec<String> = sizes.0.iter().map(Span::to_string).collect();
                f.write_str(&all.join(","))
            }
            Extent::Follows(text) => f.write_str(text),
        }
    }
}

impl std::fmt::Display for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Given::Literal(literal) => literal.fmt(f),
            Given::File(path) => path.display().fmt(f),
        }
    }
}

/// A value of `--precision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrecisionOf {
    /// The node of the model; none means all of them.
    pub node: Option<String>,
    pub precision: Wanted,
}

/// A precision, or the choice of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Is(Precision),
    /// The fastest for each node that keeps outputs within a bound.
    Auto,
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wanted::Is(precision) => precision.fmt(f),
            Wanted::Auto => f.write_str("auto"),
        }
    }
}

/// How a model with open dimensions becomes one with static shapes.
#[derive(Args, Debug, Clone, Default)]
pub struct Specialise {
    /// Shape of an input, as in `x=1x3x224x224`
    #[arg(long = "shape", value_name = "NAME=1x3x224x224", value_parser = parse_shape)]
    pub shapes: Vec<(String, Vec<usize>)>,
    /// Size of a named dimension, as in `batch=1`. With several, as in `batch=1,4,16`, or with a
    /// range, as in `sequence=1..512`, the artifact chooses by the shapes of its inputs: `check`,
    /// `compile` and `tune` take these. One that follows from others is written as
    /// `total=past+1`
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_extent)]
    pub dims: Vec<(String, Extent)>,
    /// Fix the value of an input that decides shapes, as in `rate=16000`, `on=true`, `sizes=[1,2]`
    /// or `n=FILE.npy`; the artifact refuses any other value
    #[arg(long = "value", value_name = "NAME=VALUE", value_parser = parse_value)]
    pub values: Vec<(String, Given)>,
    /// The most that a whole number may be which the model computes from the data and uses as a
    /// size, by the name of its tensor in the model: as in `frames=2000`
    #[arg(long = "most", value_name = "NAME=N", value_parser = parse_most)]
    pub most: Vec<(String, usize)>,
    /// Keep a tensor in the session from run to run: what this output was is what this input is in
    /// the next run, as in `past=present`. A `*` stands for the same text in both names, as in
    /// `past_key_values.*=present.*`
    #[arg(long = "state", value_name = "INPUT=OUTPUT")]
    pub states: Vec<Pattern>,
    /// Begin at these tensors, by their names in the model: they become the inputs, and what only
    /// they need is left out
    #[arg(long = "inputs", value_name = "NAME,..", value_delimiter = ',')]
    pub begins: Vec<String>,
    /// End at these tensors, by their names in the model: they become the outputs, and what only
    /// comes after them is left out
    #[arg(long = "outputs", value_name = "NAME,..", value_delimiter = ',')]
    pub ends: Vec<String>,
}

impl Specialise {
    /// The size of an artifact that shapes and dimensions choose.
    pub fn size(&self) -> Size {
        let sizes = |(name, extent): &(String, Extent)| match extent {
            Extent::Sizes(sizes) => Some((name.clone(), sizes.clone())),
            Extent::Follows(_) => None,
        };
        let dims = self.dims.iter().filter_map(sizes).collect();
        Size { shapes: self.shapes.clone(), dims }
    }
}

/// Which of the sizes that an artifact was compiled for.
#[derive(Args, Debug, Clone, Default)]
pub struct Size {
    /// Shape of an input, as in `x=1x3x224x224`: chooses among those that the artifact was compiled
    /// for [default: the first]
    #[arg(long = "shape", value_name = "NAME=1x3x224x224", value_parser = parse_shape)]
    pub shapes: Vec<(String, Vec<usize>)>,
    /// Size of a named dimension, as in `batch=4`: chooses among those that the artifact was
    /// compiled for
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim)]
    pub dims: Vec<(String, Sizes)>,
}

impl Size {
    /// The size that is wanted.
    pub fn wanted(&self) -> Result<chosen::Wanted, Error> {
        let shapes = once("--shape", self.shapes.iter().cloned())?;
        let mut dims = BTreeMap::new();
        for (name, sizes) in once("--dim", self.dims.iter().cloned())? {
            let [Span::One(one)] = sizes.0[..] else {
                return Err(Error::Usage(format!(
                    "`--dim {name}` has several sizes; one is wanted here"
                )));
            };
            dims.insert(name, one);
        }
        Ok(chosen::Wanted { shapes, dims })
    }
}

/// The values that were given, by name. Two values for one name are an error, as they are a slip of
/// the pen.
pub(crate) fn once<T>(
    option: &str,
    given: impl Iterator<Item = (String, T)>,
) -> Result<BTreeMap<String, T>, Error> {
    let mut all = BTreeMap::new();
    for (name, value) in given {
        if all.contains_key(&name) {
            return Err(Error::Usage(format!("`{option} {name}=..` is given twice")));
        }
        all.insert(name, value);
    }
    Ok(all)
}

/// A value of `--input`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputFile {
    /// The value of one input.
    One(String, PathBuf),
    /// The value of one input, with its name in an archive.
    Entry(String, PathBuf, String),
    /// An archive that has values by name.
    All(PathBuf),
}

/// A value of `--value`.
#[derive(Debug, Clone, PartialEq)]
pub enum Given {
    Literal(Literal),
    File(PathBuf),
}

/// How long and how to search.
#[derive(Args, Debug, Clone)]
pub struct Search {
    /// Candidates that are measured in one go
    #[arg(long, default_value = "64", value_name = "N", value_parser = parse_count)]
    pub per_round: usize,
    /// Stop after this many minutes
    #[arg(long, value_name = "M", value_parser = parse_minutes, allow_hyphen_values = true)]
    pub minutes: Option<f64>,
    /// Stop when another round is expected to take away less than this share of the latency
    #[arg(long, value_name = "1%", value_parser = parse_share, allow_hyphen_values = true)]
    pub until_gain: Option<f64>,
    #[command(flatten)]
    pub sharing: Sharing,
    /// The seed of random choices
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Where a kernel finds its constants while it is measured: `auto` does as the model will,
    /// whose constants fit the last cache or do not
    #[arg(long, value_enum, default_value_t = Constants::Auto)]
    pub constants: Constants,
    /// The strategy that finds candidates; with --model it is `evolutionary` by default
    #[arg(long, default_value = "opevo", value_parser = strategies(),
          default_value_if("trained", clap::builder::ArgPredicate::IsPresent, "evolutionary"))]
    pub strategy: strategy::Kind,
    /// The model that tells good candidates from bad ones before they are measured
    #[arg(long, default_value = "hist", value_parser = cost_models())]
    pub cost_model: model::Kind,
    /// Start from a trained cost model, which `ansc train` wrote
    #[arg(long = "model", value_name = "FILE", conflicts_with = "cost_model")]
    pub trained: Option<PathBuf>,
}

/// How trials are shared out among kernels.
#[derive(Args, Debug, Clone)]
pub struct Sharing {
    /// Which kernel gets the next round: the one that promises the most, with or without a look at
    /// what similar kernels reached, or each in its turn
    #[arg(long, default_value = "gradient", value_parser = policies())]
    pub policy: Policy,
    /// The sum that is to become small: `latency` is that of all models; `requirement=5,20` the same,
    /// where a model below its milliseconds gains nothing more; `speedup` weighs models by the
    /// factor that they gain; `early-stopping=100` is the latency, where a kernel that did not
    /// improve for so many trials counts as done
    #[arg(long, default_value = "latency", value_parser = parse_objective,
          value_name = "latency|requirement=MS,..|speedup|early-stopping=N")]
    pub objective: Objective,
    /// Stop when nothing became better for so many trials
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub patience: Option<usize>,
    /// Give a kernel up that did not become better for so many trials of its own
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub kernel_patience: Option<usize>,
}

impl Sharing {
    pub fn scheduler(&self, least_gain: Option<f64>) -> scheduler::Options {
        scheduler::Options {
            policy: self.policy,
            objective: self.objective.clone(),
            task_patience: self.kernel_patience,
            patience: self.patience,
            least_gain,
            ..scheduler::Options::default()
        }
    }
}

impl From<&Search> for search::Search {
    fn from(args: &Search) -> search::Search {
        search::Search {
            per_round: args.per_round,
            time: args.minutes.map(minutes),
            scheduler: args.sharing.scheduler(args.until_gain),
            seed: args.seed,
            constants: args.constants,
            strategy: args.strategy.clone(),
            cost_model: args.cost_model,
            trained: args.trained.clone(),
        }
    }
}

/// Where measurements are kept, and what they are for.
#[derive(Args, Debug, Clone)]
pub struct Tuned {
    /// File of measurements, which others take schedules from. `ansc tune` and `ansc lab` add to
    /// it, or to `ansc-records.db` if none is named
    #[arg(long, value_name = "FILE")]
    pub records: Option<PathBuf>,
    /// Threads that schedules are for; 0 takes all cores
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse_threads)]
    pub threads: usize,
    /// Do without the schedules that come with the compiler
    #[arg(long)]
    pub no_shipped: bool,
}

impl From<&Tuned> for search::Kept {
    fn from(args: &Tuned) -> search::Kept {
        search::Kept {
            records: args.records.clone().unwrap_or_else(|| search::DEFAULT_RECORDS.into()),
            threads: args.threads,
            shipped: !args.no_shipped,
        }
    }
}

/// Options that trade accuracy for time.
#[derive(Args, Debug, Clone)]
pub struct Accuracy {
    /// Bits of what convolutions and matrix products read: `f32`, `bf16`, `f16`, `int8`, on GPUs
    /// also `tf32`, or `auto` for the fastest of them that keeps the outputs within --max-error;
    /// for one node of the model as in `conv1=f32`. Sums have 32 bits all the same. `int8` and
    /// `auto` need --input-dir
    #[arg(long = "precision", value_name = "f32|tf32|bf16|f16|int8|auto|NODE=f32|..", value_parser = parse_precision)]
    pub precisions: Vec<PrecisionOf>,
    #[command(flatten)]
    pub calibrate: Calibrate,
    /// Keep to direct sums: no Winograd convolutions, which are faster but round more, and spread
    /// infinities and NaN
    #[arg(long)]
    pub accurate: bool,
}

impl Accuracy {
    pub fn sums(&self) -> Sums {
        if self.accurate { Sums::Direct } else { Sums::Any }
    }

    pub fn precision(&self) -> Result<Precisions, Error> {
        let mut all = Precisions::default();
        let mut for_model = false;
        for PrecisionOf { node, precision } in &self.precisions {
            let twice = match node {
                Some(node) => match precision {
                    Wanted::Is(precision) if *precision != Precision::Int8 => {
                        all.nodes.insert(node.clone(), *precision).is_some()
                    }
                    wanted => {
                        return Err(Error::Usage(format!(
                            "`--precision {node}={wanted}`: {wanted} is for the whole model; take \
                             nodes out of it as in `{node}=f32`"
                        )));
                    }
                },
                None => {
                    all.model = match precision {
                        Wanted::Is(precision) => *precision,
                        Wanted::Auto => Precision::F32,
                    };
                    std::mem::replace(&mut for_model, true)
                }
            };
            if twice {
                let what = node.as_ref().map_or(String::new(), |node| format!(" {node}=.."));
                return Err(Error::Usage(format!("`--precision{what}` is given twice")));
            }
        }
        Ok(all)
    }
}

impl Accuracy {
    /// The precisions of a model that is compiled.
    pub fn asked(&self) -> Result<Asked, Error> {
        let calibrated = self.calibrated();
        let settings = Settings {
            keep: self.precisions.iter().filter_map(|p| p.node.clone()).collect(),
            any_precision: calibrated == Some(Calibrated::Auto),
            ..self.calibrate.settings()
        };
        let samples = self.calibrate.input_dir.clone();
        Ok(Asked { precisions: self.precision()?, calibrated, samples, settings })
    }

    fn calibrated(&self) -> Option<Calibrated> {
        let mut of_model = self.precisions.iter().filter(|p| p.node.is_none());
        of_model.find_map(|p| match p.precision {
            Wanted::Auto => Some(Calibrated::Auto),
            Wanted::Is(Precision::Int8) => Some(Calibrated::Int8),
            Wanted::Is(_) => None,
        })
    }
}

/// How ranges of integers are chosen.
#[derive(Args, Debug, Clone)]
pub struct Calibrate {
    /// Samples of the model's inputs: a folder of archives NAME.npz, of folders with NAME.npy, or
    /// with ONNX's test data
    #[arg(long = "input-dir", value_name = "DIR")]
    pub input_dir: Option<PathBuf>,
    /// The range of each tensor: `minmax`, `entropy`, or `percentile` as in `percentile=99.99`
    #[arg(long, value_name = "minmax|entropy|percentile", default_value = "minmax", value_parser = parse_calibration)]
    pub calibration: Calibration,
    /// A scale for each output channel of a weight, or one for all
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set)]
    pub per_channel: bool,
    /// Integers of activations
    #[arg(long, value_enum, default_value_t = Activations::U8)]
    pub activations: Activations,
    /// Largest error of the outputs with integers, relative to the largest element of an output
    /// [default: 6.3e-2]
    #[arg(long, value_name = "E", value_parser = parse_error)]
    pub max_error: Option<f64>,
}

impl Calibrate {
    pub fn settings(&self) -> Settings {
        Settings {
            calibration: self.calibration,
            per_channel: self.per_channel,
            activations: self.activations.into(),
            keep: BTreeSet::new(),
            max_error: self.max_error.unwrap_or_else(|| precision::tolerance(Precision::Int8)),
            any_precision: false,
            sensitivity: false,
        }
    }
}

/// The integers of activations.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activations {
    U8,
    I8,
}

impl From<Activations> for DType {
    fn from(activations: Activations) -> DType {
        match activations {
            Activations::U8 => DType::U8,
            Activations::I8 => DType::I8,
        }
    }
}

/// The device that kernels are compiled for.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    Cpu,
    Cuda,
    CudaOnCpu,
}

/// As on the command line.
impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Device::Cpu => "cpu",
            Device::Cuda => "cuda",
            Device::CudaOnCpu => "cuda-on-cpu",
        })
    }
}

#[derive(Args, Debug, Clone)]
pub struct Machine {
    /// `cuda` is NVIDIA GPUs; `cuda-on-cpu` their schedules on this CPU, slow, for checking
    #[arg(long, value_enum, default_value_t = Device::Cpu)]
    pub target: Device,
    /// With `--target cuda`: compute capabilities (times ten) of the GPUs to compile for, as in
    /// `80,90` [default: 80]
    #[arg(long = "sm", value_name = "80,90", value_delimiter = ',')]
    pub sms: Vec<u32>,
    /// CPU to compile for: `native`, or a name that LLVM knows such as `x86-64-v3`
    #[arg(long, default_value = "native", value_name = "NAME")]
    pub target_cpu: String,
    /// Choose schedules that nobody tuned by prices that this model corrects, of the kind
    /// `corrected` that `ansc train` makes; `learned` is the model that comes with the compiler,
    /// the default on processors of the kind that taught it; `analytic` is none; schedules of GPUs
    /// are chosen without one
    #[arg(long, value_name = "FILE|learned|analytic")]
    pub prices: Option<PathBuf>,
}
