//! The command line: verbs, options, and the parsing of `NAME=VALUE` arguments.

use std::path::PathBuf;
use std::time::Duration;

use ansc_runtime::pool::MOST_THREADS;
use clap::{Args, Parser, Subcommand};

#[derive(Parser, Debug)]
#[command(name = "ansc", version, about = "Ahead-of-time compiler for ONNX models")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List everything in a model that cannot be compiled, all at once
    Check(Check),
    /// Compile a model to one artifact
    Compile(Compile),
    /// Run an artifact on .npy inputs
    Run(Run),
    /// Search for faster schedules of a model's kernels, and keep what is found
    Tune(Tune),
    /// Measure the latency of an artifact
    Bench(Bench),
    /// Compare an artifact with the reference interpreter
    Verify(Verify),
    /// Show what a model or an artifact consists of
    Inspect(Inspect),
    /// Show what each kernel takes, what limits it, and how it was scheduled
    Explain(Explain),
    /// Generate the standard networks as ONNX files, or fetch real ones
    Models(Models),
    /// List the operators that can be compiled, as a page of Markdown
    Operators(Operators),
    /// Show the schedules that a search over each subgraph of a model starts from
    Sketches(Sketches),
    /// Show, carry, merge and prune what tuning measured
    Records(Records),
    /// Make a page of what tuning found, or of an artifact's kernels
    Report(Report),
    /// Compare search strategies on one subgraph: the same space, budget and measurer, several seeds
    Lab(Lab),
    /// Build and run candidates at the word of `tune`
    #[command(hide = true)]
    Worker(Worker),
}

impl Command {
    pub fn wants_json(&self) -> bool {
        match self {
            Command::Check(a) => a.json,
            Command::Compile(a) => a.json,
            Command::Run(a) => a.json,
            Command::Bench(a) => a.json,
            Command::Verify(a) => a.json,
            Command::Inspect(a) => a.json,
            Command::Explain(a) => a.json,
            Command::Models(a) => a.json,
            Command::Operators(a) => a.json,
            Command::Sketches(a) => a.json,
            Command::Records(a) => a.json,
            Command::Report(a) => a.json,
            Command::Lab(a) => a.json,
            Command::Tune(a) => a.json || a.json_lines,
            Command::Worker(_) => false,
        }
    }
}

/// Sizes of a dimension, at least one. (A `Vec` would mean to clap that the option takes several values.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(pub Vec<usize>);

/// How a model with open dimensions becomes one with static shapes.
#[derive(Args, Debug, Clone, Default)]
pub struct Specialise {
    /// Shape of an input, as in `x=1x3x224x224`
    #[arg(long = "shape", value_name = "NAME=1x3x224x224", value_parser = parse_shape)]
    pub shapes: Vec<(String, Vec<usize>)>,
    /// Size of a named dimension, as in `batch=1`. With several, as in `batch=1,4,16`, the artifact holds the
    /// model for each, and chooses by the shapes of its inputs
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim)]
    pub dims: Vec<(String, Sizes)>,
    /// Fix the value of an input that decides shapes; the artifact refuses any other value
    #[arg(long = "value", value_name = "NAME=FILE.npy", value_parser = parse_file)]
    pub values: Vec<(String, PathBuf)>,
}

#[derive(Args, Debug)]
pub struct Check {
    pub model: PathBuf,
    #[command(flatten)]
    pub specialise: Specialise,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Compile {
    pub model: PathBuf,
    /// Where the artifact goes [default: the model's name with .ansc]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub specialise: Specialise,
    #[command(flatten)]
    pub machine: Machine,
    /// Search first: candidates to measure, all kernels together
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub trials: usize,
    #[command(flatten)]
    pub search: Search,
    #[command(flatten)]
    pub tuned: Tuned,
    /// Default schedules only, not those that come with the compiler
    #[arg(long, conflicts_with_all = ["trials", "records"])]
    pub untuned: bool,
    /// Less memory, but slower: weights are kept as they are, and transformed in each run where that is needed
    #[arg(long)]
    pub small: bool,
    /// Print the graph after a pass (`all` for every one)
    #[arg(long, value_name = "PASS")]
    pub print_after: Option<String>,
    /// Print every kernel's loop nest
    #[arg(long)]
    pub print_programs: bool,
    /// Print what each stage took
    #[arg(long)]
    pub time_passes: bool,
    /// Skip the verifiers between stages
    #[arg(long)]
    pub no_verify: bool,
    #[arg(long)]
    pub json: bool,
}

/// How long and how to search.
#[derive(Args, Debug, Clone)]
pub struct Search {
    /// Candidates that are measured in one go
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub per_round: usize,
    /// Stop after this many minutes
    #[arg(long, value_name = "M")]
    pub minutes: Option<f64>,
    /// Stop when another round is expected to take away less than this share of the latency
    #[arg(long, value_name = "1%", value_parser = parse_share)]
    pub until_gain: Option<f64>,
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Whether a kernel finds its constants in the caches: `auto` does as the model will, whose constants fit the last cache
    /// or do not
    #[arg(long, value_enum, default_value_t = Constants::Auto)]
    pub constants: Constants,
    /// How candidates are found
    #[arg(long, default_value = "opevo", value_parser = ansc_tuner::strategy::NAMES)]
    pub strategy: String,
    /// What tells good candidates from bad ones before they are measured
    #[arg(long, default_value = "hist", value_parser = ansc_tuner::model::NAMES)]
    pub cost_model: String,
}

/// Where a kernel finds its constants while it is measured.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constants {
    Auto,
    /// In the caches.
    Warm,
    /// In memory.
    Cold,
}

/// Where measurements are kept, and what they are for.
#[derive(Args, Debug, Clone)]
pub struct Tuned {
    /// Database of measurements
    #[arg(long, value_name = "FILE")]
    pub records: Option<PathBuf>,
    /// Threads that schedules are for; 0 takes all cores
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse_threads)]
    pub threads: usize,
}

#[derive(Args, Debug)]
pub struct Tune {
    pub model: PathBuf,
    #[command(flatten)]
    pub specialise: Specialise,
    #[command(flatten)]
    pub machine: Machine,
    /// Candidates to measure, all kernels together
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub trials: usize,
    #[command(flatten)]
    pub search: Search,
    #[command(flatten)]
    pub tuned: Tuned,
    /// Print nothing but errors
    #[arg(short, long, conflicts_with_all = ["json", "json_lines"])]
    pub quiet: bool,
    /// Print a line of JSON after every round, and the report as the last one
    #[arg(long)]
    pub json_lines: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Worker {
    #[command(flatten)]
    pub machine: Machine,
    /// Bytes of address space that the process may use
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<u64>,
}

#[derive(Args, Debug, Clone)]
pub struct Machine {
    /// `cuda` is NVIDIA GPUs; `cuda-on-cpu` their schedules on this CPU, slow, for checking
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "cuda", "cuda-on-cpu"])]
    pub target: String,
    /// With `--target cuda`: compute capabilities (times ten) of the GPUs to compile for, as in `80,90`
    #[arg(long = "sm", value_name = "80,90", value_delimiter = ',', default_value = "80")]
    pub sms: Vec<u32>,
    /// CPU to compile for: `native`, or a name that LLVM knows such as `x86-64-v3`
    #[arg(long, default_value = "native", value_name = "NAME")]
    pub target_cpu: String,
}

#[derive(Args, Debug)]
pub struct Run {
    pub artifact: PathBuf,
    #[arg(long = "input", value_name = "NAME=FILE.npy", value_parser = parse_file)]
    pub inputs: Vec<(String, PathBuf)>,
    /// Where NAME.npy is written for every output
    #[arg(long, default_value = ".")]
    pub output_dir: PathBuf,
    #[arg(long, default_value_t = 0, value_parser = parse_threads, help = "Threads; 0 takes all cores")]
    pub threads: usize,
    /// Compute with numbers below the smallest normal one (1.2e-38), which is slow; else they are zeros
    #[arg(long)]
    pub keep_denormals: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Bench {
    pub artifact: PathBuf,
    #[arg(long, default_value_t = 0, value_parser = parse_threads, help = "Threads; 0 takes all cores")]
    pub threads: usize,
    /// Shape of an input, as in `x=1x3x224x224`: chooses among those that the artifact was compiled for
    /// [default: the first]
    #[arg(long = "shape", value_name = "NAME=1x3x224x224", value_parser = parse_shape)]
    pub shapes: Vec<(String, Vec<usize>)>,
    /// Timed runs [default: as many as fit 3 seconds, at least 10]
    #[arg(long)]
    pub runs: Option<usize>,
    /// Also show where the time goes
    #[arg(long)]
    pub per_kernel: bool,
    /// Compute with numbers below the smallest normal one (1.2e-38), which is slow; else they are zeros
    #[arg(long)]
    pub keep_denormals: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Verify {
    pub model: PathBuf,
    pub artifact: PathBuf,
    #[command(flatten)]
    pub specialise: Specialise,
    #[arg(long = "input", value_name = "NAME=FILE.npy", value_parser = parse_file)]
    pub inputs: Vec<(String, PathBuf)>,
    /// Largest error allowed, relative to the largest element of an output
    #[arg(long, default_value_t = 1e-4)]
    pub tolerance: f64,
    /// Compare after every kernel too, and name the first that diverges
    #[arg(long)]
    pub layers: bool,
    /// Compute with numbers below the smallest normal one (1.2e-38), which is slow; else they are zeros
    #[arg(long)]
    pub keep_denormals: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Inspect {
    /// An ONNX model or an artifact
    pub file: PathBuf,
    #[command(flatten)]
    pub specialise: Specialise,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Explain {
    /// An artifact, whose kernels are timed, or an ONNX model
    pub file: PathBuf,
    /// Only kernels whose names contain this, and those in full
    pub kernel: Option<String>,
    #[command(flatten)]
    pub specialise: Specialise,
    #[command(flatten)]
    pub machine: Machine,
    #[command(flatten)]
    pub tuned: Tuned,
    /// Show the loop nests of a model's kernels
    #[arg(long, conflicts_with_all = ["llvm", "asm"])]
    pub loops: bool,
    /// Show the LLVM IR of a model's kernels
    #[arg(long, conflicts_with = "asm")]
    pub llvm: bool,
    /// Show the assembly of a model's kernels
    #[arg(long)]
    pub asm: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Sketches {
    pub model: PathBuf,
    #[command(flatten)]
    pub specialise: Specialise,
    /// Only this subgraph
    #[arg(long, value_name = "N")]
    pub subgraph: Option<usize>,
    /// Cores to schedule for [default: those of this machine]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub cores: Option<usize>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Records {
    #[command(subcommand)]
    pub action: RecordsAction,
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum RecordsAction {
    /// Show what a file of records holds, by subgraph and machine
    Ls { file: PathBuf },
    /// Write records as lines of JSON
    Export {
        file: PathBuf,
        /// Where the lines go [default: standard output]
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// Only what was chosen over an untuned schedule, and that one, with their medians
        #[arg(long)]
        chosen: bool,
    },
    /// Add records that are lines of JSON
    Import {
        file: PathBuf,
        /// Files of lines; `-` is standard input
        #[arg(required = true)]
        lines: Vec<PathBuf>,
    },
    /// Add the records of other files
    Merge {
        file: PathBuf,
        #[arg(required = true)]
        others: Vec<PathBuf>,
    },
    /// Forget all but the fastest schedules of each subgraph, and the untuned one
    Prune {
        file: PathBuf,
        /// Schedules to keep of each
        #[arg(long, default_value_t = 64, value_name = "N")]
        keep: usize,
    },
}

#[derive(Args, Debug)]
pub struct Report {
    /// A file of records, or an artifact, which is run and timed
    pub file: PathBuf,
    /// Where the page goes [default: the name of the file with .html]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    #[arg(long, default_value_t = 0, value_parser = parse_threads,
          help = "Threads that an artifact runs on; 0 takes all cores")]
    pub threads: usize,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Lab {
    /// A generated workload (`ansc models` lists them) or an ONNX model
    pub workload: String,
    /// The subgraph to search [default: the one with the most operations]
    #[arg(long, value_name = "N")]
    pub subgraph: Option<usize>,
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", value_parser = ansc_tuner::strategy::NAMES,
          default_value = "evolutionary,opevo,g-bfs,n-a2c,annealing,rnn,random")]
    pub strategies: Vec<String>,
    /// Candidates that each run measures
    #[arg(long, default_value_t = 512, value_name = "N")]
    pub trials: usize,
    /// Runs of each strategy, with the seeds 0, 1, ..
    #[arg(long, default_value_t = 5, value_name = "K")]
    pub seeds: u64,
    /// What is searched: `all` that tune searches, `rules`, or tiles alone as in `SSRSRS` or `SSRSRS+unroll`
    #[arg(long, default_value = "all", value_name = "SPACE")]
    pub space: String,
    /// Measure on a device that is only computed: exact, quick, and the same everywhere
    #[arg(long)]
    pub simulated: bool,
    /// Candidates that are measured in one go
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub per_round: usize,
    /// What tells good candidates from bad ones before they are measured, for strategies that ask
    #[arg(long, default_value = "hist", value_parser = ansc_tuner::model::NAMES)]
    pub cost_model: String,
    /// Leaders of each run that are measured again at its end
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub settle: usize,
    /// A candidate that takes longer, load and all, has failed: bad ones take thousands of times as long as good ones
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = parse_seconds)]
    pub run_limit: Duration,
    #[command(flatten)]
    pub specialise: Specialise,
    #[command(flatten)]
    pub machine: Machine,
    #[command(flatten)]
    pub tuned: Tuned,
    /// Write a page with the curves
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Operators {
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Models {
    /// Names to make; none lists them
    pub names: Vec<String>,
    #[arg(short, long, default_value = "models/generated")]
    pub output_dir: PathBuf,
    /// Fetch the named real models instead of generating (needs pip)
    #[arg(long)]
    pub fetch: bool,
    #[arg(long)]
    pub json: bool,
}

fn split_pair(text: &str) -> Result<(&str, &str), String> {
    // Names of ONNX values may themselves hold `=`; sizes and file names rarely do.
    text.rsplit_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("`{text}` is not NAME=VALUE"))
}

fn parse_shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let (name, shape) = split_pair(text)?;
    if shape.is_empty() {
        return Ok((name.into(), Vec::new()));
    }
    let dims =
        shape.split('x').map(|d| d.parse().map_err(|_| format!("`{d}` in `{text}` is not a size")));
    Ok((name.into(), dims.collect::<Result<_, _>>()?))
}

fn parse_dim(text: &str) -> Result<(String, Sizes), String> {
    let (name, sizes) = split_pair(text)?;
    let parse = |size: &str| size.parse().map_err(|_| format!("`{size}` is not a size"));
    let sizes = sizes.split(',').map(parse).collect::<Result<Vec<usize>, _>>()?;
    match sizes.iter().enumerate().find(|(i, size)| sizes[..*i].contains(size)) {
        Some((_, twice)) => Err(format!("`{text}` has {twice} twice")),
        None => Ok((name.into(), Sizes(sizes))),
    }
}

fn parse_threads(text: &str) -> Result<usize, String> {
    let number = || format!("`{text}` is not a number of threads");
    match text.parse().map_err(|_| number())? {
        threads if threads > MOST_THREADS => {
            Err(format!("{threads} threads are too many: {MOST_THREADS} at most"))
        }
        threads => Ok(threads),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    let share = number.parse::<f64>().map(|n| n * unit);
    share
        .ok()
        .filter(|s| (0.0..=1.0).contains(s))
        .ok_or_else(|| format!("`{text}` is no share such as 1% or 0.01"))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.filter(|s| !s.is_zero()).ok_or_else(|| format!("`{text}` is no time such as 0.5"))
}

fn parse_file(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = split_pair(text)?;
    Ok((name.into(), file.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        assert_eq!(parse_shape("x=1x3"), Ok(("x".into(), vec![1, 3])));
        assert_eq!(parse_shape("x="), Ok(("x".into(), vec![])));
        assert_eq!((parse_threads("0"), parse_threads("4096")), (Ok(0), Ok(4096)));
        assert!(parse_threads("4097").is_err() && parse_threads("-1").is_err());
        assert_eq!(parse_share("1%"), Ok(0.01));
        assert!(parse_share("101%").is_err() && parse_share("x").is_err());
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(["0", "-1", "nan", "1e300", "s"].iter().all(|text| parse_seconds(text).is_err()));
        assert_eq!(parse_dim("a=b=4"), Ok(("a=b".into(), Sizes(vec![4]))));
        assert_eq!(parse_dim("a=1,16"), Ok(("a".into(), Sizes(vec![1, 16]))));
        assert!(parse_dim("a=1,2,1").is_err() && parse_dim("a=1,").is_err());
        assert!(parse_shape("x=1x-3").is_err() && parse_dim("=4").is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
