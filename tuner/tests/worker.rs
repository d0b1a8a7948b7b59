//! The measurer against workers that misbehave: shell scripts that speak its protocol.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ansc_graph::Compute;
use ansc_sketch::Machine;
use ansc_sketch::Task;
use ansc_tuner::measure::{
    Batch, Each, LocalMeasurer, LocalOptions, MeasureError, Measurer, WorkerCommand,
};
use ansc_tuner::outcome::{Failure, Outcome};
use ansc_tuner::strategy::{Random, SearchStrategy};
use ansc_tuner::{Candidate, Search};

/// Answers by the number in the artifact's name: 1 never ends, 2 dies, 3 talks nonsense, 4 computes
/// something else but is fast, 5 does not build, 6 kills its builder; the others take a
/// millisecond.
const SCRIPT: &str = r#"
while read -r line; do
  case "$line" in
    *'"do":"build"'*/5.ansc*) echo '{"reply":"refused","message":"no"}';;
    *'"do":"build"'*/6.ansc*) exit 1;;
    *'"do":"build"'*) echo '{"reply":"built","parse":0,"codegen":0,"link":0}';;
    *'"do":"time"'*/1.ansc*) exec sleep 60;;
    *'"do":"time"'*/2.ansc*) kill -SEGV $$;;
    *'"do":"time"'*/3.ansc*) echo 'nonsense';;
    *'"do":"time"'*/4.ansc*) echo '{"reply":"timed","seconds":[0.0001],"load":0}';;
    *'"do":"time"'*) echo '{"reply":"timed","seconds":[0.001],"load":0}';;
    *'"do":"check"'*/4.ansc*) echo '{"reply":"compared","difference":0.5}';;
    *'"do":"check"'*) echo '{"reply":"compared","difference":0.0}';;
    *) echo '{"reply":"computed"}';;
  esac
done"#;

fn measurer(script: &str) -> LocalMeasurer {
    let args = vec!["-c".into(), script.into()];
    let worker = WorkerCommand { program: "sh".into(), args };
    let options = LocalOptions {
        run_limit: Duration::from_secs(1),
        build_limit: Duration::from_secs(5),
        ..LocalOptions::new(worker, 2)
    };
    LocalMeasurer::new(options).unwrap()
}

fn candidates(n: usize) -> (Arc<Task>, Vec<Candidate>) {
    let text = "compute(in0: f32[64, 64], in1: f32[64, 64]) -> y {
        y: f32[64, 64] = sum{r0: 64} mul(in0[i0, r0], in1[r0, i1])
    }";
    let task = Arc::new(Task {
        cores: 2,
        ..Task::on_cpu("k", &Compute::parse(text).unwrap(), &[false; 2], &Machine::new(32, 16))
    });
    let found = Random::new(0).propose(&Search::new(task.clone()), n);
    assert_eq!(found.len(), n);
    (task, found)
}

#[test]
fn each_fault_is_the_candidates_own() {
    let (task, candidates) = candidates(8);
    let start = Instant::now();
    let outcomes = measurer(SCRIPT).measure(&task, &candidates).unwrap();
    let fine = |o: &Outcome| o.seconds() == Some(0.001);
    assert!(fine(&outcomes[0]) && fine(&outcomes[7]), "{outcomes:?}");
    let failures: Vec<_> = outcomes[1..7].iter().map(|o| o.failure().unwrap()).collect();
    use Failure::*;
    assert_eq!(failures, [Timeout, Crash, Crash, WrongResult, Build, Build]);
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_worker_that_never_works_is_an_error_in_the_end() {
    let (task, candidates) = candidates(80);
    let mut measurer = measurer("exit 1");
    let mut measure = || measurer.measure(&task, &candidates);
    let first = measure().unwrap();
    assert!(first.iter().all(|o| o.failure() == Some(Failure::Build)));
    let error = measure().unwrap_err();
    assert!(matches!(error, MeasureError::AllFail { count: 150, .. }), "{error}");
}

/// Who speaks the protocol soundly.
const SOUND: &str = r#"
    *'"do":"build"'*) echo '{"reply":"built","parse":0,"codegen":0,"link":0}';;
    *'"do":"time"'*) echo '{"reply":"timed","seconds":[0.001],"load":0}';;
    *'"do":"check"'*) echo '{"reply":"compared","difference":0.0}';;
    *) echo '{"reply":"computed"}';;"#;

fn script(first: &str) -> String {
    format!("while read -r line; do case \"$line\" in\n{first}\n{SOUND}\nesac; done")
}

#[test]
fn what_the_machine_lacks_is_no_outcome() {
    let (task, candidates) = candidates(8);
    for request in ["build", "time", "check", "reference"] {
        let reply = r#"{"reply":"unfit","message":"x.ansc: no space left on device"}"#;
        let first = format!("*'\"do\":\"{request}\"'*) echo '{reply}';;");
        let error = measurer(&script(&first)).measure(&task, &candidates).unwrap_err();
        assert!(matches!(error, MeasureError::Unfit(_)), "{request}: {error}");
        assert!(error.is_of_the_machine() && error.to_string().contains("no space left"));
    }
    // A worker may also say so before it was asked for anything.
    let says = r#"echo '{"reply":"unfit","message":"no memory"}'; exit 3"#;
    let error = measurer(says).measure(&task, &candidates).unwrap_err();
    assert!(matches!(error, MeasureError::Unfit(ref what) if what == "no memory"), "{error}");
}

#[test]
fn who_is_killed_from_outside_gets_another_chance() {
    let (task, candidates) = candidates(8);
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("killed").to_str().unwrap().to_owned();
    let once = format!(
        "*'\"do\":\"time\"'*/3.ansc*) if mkdir {marker}; then kill -KILL $$; fi
         echo '{{\"reply\":\"timed\",\"seconds\":[0.001],\"load\":0}}';;"
    );
    let outcomes = measurer(&script(&once)).measure(&task, &candidates).unwrap();
    assert!(outcomes.iter().all(|o| o.seconds() == Some(0.001)), "{outcomes:?}");
    assert!(dir.path().join("killed").exists());
    let always = "*'\"do\":\"build\"'*) kill -KILL $$;;";
    let error = measurer(&script(always)).measure(&task, &candidates).unwrap_err();
    assert!(matches!(error, MeasureError::Killed { signal: 9, times: 3 }), "{error}");
}

#[test]
fn a_worker_that_is_not_there_is_an_error_at_once() {
    let (task, candidates) = candidates(1);
    let worker = WorkerCommand { program: "/no/such/program".into(), args: vec![] };
    let mut measurer = LocalMeasurer::new(LocalOptions::new(worker, 1)).unwrap();
    let error = measurer.measure(&task, &candidates).unwrap_err();
    assert!(matches!(error, MeasureError::Worker(_)), "{error}");
}

/// Candidates of which some cannot be made; all that is asked for is noted.
struct Partial {
    candidates: Vec<Candidate>,
    missing: Vec<usize>,
    made: Mutex<Vec<usize>>,
}

impl Partial {
    fn new(candidates: &[Candidate], missing: &[usize]) -> Partial {
        let (candidates, missing) = (candidates.to_vec(), missing.to_vec());
        Partial { candidates, missing, made: Mutex::default() }
    }
}

impl Batch for Partial {
    fn len(&self) -> usize {
        self.candidates.len()
    }

    fn program(&self, place: usize) -> u64 {
        self.candidates[place].program
    }

    fn candidate(&self, place: usize) -> Option<&Candidate> {
        self.made.lock().unwrap().push(place);
        (!self.missing.contains(&place)).then(|| &self.candidates[place])
    }
}

#[derive(Clone, PartialEq, Debug)]
enum News {
    Begins(usize),
    Missing(usize),
    Ends(usize, Option<f64>),
}

/// All news, in their order; the round ends before the place in `last`.
#[derive(Default)]
struct Noted {
    news: Vec<News>,
    last: Option<usize>,
}

impl Each for Noted {
    fn begins(&mut self, place: usize) -> bool {
        let goes_on = self.last != Some(place);
        self.news.extend(goes_on.then_some(News::Begins(place)));
        goes_on
    }

    fn is_missing(&mut self, place: usize) {
        self.news.push(News::Missing(place));
    }

    fn ends(&mut self, place: usize, outcome: Outcome) {
        self.news.push(News::Ends(place, outcome.seconds()));
    }
}

/// A candidate that cannot be made is told, is no failure, and is neither built nor timed, also
/// where its artifact is known.
#[test]
fn a_candidate_that_cannot_be_made_is_missing() {
    let (task, candidates) = candidates(4);
    let mut measurer = measurer(&script("nothing) ;;"));
    let mut measure = |missing: &[usize]| {
        let mut noted = Noted::default();
        measurer.measure_each(&task, &Partial::new(&candidates, missing), &mut noted).unwrap();
        noted.news
    };
    use News::{Begins, Ends, Missing};
    let expected = |missing: &[usize]| -> Vec<News> {
        let end = |place| match missing.contains(&place) {
            true => Missing(place),
            false => Ends(place, Some(0.001)),
        };
        (0..4).flat_map(|place| [Begins(place), end(place)]).collect()
    };
    assert_eq!(measure(&[1, 3]), expected(&[1, 3]));
    // The first one's artifact is kept: it is the baseline.
    assert_eq!(measure(&[0]), expected(&[0]));
    // So many failures in a row would be an error.
    (0..100).for_each(|_| assert_eq!(measure(&[0, 1, 2, 3]), expected(&[0, 1, 2, 3])));
    assert_eq!(measure(&[]), expected(&[]));
}

/// While the measurer waits for a candidate, it makes those after it: the builder alone would not
/// have come so far.
#[test]
fn who_waits_makes_candidates() {
    let (task, candidates) = candidates(8);
    let reply = r#"{"reply":"built","parse":0,"codegen":0,"link":0}"#;
    let slow = script(&format!("*'\"do\":\"build\"'*) sleep 0.3; echo '{reply}';;"));
    let worker = WorkerCommand { program: "sh".into(), args: vec!["-c".into(), slow] };
    let options = LocalOptions { builders: 1, overlap: true, ..LocalOptions::new(worker, 1) };
    let batch = Partial::new(&candidates, &[]);
    let mut noted = Noted { last: Some(1), ..Noted::default() };
    LocalMeasurer::new(options).unwrap().measure_each(&task, &batch, &mut noted).unwrap();
    assert_eq!(noted.news, [News::Begins(0), News::Ends(0, Some(0.001))]);
    let made = batch.made.into_inner().unwrap();
    assert!((0..8).all(|place| made.contains(&place)), "{made:?}");
}
