//! The text form of every graph of a corpus of models, before and after the passes.

use std::path::{Path, PathBuf};

use ansc_frontend::{ImportOptions, import};
use ansc_graph::text::Table;
use ansc_graph::{Graph, passes};

fn models(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            models(&path, found);
        } else if path.extension().is_some_and(|e| e == "onnx") {
            found.push(path);
        }
    }
}

fn round_trip(graph: &Graph) -> Result<(), String> {
    let text = graph.to_string();
    let parsed = Graph::parse_with(&text, &Table::of(graph)).map_err(|e| e.to_string())?;
    if parsed.to_string() == text { Ok(()) } else { Err("another text".into()) }
}

#[test]
fn every_graph_of_the_corpus_parses_back() {
    let Some(corpus) = std::env::var_os("ANSC_ONNX_CORPUS") else {
        eprintln!("skipped: ANSC_ONNX_CORPUS does not name a folder of models");
        return;
    };
    let mut paths = Vec::new();
    models(Path::new(&corpus), &mut paths);
    paths.sort();
    let (mut checked, mut problems) = (0, Vec::new());
    for path in &paths {
        // This test does not judge models that cannot be imported.
        let Ok(mut graph) = import::load(path, &ImportOptions::default()) else { continue };
        let before = round_trip(&graph);
        let after = match passes::run_all(&mut graph, &passes::Options::default()) {
            Ok(()) => round_trip(&graph),
            Err(_) => Ok(()),
        };
        checked += 1;
        for (when, result) in [("imported", before), ("optimised", after)] {
            problems.extend(result.err().map(|e| format!("{} {when}: {e}", path.display())));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(checked > 0, "no model in {}", Path::new(&corpus).display());
    eprintln!("{checked} graphs of {} models", paths.len());
}
