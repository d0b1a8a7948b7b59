//! The data sets that come with the project, as the version at hand reads them.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use ansc_tuner::dataset::{Dataset, trace_id};

/// Each label has its trace, in the same data set or, where somebody else measured the traces of
/// one, in that: instructions may become more, but those that there are keep their arguments.
#[test]
fn data_sets_are_read_as_a_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let archives = std::fs::read_dir(root.join("datasets")).unwrap();
    let archives: Vec<PathBuf> = archives.map(|entry| entry.unwrap().path()).collect();
    assert!(archives.len() >= 3, "{archives:?}");
    let work = tempfile::tempdir().unwrap();
    let unpacked = |archive: &PathBuf| {
        let folder = work.path().join(archive.file_name().unwrap());
        let script = root.join("../scripts/dataset");
        let unpack = Command::new(script).arg("unpack").args([archive, &folder]).status();
        assert!(unpack.unwrap().success(), "{archive:?}");
        Dataset::open(&folder).unwrap()
    };
    let datasets: Vec<Dataset> = archives.iter().map(unpacked).collect();
    let mut known: BTreeMap<String, HashSet<String>> = BTreeMap::new();
    for dataset in &datasets {
        for key in dataset.keys().unwrap() {
            let traces = dataset.task(&key).unwrap().traces;
            known.entry(key).or_default().extend(traces.iter().map(trace_id));
        }
    }
    assert!(known.len() > 1000, "{} tasks", known.len());
    for dataset in &datasets {
        let mut labels = 0;
        for platform in dataset.platforms().unwrap() {
            for (key, traces) in &known {
                if let Some(file) = dataset.labels(&platform, key).unwrap() {
                    labels += file.labels.len();
                    let unknown = file.labels.keys().find(|trace| !traces.contains(*trace));
                    assert_eq!(unknown, None, "{:?}: {key}", dataset.folder());
                }
            }
        }
        assert!(labels > 1000, "{:?}: {labels} labels", dataset.folder());
    }
}
