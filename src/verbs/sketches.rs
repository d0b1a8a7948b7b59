//! `ansc sketches`: what the search would start from, for every subgraph of a model.

use std::sync::Arc;

use ansc_codegen::Target;
use ansc_graph::Compute;
use ansc_sketch::rules::{Sketch, Space};
use ansc_tuner::title::title;

use super::show::counted;
use super::{import_options, print_json};
use crate::Error;
use crate::choice::Schedules;
use crate::cli::Sketches;
use crate::pipeline::{self, Options, Subgraph};

const INTRODUCTION: &str = "\
A model is cut into subgraphs, each of which becomes one kernel. A sketch is a schedule of such a
kernel with numbers left open: sizes of tiles, how far loops are unrolled, what runs in parallel.
`ansc tune` tries numbers, and keeps what is fastest. Names such as v4 are open numbers; loop 1.0 of
matmul is the outermost part of its second loop.
";

pub(super) fn run(args: &Sketches) -> Result<(), Error> {
    let target = Target::parse(&args.machine.target_cpu)?;
    let mut options = Options::new(import_options(&args.model, &args.specialise)?, target);
    super::compile::aim(&args.machine, &mut options)?;
    options.schedules.sums = args.accuracy.sums();
    options.precision = args.accuracy.precision()?;
    let all = pipeline::subgraphs(&args.model, &options)?;
    if let Some(n) = args.subgraph.filter(|&n| n >= all.len()) {
        let message = format!("there is no subgraph {n}; the model has {}", all.len());
        return Err(Error::Usage(message));
    }
    options.schedules.threads = args.cores.unwrap_or_else(ansc_runtime::pool::cores);
    let wanted = |i: usize| args.subgraph.is_none_or(|n| n == i);
    let chosen = all.iter().enumerate().filter(|(i, _)| wanted(*i));
    let found = chosen.map(|(i, s)| (i, s, sketches(&options.schedules, &s.compute)));
    if args.json {
        let list: Vec<_> = found.map(|(i, s, sketches)| json(i, s, &sketches)).collect();
        print_json(&serde_json::json!({ "subgraphs": list }));
    } else {
        print!("{INTRODUCTION}");
        found.for_each(|(i, s, sketches)| print(i, s, &sketches, args.traces));
    }
    Ok(())
}

/// Those of the rules for a CPU; for a GPU all that there are.
fn sketches(schedules: &Schedules, compute: &Compute) -> Vec<Sketch> {
    if schedules.aim.is_cpu() {
        return Space::cpu(schedules.threads).sketches(ansc_sketch::lower("subgraph", compute));
    }
    let constant = vec![false; compute.inputs.len()];
    Arc::new(schedules.task("subgraph", compute, &constant)).sketches()
}

fn json(index: usize, subgraph: &Subgraph, sketches: &[Sketch]) -> serde_json::Value {
    let each = |s: &Sketch| serde_json::json!({ "rules": s.rules, "trace": s.trace });
    serde_json::json!({
        "subgraph": index,
        "name": subgraph.name,
        "nodes": subgraph.nodes,
        "occurrences": subgraph.occurrences,
        "sketches": sketches.iter().map(each).collect::<Vec<_>>(),
    })
}

fn print(index: usize, subgraph: &Subgraph, sketches: &[Sketch], traces: bool) {
    let name = title(&subgraph.nodes, &subgraph.name);
    println!("\nsubgraph {index}: {name}, {} in a run", counted(subgraph.occurrences, "time"));
    println!("it computes:");
    subgraph.compute.to_string().lines().for_each(|line| println!("  {line}"));
    for (i, sketch) in sketches.iter().enumerate() {
        let open = sketch.trace.choices().len();
        let rules = sketch.rules.join(", ");
        println!(
            "sketch {index}.{i}: {} left open; made by the rules {rules}",
            counted(open, "number")
        );
        sketch.trace.in_words().iter().for_each(|step| println!("    {step}"));
        if traces {
            println!("{}", sketch.trace);
        }
    }
}
