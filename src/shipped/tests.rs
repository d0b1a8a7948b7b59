use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ansc_frontend::import::ImportOptions;
use ansc_sketch::Task;
use ansc_sketch::task::Sums;
use ansc_sketch::trace::Unfit;
use ansc_tuner::Candidate;
use ansc_tuner::tune::Weighted;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::choice::Schedules;
use crate::pipeline::{self, Options};

#[test]
fn every_line_is_sound_and_gains() {
    for class in &CLASSES {
        let mut records = InMemory::default();
        let done = jsonl::import(&mut class.lines.as_bytes(), &mut records).unwrap();
        assert_eq!((done.bad, done.duplicates), (0, 0), "{:?}", done.bad_lines);
        let named: Vec<String> = records.tasks().unwrap().into_iter().map(|t| t.key).collect();
        for key in records.keys().unwrap() {
            assert!(named.contains(&key.task), "{key:?}");
            let target = Target::parse("x86-64").unwrap();
            let tuned = tuned(&records, key.clone(), &target).unwrap().1;
            assert!(tuned.untuned_seconds.is_some_and(|u| tuned.seconds < u), "{key:?}");
        }
    }
}

#[test]
fn prices_are_corrected_where_somebody_measured() {
    let corrected = |cpu: &str| prices(&Target::parse(cpu).unwrap()).0.is_some();
    assert!(corrected("x86-64-v4") && corrected("znver4"));
    assert!(!corrected("x86-64-v3") && !corrected("x86-64-v2"));
    let unasked = |cpu: &str| own_prices(&Target::parse(cpu).unwrap()).0.is_some();
    assert!(unasked("znver4"));
    assert!(!unasked("x86-64-v4") && !unasked("cascadelake") && !unasked("x86-64-v3"));
}

#[test]
fn classes_are_told_by_their_features() {
    let of = |cpu: &str| schedules(&Target::parse(cpu).unwrap(), 2).len();
    assert!(of("x86-64-v3") > 0 && of("x86-64-v4") > 0);
    assert_eq!((of("znver3"), of("cascadelake")), (of("x86-64-v3"), of("x86-64-v4")));
    assert_eq!(of("x86-64-v2"), 0);
    assert!(schedules(&Target::parse("x86-64-v3").unwrap(), 63).is_empty());
}

/// A schedule that another kind of processor measured is taken where prices agree.
#[test]
fn schedules_of_another_kind_have_to_be_cheaper() {
    let of = |cpu: &str| {
        let all = schedules(&Target::parse(cpu).unwrap(), 1);
        let elsewhere = all.values().filter(|tuned| tuned.origin.elsewhere).count();
        (all.len(), elsewhere)
    };
    let (all, elsewhere) = of("x86-64-v4");
    assert_eq!(all, elsewhere);
    assert_eq!(of("cascadelake"), (all, all));
    let (_, of_znver4) = of("znver4");
    assert!(of_znver4 < all, "{of_znver4} of {all}");
}

/// A change of the rules, of default schedules or of how models are cut into subgraphs makes
/// shipped schedules stale: tune again then.
#[test]
fn shipped_schedules_fit_the_networks_that_they_are_for() {
    let folder = tempfile::tempdir().unwrap();
    let models = ["resnet18", "mobilenet_v2"].map(|name| generated(name, folder.path()));
    let mut stale = vec![];
    for (class, cpu) in CLASSES.iter().zip(["x86-64-v3", "x86-64-v4"]) {
        let target = Target::parse(cpu).unwrap();
        assert!(class.has(&target));
        for threads in [1, 2] {
            let mut counts = |model: &PathBuf| count(model, class, &target, threads, &mut stale);
            let counts = models.each_ref().map(&mut counts);
            assert!(counts.iter().sum::<usize>() > 0, "{cpu}, {threads} threads");
        }
    }
    assert!(stale.is_empty(), "{stale:#?}");
}

fn generated(name: &str, folder: &Path) -> PathBuf {
    let model = folder.join(name).with_extension("onnx");
    let file = std::fs::File::create(&model).unwrap();
    ansc_models::find(name).unwrap().build().write(&mut BufWriter::new(file)).unwrap();
    model
}

/// How many tasks of a network something is shipped for; adds those to which nothing fits any more.
fn count(
    model: &Path,
    class: &Class,
    target: &Target,
    threads: usize,
    stale: &mut Vec<(String, usize, String)>,
) -> usize {
    let schedules = Schedules { threads, ..Schedules::untuned(target) };
    let options = Options { schedules, ..Options::new(ImportOptions::default(), target.clone()) };
    let tasks = pipeline::tasks(model, &options).unwrap();
    let records = read(class.lines);
    let fits = |t: &Weighted| Some((t.task.key(), fits(&records, &t.task, target, threads)?));
    let fits: Vec<(String, bool)> = tasks.iter().filter_map(fits).collect();
    let old = fits.iter().filter(|(_, fits)| !fits);
    stale.extend(old.map(|(task, _)| (target.cpu.clone(), threads, task.clone())));
    fits.len()
}

/// Whether what is shipped for a task replays, and was compared with the schedule that it replaces
/// today.
fn fits(records: &InMemory, task: &Arc<Task>, target: &Target, threads: usize) -> Option<bool> {
    let key = records.keys().unwrap().into_iter();
    let key = key.filter(|k| k.threads == threads).find(|k| k.task == task.key())?;
    let random = &mut StdRng::seed_from_u64(0);
    let replays = task.sample(&tuned(records, key.clone(), target)?.1.trace, Unfit::Refuse, random);
    let untuned = Candidate::exactly(task, &task.untuned()).map(|c| c.program);
    Some(replays.is_ok() && untuned_program(&records.of(&key).unwrap()) == untuned)
}

#[test]
fn direct_sums_take_nothing_of_winograd() {
    let folder = tempfile::tempdir().unwrap();
    let model = generated("resnet18", folder.path());
    let target = Target::parse("x86-64-v3").unwrap();
    let options = Options::new(ImportOptions::default(), target.clone());
    let tasks = pipeline::tasks(&model, &options).unwrap();
    let tuned = |t: &Weighted| {
        let trace = t.task.untuned();
        let origin = Origin { machine: String::new(), threads: 1, shipped: true, elsewhere: false };
        (t.task.key(), Tuned { trace, seconds: 1.0, untuned_seconds: None, against: None, origin })
    };
    let taken = |sums: Sums| {
        let mut schedules = Schedules { sums, ..Schedules::untuned(&target) };
        schedules.add(tasks.iter().map(tuned));
        let direct = |tuned: &&Tuned| Sums::Direct.allow(tuned.trace.algorithm());
        (schedules.tuned.len(), schedules.tuned.values().filter(direct).count())
    };
    let (all, direct) = taken(Sums::Any);
    assert!(0 < direct && direct < all, "{direct} of {all}");
    assert_eq!(taken(Sums::Direct), (direct, direct));
}
