//! `ansc worker`: measures candidates that others ask for.

use super::print_json;
use super::show::counted;
use crate::cli::Worker;
use crate::{Error, fleet};

pub(super) fn run(args: &Worker) -> Result<(), Error> {
    let served = fleet::work(&args.options()?)?;
    if args.json {
        print_json(&served);
        return Ok(());
    }
    let (jobs, seconds) = (served.jobs as usize, served.seconds.values().sum::<f64>());
    println!("measured {} in {seconds:.0} s, {} failed", counted(jobs, "candidate"), served.failed);
    let rest = [
        (served.returned, "went back"),
        (served.refused, "were refused"),
        (served.poisoned, "had ended two workers before"),
    ];
    for (count, what) in rest.iter().filter(|(count, _)| *count > 0) {
        println!("{count} {what}");
    }
    Ok(())
}
