//! The summary of the outcomes: the table, the failures and the verdict.

use std::collections::BTreeMap;

use crate::case::Outcome;

pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// Fewer cases than this are a broken corpus.
    pub(crate) minimum: usize,
    /// The share of cases that must pass, whatever the exceptions.
    pub(crate) must_pass: f64,
}

#[derive(Default)]
struct Counts {
    cases: usize,
    passed: usize,
    bound: usize,
    excepted: usize,
    failed: usize,
    died: usize,
}

type Exceptions = BTreeMap<String, String>;

/// Prints everything; true if all is as it must be. Counts are judged only if the run is
/// `complete`.
pub(crate) fn judge(
    suites: &[Suite],
    results: &[(&str, Outcome)],
    exceptions: &Exceptions,
    complete: bool,
) -> bool {
    let mut errors: Vec<String> =
        results.iter().filter_map(|(case, o)| complaint(case, o, exceptions.get(*case))).collect();
    println!("suite              cases  passed (inputs bound)  excepted  failed  died");
    for suite in suites {
        let counts = count(suite, results, exceptions);
        println!(
            "{:17} {:6} {:7} {:>14}  {:8} {:7} {:5}",
            suite.name,
            counts.cases,
            counts.passed,
            format!("({})", counts.bound),
            counts.excepted,
            counts.failed,
            counts.died
        );
        if complete {
            errors.extend(shortfall(suite, &counts));
        }
    }
    if complete {
        let known = |case: &str| results.iter().any(|(c, _)| *c == case);
        let unknown = exceptions.keys().filter(|case| !known(case));
        errors.extend(
            unknown.map(|case| format!("{case}: is on the list, but there is no such case")),
        );
    } else if results.is_empty() {
        errors.push("no case has such a name".into());
    }
    errors.iter().for_each(|error| println!("{error}"));
    println!("ONNX suite: {}", if errors.is_empty() { "ok" } else { "FAILED" });
    errors.is_empty()
}

fn complaint(case: &str, outcome: &Outcome, exception: Option<&String>) -> Option<String> {
    match (outcome, exception) {
        (Outcome::Fail(_), Some(_)) => None,
        (_, None) if outcome.passes() => None,
        (_, Some(_)) if outcome.passes() => {
            Some(format!("{case}: passes; take it from the list of exceptions"))
        }
        (Outcome::Fail(reason), None) => Some(format!("{case}: {reason}")),
        (Outcome::Panic(text), _) => Some(format!("{case}: PANIC {text}")),
        (Outcome::Crash(status), _) => Some(format!("{case}: CRASH {status}")),
        (_, _) => Some(format!("{case}: TIMEOUT")),
    }
}

fn count(suite: &Suite, results: &[(&str, Outcome)], exceptions: &Exceptions) -> Counts {
    let mut counts = Counts::default();
    let own = |case: &str| case.split_once('/').is_some_and(|(s, _)| s == suite.name);
    for (case, outcome) in results.iter().filter(|(case, _)| own(case)) {
        counts.cases += 1;
        match outcome {
            Outcome::Pass => counts.passed += 1,
            Outcome::PassBound => {
                counts.passed += 1;
                counts.bound += 1;
            }
            Outcome::Fail(_) if exceptions.contains_key(*case) => counts.excepted += 1,
            Outcome::Fail(_) => counts.failed += 1,
            Outcome::Panic(_) | Outcome::Crash(_) | Outcome::Timeout => counts.died += 1,
        }
    }
    counts
}

fn shortfall(suite: &Suite, counts: &Counts) -> Vec<String> {
    let mut errors = Vec::new();
    if counts.cases < suite.minimum {
        let (name, minimum) = (suite.name, suite.minimum);
        errors.push(format!("{name}: {} cases, at least {minimum} are expected", counts.cases));
    }
    if (counts.passed as f64) < suite.must_pass * counts.cases as f64 {
        let share = suite.must_pass * 100.0;
        errors.push(format!("{}: fewer than {share} % of the cases pass", suite.name));
    }
    errors
}
