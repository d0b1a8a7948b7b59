use std::sync::Arc;

use ansc_sketch::Trace;

use super::super::{Quality, simulated};
use super::*;

fn small() -> Config {
    Config { width: 32, epochs: 40, batch: 64, learning_rate: 4e-3, ..Config::default() }
}

fn quality(model: &Tlp, samples: &[Sample]) -> f64 {
    let views: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
    Quality::of(&model.predict(&views), samples).unwrap().pairwise_accuracy
}

/// Every third sample is held out.
fn parted(samples: Vec<Sample>) -> (Vec<Sample>, Vec<Sample>) {
    let (test, train): (Vec<_>, Vec<_>) =
        samples.into_iter().enumerate().partition(|(i, _)| i % 3 == 0);
    let strip = |part: Vec<(usize, Sample)>| part.into_iter().map(|(_, s)| s).collect();
    (strip(train), strip(test))
}

#[test]
fn traces_that_were_not_seen_are_ranked_without_their_programs() {
    let (train, test) = parted(simulated::samples(90, 0));
    let strip = |s: Sample| Sample { features: None, ..s };
    let (train, test): (Vec<_>, Vec<_>) =
        (train.into_iter().map(strip).collect(), test.into_iter().map(strip).collect());
    for loss in [Loss::Rank, Loss::RankTasks, Loss::Mse] {
        let mut model = Tlp::new(Config { loss, ..small() });
        assert_eq!(model.needs(), Needs::Trace);
        model.train(&train);
        let found = quality(&model, &test);
        println!("{loss:?}: {found}");
        // Half is chance.
        assert!(found > 0.62, "{loss:?}: {found}");
    }
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let samples = simulated::samples(12, 0);
    let views: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
    let scores = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut model = Tlp::new(Config { epochs: 3, ..small() });
            model.train(&samples);
            model.predict(&views)
        })
    });
    assert_eq!(scores[0], scores[1]);
}

#[test]
fn a_score_does_not_depend_on_what_else_is_asked() {
    let samples = simulated::samples(40, 0);
    let views: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
    let mut model = Tlp::new(Config { epochs: 2, ..small() });
    model.train(&samples);
    let all = model.predict(&views);
    assert!(views.len() > ASKED_AT_ONCE);
    for (view, score) in views.iter().zip(&all).step_by(17) {
        assert_eq!(model.predict(std::slice::from_ref(view)), [*score]);
    }
}

#[test]
fn what_cannot_be_learned_from_gives_scores_of_zero() {
    let samples = simulated::samples(3, 0);
    let failed: Vec<Sample> =
        samples.iter().map(|s| Sample { seconds: None, ..s.clone() }).collect();
    for train in [vec![], failed] {
        let mut model = Tlp::new(small());
        model.train(&train);
        assert_eq!(model.predict(&[samples[0].view()]), [0.0]);
    }
    // Sizes that make no network are no reason to panic.
    let mut model = Tlp::new(Config { width: 33, ..small() });
    model.train(&samples);
    assert_eq!(model.predict(&[samples[0].view()]), [0.0]);
}

#[test]
fn what_it_cannot_read_gets_the_neutral_score() {
    let samples = simulated::samples(20, 0);
    let mut model = Tlp::new(Config { epochs: 5, ..small() });
    model.train(&samples);
    let mut parts = model.parts().unwrap();
    // As if the instruction had come after the training: the last place of a row is another one's.
    let kinds = parts.about["vocabulary"]["kinds"].as_array_mut().unwrap();
    let split = kinds.iter_mut().find(|k| **k == "split").unwrap();
    *split = "older".into();
    let older = Tlp::from_parts(Kind::TLP, &parts).unwrap();
    let neutral = model.trained.as_ref().unwrap().neutral;
    let mut distinct = samples.clone();
    distinct.sort_by_key(|s| (s.task, identity(s)));
    distinct.dedup_by_key(|s| (s.task, identity(s)));
    let scores = model.predict(&distinct.iter().map(Sample::view).collect::<Vec<_>>());
    let mean = scores.iter().sum::<f32>() / scores.len() as f32;
    assert!((neutral - mean).abs() < 1e-3, "{neutral} {mean}");
    let splits = |s: &Sample| s.trace.sentences().iter().any(|s| s.name == "split");
    let with = samples.iter().find(|s| splits(s)).unwrap();
    let without = Sample { trace: Arc::new(Trace::default()), ..with.clone() };
    assert_eq!(older.predict(&[with.view()]), [neutral]);
    let views = [without.view(), with.view()];
    assert_eq!(older.predict(&views)[0], model.predict(&views)[0]);
}

/// A platform on which everything takes as long as it does, but for the tasks `late`.
fn platform(samples: &[Sample], platform: usize, scale: f64) -> Vec<Sample> {
    let there = |s: &Sample| Sample {
        platform,
        seconds: s.seconds.map(|seconds| seconds * scale),
        ..s.clone()
    };
    samples.iter().map(there).collect()
}

/// Over several seeds, as one training on so few samples says little.
#[test]
fn other_platforms_help_a_target_with_few_samples() {
    let (train, test) = parted(simulated::samples(300, 0));
    let few: Vec<Sample> = train.iter().step_by(25).cloned().collect();
    let both = [few.clone(), platform(&train, 1, 7.0)].concat();
    let of_seed = |seed: u64| {
        let config = || Config { seed, ..small() };
        let mut alone = Tlp::new(config());
        alone.train(&few);
        let mut shared = Tlp::of_platforms(config());
        shared.train(&both);
        // Training on the other platform, and refining with the target's samples.
        let mut refined = Tlp::new(config());
        refined.train(&train);
        refined.refine(&few);
        [alone, shared, refined].map(|m| quality(&m, &test))
    };
    const SEEDS: u64 = 2;
    let all: Vec<[f64; 3]> = (0..SEEDS).map(of_seed).collect();
    let [alone, shared, refined] =
        [0, 1, 2].map(|way| all.iter().map(|of_seed| of_seed[way]).sum::<f64>() / SEEDS as f64);
    println!("target only {alone:.3}, shared {shared:.3}, refined {refined:.3} of {all:.3?}");
    assert!(shared > alone + 0.05, "{shared} {alone}");
    assert!(refined > alone + 0.05, "{refined} {alone}");
}

#[test]
fn a_candidate_is_one_row_for_all_platforms() {
    let samples = simulated::samples(8, 0);
    let views: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
    let vocabulary = Vocabulary::of(&views, &Reading::default());
    let both = [samples.clone(), platform(&samples[..10], 1, 2.0)].concat();
    let all: Vec<&Sample> = both.iter().collect();
    let labels = throughputs(&both);
    let rows = rows(&vocabulary, &all, labels.iter().copied(), 2);
    let mut keys: Vec<(usize, u128)> = samples.iter().map(|s| (s.task, identity(s))).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(rows.len(), keys.len());
    assert!(rows.iter().all(|row| row.labels[0].is_some()));
    let there = rows.iter().filter(|row| row.labels[1].is_some()).count();
    assert!((1..=10).contains(&there), "{there}");
}
