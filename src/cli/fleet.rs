//! The options of measuring on other machines.

use std::path::PathBuf;
use std::time::Duration;

use ansc_tuner::fleet::Access;
use clap::{Args, Subcommand};

use super::parse::{parse_count, parse_seconds, parse_threads};
use super::{Device, Machine};
use crate::{Error, fleet};

/// How the server of a fleet is reached.
#[derive(Args, Debug, Clone, Default)]
pub struct Server {
    /// The NATS server of a fleet, as in `nats://HOST:4222` or `tls://HOST:4222`; several are
    /// separated by commas
    #[arg(long, value_name = "URL")]
    pub fleet: Option<String>,
    /// The token that the server wants [default: the environment's ANSC_FLEET_TOKEN]
    #[arg(long, value_name = "TOKEN", requires = "fleet")]
    pub fleet_token: Option<String>,
    /// A file with the seed of an nkey that the server knows
    #[arg(long, value_name = "FILE", requires = "fleet")]
    pub fleet_nkey: Option<PathBuf>,
    /// A file with a user's JWT and seed, which `nsc` writes
    #[arg(long, value_name = "FILE", requires = "fleet")]
    pub fleet_creds: Option<PathBuf>,
    /// Certificates of the authorities that the server's certificate may be signed by
    #[arg(long, value_name = "FILE", requires = "fleet")]
    pub fleet_tlsca: Option<PathBuf>,
    /// The certificate that the server wants of its clients
    #[arg(long, value_name = "FILE", requires_all = ["fleet", "fleet_tlskey"])]
    pub fleet_tlscert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires_all = ["fleet", "fleet_tlscert"])]
    pub fleet_tlskey: Option<PathBuf>,
}

/// The environment's word for a token, which a command line would show to everybody.
const TOKEN: &str = "ANSC_FLEET_TOKEN";

impl Server {
    /// How the server is reached; an error if none is named.
    pub fn access(&self) -> Result<Access, Error> {
        self.named().ok_or_else(|| {
            let text = "which fleet? name its server with --fleet nats://HOST:4222";
            Error::Usage(text.into())
        })
    }

    fn named(&self) -> Option<Access> {
        Some(Access {
            url: self.fleet.clone()?,
            token: self.fleet_token.clone().or_else(|| std::env::var(TOKEN).ok()),
            nkey: self.fleet_nkey.clone(),
            creds: self.fleet_creds.clone(),
            ca: self.fleet_tlsca.clone(),
            certificate: self.fleet_tlscert.clone().zip(self.fleet_tlskey.clone()),
        })
    }
}

/// Measuring on a fleet in place of this machine.
#[derive(Args, Debug, Clone, Default)]
pub struct Fleet {
    #[command(flatten)]
    pub server: Server,
    /// Cores of the machines that measure [default: those of this machine]
    #[arg(long, value_name = "N", value_parser = parse_count, requires = "fleet")]
    pub fleet_cores: Option<usize>,
    /// The name of the GPU that measures, as `ansc fleet status` shows it [default: that of this
    /// machine]
    #[arg(long, value_name = "NAME", requires = "fleet")]
    pub fleet_gpu: Option<String>,
    /// How long workers of this kind of machine are waited for
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = parse_seconds)]
    pub fleet_patience: Duration,
}

impl Fleet {
    /// None if no server is named.
    pub fn options(&self) -> Option<fleet::Options> {
        Some(fleet::Options {
            access: self.server.named()?,
            cores: self.fleet_cores,
            gpu: self.fleet_gpu.clone(),
            patience: self.fleet_patience,
        })
    }
}

#[derive(Args, Debug)]
pub struct Worker {
    #[command(flatten)]
    pub server: Server,
    #[command(flatten)]
    pub machine: Machine,
    /// Threads that run a candidate; 0 takes all cores
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse_threads)]
    pub threads: usize,
    /// The name of this machine in records [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The file that stands for the device: workers that name the same one measure in turns
    /// [default: one for this machine's processor or GPU, in the folder for temporary files]
    #[arg(long, value_name = "FILE")]
    pub lease: Option<PathBuf>,
    /// Candidates that it takes at a time, at most: its share of those that wait
    #[arg(long, default_value = "64", value_name = "N", value_parser = parse_count)]
    pub at_once: usize,
    /// If the server hears nothing of a candidate for so long, another worker gets it
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = parse_seconds)]
    pub silence: Duration,
    /// A file that gets a line of JSON for each answer that the server has kept
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Print one JSON object in place of text
    #[arg(long)]
    pub json: bool,
}

impl Worker {
    pub fn options(&self) -> Result<fleet::Work, Error> {
        let on_gpu = match self.machine.target {
            Device::Cpu => false,
            Device::Cuda => true,
            other @ Device::CudaOnCpu => {
                let text =
                    format!("workers are for `--target cpu` or `--target cuda`, not `{other}`");
                return Err(Error::Usage(text));
            }
        };
        Ok(fleet::Work {
            access: self.server.access()?,
            target_cpu: self.machine.target_cpu.clone(),
            on_gpu,
            threads: self.threads,
            name: self.name.clone(),
            lease: self.lease.clone(),
            at_once: self.at_once,
            silence: self.silence,
            log: self.log.clone(),
        })
    }
}

#[derive(Args, Debug)]
pub struct FleetVerb {
    #[command(subcommand)]
    pub action: FleetAction,
    /// Print one JSON object in place of text
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum FleetAction {
    /// Show who takes part: machines, what they measured and how fast, and what waits
    Status {
        #[command(flatten)]
        server: Server,
    },
}
