//! Runs a corpus of operator tests through the importer and the reference evaluator.
//!
//! ```text
//! corpus DIR [--filter TEXT] [--failed]
//! ```
//!
//! `DIR/CASE` holds `model.onnx`, `input_<i>.npy` in the order of the model's inputs, and
//! `output_<i>.npy`. A case whose shapes depend on the values of its inputs is imported again with
//! these values fixed, and marked so. Prints one line per case and what is missing, most frequent
//! first.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ansc_frontend::{ImportError, ImportOptions, import};
use ansc_graph::{Graph, interp};
use ansc_runtime::{DType, Tensor, npy};
use prost::Message;
use tract_onnx::pb::ModelProto;

const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-5;

/// Whether the values of inputs had to be known for the import.
enum Pass {
    Free,
    Bound,
}

struct Case {
    path: PathBuf,
    names: Vec<String>,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

fn main() {
    let mut directory = None;
    let (mut filter, mut only_failed) = (String::new(), false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--filter" => filter = args.next().unwrap_or_default(),
            "--failed" => only_failed = true,
            _ => directory = Some(PathBuf::from(arg)),
        }
    }
    let Some(directory) = directory else {
        eprintln!("usage: corpus DIR [--filter TEXT] [--failed]");
        std::process::exit(2);
    };
    std::process::exit(run_all(&directory, &filter, only_failed));
}

fn run_all(directory: &Path, filter: &str, only_failed: bool) -> i32 {
    let names = match cases(directory, filter) {
        Ok(names) if !names.is_empty() => names,
        Ok(_) => return fail(&format!("no cases in {}", directory.display())),
        Err(e) => return fail(&format!("{}: {e}", directory.display())),
    };
    let (mut free, mut bound, mut failed) = (0, 0, 0);
    let mut causes: BTreeMap<String, usize> = BTreeMap::new();
    for name in &names {
        let start = Instant::now();
        let outcome = guarded(|| run_case(&directory.join(name)));
        let seconds = start.elapsed().as_secs_f64();
        let time = if seconds > 2.0 { format!("  ({seconds:.1} s)") } else { String::new() };
        match outcome {
            Ok(pass) => {
                let text = match pass {
                    Pass::Free => "pass",
                    Pass::Bound => "pass (inputs bound)",
                };
                match pass {
                    Pass::Free => free += 1,
                    Pass::Bound => bound += 1,
                }
                if !only_failed {
                    println!("{name}: {text}{time}");
                }
            }
            Err((cause, reason)) => {
                failed += 1;
                *causes.entry(cause).or_default() += 1;
                println!("{name}: FAIL{time} {}", reason.replace('\n', "\n    "));
            }
        }
    }
    let mut causes: Vec<(String, usize)> = causes.into_iter().collect();
    causes.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    for (cause, count) in causes {
        println!("{count:6}  {cause}");
    }
    let total = names.len();
    println!("{} of {total} pass ({bound} with inputs bound), {failed} fail", free + bound);
    i32::from(failed > 0)
}

fn fail(message: &str) -> i32 {
    eprintln!("{message}");
    2
}

fn cases(directory: &Path, filter: &str) -> std::io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains(filter) && entry.path().join("model.onnx").is_file() {
            names.insert(name);
        }
    }
    Ok(names)
}

/// A category for the summary, and the whole story.
type Failure = (String, String);

fn guarded(f: impl FnOnce() -> Result<Pass, Failure>) -> Result<Pass, Failure> {
    static LAST: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut last) = LAST.lock() {
            *last = info.to_string().replace('\n', " ");
        }
    }));
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| {
        let text = LAST.lock().map(|text| text.clone()).unwrap_or_default();
        Err(("panic".into(), format!("PANIC {text}")))
    })
}

fn run_case(path: &Path) -> Result<Pass, Failure> {
    let case = read_case(path).map_err(|e| ("unreadable".to_string(), e))?;
    let (graph, pass) = import_case(&case)?;
    let results = interp::run(&graph, &case.inputs)
        .map_err(|e| ("evaluation".to_string(), format!("evaluation: {e}")))?;
    if results.len() != case.outputs.len() {
        let (expected, found) = (case.outputs.len(), results.len());
        return Err(("outputs".into(), format!("{expected} outputs expected, {found} found")));
    }
    for (index, (expected, found)) in case.outputs.iter().zip(&results).enumerate() {
        compare(expected, found)
            .map_err(|e| ("mismatch".to_string(), format!("mismatch: output {index}: {e}")))?;
    }
    Ok(pass)
}

fn read_case(path: &Path) -> Result<Case, String> {
    let data = std::fs::read(path.join("model.onnx")).map_err(|e| e.to_string())?;
    let model = ModelProto::decode(&data[..]).map_err(|e| e.to_string())?;
    let graph = model.graph.ok_or("no graph")?;
    let filled: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    let required = graph.input.iter().filter(|i| !filled.contains(i.name.as_str()));
    let names: Vec<String> = required.map(|i| i.name.clone()).collect();
    let inputs = tensors(path, "input", names.len())?;
    let outputs = tensors(path, "output", graph.output.len())?;
    Ok(Case { path: path.join("model.onnx"), names, inputs, outputs })
}

fn tensors(path: &Path, kind: &str, count: usize) -> Result<Vec<Tensor>, String> {
    (0..count)
        .map(|i| npy::read(path.join(format!("{kind}_{i}.npy"))).map_err(|e| e.to_string()))
        .collect()
}

fn import_case(case: &Case) -> Result<(Graph, Pass), Failure> {
    let shapes = case.names.iter().zip(&case.inputs).map(|(n, t)| (n.clone(), t.shape().to_vec()));
    let free = ImportOptions { shapes: shapes.collect(), ..ImportOptions::default() };
    let error = match import::load(&case.path, &free) {
        Ok(graph) => return Ok((graph, Pass::Free)),
        Err(error) => error,
    };
    if !error.problems.iter().any(|p| p.reason.contains("must be known at compile time")) {
        return Err(import_failure(&error));
    }
    let values = case.names.iter().cloned().zip(case.inputs.iter().cloned()).collect();
    let options = ImportOptions { values, ..ImportOptions::default() };
    let graph = import::load(&case.path, &options).map_err(|e| import_failure(&e))?;
    Ok((graph, Pass::Bound))
}

fn import_failure(error: &ImportError) -> Failure {
    let first = error.problems.first();
    let op = first.and_then(|p| p.op.as_deref()).unwrap_or_default();
    let reason = first.map(|p| p.reason.clone()).unwrap_or_default();
    let list: Vec<String> = error.problems.iter().map(|p| p.to_string()).collect();
    (format!("{op}: {reason}"), format!("import: {}", list.join("; ")))
}

fn compare(expected: &Tensor, found: &Tensor) -> Result<(), String> {
    if expected.shape() != found.shape() || expected.dtype() != found.dtype() {
        return Err(format!("{expected:?} expected, {found:?} found"));
    }
    if !expected.dtype().is_float() {
        return match expected == found {
            true => Ok(()),
            false => Err(format!("{expected:?} expected, {found:?} found")),
        };
    }
    // One unit in the last place of the narrow types is more than the tolerance of the others.
    let rtol = match expected.dtype() {
        DType::BF16 => 1e-2,
        DType::F16 => 2e-3,
        _ => RTOL,
    };
    let (a, b) = (expected.to_f64_vec(), found.to_f64_vec());
    let close = |a: f64, b: f64| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= ATOL + rtol * a.abs()
    };
    match a.iter().zip(&b).position(|(&a, &b)| !close(a, b)) {
        None => Ok(()),
        Some(i) => Err(format!("element {i} is {}, not {}; {expected:?}", b[i], a[i])),
    }
}
