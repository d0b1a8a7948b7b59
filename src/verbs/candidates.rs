//! `ansc candidates`: what `ansc tune` starts to build and run candidates. Not for people.

use ansc_codegen::Target;

use crate::Error;
use crate::candidate::{Targets, offline, worker};
use crate::cli::{Candidates, Device};

pub(super) fn run(args: &Candidates) -> Result<(), Error> {
    if args.offline {
        offline::leave().map_err(|e| Error::Machine(format!("the network cannot be left: {e}")))?;
    }
    let host = Target::parse(&args.machine.target_cpu)?;
    let gpu = match args.machine.target {
        Device::Cuda => args.machine.sms.iter().max().map(|&sm| Target::cuda(sm)).transpose()?,
        Device::Cpu | Device::CudaOnCpu => None,
    };
    worker::serve(&Targets { host, gpu }, args.memory)
}
