//! The data sets that come with the project, as the version at hand reads them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use ansc_tuner::dataset::{Dataset, trace_id};

/// Each label has its trace: instructions may become more, but those that there are keep their
/// arguments.
#[test]
fn data_sets_are_read_as_a_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let archives = std::fs::read_dir(root.join("datasets")).unwrap();
    let archives: Vec<PathBuf> = archives.map(|entry| entry.unwrap().path()).collect();
    assert!(archives.len() >= 3, "{archives:?}");
    let work = tempfile::tempdir().unwrap();
    for archive in archives {
        let folder = work.path().join(archive.file_name().unwrap());
        let unpack = Command::new(root.join("../scripts/dataset"))
            .arg("unpack")
            .args([&archive, &folder])
            .status();
        assert!(unpack.unwrap().success(), "{archive:?}");
        let dataset = Dataset::open(&folder).unwrap();
        let keys = dataset.keys().unwrap();
        assert!(keys.len() > 100, "{archive:?}: {} tasks", keys.len());
        let platforms = dataset.platforms().unwrap();
        for key in keys {
            let task = dataset.task(&key).unwrap();
            let known: HashSet<String> = task.traces.iter().map(trace_id).collect();
            let labels = platforms.iter().filter_map(|at| dataset.labels(at, &key).unwrap());
            for (trace, _) in labels.flat_map(|file| file.labels) {
                assert!(known.contains(&trace), "{archive:?}: {key}: {trace}");
            }
        }
    }
}
