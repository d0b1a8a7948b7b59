//! The options of verbs about learned cost models.

use std::path::PathBuf;

use ansc_tuner::model;
use clap::{Args, Subcommand};

use super::parse::{cost_models, minutes, parse_count, parse_minutes, parse_share, parse_threads};
use crate::{dataset, train};

#[derive(Args, Debug)]
pub struct Dataset {
    #[command(subcommand)]
    pub action: DatasetAction,
    /// Print one JSON object in place of text
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum DatasetAction {
    /// Make traces of the subgraphs of networks, and measure on this machine those that it has no
    /// label for; goes on where it was interrupted
    Collect(Box<Collect>),
    /// Add the tasks, traces and labels of other data sets
    Merge {
        /// The folder of a data set
        dataset: PathBuf,
        /// Folders of data sets
        #[arg(required = true)]
        others: Vec<PathBuf>,
    },
    /// Choose the tasks that are held out, all traces of each
    Split {
        /// The folder of a data set
        dataset: PathBuf,
        /// Hold out the tasks of these networks
        #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
        networks: Vec<String>,
        /// Without networks: hold out this share of all tasks
        #[arg(long, default_value = "20%", value_name = "20%", value_parser = parse_share,
              conflicts_with = "networks", allow_hyphen_values = true)]
        share: f64,
        /// The seed of the choice
        #[arg(long, default_value_t = 0, value_name = "N", conflicts_with = "networks")]
        seed: u64,
    },
    /// Count tasks, traces, machines, hours and failures
    Stats {
        /// The folder of a data set
        dataset: PathBuf,
    },
}

#[derive(Args, Debug)]
pub struct Collect {
    /// The folder of the data set, which is made if there is none
    pub dataset: PathBuf,
    /// Generated workloads (`ansc models` lists them) or ONNX models [default: all generated
    /// networks]
    pub workloads: Vec<String>,
    /// Only the traces that the data set has already, such as one of another machine: no workload
    /// is read and no trace is made
    #[arg(long, conflicts_with_all = ["workloads", "operators", "per_task", "seed"])]
    pub known: bool,
    /// Random operators as well, so many of them
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub operators: usize,
    /// Traces of a task at most
    #[arg(long, default_value = "200", value_name = "N", value_parser = parse_count)]
    pub per_task: usize,
    /// The seed of all traces
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Stop after this many minutes
    #[arg(long, value_name = "M", value_parser = parse_minutes, allow_hyphen_values = true)]
    pub minutes: Option<f64>,
    /// Threads that traces run on; 0 takes all cores
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse_threads)]
    pub threads: usize,
    /// CPU to compile for: `native`, or a name that LLVM knows such as `x86-64-v3`
    #[arg(long, default_value = "native", value_name = "NAME")]
    pub target_cpu: String,
    /// Constants come from memory in every run, as in networks that are larger than the caches;
    /// such labels are a machine's own
    #[arg(long)]
    pub cold_constants: bool,
    #[cfg(feature = "fleet")]
    #[command(flatten)]
    pub fleet: super::Fleet,
}

#[derive(Args, Debug)]
pub struct Train {
    /// The folder of a data set, which `ansc dataset collect` fills
    pub dataset: PathBuf,
    /// The models to train. `mtl-tlp` comes with what it is compared with: the target alone, and
    /// other machines refined by the target
    #[arg(short, long, value_delimiter = ',', value_name = "NAME,..", default_value = "tlp",
          value_parser = cost_models())]
    pub models: Vec<model::Kind>,
    /// Where the first model goes, trained with the first seed
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Trainings of each model, with one seed after the other
    #[arg(long, default_value_t = 1, value_name = "K",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// The machine that the model is for, by the name that `ansc dataset stats` gives it
    /// [default: the first]
    #[arg(long, value_name = "NAME")]
    pub platform: Option<String>,
    /// Take labels of the target machine for this share of the traces only; several shares make a
    /// curve
    #[arg(long, value_delimiter = ',', default_value = "100%", value_name = "5%,100%,..",
          value_parser = parse_share, allow_hyphen_values = true)]
    pub labels: Vec<f64>,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

impl From<&Collect> for dataset::Collect {
    fn from(args: &Collect) -> dataset::Collect {
        dataset::Collect {
            dataset: args.dataset.clone(),
            workloads: args.workloads.clone(),
            known: args.known,
            operators: args.operators,
            per_task: args.per_task,
            seed: args.seed,
            time: args.minutes.map(minutes),
            threads: args.threads,
            target_cpu: args.target_cpu.clone(),
            cold_constants: args.cold_constants,
        }
    }
}

impl From<&Train> for train::Options {
    fn from(args: &Train) -> train::Options {
        train::Options {
            dataset: args.dataset.clone(),
            models: args.models.clone(),
            output: args.output.clone(),
            seeds: args.seeds,
            seed: args.seed,
            platform: args.platform.clone(),
            labels: args.labels.clone(),
        }
    }
}
