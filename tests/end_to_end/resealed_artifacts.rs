//! Manifests that were changed and sealed again: the seal finds damage, not intent, so everything
//! that a manifest says is checked by itself. Whatever is changed, loading and running give a
//! result or a typed error.
//!
//! Left alone is what tells the code what to do, as the code itself does: symbols, extents and
//! scratch memory of launches, and iterations of loops. Who changes these changes the program.
//!
//! Mutants run in a process of their own kind, which a bad one may take with it. 300 by default;
//! `ANSC_MANIFESTS=5000` for more.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Random, corpus, small_model};
use ansc::pipeline::{self, Options, Silent};
use ansc_codegen::Target;
use ansc_frontend::import::ImportOptions;
use ansc_runtime::manifest::{MANIFEST_SECTION, seal};
use ansc_runtime::{Model, SessionOptions, Tensor};
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection};
use serde_json::Value;

/// Folder of artifacts, and the mutants that a worker is to try.
const FOLDER: &str = "ANSC_RESEALED_FOLDER";
const RANGE: &str = "ANSC_RESEALED_RANGE";
/// Address space of a worker, and seconds for one mutant.
const MEMORY: u64 = 4 << 30;
const SECONDS: u32 = 30;
/// The fields that tell the code what to do, see above.
const OF_THE_CODE: [&str; 4] = ["symbol", "extent", "scratch", "max_trip"];

#[test]
fn changed_manifests_give_results_or_typed_errors() {
    let folder = tempfile::tempdir().unwrap();
    compile_all(folder.path());
    let total = std::env::var("ANSC_MANIFESTS").map_or(300, |n| n.parse().unwrap());
    let mut outcomes: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut next = 0;
    while next < total {
        for (mutant, outcome) in run(folder.path(), next, total) {
            outcomes.entry(outcome).or_default().push(mutant);
            next = mutant + 1;
        }
        if next < total {
            outcomes.entry("died".into()).or_default().push(next);
            next += 1;
        }
    }
    let count = |outcome: &str| outcomes.get(outcome).map_or(0, Vec::len) as u64;
    println!("{} ran, {} refused, {} failed", count("ran"), count("refused"), count("failed"));
    let fine = count("ran") + count("refused") + count("failed");
    assert_eq!(fine, total, "{outcomes:#?}");
    // The mutants are worth something: some are sound, and of others only the checks keep the
    // runtime.
    assert!(count("ran") > total / 20 && count("refused") > total / 4, "{outcomes:#?}");
}

/// An artifact of every seed that compiles.
fn compile_all(folder: &Path) {
    let mut models = vec![small_model(folder)];
    models.extend(corpus("seeds").into_iter().map(|(path, _)| path));
    let options = Options::new(ImportOptions::default(), Target::parse("x86-64-v2").unwrap());
    for (i, model) in models.iter().enumerate() {
        let artifact = folder.join(format!("{i:03}.ansc"));
        // Not every seed is a model that compiles.
        let _ = pipeline::compile(model, &artifact, &options, &Silent);
    }
    assert!(artifacts(folder).len() > 15);
}

fn artifacts(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "ansc")).collect();
    all.sort();
    all
}

/// The outcomes of the mutants that a worker tried before it ended.
fn run(folder: &Path, begin: u64, end: u64) -> Vec<(u64, String)> {
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "resealed_artifacts::worker", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(RANGE, format!("{begin} {end}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(worker.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.filter_map(|line| {
        let (mutant, outcome) = line.strip_prefix("mutant ")?.split_once(' ')?;
        Some((mutant.parse().ok()?, outcome.to_owned()))
    });
    let told = told.collect();
    worker.wait().unwrap();
    told
}

#[test]
#[ignore = "a process of the other test"]
fn worker() {
    let (Ok(folder), Ok(range)) = (std::env::var(FOLDER), std::env::var(RANGE)) else { return };
    let (begin, end) = range.split_once(' ').unwrap();
    let limit = libc::rlimit { rlim_cur: MEMORY, rlim_max: MEMORY };
    // SAFETY: the pointer is to a local that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let seeds: Vec<Vec<u8>> =
        artifacts(Path::new(&folder)).iter().map(|p| std::fs::read(p).unwrap()).collect();
    for mutant in begin.parse().unwrap()..end.parse().unwrap() {
        // SAFETY: no pointers.
        unsafe { libc::alarm(SECONDS) };
        let path = Path::new(&folder).join("mutant");
        std::fs::write(&path, resealed(&seeds, mutant)).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| attempt(&path))).unwrap_or("panicked");
        println!("mutant {mutant} {outcome}");
    }
}

fn attempt(artifact: &Path) -> &'static str {
    let Ok(model) = Model::load(artifact) else { return "refused" };
    let options = SessionOptions { threads: 2, ..SessionOptions::default() };
    let Ok(mut session) = model.session_with(&options) else { return "failed" };
    let input = |(i, port): (usize, &ansc_runtime::manifest::Port)| {
        let value =
            model.bound_value(i).map_or_else(|| Tensor::try_zeros(port.dtype, &port.shape), Ok);
        Some((port.name.clone(), value.ok()?))
    };
    let inputs: Option<Vec<(String, Tensor)>> =
        model.inputs().iter().enumerate().map(input).collect();
    let Some(inputs) = inputs else { return "failed" };
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    if session.run(&named).is_ok() { "ran" } else { "failed" }
}

/// One of the artifacts with one change of its manifest.
fn resealed(seeds: &[Vec<u8>], mutant: u64) -> Vec<u8> {
    let mut random = Random(mutant.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = seeds[random.below(seeds.len())].clone();
    let elf = ElfFile64::<LittleEndian>::parse(&*bytes).unwrap();
    let section = elf.section_by_name(MANIFEST_SECTION).unwrap();
    let mut manifest: Value = serde_json::from_slice(section.data().unwrap()).unwrap();
    let header = elf.elf_header();
    let at = header.e_shoff.get(LittleEndian) as usize
        + section.index().0 * usize::from(header.e_shentsize.get(LittleEndian));
    change(&mut manifest, &mut random);
    let json = serde_json::to_vec(&manifest).unwrap();
    // The new manifest lies at the end; the section's header says where and how long.
    let place = bytes.len().next_multiple_of(8);
    bytes.resize(place, 0);
    bytes.extend(&json);
    bytes[at + 24..at + 32].copy_from_slice(&(place as u64).to_le_bytes());
    bytes[at + 32..at + 40].copy_from_slice(&(json.len() as u64).to_le_bytes());
    seal(&mut bytes).unwrap();
    bytes
}

fn change(manifest: &mut Value, random: &mut Random) {
    let mut places = vec![];
    collect(manifest, &mut String::new(), &mut places);
    // Most of a manifest is buffers; the plan is where most can go wrong.
    let plan: Vec<String> = places.iter().filter(|p| p.contains("/plan/")).cloned().collect();
    let from = if random.below(2) == 0 && !plan.is_empty() { &plan } else { &places };
    let place = &from[random.below(from.len())];
    let other = manifest.pointer(&places[random.below(places.len())]).unwrap().clone();
    let value = manifest.pointer_mut(place).unwrap();
    *value = changed(value, other, random);
}

/// JSON pointers to everything below `value` but what is the code's.
fn collect(value: &Value, at: &mut String, places: &mut Vec<String>) {
    let mut visit = |step: String, child: &Value| {
        let length = at.len();
        *at += &format!("/{}", step.replace('~', "~0").replace('/', "~1"));
        places.push(at.clone());
        collect(child, at, places);
        at.truncate(length);
    };
    match value {
        Value::Array(all) => all.iter().enumerate().for_each(|(i, v)| visit(i.to_string(), v)),
        Value::Object(all) => {
            let own = |(name, _): &(&String, &Value)| !OF_THE_CODE.contains(&name.as_str());
            all.iter().filter(own).for_each(|(name, v)| visit(name.clone(), v));
        }
        _ => {}
    }
}

const NUMBERS: [u64; 9] = [0, 1, 2, 64, 1 << 20, 1 << 31, u32::MAX as u64, 1 << 62, u64::MAX];

fn changed(value: &Value, other: Value, random: &mut Random) -> Value {
    match value {
        Value::Number(n) if random.below(8) > 0 => {
            let n = n.as_u64().unwrap_or(0);
            let near = [n.wrapping_sub(1), n + 1, n.wrapping_mul(2), n / 2, n.wrapping_add(64)];
            let all: Vec<u64> = NUMBERS.into_iter().chain(near).collect();
            all[random.below(all.len())].into()
        }
        Value::Array(all) if !all.is_empty() && random.below(8) > 0 => {
            let mut all = all.clone();
            let (a, b) = (random.below(all.len()), random.below(all.len()));
            match random.below(4) {
                0 => drop(all.remove(a)),
                1 => all.insert(a, all[b].clone()),
                2 => all.swap(a, b),
                _ => all[a] = all[b].clone(),
            }
            all.into()
        }
        Value::Bool(truth) => (!truth).into(),
        _ if random.below(4) == 0 => Value::Null,
        _ => other,
    }
}
