//! Training cost models on a data set, and judging them by the tasks that they did not see.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ansc_sketch::{Task, Trace};
use ansc_tuner::dataset::choice::{Choices, Rivals, choices};
use ansc_tuner::dataset::top::top_k;
use ansc_tuner::dataset::{Dataset, Entry, Platform, Split, TaskSamples, samples, trace_id};
use ansc_tuner::model::file::{self, Trained};
use ansc_tuner::model::{Kind, Needs, Parts, Quality, Sample, Subject, View};
use ansc_tuner::{Candidate, CostModel};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::Error;

/// Held out where nobody divided the data set.
const HELD_OUT: f64 = 0.2;
/// Candidates that are scored to tell how long that takes.
const TIMED: usize = 1000;

/// The models to train, and the data.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of a data set.
    pub dataset: PathBuf,
    pub models: Vec<Kind>,
    /// Where the first model goes, trained with the first seed.
    pub output: Option<PathBuf>,
    /// Trainings of each model, with one seed after the other.
    pub seeds: u64,
    /// The first seed.
    pub seed: u64,
    /// The machine that the model is for; the first of the data set, if none is named.
    pub platform: Option<String>,
    /// Shares of the target's traces with labels; a row for each.
    pub labels: Vec<f64>,
}

/// How one model did.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The model, and what it was trained on where that differs from others.
    pub name: String,
    /// The share of the target's traces whose labels it saw.
    pub labels: f64,
    /// For each seed: the least time of each held-out task over that of the highest score.
    pub top_1: Vec<f64>,
    /// The same for the best of the five highest scores.
    pub top_5: Vec<f64>,
    /// For each seed: its choices among the schedules that need no search.
    pub choices: Vec<Choices>,
    /// For each seed: how well it tells traces of the same held-out task apart.
    pub quality: Vec<Quality>,
    /// Seconds of training, on average.
    pub train_seconds: f64,
    /// Milliseconds from a thousand traces to their scores.
    pub milliseconds: f64,
}

/// The data that models were trained on, and how well each model did.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Tasks and traces that models saw.
    pub trained: Trained,
    /// Held-out tasks.
    pub tasks: usize,
    /// Their traces with labels.
    pub traces: usize,
    /// The best choices that are possible among the schedules that need no search.
    pub best: Option<Choices>,
    /// One for each model.
    pub models: Vec<Row>,
}

/// A training that begins.
pub struct Begun<'a> {
    /// The model, with what is known of its other seeds.
    pub row: &'a Row,
    /// The seed of this one.
    pub seed: u64,
    /// Trainings that are done.
    pub done: usize,
    /// Trainings in all.
    pub all: usize,
}

/// Trains what the options ask for. `watch` is told of each training that begins.
pub fn train(options: &Options, watch: &dyn Fn(Begun)) -> Result<Report, Error> {
    let dataset = Dataset::open(&options.dataset)?;
    let data = Data::new(&dataset, options)?;
    let mut rows: Vec<Row> = vec![];
    let variants = variants(&options.models, data.platforms.len());
    let (mut done, all) = (0, variants.len() * options.seeds as usize * options.labels.len());
    for variant in variants {
        let mut of_shares: Vec<Row> =
            options.labels.iter().map(|share| Row::new(variant.name, *share)).collect();
        for seed in (options.seed..).take(options.seeds as usize) {
            let known = data.learned_elsewhere(&variant, seed);
            for (place, row) in of_shares.iter_mut().enumerate() {
                watch(Begun { row, seed, done, all });
                done += 1;
                let model = data.judge(&variant, seed, known.as_ref(), row)?;
                let is_first = rows.is_empty() && place == 0 && seed == options.seed;
                if let Some(output) = options.output.as_ref().filter(|_| is_first) {
                    let trained = Trained { seed, ..data.trained.clone() };
                    file::save(&*model, &trained, output).map_err(|e| Error::file(output, e))?;
                }
            }
        }
        of_shares.iter_mut().for_each(|row| row.train_seconds /= options.seeds as f64);
        rows.extend(of_shares);
    }
    let Parted { test, rivals, .. } = data.of(Needs::Trace);
    Ok(Report {
        best: choices(None, test, rivals),
        trained: data.trained.clone(),
        tasks: test.len(),
        traces: test.iter().map(|t| t.samples.len()).sum(),
        models: rows,
    })
}

/// A model, and the samples that it learns from.
struct Variant {
    name: &'static str,
    kind: Kind,
    learns: Learns,
}

enum Learns {
    /// From all machines, as the model itself does.
    All,
    /// From the target alone.
    Target,
    /// From the others, and is refined by the target.
    Refined,
}

fn variants(models: &[Kind], platforms: usize) -> Vec<Variant> {
    let mut all = vec![];
    for &kind in models {
        match kind {
            _ if kind == Kind::MTL_TLP => {
                all.push((kind.name(), kind, Learns::All));
                all.push(("tlp, target alone", Kind::TLP, Learns::Target));
                if platforms > 1 {
                    all.push(("tlp, refined", Kind::TLP, Learns::Refined));
                }
            }
            _ if is_of_all(kind) => all.push((kind.name(), kind, Learns::All)),
            _ => all.push((kind.name(), kind, Learns::Target)),
        }
    }
    all.into_iter().map(|(name, kind, learns)| Variant { name, kind, learns }).collect()
}

/// Whether a model of programs learns from all machines: prices are wrong in much the same way on
/// all of them.
fn is_of_all(kind: Kind) -> bool {
    kind == Kind::CORRECTED
}

/// A model before it sees the target.
struct Known {
    parts: Parts,
    /// How long that took.
    seconds: f64,
}

impl Row {
    fn new(name: &str, labels: f64) -> Row {
        Row {
            name: name.into(),
            labels,
            top_1: vec![],
            top_5: vec![],
            choices: vec![],
            quality: vec![],
            train_seconds: 0.0,
            milliseconds: 0.0,
        }
    }
}

/// The samples of a kind of model.
struct Parted {
    train: Vec<Sample>,
    test: Vec<TaskSamples>,
    /// The schedules that need no search, for each task of `test`, on the target.
    rivals: Vec<Rivals>,
}

struct Data {
    /// The target first.
    platforms: Vec<Platform>,
    trained: Trained,
    /// To train and to judge models that read programs: the target's; and those that read traces.
    programs: Option<Parted>,
    traces: Parted,
    /// Traces of held-out tasks, and these tasks as the target has them. Scoring is timed with
    /// them.
    timed: Vec<(Arc<Task>, Trace)>,
}

impl Data {
    fn new(dataset: &Dataset, options: &Options) -> Result<Data, Error> {
        let platforms = platforms(dataset, options.platform.as_deref())?;
        let keys = dataset.keys()?;
        let entries: Vec<Entry> =
            keys.iter().map(|key| Ok(dataset.task(key)?.entry)).collect::<Result<_, Error>>()?;
        let split = match dataset.split()? {
            Some(split) => split,
            None => Split::of(&entries, &[], HELD_OUT, 0),
        };
        let is_of_all = options.models.iter().any(|kind| is_of_all(*kind));
        let part = |needs: Needs| -> Result<Parted, Error> {
            let is_own = needs == Needs::Program && !is_of_all;
            let asked = if is_own { &platforms[..1] } else { &platforms[..] };
            let (mut train, mut test) = (vec![], vec![]);
            for task in samples(dataset, &keys, asked, needs)? {
                if split.test.contains(&task.key) {
                    test.push(own(task));
                } else if split.train.contains(&task.key) {
                    train.extend(task.samples);
                }
            }
            let of = |task: &TaskSamples| own_task(&entries, &task.key, &platforms[0]);
            let rivals =
                |task| of(task).map_or_else(Rivals::default, |made| Rivals::of(&made, task));
            let rivals = test.iter().map(rivals).collect();
            Ok(Parted { train, test, rivals })
        };
        let reads_programs = options.models.iter().any(|kind| kind.needs() == Needs::Program);
        let programs = reads_programs.then(|| part(Needs::Program)).transpose()?;
        let traces = part(Needs::Trace)?;
        if traces.train.is_empty() || traces.test.iter().all(|t| t.samples.is_empty()) {
            let reason = "there are no labels to train on, or none to judge by; `ansc dataset collect` adds labels, \
                          `ansc dataset split` chooses what is held out";
            return Err(Error::file(&options.dataset, reason));
        }
        let trained = Trained {
            dataset: dataset_name(&options.dataset),
            tasks: split.train.len(),
            traces: traces.train.len(),
            platforms: platforms.iter().map(Platform::id).collect(),
            seed: 0,
            version: env!("CARGO_PKG_VERSION").into(),
        };
        let timed = timed(&entries, &traces.test, &platforms[0]);
        Ok(Data { platforms, trained, programs, traces, timed })
    }

    fn of(&self, needs: Needs) -> &Parted {
        match needs {
            Needs::Program => self.programs.as_ref().unwrap_or(&self.traces),
            Needs::Trace => &self.traces,
        }
    }

    /// A model that other machines taught, for the target to refine. It is the same for all shares
    /// of the target's labels.
    fn learned_elsewhere(&self, variant: &Variant, seed: u64) -> Option<Known> {
        if !matches!(variant.learns, Learns::Refined) {
            return None;
        }
        let mut model = variant.kind.create(seed);
        let start = Instant::now();
        model.train(&elsewhere(&self.of(model.needs()).train));
        let seconds = start.elapsed().as_secs_f64();
        model.parts().map(|parts| Known { parts, seconds })
    }

    /// Trains one model, and adds to the row how it did.
    fn judge(
        &self,
        variant: &Variant,
        seed: u64,
        known: Option<&Known>,
        row: &mut Row,
    ) -> Result<Box<dyn CostModel>, Error> {
        let mut model = variant.kind.create(seed);
        let Parted { train, test, rivals } = self.of(model.needs());
        let is_target = |s: &&Sample| s.platform == 0 && is_known(s, row.labels);
        let asked = |s: &&Sample| match variant.learns {
            Learns::All => s.platform != 0 || is_target(s),
            Learns::Target | Learns::Refined => is_target(s),
        };
        let own: Vec<Sample> = train.iter().filter(asked).cloned().collect();
        let start = Instant::now();
        match known {
            None => model.train(&own),
            Some(Known { parts, .. }) => {
                model = variant.kind.load(parts).map_err(|e| Error::Usage(e.to_string()))?;
                model.refine(&own);
            }
        }
        let before = known.map_or(0.0, |known| known.seconds);
        row.train_seconds += before + start.elapsed().as_secs_f64();
        let score = |k| top_k(&*model, test, k).unwrap_or(0.0);
        row.top_1.push(score(1));
        row.top_5.push(score(5));
        row.choices.extend(choices(Some(&*model), test, rivals));
        row.quality.extend(quality(&*model, test));
        if row.top_1.len() == 1 {
            row.milliseconds = self.time(&*model);
        }
        Ok(model)
    }

    /// Milliseconds to score a thousand traces, programs and all where the model needs them.
    fn time(&self, model: &dyn CostModel) -> f64 {
        use rayon::prelude::*;
        let start = Instant::now();
        let mut scored = 0;
        for part in self.timed.chunk_by(|a, b| Arc::ptr_eq(&a.0, &b.0)) {
            let subject = Subject::of(&part[0].0);
            let candidates: Vec<Candidate> = match model.needs() {
                Needs::Trace => vec![],
                Needs::Program => {
                    let made = part.par_iter().filter_map(|(task, t)| Candidate::exactly(task, t));
                    made.inspect(|c| drop(c.features().clone())).collect()
                }
            };
            let views: Vec<View<'_>> = match model.needs() {
                Needs::Program => {
                    candidates.iter().map(|c| c.view(&subject, Needs::Program)).collect()
                }
                Needs::Trace => {
                    let view = |trace| View { subject: &subject, trace, features: None };
                    part.iter().map(|(_, trace)| view(trace)).collect()
                }
            };
            scored += model.predict(&views).len();
        }
        start.elapsed().as_secs_f64() * 1e3 * TIMED as f64 / scored.max(1) as f64
    }
}

/// The name of its folder. Who reads the model need not know where that is.
fn dataset_name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Over all tasks of which there is something to compare.
fn quality(model: &dyn CostModel, tasks: &[TaskSamples]) -> Option<Quality> {
    let samples: Vec<Sample> = tasks.iter().flat_map(|t| t.samples.iter().cloned()).collect();
    let views: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
    Quality::of(&model.predict(&views), &samples)
}

/// The target first: that of the name, or the first of all.
fn platforms(dataset: &Dataset, target: Option<&str>) -> Result<Vec<Platform>, Error> {
    let mut all = dataset.platforms()?;
    let Some(target) = target else { return at_least_one(all, dataset.folder()) };
    let known: Vec<String> = all.iter().map(Platform::id).collect();
    let Some(place) = known.iter().position(|id| id == target) else {
        let known = known.join(", ");
        let message = format!("the data set has no machine `{target}`; it has {known}");
        return Err(Error::Usage(message));
    };
    all.swap(0, place);
    Ok(all)
}

fn at_least_one(all: Vec<Platform>, folder: &Path) -> Result<Vec<Platform>, Error> {
    if all.is_empty() {
        let reason = "no machine has measured anything; `ansc dataset collect` does";
        return Err(Error::file(folder, reason));
    }
    Ok(all)
}

/// Only what the target measured judges a model.
fn own(task: TaskSamples) -> TaskSamples {
    let samples = task.samples.into_iter().filter(|s| s.platform == 0).collect();
    TaskSamples { samples, ..task }
}

/// Whether the label of one of the target's samples is known, if they are for a share of its traces
/// only.
fn is_known(sample: &Sample, share: f64) -> bool {
    let drawn = || xxh3_64(trace_id(&sample.trace).as_bytes()) as f64 / u64::MAX as f64;
    share >= 1.0 || drawn() < share
}

/// The samples of all machines but the target, as if one machine had measured them: their tasks get
/// numbers of their own, so that only times of one machine are compared.
fn elsewhere(samples: &[Sample]) -> Vec<Sample> {
    let mut numbers: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let others = samples.iter().filter(|s| s.platform != 0);
    let sample = |s: &Sample| {
        let next = numbers.len();
        let task = *numbers.entry((s.task, s.platform)).or_insert(next);
        Sample { task, platform: 0, ..s.clone() }
    };
    others.map(sample).collect()
}

/// A task as the platform has it.
fn own_task(entries: &[Entry], key: &str, platform: &Platform) -> Option<Arc<Task>> {
    let entry = entries.iter().find(|e| e.key == key)?;
    entry.task(platform.machine(), platform.threads)
}

/// A thousand held-out traces, or as many as there are, with their tasks.
fn timed(entries: &[Entry], test: &[TaskSamples], platform: &Platform) -> Vec<(Arc<Task>, Trace)> {
    let mut all = vec![];
    for task in test {
        let Some(made) = own_task(entries, &task.key, platform) else { continue };
        all.extend(task.samples.iter().map(|s| (made.clone(), Trace::clone(&s.trace))));
    }
    all.truncate(TIMED);
    all
}
