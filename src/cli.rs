//! The command line: verbs, options, and the parsing of `NAME=VALUE` arguments.

use std::path::PathBuf;
use std::time::Duration;

use ansc_tuner::lab::{Contender, LabError, Plan};
use ansc_tuner::model;
use clap::{Args, Parser, Subcommand};

use crate::{Error, lab};

pub use artifacts::*;
#[cfg(feature = "fleet")]
pub use fleet::*;
pub use learned::*;
pub use pages::*;
pub use shared::*;

use parse::{cost_models, parse_count, parse_seconds, parse_threads};

mod artifacts;
#[cfg(feature = "fleet")]
mod fleet;
mod learned;
mod pages;
mod parse;
mod shared;

#[derive(Parser, Debug)]
#[command(name = "ansc", about = "Ahead-of-time compiler for ONNX models")]
#[command(version, disable_version_flag = true, disable_help_subcommand = true)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,
    /// With `--version`: print as well what this compiler was built from, and how it sees this
    /// machine
    #[arg(long, requires = "version")]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
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
    /// Show how long each kernel takes, what limits it, and how it was scheduled
    Explain(Explain),
    /// Generate the standard networks as ONNX files, or fetch real ones
    Models(Models),
    /// Write a model with integers of 8 bits in place of floats, calibrated with samples of its
    /// inputs
    Quantize(Quantize),
    /// List the operators that can be compiled, as a page of Markdown
    Operators(Operators),
    /// Show the schedules that a search over each subgraph of a model starts from
    Sketches(Sketches),
    /// Show, carry, merge and prune what tuning measured
    Records(Records),
    /// Make a page of what tuning found, or of an artifact's kernels
    Report(Report),
    /// Compare search strategies on one subgraph: the same space, budget and measurer, several
    /// seeds
    Lab(Lab),
    /// Collect, merge, divide and describe data sets of measured schedules, for learned cost models
    Dataset(Dataset),
    /// Train cost models on a data set, and judge them by tasks that they did not see
    Train(Train),
    /// Print a script that lets a shell complete the words of this command
    Completions(Completions),
    /// Print or write the manual pages
    Man(Man),
    /// Measure candidates that others ask for, through the server of a fleet
    #[cfg(feature = "fleet")]
    Worker(Worker),
    /// Show the machines of a fleet, and what waits for them
    #[cfg(feature = "fleet")]
    Fleet(FleetVerb),
    /// Build and run candidates at the word of `tune`
    #[command(hide = true)]
    Candidates(Candidates),
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
            Command::Quantize(a) => a.json,
            Command::Operators(a) => a.json,
            Command::Sketches(a) => a.json,
            Command::Records(a) => a.json,
            Command::Report(a) => a.json,
            Command::Lab(a) => a.json,
            Command::Dataset(a) => a.json,
            Command::Train(a) => a.json,
            Command::Tune(a) => a.json || a.json_lines,
            #[cfg(feature = "fleet")]
            Command::Worker(a) => a.json,
            #[cfg(feature = "fleet")]
            Command::Fleet(a) => a.json,
            Command::Completions(_) | Command::Man(_) | Command::Candidates(_) => false,
        }
    }
}

#[derive(Args, Debug)]
pub struct Check {
    /// The ONNX model
    pub model: PathBuf,
    #[command(flatten)]
    pub specialise: Specialise,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Compile {
    /// The ONNX model
    pub model: PathBuf,
    /// Where the artifact goes [default: here, with the model's name and .ansc, or .o for a bundle]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// An `artifact` for the runtime, or a `bundle` for a program without one: an object with one C
    /// function that runs the model on one thread, and its header beside it
    #[arg(long, value_enum, default_value_t = Emit::Artifact)]
    pub emit: Emit,
    /// With `--emit bundle`: weights in a file of their own, which the program gives to the
    /// function
    #[arg(long)]
    pub weights_beside: bool,
    #[command(flatten)]
    pub specialise: Specialise,
    #[command(flatten)]
    pub machine: Machine,
    #[command(flatten)]
    pub accuracy: Accuracy,
    /// Search first: candidates to measure, all kernels together
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub trials: usize,
    #[command(flatten)]
    pub search: Search,
    #[command(flatten)]
    pub tuned: Tuned,
    /// Schedules that nobody tuned alone, not those that come with the compiler
    #[arg(long, conflicts_with_all = ["trials", "records"])]
    pub untuned: bool,
    /// Less memory, but slower: weights are kept as they are, and transformed in each run where
    /// that is needed
    #[arg(long)]
    pub small: bool,
    /// Print the graph after a pass (`all` for every one)
    #[arg(long, value_name = "PASS")]
    pub print_after: Option<String>,
    /// Print every kernel's loop nest
    #[arg(long)]
    pub print_programs: bool,
    /// Print the time of each stage, and the kernel that took longest
    #[arg(long)]
    pub time_passes: bool,
    /// Skip the verifiers between stages
    #[arg(long)]
    pub no_verify: bool,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

/// The form that `ansc compile` writes.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emit {
    Artifact,
    Bundle,
}

#[derive(Args, Debug)]
pub struct Tune {
    /// The ONNX model, or several that share the trials
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<PathBuf>,
    #[command(flatten)]
    pub specialise: Specialise,
    #[command(flatten)]
    pub machine: Machine,
    #[command(flatten)]
    pub accuracy: Accuracy,
    /// Candidates to measure, all kernels together
    #[arg(long, default_value = "1000", value_name = "N", value_parser = parse_count)]
    pub trials: usize,
    #[command(flatten)]
    pub search: Search,
    #[command(flatten)]
    pub tuned: Tuned,
    #[cfg(feature = "fleet")]
    #[command(flatten)]
    pub fleet: Fleet,
    /// Print nothing but errors
    #[arg(short, long, conflicts_with_all = ["json", "json_lines"])]
    pub quiet: bool,
    /// Print as well which phases the search spent its time in, and how well the cost model told
    /// good candidates from bad ones
    #[arg(long, conflicts_with_all = ["quiet", "json", "json_lines"])]
    pub phases: bool,
    /// Print a line of JSON after every round, and the report as the last one
    #[arg(long)]
    pub json_lines: bool,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Candidates {
    #[command(flatten)]
    pub machine: Machine,
    /// Leave the network first
    #[arg(long)]
    pub offline: bool,
    /// Bytes of address space that the process may use
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<u64>,
}

#[derive(Args, Debug)]
pub struct Inspect {
    /// An ONNX model or an artifact
    pub file: PathBuf,
    #[command(flatten)]
    pub specialise: Specialise,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Explain {
    /// An artifact, whose kernels are timed, or an ONNX model
    pub file: PathBuf,
    /// Only kernels whose name, or the name of a node of the model in them, is or contains this,
    /// and those in full
    pub kernel: Option<String>,
    #[command(flatten)]
    pub specialise: Specialise,
    #[command(flatten)]
    pub machine: Machine,
    #[command(flatten)]
    pub accuracy: Accuracy,
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
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Sketches {
    /// The ONNX model
    pub model: PathBuf,
    #[command(flatten)]
    pub specialise: Specialise,
    /// Only this subgraph, by the number that the list gives it
    #[arg(long, value_name = "N")]
    pub subgraph: Option<usize>,
    /// Print traces as well, the exact steps of each schedule
    #[arg(long, conflicts_with = "json")]
    pub traces: bool,
    /// Cores to schedule for [default: those of this machine]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub cores: Option<usize>,
    #[command(flatten)]
    pub machine: Machine,
    #[command(flatten)]
    pub accuracy: Accuracy,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Records {
    #[command(subcommand)]
    pub action: RecordsAction,
    /// Print one JSON object in place of text
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum RecordsAction {
    /// Show what a file of records holds, by subgraph and machine
    Ls {
        /// A file of records
        file: PathBuf,
    },
    /// Write records as lines of JSON
    Export {
        /// A file of records
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
        /// A file of records
        file: PathBuf,
        /// Files of lines; `-` is standard input
        #[arg(required = true)]
        lines: Vec<PathBuf>,
    },
    /// Add the records of other files
    Merge {
        /// A file of records
        file: PathBuf,
        /// Files of records
        #[arg(required = true)]
        others: Vec<PathBuf>,
    },
    /// Forget all but the fastest schedules of each subgraph, and the untuned one
    Prune {
        /// A file of records
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
    /// Where the page goes [default: here, with the name of the file and .html]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub size: Size,
    #[arg(long, default_value_t = 0, value_parser = parse_threads,
          help = "Threads that an artifact runs on; 0 takes all cores")]
    pub threads: usize,
    /// Print one JSON object in place of text
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
    /// Search strategies to compare, which docs/src/strategies.md describes; `NAME/MODEL@SPACE` has
    /// a cost model or a space of its own
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,..",
        default_value = "evolutionary,opevo,g-bfs,n-a2c,annealing,rnn,random"
    )]
    pub strategies: Vec<Contender>,
    /// Candidates that each run measures
    #[arg(long, default_value = "512", value_name = "N", value_parser = parse_count)]
    pub trials: usize,
    /// Runs of each strategy, with the seeds 0, 1, ..
    #[arg(long, default_value_t = 5, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// The schedules to search: `all` that tune searches, `rules`, some of them as in
    /// `rules:no-rfactor`, or tiles alone as in `SSRSRS` or `SSRSRS+unroll`
    #[arg(long, default_value = "all", value_name = "SPACE")]
    pub space: String,
    /// Leave weights in the order in which the model has them
    #[arg(long)]
    pub no_layout: bool,
    /// Measure on a device that is only computed: exact, quick, and the same everywhere
    #[arg(long)]
    pub simulated: bool,
    /// Candidates that are measured in one go
    #[arg(long, default_value = "64", value_name = "N", value_parser = parse_count)]
    pub per_round: usize,
    /// The model that tells good candidates from bad ones before they are measured, for
    /// strategies that ask
    #[arg(long, default_value = "hist", value_parser = cost_models())]
    pub cost_model: model::Kind,
    /// Start from a trained cost model, which `ansc train` wrote
    #[arg(long = "model", value_name = "FILE", conflicts_with = "cost_model")]
    pub trained: Option<PathBuf>,
    /// Leaders of each run that are measured again at its end
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub settle: usize,
    /// A candidate that takes longer, load and all, has failed: bad ones take thousands of times as
    /// long as good ones
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = parse_seconds)]
    pub run_limit: Duration,
    #[command(flatten)]
    pub specialise: Specialise,
    #[command(flatten)]
    pub machine: Machine,
    #[command(flatten)]
    pub accuracy: Accuracy,
    #[command(flatten)]
    pub tuned: Tuned,
    /// Write a page with the curves
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

impl Lab {
    /// The searches that are compared.
    pub fn searches(&self) -> Result<lab::Lab, Error> {
        Ok(lab::Lab {
            workload: self.workload.clone(),
            subgraph: self.subgraph,
            plan: Plan {
                strategies: self.strategies.clone(),
                seeds: self.seeds,
                trials: self.trials,
                per_round: self.per_round,
                cost_model: self.cost_model,
                trained: self.trained.clone(),
                space: self.space.parse().map_err(LabError::from)?,
                settle: self.settle,
            },
            no_layout: self.no_layout,
            simulated: self.simulated,
            run_limit: self.run_limit,
            records: self.tuned.records.clone(),
            threads: self.tuned.threads,
            target_cpu: self.machine.target_cpu.clone(),
        })
    }
}

#[derive(Args, Debug)]
pub struct Quantize {
    /// The ONNX model
    pub model: PathBuf,
    /// Where the quantised model goes [default: here, with the model's name and .int8.onnx]
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// The same as --input-dir
    #[arg(long = "inputs", value_name = "DIR", conflicts_with = "input_dir")]
    pub inputs: Option<PathBuf>,
    /// A convolution or matrix product that stays as it is, by its name in the model
    #[arg(long, value_name = "NODE")]
    pub keep: Vec<String>,
    #[command(flatten)]
    pub calibrate: Calibrate,
    /// Measure and report what each product costs if it alone is rounded, even if all may be
    #[arg(long)]
    pub sensitivity: bool,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Models {
    /// Names to make; none lists them
    pub names: Vec<String>,
    /// Where the files go
    #[arg(short, long, default_value = "models/generated")]
    pub output_dir: PathBuf,
    /// Fetch the named real models instead of generating (needs pip)
    #[arg(long)]
    pub fetch: bool,
    /// Fewer layers and smaller pictures, where the network has such a form: for quick tests
    #[arg(long, conflicts_with = "fetch")]
    pub reduced: bool,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_and_option_has_help() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty(), "{path} has no help");
            for argument in command.get_arguments().filter(|a| a.get_id() != "help") {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty(), "{path}: `{}` has no help", argument.get_id());
            }
            command.get_subcommands().for_each(|inner| check(inner, &path));
        }
        check(&Cli::command(), "");
    }

    #[test]
    fn negative_numbers_are_values() {
        let verify = ["ansc", "verify", "m", "a", "--tolerance", "-1", "--value", "x=-1"];
        assert!(Cli::try_parse_from(verify).is_ok());
        // Refused for what they are, and not taken for options.
        for wrong in [["--minutes", "-1"], ["--until-gain", "-1%"], ["--until-gain", "-0.1"]] {
            let error = Cli::try_parse_from([&["ansc", "tune", "m"][..], &wrong].concat());
            let error = error.unwrap_err().to_string();
            assert!(error.contains("is no"), "{wrong:?}: {error}");
        }
    }
}
