//! `ansc sketches`: what the search would start from, for every subgraph of a model.

use ansc_graph::Compute;
use ansc_sketch::rules::{Sketch, Space};

use super::{import_options, print_json};
use crate::Error;
use crate::cli::Sketches;
use crate::pipeline::{self, Subgraph};

pub(super) fn run(args: &Sketches) -> Result<(), Error> {
    let all = pipeline::subgraphs(&args.model, import_options(&args.specialise)?)?;
    if let Some(n) = args.subgraph.filter(|&n| n >= all.len()) {
        let message = format!("there is no subgraph {n}; the model has {}", all.len());
        return Err(Error::Usage(message));
    }
    let space = Space::cpu(args.cores.unwrap_or_else(available_cores));
    let wanted = |i: usize| args.subgraph.is_none_or(|n| n == i);
    let chosen = all.iter().enumerate().filter(|(i, _)| wanted(*i));
    let found = chosen.map(|(i, s)| (i, s, sketches(&space, &s.compute)));
    if args.json {
        let list: Vec<_> = found.map(|(i, s, sketches)| json(i, s, &sketches)).collect();
        print_json(&list);
    } else {
        found.for_each(|(i, s, sketches)| print(i, s, &sketches));
    }
    Ok(())
}

fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn sketches(space: &Space, compute: &Compute) -> Vec<Sketch> {
    space.sketches(ansc_sketch::lower("subgraph", compute))
}

fn json(index: usize, subgraph: &Subgraph, sketches: &[Sketch]) -> serde_json::Value {
    let each = |s: &Sketch| serde_json::json!({ "rules": s.rules, "trace": s.trace });
    serde_json::json!({
        "subgraph": index,
        "name": subgraph.name,
        "occurrences": subgraph.occurrences,
        "sketches": sketches.iter().map(each).collect::<Vec<_>>(),
    })
}

fn print(index: usize, subgraph: &Subgraph, sketches: &[Sketch]) {
    println!("subgraph {index}, {}, occurs {} times", subgraph.name, subgraph.occurrences);
    println!("{}", subgraph.compute);
    for (i, sketch) in sketches.iter().enumerate() {
        println!("sketch {index}.{i}: {}", sketch.rules.join(", "));
        println!("{}", sketch.trace);
    }
}
