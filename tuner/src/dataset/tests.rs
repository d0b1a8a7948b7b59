use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ansc_sketch::trace::Instruction;

use super::*;
use crate::candidate::Candidate;
use crate::measure::Simulated;
use crate::model::{self, Needs, View};
use crate::testing::{elementwise, matmul, product};

fn entry(compute: Compute, network: &str) -> Entry {
    let constant = vec![false; compute.inputs.len()];
    let task = crate::testing::task(compute.clone());
    Entry {
        key: task.key(),
        name: task.name.clone(),
        compute: compute.to_string(),
        constant,
        networks: [(network.to_owned(), 2)].into(),
    }
}

fn entries() -> Vec<Entry> {
    vec![
        entry(matmul(32, 48, 24), "a"),
        entry(product(64, 16, 32), "b"),
        entry(elementwise(24, 36), "b"),
    ]
}

fn platform(name: &str, vector_bytes: usize) -> Platform {
    Platform { target: format!("x {name}"), threads: 2, vector_bytes, registers: 16 }
}

struct Silent;

impl Watch for Silent {}

/// Ends the collection after so many rounds.
struct Ender<'a> {
    rounds: AtomicUsize,
    flag: &'a AtomicBool,
}

impl Watch for Ender<'_> {
    fn round(&self, _: &Progress) {
        if self.rounds.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.flag.store(true, Ordering::Relaxed);
        }
    }
}

fn collect(folder: &Path, platform: &Platform, device: &mut Simulated, ends: usize) -> Collected {
    collect_with(folder, platform, device, ends, 7)
}

fn collect_with(
    folder: &Path,
    platform: &Platform,
    device: &mut Simulated,
    ends: usize,
    seed: u64,
) -> Collected {
    let dataset = Dataset::open_or_create(folder, seed, 40).unwrap();
    let flag = AtomicBool::new(false);
    let ender = Ender { rounds: AtomicUsize::new(ends), flag: &flag };
    let collector = Collector {
        dataset: &dataset,
        platform,
        machine: platform.machine(),
        measurer: device,
        watch: if ends == 0 { &Silent } else { &ender },
        interrupted: &flag,
        per_round: 16,
        until: None,
    };
    collector.collect(&entries()).unwrap()
}

/// All files, by their paths inside of the folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let inside = path.strip_prefix(folder).unwrap().to_owned();
                found.insert(inside, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn the_same_seed_gives_the_same_traces_on_every_machine() {
    let reference = Reference::default();
    let of = |seed: u64, threads: usize| -> Vec<Vec<Trace>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let options = GenerateOptions { seed, per_task: 60 };
        let one = |e: &Entry| traces(&e.reference(&reference).unwrap(), &options);
        pool.install(|| entries().iter().map(one).collect())
    };
    let first = of(1, 1);
    assert_eq!(first, of(1, 3));
    assert_ne!(first, of(2, 3));
    for (entry, traces) in entries().iter().zip(&first) {
        let task = entry.reference(&reference).unwrap();
        assert!((3..=60).contains(&traces.len()), "{}", traces.len());
        assert_eq!(traces[0], Candidate::exactly(&task, &task.untuned()).unwrap().trace);
        let program = |t: &Trace| Candidate::exactly(&task, t).unwrap().program;
        let programs: BTreeSet<u64> = traces.iter().map(program).collect();
        assert_eq!(programs.len(), traces.len());
        let rivals = task.rivals();
        assert_eq!(rivals[0].sketch.trace, task.untuned());
        assert!(rivals.iter().all(|rival| programs.contains(&program(&rival.sketch.trace))));
        // A shorter list of the same task shares what it draws first.
        let few = super::traces(&task, &GenerateOptions { seed: 1, per_task: 5 });
        assert_eq!(few[..3], traces[..3]);
    }
}

#[test]
fn traces_of_another_version_are_left_out() {
    let task = TaskFile {
        entry: entries().remove(0),
        traces: vec![Trace::default(), Trace { steps: vec![Instruction::Complete {}] }],
    };
    let mut json = serde_json::to_value(&task).unwrap();
    let traces = json["traces"].as_array_mut().unwrap();
    traces.insert(1, serde_json::json!([{ "op": "unheard_of" }]));
    traces.insert(2, serde_json::json!([{ "op": "split", "out": [] }]));
    let text = json.to_string();
    assert_eq!(serde_json::from_str::<TaskFile>(&text).unwrap(), task);
    assert!(serde_json::from_str::<TaskFile>(&text.replace("[{\"op\"", "[{op")).is_err());
}

#[test]
fn a_collection_goes_on_where_it_was_interrupted() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let here = platform("here", 32);
    let mut device = Simulated::default();
    let done = collect(whole.path(), &here, &mut device, 0);
    assert!(!done.interrupted && done.progress.tasks == 3);
    assert_eq!(done.progress.traces, done.progress.of_traces);
    // The untuned schedule is in every round, as all others are held against it.
    assert!(device.measured >= done.progress.measured);
    let mut device = Simulated::default();
    let first = collect(parts.path(), &here, &mut device, 2);
    assert!(first.interrupted && first.progress.measured == 32, "{first:?}");
    let rest = collect(parts.path(), &here, &mut device, 0);
    assert_eq!(rest.progress.measured + 32, done.progress.measured);
    // The untuned schedule is measured again, as all others are compared with it.
    assert!(device.measured <= done.progress.measured + 9);
    let nothing = collect(parts.path(), &here, &mut device, 0);
    assert_eq!((nothing.progress.measured, nothing.progress.tasks), (0, 3));
    let strip = |folder: &Path| {
        let dataset = Dataset::open(folder).unwrap();
        let labels = |key: String| dataset.labels(&here, &key).unwrap().unwrap().labels;
        dataset.keys().unwrap().into_iter().map(labels).collect::<Vec<_>>()
    };
    assert_eq!(strip(whole.path()), strip(parts.path()));
}

/// Three runs of one round each come to three tasks.
#[test]
fn a_collection_goes_on_with_tasks_of_the_fewest_labels() {
    let folder = tempfile::tempdir().unwrap();
    let here = platform("here", 32);
    for _ in 0..3 {
        collect(folder.path(), &here, &mut Simulated::default(), 1);
    }
    let dataset = Dataset::open(folder.path()).unwrap();
    let labels = |key: String| dataset.labels(&here, &key).unwrap().map_or(0, |f| f.labels.len());
    let all: Vec<usize> = dataset.keys().unwrap().into_iter().map(labels).collect();
    assert!(all.iter().all(|labels| *labels > 0), "{all:?}");
}

#[test]
fn labels_of_several_machines_are_about_the_same_traces() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let machines = [platform("here", 32), platform("there", 64)];
    for (folder, machine) in folders.iter().zip(&machines) {
        let vector_bytes = machine.vector_bytes;
        collect(folder.path(), machine, &mut Simulated { vector_bytes, ..Simulated::default() }, 0);
    }
    let [one, other] = folders.each_ref().map(|f| Dataset::open(f.path()).unwrap());
    let merged = one.merge(&other).unwrap();
    assert_eq!(merged.tasks, 0);
    let count = |d: &Dataset| d.stats().unwrap().platforms.iter().map(|p| p.labels).sum::<usize>();
    assert_eq!((merged.labels, count(&one)), (count(&other), 2 * count(&other)));
    assert_eq!(one.merge(&other).unwrap(), Merged::default());
    let mut found = one.platforms().unwrap();
    found.sort_by_key(|p| p.vector_bytes);
    assert_eq!(found, machines);
    for key in one.keys().unwrap() {
        let ids = |p: &Platform| {
            let labels = one.labels(p, &key).unwrap().unwrap().labels;
            labels.into_keys().collect::<BTreeSet<_>>()
        };
        assert_eq!(ids(&machines[0]), ids(&machines[1]));
    }
    // Joining folders by hand is the same.
    let before = files(one.folder());
    assert!(files(other.folder()).iter().all(|(path, bytes)| before[path] == *bytes));
}

#[test]
fn collections_of_several_seeds_are_merged() {
    let here = platform("here", 32);
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (folder, seed) in folders.iter().zip([7, 8]) {
        collect_with(folder.path(), &here, &mut Simulated::default(), 0, seed);
    }
    let [one, other] = folders.each_ref().map(|f| Dataset::open(f.path()).unwrap());
    let ids = |d: &Dataset, key: &str| -> BTreeSet<String> {
        d.task(key).unwrap().traces.iter().map(trace_id).collect()
    };
    let keys = one.keys().unwrap();
    let apart: Vec<_> = keys.iter().map(|key| (ids(&one, key), ids(&other, key))).collect();
    assert!(apart.iter().any(|(a, b)| a != b));
    one.merge(&other).unwrap();
    for (key, (a, b)) in keys.iter().zip(&apart) {
        assert_eq!(ids(&one, key), a | b);
        let labels = one.labels(&here, key).unwrap().unwrap().labels;
        assert_eq!(labels.into_keys().collect::<BTreeSet<_>>(), a | b);
    }
    assert_eq!(one.merge(&other).unwrap(), Merged::default());
    // Traces for another machine are refused.
    let header = other.folder().join("dataset.json");
    let text = std::fs::read_to_string(&header).unwrap();
    std::fs::write(&header, text.replace("\"cores\":2", "\"cores\":64")).unwrap();
    let strange = Dataset::open(other.folder()).unwrap();
    let refused = one.merge(&strange).unwrap_err().to_string();
    assert!(refused.contains("64 cores") && refused.contains("2 cores"), "{refused}");
}

/// A machine's labels can be kept without the traces, which others have already.
#[test]
fn labels_alone_are_merged() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (here, there) = (platform("here", 32), platform("there", 64));
    collect(folders[0].path(), &here, &mut Simulated::default(), 0);
    collect(folders[1].path(), &there, &mut Simulated::default(), 0);
    let [one, other] = folders.each_ref().map(|f| Dataset::open(f.path()).unwrap());
    let labels = other.labels(&there, &other.keys().unwrap()[0]).unwrap();
    std::fs::remove_dir_all(other.folder().join("tasks")).unwrap();
    let merged = one.merge(&other).unwrap();
    assert_eq!((merged.tasks, merged.labels), (0, one.stats().unwrap().traces));
    assert_eq!(one.labels(&there, &one.keys().unwrap()[0]).unwrap(), labels);
    // Labels of a task that nobody knows are refused.
    std::fs::remove_dir_all(one.folder().join("tasks")).unwrap();
    let refused = one.merge(&other).unwrap_err().to_string();
    assert!(refused.contains("neither data set"), "{refused}");
}

#[test]
fn figures_count_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let here = platform("here", 32);
    collect(folder.path(), &here, &mut Simulated::default(), 0);
    let dataset = Dataset::open(folder.path()).unwrap();
    let key = dataset.keys().unwrap().remove(0);
    let before = dataset.stats().unwrap().platforms[0].failures.clone();
    let mut labels = dataset.labels(&here, &key).unwrap().unwrap();
    let mut ran = labels.labels.values_mut().filter(|label| label.seconds().is_some());
    *ran.next().unwrap() = Label::NoProgram;
    *ran.next().unwrap() = Label::Measured(Outcome::Failed(crate::Failure::Crash));
    labels.spent = 7200.0;
    dataset.set_labels(&labels).unwrap();
    let stats = dataset.stats().unwrap();
    assert_eq!((stats.tasks, stats.held_out), (3, None));
    assert_eq!(stats.networks, [("a".to_owned(), 1), ("b".to_owned(), 2)].into());
    let [p] = &stats.platforms[..] else { panic!("{stats:?}") };
    assert_eq!((p.tasks, p.labels), (3, stats.traces));
    assert!((2.0..2.01).contains(&p.hours), "{}", p.hours);
    let more = |why: &str| p.failures[why] - before.get(why).copied().unwrap_or(0);
    assert_eq!((more(&crate::Failure::Crash.to_string()), more("makes no program")), (1, 1));
}

#[test]
fn tasks_are_divided_as_a_whole() {
    let all = entries();
    let split = Split::of(&all, &["b".into()], 0.5, 0);
    assert_eq!(split.train, [all[0].key.clone()].into());
    assert_eq!(split.test.len(), 2);
    let many: Vec<Entry> = (1..41).map(|i| entry(elementwise(2, i), "n")).collect();
    let (one, other) = (Split::of(&many, &[], 0.25, 1), Split::of(&many, &[], 0.25, 2));
    assert_eq!((one.test.len(), one.train.len()), (10, 30));
    assert!(one.test.is_disjoint(&one.train) && one != other);
    let mut turned = many.clone();
    turned.reverse();
    assert_eq!(Split::of(&turned, &[], 0.25, 1), one);
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open_or_create(folder.path(), 0, 1).unwrap();
    assert_eq!(dataset.split().unwrap(), None);
    dataset.set_split(&one).unwrap();
    assert_eq!(dataset.split().unwrap(), Some(one));
}

#[test]
fn models_learn_from_a_data_set() {
    let folder = tempfile::tempdir().unwrap();
    let machines = [platform("here", 32), platform("there", 64)];
    for machine in &machines {
        collect(folder.path(), machine, &mut Simulated::default(), 0);
    }
    let dataset = Dataset::open(folder.path()).unwrap();
    let keys = dataset.keys().unwrap();
    for name in ["hist", "tlp", "mtl-tlp"] {
        let mut model = model::create(name, 0).unwrap();
        let tasks = samples(&dataset, &keys, &machines, model.needs()).unwrap();
        assert!(tasks.iter().all(|t| t.weight == 2.0 && !t.samples.is_empty()));
        let all: Vec<_> = tasks.iter().flat_map(|t| t.samples.clone()).collect();
        assert_eq!(all[0].features.is_some(), model.needs() == Needs::Program);
        assert!([0, 1].iter().all(|p| all.iter().any(|s| s.platform == *p)));
        model.train(&all);
        let view: Vec<View<'_>> = all.iter().map(|s| s.view()).collect();
        let scores = model.predict(&view);
        assert!(scores.iter().any(|s| *s != scores[0]), "{name}");
        let found = top::top_k(&*model, &tasks, 5).unwrap();
        assert!(found > 0.5 && found <= 1.0, "{name}: {found}");
    }
}

#[test]
fn damaged_files_are_told_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let here = platform("here", 32);
    collect(folder.path(), &here, &mut Simulated::default(), 0);
    let dataset = Dataset::open(folder.path()).unwrap();
    let key = dataset.keys().unwrap().remove(0);
    let path = folder.path().join(format!("tasks/{key}.json.gz"));
    let good = std::fs::read(&path).unwrap();
    for bad in [&good[..good.len() / 2], b"", b"not packed"] {
        std::fs::write(&path, bad).unwrap();
        let told = dataset.task(&key).unwrap_err().to_string();
        assert!(told.contains(&key) && told.contains("not a file of a data set"), "{told}");
    }
    std::fs::write(folder.path().join("dataset.json"), "{\"format\":2,\"seed\":0}").unwrap();
    assert!(Dataset::open(folder.path()).is_err());
}
