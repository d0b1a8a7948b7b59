//! `ansc worker`: what `ansc tune` starts to build and run candidates. Not for people.

use ansc_codegen::Target;

use crate::Error;
use crate::candidate::worker;
use crate::cli::Worker;

pub(super) fn run(args: &Worker) -> Result<(), Error> {
    worker::serve(&Target::parse(&args.machine.target_cpu)?, args.memory)
}
