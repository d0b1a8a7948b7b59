//! Damaged models: whatever is in a file, the compiler gives an artifact or one typed error.
//!
//! Every mutant goes through import and compilation in a process of its own kind, which has little
//! memory and little time for each: a panic, an abort, a crash, memory or time without bound are
//! failures. 400 mutants by default; `ANSC_MUTANTS=10000` for the whole set,
//! `ANSC_MUTANTS=7000..7100` for a part. What fails is left in the target directory.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use ansc::pipeline::{self, Options, Silent};
use ansc_codegen::Target;
use ansc_frontend::import::ImportOptions;
use ansc_runtime::Model;

use crate::common::{corpus, mutant};

/// Address space of a worker: LLVM and the tests themselves need about a quarter.
const MEMORY: u64 = 3 << 30;
/// Seconds for one mutant, on a machine with other things to do.
const SECONDS: u32 = 60;

const RANGE: &str = "ANSC_MUTANT_WORKER";

#[test]
fn damaged_models_give_typed_errors() {
    let range = wanted();
    let total = range.end - range.start;
    let half = range.start + total / 2;
    let halves = [range.start..half, half..range.end];
    let counts = Mutex::new(BTreeMap::<String, u64>::new());
    std::thread::scope(|scope| {
        for part in halves {
            scope.spawn(|| {
                for (kind, n) in run(part) {
                    *counts.lock().unwrap().entry(kind).or_default() += n;
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    println!("{total} mutants: {counts:?}");
    let fine = ["compiled", "refused by import", "refused later"];
    let bad: u64 = counts.iter().filter(|(k, _)| !fine.contains(&k.as_str())).map(|c| c.1).sum();
    assert_eq!(bad, 0, "{counts:#?}");
    assert_eq!(counts.values().sum::<u64>(), total);
    // The mutants are worth something: many survive the import.
    assert!(counts.get("compiled") > Some(&(total / 50)), "{counts:?}");
}

#[test]
fn what_was_found_once_is_fine_now() {
    for (path, bytes) in corpus("found") {
        let outcome = attempt(&bytes);
        assert!(!outcome.starts_with("panic"), "{}: {outcome}", path.display());
    }
}

#[test]
fn most_seeds_compile() {
    let seeds = corpus("seeds");
    let outcomes = seeds.iter().map(|(path, bytes)| (path, attempt(bytes)));
    let (good, bad): (Vec<_>, Vec<_>) = outcomes.partition(|(_, outcome)| outcome == "compiled");
    assert!(good.len() >= 20 && bad.len() <= seeds.len() / 3, "{bad:#?}");
}

fn wanted() -> Range<u64> {
    let text = std::env::var("ANSC_MUTANTS").unwrap_or_else(|_| "400".into());
    let number = |n: &str| n.parse().expect("ANSC_MUTANTS is a number or a range");
    match text.split_once("..") {
        Some((begin, end)) => number(begin)..number(end),
        None => 0..number(&text),
    }
}

/// Runs workers until the range is done; one that dies takes only its mutant with it.
fn run(mut range: Range<u64>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    while !range.is_empty() {
        let mut worker = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mutations::worker", "--ignored", "--nocapture", "--test-threads=1"])
            .env(RANGE, format!("{}..{}", range.start, range.end))
            .env("RAYON_NUM_THREADS", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(worker.stdout.take().unwrap()).lines().map_while(Result::ok);
        for line in lines {
            // The test harness prints lines of its own.
            let Some(outcome) = line.split_once("mutant: ").map(|(_, outcome)| outcome) else {
                continue;
            };
            let kind = outcome.split(" | ").next().unwrap().to_owned();
            if kind.starts_with("panic") {
                report(range.start, outcome);
            }
            *counts.entry(kind).or_default() += 1;
            range.start += 1;
        }
        let status = worker.wait().unwrap();
        if !range.is_empty() {
            report(range.start, &format!("the process ended: {status}"));
            *counts.entry(format!("died: {status}")).or_default() += 1;
            range.start += 1;
        }
    }
    counts
}

fn report(index: u64, what: &str) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutant-{index}.onnx"));
    std::fs::write(&path, mutant(&seeds(), index)).unwrap();
    println!("{}: {what}", path.display());
}

fn seeds() -> Vec<Vec<u8>> {
    corpus("seeds").into_iter().map(|(_, bytes)| bytes).collect()
}

/// Not a test: the process that [`run`] starts.
#[test]
#[ignore = "started by damaged_models_give_typed_errors"]
fn worker() {
    let Ok(range) = std::env::var(RANGE) else { return };
    let (begin, end) = range.split_once("..").unwrap();
    limit_memory();
    let seeds = seeds();
    for index in begin.parse().unwrap()..end.parse::<u64>().unwrap() {
        // SAFETY: no signal handler is involved; the default action ends the process.
        unsafe { libc::alarm(SECONDS) };
        let outcome = attempt(&mutant(&seeds, index)).replace('\n', " ");
        println!("\nmutant: {outcome}");
        std::io::stdout().flush().unwrap();
    }
}

fn limit_memory() {
    let limit = libc::rlimit { rlim_cur: MEMORY, rlim_max: MEMORY };
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

/// "compiled", "refused by import", "refused later" or "panic"; details after a bar.
fn attempt(bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (model, artifact) = (dir.path().join("m.onnx"), dir.path().join("m.ansc"));
    std::fs::write(&model, bytes).unwrap();
    let options = Options::new(ImportOptions::default(), Target::parse("x86-64-v3").unwrap());
    let compiled =
        catch_unwind(AssertUnwindSafe(|| pipeline::compile(&model, &artifact, &options, &Silent)));
    match compiled {
        Ok(Ok(_)) => match Model::load(&artifact) {
            Ok(_) => "compiled".into(),
            Err(error) => format!("panic: the artifact cannot be loaded | {error}"),
        },
        Ok(Err(ansc::Error::Import(e))) if names(&e.to_string(), &model) => {
            "refused by import".into()
        }
        Ok(Err(error @ (ansc::Error::Pass(_) | ansc::Error::Interpreter(_)))) => {
            format!("panic: an internal error | {error}")
        }
        Ok(Err(error)) => format!("refused later | {error}"),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            format!("panic | {}", text.unwrap_or_default())
        }
    }
}

fn names(error: &str, file: &Path) -> bool {
    error.starts_with(&file.display().to_string())
}
