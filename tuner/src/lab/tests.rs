use std::sync::atomic::AtomicUsize;

use super::*;
use crate::measure::Simulated;
use crate::records::InMemory;
use crate::testing::{product, task};

fn options(strategies: &[&str], trials: usize, seeds: u64) -> Options {
    Options {
        plan: Plan {
            strategies: strategies.iter().map(|s| s.parse().unwrap()).collect(),
            seeds,
            trials,
            per_round: 16,
            cost_model: model::Kind::HIST,
            trained: None,
            space: "SSRSRS".parse().unwrap(),
            settle: 0,
        },
        target: "simulated".into(),
        version: "0.1.0".into(),
        threads: 2,
    }
}

fn compare(
    measurer: &mut dyn Measurer,
    records: &mut InMemory,
    options: &Options,
) -> Result<Comparison, LabError> {
    let interrupted = &AtomicBool::new(false);
    let lab = Lab { measurer, records, watch: &Silent, interrupted, journal: Journal::default() };
    lab.compare(&task(product(64, 64, 64)), options)
}

/// Strategy, seed, trials, result, and the curve by trials: what does not depend on time.
type Flat = (String, u64, usize, Option<f64>, Vec<(usize, f64)>);

fn results(comparison: &Comparison) -> Vec<Flat> {
    let runs =
        comparison.strategies.iter().flat_map(|s| s.runs.iter().map(|r| (s.name.clone(), r)));
    runs.map(|(name, r)| {
        let curve = r.curve.iter().map(|(trial, _, best)| (*trial, *best)).collect();
        (name, r.seed, r.trials, r.result, curve)
    })
    .collect()
}

#[test]
fn every_strategy_gets_the_same() {
    let names = ["opevo", "random", "g-bfs"];
    let (mut records, options) = (InMemory::default(), options(&names, 40, 2));
    let mut measurer = Simulated::default();
    let found = compare(&mut measurer, &mut records, &options).unwrap();
    assert_eq!(results(&found).iter().map(|r| r.2).collect::<Vec<_>>(), [40; 6]);
    assert_eq!(measurer.measured, 6 * 40 + 1);
    let ranks: f64 = found.strategies.iter().filter_map(|s| s.mean_rank).sum();
    assert!((ranks - 6.0).abs() < 1e-9, "{ranks}");
    let page = html::page(&found);
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn what_is_recorded_is_not_measured_again() {
    let options = options(&["opevo", "annealing"], 48, 2);
    let whole = compare(&mut Simulated::default(), &mut InMemory::default(), &options).unwrap();
    let mut records = InMemory::default();
    // Ends in the middle of the first seed.
    let interrupted = AtomicBool::new(false);
    struct Stop<'a>(&'a AtomicBool, AtomicUsize);
    impl Watch for Stop<'_> {
        fn progress(&self, _runs: &[Run]) {
            if self.1.fetch_add(1, Ordering::Relaxed) == 2 {
                self.0.store(true, Ordering::Relaxed);
            }
        }
    }
    let watch = Stop(&interrupted, AtomicUsize::new(0));
    let mut first = Simulated::default();
    let lab = Lab {
        measurer: &mut first,
        records: &mut records,
        watch: &watch,
        interrupted: &interrupted,
        journal: Journal::default(),
    };
    let part = lab.compare(&task(product(64, 64, 64)), &options).unwrap();
    assert!(part.interrupted && !whole.interrupted);
    assert_eq!(first.measured, 3 * 16 + 1);
    let mut second = Simulated::default();
    let rest = compare(&mut second, &mut records, &options).unwrap();
    assert_eq!(results(&rest), results(&whole));
    assert_eq!(second.measured, 4 * 48 - 3 * 16 + 1);
    let mut third = Simulated::default();
    let again = compare(&mut third, &mut records, &options).unwrap();
    assert_eq!((results(&again), third.measured), (results(&whole), 1));
}

#[test]
fn leaders_are_measured_again_on_a_noisy_machine() {
    let mut options = options(&["random"], 32, 1);
    options.plan.settle = 3;
    let mut noisy = Simulated { noise: 0.2, ..Simulated::default() };
    let mut records = InMemory::default();
    let found = compare(&mut noisy, &mut records, &options).unwrap();
    assert_eq!(noisy.measured, 32 + 3 * SETTLING_ROUNDS + 1);
    let mut silent = Simulated::default();
    let again = compare(&mut silent, &mut records, &options).unwrap();
    assert_eq!((results(&again), silent.measured), (results(&found), 1));
}

/// A run with a space of its own finds what a comparison in that space finds.
#[test]
fn contenders_may_have_spaces_and_models_of_their_own() {
    let found = |options: &Options| {
        let mut records = InMemory::default();
        results(&compare(&mut Simulated::default(), &mut records, options).unwrap())
    };
    let names = ["evolutionary", "evolutionary/random", "evolutionary@SSRS"];
    let together = found(&options(&names, 48, 1));
    assert_eq!(together.iter().map(|r| r.0.as_str()).collect::<Vec<_>>(), names);
    let with = |space: &str, model: &str| {
        let mut alone = options(&["evolutionary"], 48, 1);
        alone.plan.space = space.parse().unwrap();
        alone.plan.cost_model = model.parse().unwrap();
        found(&alone)
    };
    let alone = [with("SSRSRS", "hist"), with("SSRSRS", "random"), with("SSRS", "hist")].concat();
    for (one, other) in together.iter().zip(&alone) {
        assert_eq!((one.3, &one.4), (other.3, &other.4), "{}", one.0);
    }
    assert!(alone[0].4 != alone[1].4 && alone[0].4 != alone[2].4);
}
