//! Graphs in text form before and after a pass: `golden/*.txt`.
//!
//! A file holds a graph, a line `=> PASS`, and the graph that the pass makes of it, or
//! `(unchanged)`. `ANSC_BLESS=1 cargo test` rewrites what is below that line. Whatever is written
//! there, both graphs must verify and compute the same.

use std::path::{Path, PathBuf};

use ansc_graph::passes::{Options, PASSES};
use ansc_graph::{Graph, interp, verify};
use ansc_runtime::{DType, Precision, Precisions, Tensor};
use half::f16;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The text above the line of the arrow, the pass that the line names, and the text below it.
fn parts(text: &str) -> (&str, &str, &str) {
    let (before, rest) = text.split_once("\n=> ").expect("a line `=> PASS`");
    let (pass, after) = rest.split_once('\n').expect("a line end after the pass");
    (before, pass.trim(), after.trim())
}

/// Small whole numbers, of which no two neighbours are equal.
fn inputs(graph: &Graph) -> Vec<Tensor> {
    let tensor = |(i, node): (usize, &ansc_graph::NodeId)| {
        let ty = &graph.node(*node).outputs[0].ty;
        let values = (0..ty.len()).map(|e| ((e * 7 + i * 3) % 11) as f32 - 5.0);
        let values: Vec<f32> = values.collect();
        match ty.dtype {
            DType::Bool => Tensor::from_slice(&ty.shape, &vec![true; ty.len()]),
            DType::I64 => Tensor::from_slice(&ty.shape, &vec![2i64; ty.len()]),
            DType::F16 => {
                let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
                Tensor::from_slice(&ty.shape, &halves)
            }
            _ => Tensor::from_slice(&ty.shape, &values),
        }
    };
    graph.inputs().iter().enumerate().map(tensor).collect()
}

fn assert_same_results(before: &Graph, after: &Graph, file: &str) {
    let inputs = inputs(before);
    let expected = interp::run(before, &inputs).unwrap();
    let found = interp::run(after, &inputs).unwrap();
    assert_eq!(expected.len(), found.len(), "{file}");
    for (e, f) in expected.iter().zip(&found) {
        assert_eq!((e.dtype(), e.shape()), (f.dtype(), f.shape()), "{file}");
        for (e, f) in e.to_f64_vec().into_iter().zip(f.to_f64_vec()) {
            assert!((e - f).abs() <= 1e-4 * (1.0 + e.abs()), "{file}: {e} became {f}");
        }
    }
}

#[test]
fn passes_do_what_their_files_show() {
    let bless = std::env::var_os("ANSC_BLESS").is_some();
    let precision = Precisions { model: Precision::Bf16, ..Precisions::default() };
    let widen = vec![DType::F16];
    let (count_ranks, turned_uses) = (8, 6);
    let base = Options { merge_matmul: true, count_ranks, turned_uses, ..Options::default() };
    let options = Options { precision, widen, ..base };
    let (mut stale, mut covered) = (Vec::new(), Vec::new());
    for path in files() {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        let (source, name, expected) = parts(&text);
        covered.push(name.to_owned());
        let before = Graph::parse(source).unwrap_or_else(|e| panic!("{file}:{e}"));
        verify::verify(&before).unwrap_or_else(|v| panic!("{file}: before: {v:?}"));
        let pass = PASSES.iter().find(|p| p.name == name).expect("the name of a pass");
        let mut after = before.clone();
        let changed = (pass.run)(&mut after, &options).unwrap();
        verify::verify(&after).unwrap_or_else(|v| panic!("{file}: after: {v:?}"));
        assert_same_results(&before, &after, &file);
        let found = if changed { after.to_string() } else { "(unchanged)".into() };
        if bless {
            std::fs::write(&path, format!("{source}\n=> {name}\n\n{}\n", found.trim())).unwrap();
        } else if found.trim() != expected {
            stale.push(format!("{file}:\n{found}"));
        }
    }
    assert!(stale.is_empty(), "run with ANSC_BLESS=1 if this is right\n{}", stale.join("\n"));
    for pass in PASSES {
        assert!(covered.iter().any(|name| name == pass.name), "no file is about {}", pass.name);
    }
}
