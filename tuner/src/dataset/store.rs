//! The files of a data set. Each is written as a whole or not at all, so that a run may end at any
//! moment.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    DatasetError, Entry, Header, LabelFile, Platform, Reference, Split, TaskFile, trace_id,
};

const FORMAT: u32 = 1;
/// No file comes near, unpacked.
const LARGEST: u64 = 1 << 30;

/// A folder with tasks, traces and labels.
#[derive(Clone, Debug)]
pub struct Dataset {
    folder: PathBuf,
    header: Header,
}

/// The numbers of tasks and labels that a merge added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Merged {
    /// Tasks that were not there.
    pub tasks: usize,
    /// Labels that were not there.
    pub labels: usize,
}

type Result<T> = std::result::Result<T, DatasetError>;

impl Dataset {
    /// One that is there.
    pub fn open(folder: &Path) -> Result<Dataset> {
        let path = folder.join("dataset.json");
        let header: Header = read_json(&path)?;
        if header.format != FORMAT {
            let reason = format!("format {}, not {FORMAT}", header.format);
            return Err(DatasetError::Content { path, reason });
        }
        Ok(Dataset { folder: folder.into(), header })
    }

    /// One that is there and was made like this, or a new one.
    pub fn open_or_create(folder: &Path, seed: u64, per_task: usize) -> Result<Dataset> {
        let header = Header { format: FORMAT, seed, per_task, reference: Reference::default() };
        if folder.join("dataset.json").exists() {
            let known = Dataset::open(folder)?;
            known.expect(&header, folder)?;
            return Ok(known);
        }
        create_folder(folder)?;
        write_json(&folder.join("dataset.json"), &header)?;
        Ok(Dataset { folder: folder.into(), header })
    }

    fn expect(&self, other: &Header, path: &Path) -> Result<()> {
        if self.header == *other {
            return Ok(());
        }
        let told = |h: &Header| {
            let Reference { vector_bytes, registers, cores } = h.reference;
            format!(
                "seed {}, {} of a task, for {registers} vectors of {vector_bytes} bytes and {cores} cores",
                h.seed, h.per_task
            )
        };
        let (found, wanted) = (told(other), told(&self.header));
        let into = self.folder.clone();
        Err(DatasetError::Different { path: path.into(), into, found, wanted })
    }

    /// How its traces are made.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The keys of its tasks, in order.
    pub fn keys(&self) -> Result<Vec<String>> {
        keys(&self.folder.join("tasks"))
    }

    /// Its tasks without their traces, in the order of their keys.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        self.keys()?.iter().map(|key| Ok(self.task(key)?.entry)).collect()
    }

    /// A subgraph and its traces.
    pub fn task(&self, key: &str) -> Result<TaskFile> {
        read(&self.task_path(key))
    }

    /// Adds a task whose traces were just made.
    pub fn add_task(&self, task: &TaskFile) -> Result<()> {
        write(&self.task_path(&task.entry.key), task)
    }

    /// Whether the task is there, with its traces.
    pub fn has_task(&self, key: &str) -> bool {
        self.task_path(key).exists()
    }

    /// Adds to the counts of networks of a task that is there.
    pub fn know_networks(&self, entry: &Entry) -> Result<()> {
        let mut known = self.task(&entry.key)?;
        let before = known.entry.networks.clone();
        known.entry.networks.extend(entry.networks.clone());
        if known.entry.networks == before { Ok(()) } else { self.add_task(&known) }
    }

    /// The machines that have labels, in the order of their names.
    pub fn platforms(&self) -> Result<Vec<Platform>> {
        let folder = self.folder.join("labels");
        let mut found = vec![];
        for id in names(&folder)? {
            let inside = folder.join(&id);
            if let Some(key) = keys(&inside)?.first() {
                found.push(read::<LabelFile>(&path_of(&inside, key))?.platform);
            }
        }
        Ok(found)
    }

    /// The labels that a machine measured for a task. None if it measured nothing.
    pub fn labels(&self, platform: &Platform, key: &str) -> Result<Option<LabelFile>> {
        let path = self.label_path(platform, key);
        if path.exists() { read(&path).map(Some) } else { Ok(None) }
    }

    /// In place of what was there.
    pub fn set_labels(&self, labels: &LabelFile) -> Result<()> {
        write(&self.label_path(&labels.platform, &labels.task), labels)
    }

    /// Which tasks are held out; none if nobody divided it.
    pub fn split(&self) -> Result<Option<Split>> {
        let path = self.folder.join("split.json");
        if path.exists() { read_json(&path).map(Some) } else { Ok(None) }
    }

    /// In place of what was there.
    pub fn set_split(&self, split: &Split) -> Result<()> {
        write_json(&self.folder.join("split.json"), split)
    }

    /// Adds the tasks and labels of another one, whose traces are made for the same machine. A task
    /// that both have gets the traces of both. The other one may have labels alone, of tasks that
    /// are here.
    pub fn merge(&self, other: &Dataset) -> Result<Merged> {
        if self.header.reference != other.header.reference {
            self.expect(&other.header, &other.folder)?;
        }
        let mut merged = Merged::default();
        for key in other.keys()? {
            let task = other.task(&key)?;
            if self.has_task(&key) {
                self.know_networks(&task.entry)?;
                self.know_traces(task)?;
            } else {
                self.add_task(&task)?;
                merged.tasks += 1;
            }
        }
        for platform in other.platforms()? {
            for key in keys(&other.folder.join("labels").join(platform.id()))? {
                if !self.has_task(&key) {
                    let path = other.label_path(&platform, &key);
                    let reason = "these labels are of a task that is in neither data set: merge \
                                  the one with its traces first";
                    return Err(DatasetError::Content { path, reason: reason.into() });
                }
                let Some(new) = other.labels(&platform, &key)? else { continue };
                merged.labels += self.add_labels(new)?;
            }
        }
        Ok(merged)
    }

    /// Adds to the traces of a task that is there.
    fn know_traces(&self, task: TaskFile) -> Result<()> {
        let mut known = self.task(&task.entry.key)?;
        let ids: BTreeSet<String> = known.traces.iter().map(trace_id).collect();
        let before = known.traces.len();
        known
            .traces
            .extend(task.traces.into_iter().filter(|trace| !ids.contains(&trace_id(trace))));
        if known.traces.len() == before { Ok(()) } else { self.add_task(&known) }
    }

    /// How many of them were not there.
    fn add_labels(&self, new: LabelFile) -> Result<usize> {
        let Some(mut known) = self.labels(&new.platform, &new.task)? else {
            self.set_labels(&new)?;
            return Ok(new.labels.len());
        };
        let before = known.labels.len();
        for (trace, label) in new.labels {
            known.labels.entry(trace).or_insert(label);
        }
        let added = known.labels.len() - before;
        if added > 0 {
            known.spent += new.spent;
            self.set_labels(&known)?;
        }
        Ok(added)
    }

    fn task_path(&self, key: &str) -> PathBuf {
        path_of(&self.folder.join("tasks"), key)
    }

    fn label_path(&self, platform: &Platform, key: &str) -> PathBuf {
        path_of(&self.folder.join("labels").join(platform.id()), key)
    }
}

const ENDING: &str = ".json.gz";

fn path_of(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}{ENDING}"))
}

/// In order; none if there is no such folder.
fn names(folder: &Path) -> Result<BTreeSet<String>> {
    if !folder.exists() {
        return Ok(BTreeSet::new());
    }
    let failed = |cause| DatasetError::Io { path: folder.into(), cause };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let name = |entry: std::io::Result<fs::DirEntry>| {
        Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

fn keys(folder: &Path) -> Result<Vec<String>> {
    let key = |name: String| name.strip_suffix(ENDING).map(str::to_owned);
    Ok(names(folder)?.into_iter().filter_map(key).collect())
}

fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|cause| DatasetError::Io { path: folder.into(), cause })
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let failed = |cause| DatasetError::Io { path: path.into(), cause };
    let file = File::open(path).map_err(failed)?;
    let mut text = vec![];
    let unpacked = GzDecoder::new(file).take(LARGEST).read_to_end(&mut text);
    let wrong = |reason: String| DatasetError::Content { path: path.into(), reason };
    unpacked.map_err(|e| wrong(e.to_string()))?;
    serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))
}

fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let failed = |cause| DatasetError::Io { path: path.into(), cause };
    let mut packed = GzEncoder::new(vec![], Compression::default());
    packed.write_all(&text(value)).map_err(failed)?;
    write_bytes(path, &packed.finish().map_err(failed)?)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = fs::read(path).map_err(|cause| DatasetError::Io { path: path.into(), cause })?;
    let wrong =
        |e: serde_json::Error| DatasetError::Content { path: path.into(), reason: e.to_string() };
    serde_json::from_slice(&bytes).map_err(wrong)
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut bytes = text(value);
    bytes.push(b'\n');
    write_bytes(path, &bytes)
}

fn text(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("files of a data set are plain data")
}

fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    create_folder(folder)?;
    let failed = |cause| DatasetError::Io { path: path.into(), cause };
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}
