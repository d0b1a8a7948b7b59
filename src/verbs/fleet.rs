//! `ansc fleet status`: who takes part in a fleet, and what waits there.

use ansc_tuner::fleet::{Kind, Member, Role, Status};
use ansc_tuner::records::machine_name;

use super::print_json;
use super::show::counted;
use crate::cli::{FleetAction, FleetVerb};
use crate::{Error, fleet};

pub(super) fn run(args: &FleetVerb) -> Result<(), Error> {
    let FleetAction::Status { server } = &args.action;
    let status = fleet::status(&server.access()?)?;
    if args.json {
        print_json(&status);
    } else {
        print(&status);
    }
    Ok(())
}

fn print(status: &Status) {
    let mut kinds: Vec<&Kind> = status.members.iter().map(|m| &m.kind).collect();
    kinds.sort();
    kinds.dedup();
    if kinds.is_empty() {
        println!("nobody takes part");
    }
    for kind in kinds {
        print_kind(status, kind);
    }
    let known = |digest: &str| status.members.iter().any(|m| m.kind.digest() == digest);
    for queue in status.queues.iter().filter(|queue| !known(&queue.kind)) {
        let jobs = counted(queue.jobs, "candidate");
        println!("{jobs} of tuner {} for the kind {}, which nobody is of", queue.tuner, queue.kind);
    }
    if status.answers > 0 {
        println!("{} wait for their tuners", counted(status.answers as usize, "answer"));
    }
    if status.dead > 0 {
        println!("{} in the stream ANSC_DEAD", counted(status.dead as usize, "dead letter"));
    }
}

fn print_kind(status: &Status, kind: &Kind) {
    let Kind { cores, threads, version, .. } = kind;
    let gpu = kind.gpu.as_ref().map_or(String::new(), |gpu| format!(", {gpu}"));
    let name = machine_name(&kind.target);
    println!("{name}, {threads} of {cores} cores{gpu}, ansc {version} ({}):", kind.digest());
    println!("  {:20} {:>9} {:>7} {:>9}", "worker", "measured", "failed", "a minute");
    let of = |role| status.members.iter().filter(move |m| m.kind == *kind && m.role == role);
    for member in of(Role::Worker) {
        println!("  {}", row(member));
    }
    let digest = kind.digest();
    let waiting = |id: &str| {
        let own = status.queues.iter().filter(|q| q.kind == digest && q.tuner == id);
        own.map(|q| q.jobs).sum::<usize>()
    };
    for member in of(Role::Tuner) {
        let (jobs, waits) = (member.jobs, waiting(&member.id));
        println!("  tuner {} on {}: {jobs} measured, {waits} wait", member.id, member.machine);
    }
}

fn row(m: &Member) -> String {
    let rate = m.jobs as f64 / m.seconds.max(1.0) * 60.0;
    let state = if m.busy { "measures" } else { "waits" };
    format!("{:20} {:>9} {:>7} {rate:>9.1}  {state}", m.machine, m.jobs, m.failed)
}
