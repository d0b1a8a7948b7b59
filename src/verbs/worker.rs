//! `ansc worker`: what `ansc tune` starts to build and run candidates. Not for people.

use ansc_codegen::Target;

use crate::Error;
use crate::candidate::{Targets, worker};
use crate::cli::Worker;

pub(super) fn run(args: &Worker) -> Result<(), Error> {
    let host = Target::parse(&args.machine.target_cpu)?;
    let gpu = match args.machine.target.as_str() {
        "cuda" => args.machine.sms.iter().max().map(|&sm| Target::cuda(sm)).transpose()?,
        _ => None,
    };
    worker::serve(&Targets { host, gpu }, args.memory)
}
